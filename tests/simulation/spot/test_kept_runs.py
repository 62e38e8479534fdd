"""Back-tests of spot policies, their bills, references and rows come out as they were kept."""

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from optim.core.policies import clairvoyant_names
from optim.simulation.spot.backtest import make_world, run_backtest, summarise_all
from optim.simulation.spot.engine import SpotRun, run_policy
from optim.simulation.spot.oracle import Oracle, best_shadow_price
from optim.simulation.spot.oracle_check import check_reference
from optim.simulation.spot.policies import make_policy
from optim.simulation.spot.policy import SpotOptions
from optim.workloads.prices.price_generator import PriceOptions, generate_prices
from tests.support.kept import assert_kept, digest, parts, short
from tests.support.policies import SPOT_POLICIES
from tests.support.spot.worlds import drawn_world, world

KEPT = Path(__file__).parent / "kept"
HOUR = 3600
SMALL = {"job_hours": 3, "baseline": 6, "max_spot": 14}
OPTIONS = {
    "usual": {},
    "state": {"state_gb": 60.0, "checkpoint_usd_per_gb": 0.002, "restart_min": 2.0},
    "equal": {"linger": True, "reliable": 0, "serial": 0.1},
    "slow": {"startup_min": 11.0, "scale_min": 4.0, "eviction_min": 7.0, "tick_s": 600, "checkpoint_min": 9.0},
    "short": {"horizon": 1.0, "checkpoint_min": 1.0, "tick_s": 60},
}

NAMES = (
    "on-demand",
    "standard",
    "standard-checkpoint",
    "standard-agile",
    "bidbrain-checkpoint",
    "proteus",
    "oracle",
    "oracle-paid",
)


def by_hand(**options):
    """Prices that cross many bids, now for minutes and now for hours, in two zones."""
    times = np.cumsum([0, 1500, 900, 4200, 300, 2700, 5400, 600, 3000, 7800, 120, 3600, 9000, 1800, 2400])
    high = [30, 250, 40, 45, 400, 35, 30, 215, 60, 20, 900, 25, 30, 210, 30]
    low = [80, 70, 60, 260, 55, 50, 300, 45, 40, 35, 34, 215, 33, 60, 70]
    zones = ([(int(t), 1000 * p) for t, p in zip(times, prices, strict=True)] for prices in (high, low))
    return world(*zones, **options)


@cache
def worlds(label):
    """Return drawn prices and those by hand, under options."""
    return drawn_world(3, **SMALL, **OPTIONS[label]), by_hand(**SMALL, **OPTIONS[label])


def told(run):
    """Return a run with its bill line by line."""
    lines = [
        (line.count, line.begin_s - run.start_s, line.end_s - run.start_s, line.price_micro, line.amount_micro)
        for line in run.ledger
    ]
    markets = " ".join(f"{line.market}:{line.reason}" for line in run.ledger)
    figures = {name: value for name, value in parts(run).items() if name not in ("ledger", "start_s", "end_s")}
    return {**figures, "took_s": run.end_s - run.start_s, "bill": [len(lines), digest(lines)], "markets": markets}


@pytest.mark.parametrize("name", sorted(SPOT_POLICIES))
def test_a_policy_does_on_these_prices_what_it_did(name):
    found = {}
    for label in OPTIONS:
        drawn, hand = worlds(label)
        begin = drawn.history.begin_s
        for number, start in enumerate((begin + HOUR, begin + 61 * HOUR + 77, begin + 5 * 24 * HOUR)):
            found[f"{label} {number}"] = told(run_policy(drawn, make_policy(name, drawn), start))
        found[f"{label} by hand"] = told(run_policy(hand, make_policy(name, hand), 200))
    assert_kept(KEPT / f"policy-{name}.json", found)


@pytest.mark.parametrize("name", sorted(SPOT_POLICIES))
def test_a_watched_run_shows_what_it_showed(name):
    """Whoever watches sees every change, and the same run."""
    seen = []
    _, hand = worlds("slow")
    watched = SpotRun(hand, make_policy(name, hand), 200, seen.append).execute()
    assert watched == run_policy(hand, make_policy(name, hand), 200)
    moments = [
        (one.time_s, one.resumes_s, len(one.holdings), sum(each.lease.count for each in one.holdings if each.is_working),
         sum(each.is_warned for each in one.holdings), *(each.lease.number for each in one.holdings))
        for one in seen
    ]  # fmt: skip
    done = {each: [getattr(one, each) for one in seen] for each in ("work_done", "work_saved", "rate")}
    numbers = digest([number for moment in moments for number in moment])
    assert_kept(KEPT / f"watched-{name}.json", {"moments": [len(moments), numbers], **done})


def test_references_and_what_their_checker_says_come_out_as_before():
    found = {}
    for label, seed in product(("usual", "equal", "state"), (3, 8)):
        drawn = drawn_world(seed, **SMALL, **OPTIONS[label])
        oracle = Oracle(drawn)
        for name, hours in product(clairvoyant_names("spot"), (2, 50)):
            result = oracle.solve(name, drawn.history.begin_s + hours * HOUR)
            plan = [(each.market, each.count, each.begin_s, each.end_s, each.is_free) for each in result.plan]
            told = {field: getattr(result, field) for field in ("cost_usd", "bound_usd", "hours", "shadow_price")}
            found[f"{name} {label} {seed} {hours}"] = {**told, "plan": [len(plan), digest(plan)]}
            assert check_reference(drawn, result) == ()
    unit, free = np.array([3.0, 1.0, 1.0, 2.0, 9.0]), np.array([0.0, 0.0, 0.0, 4.0, 1.0])
    for most, serial, work in product((2.0, 30.0), (0.0, 0.2), (1.0, 7.0)):
        options = {"most": most, "serial": serial, "work": work}
        found[f"price {options}"] = best_shadow_price(unit, free, slot_h=0.5, **options)
    assert_kept(KEPT / "references.json", found)


def test_rows_of_a_back_test_come_out_as_before():
    prices = generate_prices(PriceOptions(num_types=2, num_zones=2, days=8, spikes_per_day=6), 4)
    options = SpotOptions(
        job_hours=2, baseline=4, max_spot=9, tick_s=300, baseline_type=prices.markets[0].instance_type
    )
    later = make_world(prices, prices.begin_s + 3 * 24 * HOUR, options, volatile=3)
    rows = [row for entry in run_backtest(later, NAMES, starts=3, seed=6) for row in entry.rows]
    found = {
        "markets": [market.name for market in later.history.markets],
        "begin": later.history.begin_s - prices.begin_s,
    }
    found |= {f"row {number}": short(row) for number, row in enumerate(rows)}
    found |= {f"summary {name}": short(summary) for name, summary in summarise_all(rows).items()}
    assert_kept(KEPT / "back-test.json", found)
