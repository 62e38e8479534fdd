"""What the checker of least costs says of claims about drawn zones, right ones and changed ones, compared with what is kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from optim.models.bidding.check.zones import check_optimum
from optim.models.bidding.market.billing import Billing, place_costs
from optim.models.bidding.market.zones import Allocation, Optimum
from optim.solvers.bidding.zones import least_cost
from tests.support.kept import assert_kept, outcome
from tests.support.spot.zones import drawn

KEPT = Path(__file__).parent / "kept"


def loose_claim(market, job, rng):
    """Draw a plan and a potential that falls by about what ticks cost."""
    tick_s, zones, classes = market.tick_s, market.num_zones, int(job.state_class.max()) + 1
    deadline, slack = job.deadline_s // tick_s, job.slack_s // job.unit_s(tick_s)
    level = rng.integers(1, 5) * 600 * 300_000
    left = np.arange(deadline, -1, -1)[:, None, None] - np.arange(slack, -1, -1)[None, :, None]
    shape = (deadline + 1, slack + 1)
    idle = level * np.maximum(left, 0) + rng.integers(0, 3, (*shape, classes)) * 10_000
    begin, length = int(rng.integers(0, 3)), int(rng.integers(1, deadline + 1))
    first = Allocation(
        int(rng.integers(zones)), bool(rng.integers(2)), begin * tick_s, min(begin + length, deadline) * tick_s
    )
    second = Allocation(0, False, first.end_s, (deadline + int(rng.integers(4) == 0)) * tick_s)
    working = level * np.maximum(left, 0) + rng.integers(-9, 9, (*shape, 2 * zones)) * 10_000
    return Optimum(
        first=0,
        units=int(level) * 3,
        plan_units=int(level) * 3,
        plan=(first, second),
        idle=idle.astype(np.int64),
        working=working.astype(np.int64),
    )


def test_claims_about_drawn_zones():
    found = {}
    for seed in range(12):
        market, job = drawn(seed)
        rng = np.random.default_rng(seed)
        claim, least = loose_claim(market, job, rng), least_cost(market, job, 0)
        lifted = least.idle + (rng.random(least.idle.shape) < 0.1)
        lowered = least.working + (rng.random(least.working.shape) < 0.1) * int(rng.integers(-1, 2))
        near = [least, replace(least, idle=lifted), replace(least, working=lowered), replace(least, plan=claim.plan)]
        other = replace(claim, working=claim.working[:-1])
        said = [check_optimum(market, job, one) for one in (claim, *near, other)]
        found[f"{seed}"] = [
            *(*said, place_costs(market, job, 0, Billing.PER_SECOND), job, claim.usd),
            outcome(place_costs, market, job, 5, Billing.PER_SECOND),
        ]
    assert_kept(KEPT / "claims.json", {"all": list(found.values())})
