"""From prices to decisions: in another currency the bids are the same, and the cost per work scales with the exchange rate."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.data import EvictionTerm
from optim.models.bidding.market.evictions import EvictionOptions, fit_evictions
from optim.models.bidding.market.prices import Market, PricePath, history_of
from optim.workloads.bidding.instances import BiddingOptions, instance_at, instance_of_windows

HOUR = 3600
DELTAS = (0, 1000, 5000)
OPTIONS = BiddingOptions(deltas_micro=DELTAS, max_count=3, total=7, eviction_min=6.0, scale_min=3.0)

paths = st.lists(
    st.lists(st.tuples(st.integers(60, 4000), st.integers(1, 40)), min_size=12, max_size=30), min_size=1, max_size=2
)


def history(paths, factor):
    """Return a history of steps of (seconds, thousands of micro-dollars), all prices multiplied."""
    markets = [
        Market(instance_type="c3.xlarge", zone=f"z{m}", on_demand_micro=21_000 * factor, rate=1.0 + m)
        for m in range(len(paths))
    ]
    steps = [
        PricePath(
            time_s=np.concatenate([[0], np.cumsum([gap for gap, _ in path])[:-1]]),
            price_micro=np.array([1000 * factor * price for _, price in path], dtype=np.int64),
        )
        for path in paths
    ]
    return history_of(markets, steps, end_s=40 * HOUR, gap_s=100 * HOUR)


def scaled(options, factor):
    return replace(
        options,
        deltas_micro=tuple(factor * delta for delta in options.deltas_micro),
        reliable_usd=factor * options.reliable_usd,
    )


def instances(paths, factor, term, now):
    """Return the one-hour decision and the one over windows, in a currency of `factor` times less value."""
    known, options = history(paths, factor), scaled(replace(OPTIONS, term=term.value), factor)
    table = fit_evictions(known, EvictionOptions(deltas_micro=options.deltas_micro, step_s=600))
    hour = instance_at(known, table, now, options, "hour")
    windows = instance_of_windows(known, np.array([now, now + HOUR]), replace(options, slots=2), "windows")
    return hour, windows


@given(
    paths=paths,
    term=st.sampled_from(list(EvictionTerm)),
    now=st.integers(0, 30 * HOUR),
    counts=st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_doubling_prices_and_deltas_doubles_the_cost_per_work_of_every_footprint(paths, term, now, counts):
    for one, two in zip(instances(paths, 1, term, now), instances(paths, 2, term, now), strict=True):
        taken = np.array(counts[: one.num_bids])
        before, after = evaluate(one, taken), evaluate(two, taken)
        assert after.work == before.work
        assert after.cost == pytest.approx(2 * before.cost, rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_doubling_prices_and_deltas_leaves_the_decision(seed):
    rng = np.random.default_rng(seed)
    drawn = [list(zip(rng.integers(60, 4000, 30).tolist(), rng.integers(1, 40, 30).tolist(), strict=True))] * 2
    pairs = zip(
        instances(drawn, 1, EvictionTerm.PER_BID, 5 * HOUR),
        instances(drawn, 2, EvictionTerm.PER_BID, 5 * HOUR),
        strict=True,
    )
    for one, two in pairs:
        first, second = (optim.solve(instance, "dinkelbach") for instance in (one, two))
        assert second.objective == pytest.approx(2 * first.objective, rel=1e-6)
        assert evaluate(one, second.decision.counts).ratio == pytest.approx(first.objective, rel=1e-6)
