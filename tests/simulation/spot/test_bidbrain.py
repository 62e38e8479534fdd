"""BidBrain's numbers against the programme that the exact solvers minimise, and its decisions on clear cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import EvictionTerm
from optim.simulation.spot.bidbrain import BidBrainPolicy, _Footprint
from optim.simulation.spot.policy import LiveLease, Recovery, View
from optim.workloads.bidding.instances import BiddingOptions, instance_at
from tests.support.spot.worlds import drawn_world, world

DELTAS = (0, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 400_000)


def view(job, now, leases=(), room=192):
    prices = tuple(path.price_at(now) for path in job.history.paths)
    return View(now_s=now, price_micro=prices, leases=leases, room=room, work_left=job.job_work)


@given(seed=st.integers(0, 20), market=st.integers(0, 2), delta=st.integers(0, 12), count=st.sampled_from([1, 8, 64]))
def test_the_first_bid_is_valued_as_the_programme_values_it(seed, market, delta, count):
    job = drawn_world(seed)
    now = int(job.history.begin_s) + 86_400
    brain = BidBrainPolicy(job, Recovery.ELASTIC, "proteus")
    ratios = _Footprint(brain, view(job, now)).with_each(
        np.array([float(p) for p in view(job, now).price_micro]), np.array([count])
    )
    options = BiddingOptions(deltas_micro=DELTAS, max_count=192, total=192, term=EvictionTerm.MARKET.value)
    instance = instance_at(job.history, job.table, now, options, "now")
    counts = np.zeros(instance.num_bids, dtype=np.int64)
    counts[market * len(DELTAS) + delta] = count
    assert ratios[market, delta, 0] == pytest.approx(evaluate(instance, counts).ratio, rel=1e-9)


def test_asks_for_the_cheaper_of_two_calm_markets():
    job = world(((0, 60_000),), ((0, 40_000),))
    request = BidBrainPolicy(job, Recovery.ELASTIC, "proteus").decide(view(job, 3600))
    assert request.market == 1
    assert request.bid_micro >= 40_000


def test_renews_what_is_cheap_and_lets_go_what_has_become_dear():
    cheap = ((0, 40_000),)
    risen = ((0, 40_000), (1800, 190_000))
    for path, is_kept in ((cheap, True), (risen, False)):
        job = world(cheap, path)
        leases = [
            LiveLease(number=m, market=m, count=32, bid_micro=210_000, granted_s=0, ready_s=180, price_micro=40_000)
            for m in (0, 1)
        ]
        brain = BidBrainPolicy(job, Recovery.ELASTIC, "proteus")
        assert brain.keeps(view(job, 58 * 60, leases), leases[1]) == is_kept


def test_asks_for_nothing_without_room():
    job = world(((0, 60_000),))
    assert BidBrainPolicy(job, Recovery.ELASTIC, "proteus").decide(view(job, 3600, room=0)) is None
