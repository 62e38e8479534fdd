"""Eviction tables against replays second by second, against published frequencies, and by their properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.evictions import evictions_within
from scipy.optimize import isotonic_regression

from optim.core.errors import InvalidOptionError
from optim.models.bidding.market.evictions import (
    NEVER,
    EvictionOptions,
    EvictionTable,
    _rising,
    crossings,
    crossings_of_bid,
    fit_evictions,
)
from optim.models.bidding.market.prices import Market, PricePath, history_of
from optim.statistics import wilson
from tests.support.bidding.public_prices import prices_of_2015

DELTAS_USD = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.4)
PUBLISHED = {
    "c3.xlarge@us-east-1a": (
        24_948,
        (0.6138, 0.4859, 0.4047, 0.2328, 0.1895, 0.1350, 0.1239, 0.0912),
        (11.7, 13.8, 14.3, 14.2, 13.5, 11.6, 11.5, 12.3),
    ),
    "g2.2xlarge@us-east-1b": (
        24_950,
        (0.4580, 0.3676, 0.3176, 0.1859, 0.1375, 0.0683, 0.0509, 0.0281),
        (15.1, 16.5, 17.7, 20.5, 20.1, 16.7, 16.1, 19.7),
    ),
    "r3.large@us-east-1e": (
        24_950,
        (0.4517, 0.3161, 0.2499, 0.1338, 0.1063, 0.0629, 0.0547, 0.0218),
        (17.9, 20.8, 22.1, 23.2, 23.5, 23.9, 24.5, 23.6),
    ),
}
"""Starts, share evicted within the hour, and minutes to it, of bids on the 2015 prices every ten minutes."""

paths = st.lists(st.tuples(st.integers(1, 2000), st.integers(1, 12)), min_size=1, max_size=30).map(
    lambda steps: PricePath(
        time_s=np.cumsum([gap for gap, _ in steps]), price_micro=np.array([1000 * p for _, p in steps], dtype=np.int64)
    )
)


def history(path, end_s=None, on_demand=8000, gap_s=None):
    market = Market(instance_type="c3.xlarge", zone="z", on_demand_micro=on_demand, rate=1.0)
    return history_of([market], [path], end_s=end_s, gap_s=gap_s)


@given(path=paths, at_equal=st.booleans())
def test_crossings_agree_with_looking_ahead_step_by_step(path, at_equal):
    deltas = np.array([0, 999, 1000, 3000])
    found = crossings(path, deltas, at_equal=at_equal)
    for d, delta in enumerate(deltas.tolist()):
        for step in range(len(path)):
            bid = int(path.price_micro[step]) + delta
            ahead = [
                t
                for t, p in zip(path.time_s[step + 1 :].tolist(), path.price_micro[step + 1 :].tolist(), strict=True)
                if p > bid or (at_equal and p == bid)
            ]
            assert found[d, step] == (ahead[0] if ahead else NEVER)
            assert at_equal or path.first_above(int(path.time_s[step]), bid) == (ahead[0] if ahead else None)


@given(path=paths, bid=st.integers(0, 13))
def test_crossings_of_a_fixed_bid_agree_with_looking_ahead(path, bid):
    found = crossings_of_bid(path, 1000 * bid)
    for step in range(len(path)):
        ahead = [
            t for t, p in zip(path.time_s[step + 1 :], path.price_micro[step + 1 :], strict=True) if p > 1000 * bid
        ]
        assert found[step] == (ahead[0] if ahead else NEVER)


@given(path=paths)
def test_evictions_fall_and_usable_time_rises_with_the_delta(path):
    options = EvictionOptions(deltas_micro=(0, 500, 1000, 4000, 10**9), step_s=60)
    table = fit_evictions(history(path, end_s=int(path.time_s[-1]) + 3000), options)
    beta, omega = table.beta[0, :-1], table.omega[0, :-1, -1]
    assert (np.diff(beta) <= 1e-12).all()
    assert (np.diff(omega) >= -1e-12).all()
    assert beta[-1] == 0
    assert omega[-1] == pytest.approx(1.0)
    assert (table.low <= table.beta + 1e-12).all()
    assert (table.beta <= table.high + 1e-12).all()


def test_without_censoring_the_table_has_the_plain_frequencies():
    rng = np.random.default_rng(3)
    time_s = np.cumsum(rng.integers(30, 900, 4000))
    path = PricePath(time_s=time_s, price_micro=rng.integers(1, 50, 4000) * 1000)
    table = fit_evictions(history(path), EvictionOptions(deltas_micro=(0, 2000, 9000), step_s=300))
    start = np.arange(-(-int(time_s[0]) // 300) * 300, time_s[-1] - 10 * 3600, 300)
    for d, delta in enumerate((0, 2000, 9000)):
        assert table.beta[0, d] == pytest.approx(evictions_within(path, start, delta)[0], abs=2e-3)


def test_a_gap_censors_and_is_no_eviction():
    before, after = np.arange(0, 7200, 600), np.arange(7200 + 4 * 3600, 7200 + 6 * 3600, 600)
    time_s = np.concatenate([before, after])
    price = np.where(time_s < 7200, 1000, 5000) + np.arange(len(time_s)) % 2
    table = fit_evictions(history(PricePath(time_s=time_s, price_micro=price)), EvictionOptions(deltas_micro=(100,)))
    assert table.beta[0, 0] == 0


def test_a_bid_that_was_never_granted_stays_for_no_minute_but_begins():
    """Its survival falls from 1 to 0 within the first minute: the trapezoidal rule counts half a minute of use."""
    path = PricePath(time_s=np.array([0, 3600]), price_micro=np.array([9000, 9001]))
    table = fit_evictions(history(path, end_s=7200, on_demand=8000), EvictionOptions(deltas_micro=(0,)))
    assert table.survival[0, -1].tolist() == [1.0] + [0.0] * 60
    assert table.omega[0, -1, -1] == pytest.approx(0.5 / 60)
    assert np.isnan(table.mean_h[0, -1])


def test_the_mean_time_of_a_bid_that_is_never_passed_ends_with_the_longest_time_observed():
    path = PricePath(time_s=np.array([0, 3600]), price_micro=np.array([1000, 1000]))
    long = fit_evictions(history(path, end_s=36_030), EvictionOptions(deltas_micro=(0,)))
    assert long.mean_h[0] == pytest.approx([36_030 / 3600] * 2)
    short = fit_evictions(history(path, end_s=3630), EvictionOptions(deltas_micro=(0,)))
    assert short.mean_h[0] == pytest.approx([3630 / 3600] * 2)


@pytest.mark.parametrize("seed", range(4))
def test_the_mean_time_is_the_area_under_kaplan_and_meiers_survival(seed):
    rng = np.random.default_rng(seed)
    time_s = np.cumsum(rng.choice([600, 1800, 5 * 3600], 200, p=[0.5, 0.45, 0.05]))
    path = PricePath(time_s=time_s, price_micro=1000 * rng.choice([1, 2, 3, 9], 200, p=[0.6, 0.2, 0.15, 0.05]))
    prices = history(path, end_s=int(time_s[-1]) + 3600, gap_s=4 * 3600)
    table = fit_evictions(prices, EvictionOptions(deltas_micro=(1000,), step_s=300))
    spans = []  # (seconds watched, whether an eviction ended them) of every start outside the gaps
    for start in range(-(-int(time_s[0]) // 300) * 300, prices.end_s, 300):
        if any(begin < start < end for begin, end in prices.gaps):
            continue
        bid = path.price_micro[np.searchsorted(time_s, start, side="right") - 1] + 1000
        later = time_s[(time_s > start) & (path.price_micro > bid)]
        until = min([int(begin) for begin, _ in prices.gaps if begin >= start], default=prices.end_s)
        is_seen = len(later) > 0 and later[0] <= until
        spans.append((int(later[0] if is_seen else until) - start, is_seen))
    assert len(prices.gaps) > 0
    survival, area, before = 1.0, 0.0, 0
    for span in sorted({span for span, _ in spans}):
        area += survival * (span - before)
        before = span
        survival *= 1 - spans.count((span, True)) / sum(other >= span for other, _ in spans)
    # Minutes are counted as one, so that either may differ by that much.
    assert table.mean_h[0, 0] == pytest.approx(area / 3600, abs=1 / 60)


@pytest.mark.parametrize(("delta", "row"), [(0, 0), (99, 0), (100, 0), (499, 0), (500, 1), (2000, 2), (10**9, 2)])
def test_a_bid_is_as_safe_as_the_largest_delta_of_the_grid_that_it_reaches(delta, row):
    survival = np.repeat(np.array([[0.2, 0.4, 0.6, 1.0]])[:, :, None], 61, axis=2)
    facts = np.zeros((1, 4))
    table = EvictionTable(
        markets=("m",), deltas_micro=np.array([100, 500, 2000]), survival=survival, mean_h=facts, low=facts, high=facts,
        hours=np.ones(1),
    )  # fmt: skip
    assert table.row(delta) == row
    assert table.probability(0, table.row(delta), 1800) == pytest.approx((0.8, 0.6, 0.4)[row])


def test_wilsons_interval_of_a_textbook_case():
    low, high = wilson(np.array([0.5]), np.array([100.0]))
    assert (low[0], high[0]) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_wilsons_interval_stays_within_0_and_1_and_narrows():
    for share in (0.0, 0.01, 0.5, 1.0):
        low, high = wilson(np.full(3, share), np.array([1.0, 10.0, 1000.0]))
        assert (low >= 0).all()
        assert (high <= 1).all()
        assert (low <= share + 1e-12).all()
        assert (high >= share - 1e-12).all()
        assert (np.diff(high - low) < 0).all()


@pytest.mark.parametrize("bad", [{"deltas_micro": ()}, {"deltas_micro": (5, 5)}, {"step_s": 0}])
def test_refuses_options_out_of_range(bad):
    with pytest.raises(InvalidOptionError):
        EvictionOptions(**bad)


@pytest.mark.prove
@pytest.mark.parametrize("market", PUBLISHED)
def test_reproduces_the_published_frequencies_of_2015(market):
    table = prices_of_2015()
    path = table.paths[table.index[market]]
    starts, shares, minutes = PUBLISHED[market]
    start = np.arange(-(-int(path.time_s[0]) // 600) * 600, int(path.time_s[-1]) - 3600 + 1, 600)
    assert len(start) == starts
    for usd, share, minute in zip(DELTAS_USD, shares, minutes, strict=True):
        found_share, found_minute = evictions_within(path, start, round(usd * 1e6))
        assert found_share == pytest.approx(share, abs=1e-4)
        assert found_minute == pytest.approx(minute, abs=0.06)


def test_between_two_minutes_probability_and_use_are_in_proportion():
    survival = np.ones((1, 1, 61))
    survival[0, 0, 1:] = np.linspace(0.9, 0.31, 60)
    zeros = np.zeros((1, 1))
    table = EvictionTable(
        markets=("m",),
        deltas_micro=np.array([0]),
        survival=survival,
        mean_h=zeros,
        low=zeros,
        high=zeros,
        hours=np.ones(1),
    )
    assert table.probability(0, 0, 0) == 0.0
    assert table.probability(0, 0, 60) == pytest.approx(0.1)
    assert table.probability(0, 0, 90) == pytest.approx(0.5 * (0.1 + (1 - survival[0, 0, 2])))
    assert table.probability(0, 0, 15) == pytest.approx(0.025)
    assert table.probability(0, 0, 3600) == table.probability(0, 0, 9999) == pytest.approx(0.69)
    assert table.usable_h(0, 0, 60) == pytest.approx(0.95 / 60)
    assert table.usable_h(0, 0, 3600) == pytest.approx(np.trapezoid(survival[0, 0]) / 60)


@given(seed=st.integers(0, 10**6), deltas=st.integers(1, 14))
def test_survival_is_made_to_rise_as_the_nearest_table_does(seed, deltas):
    rng = np.random.default_rng(seed)
    survival = rng.integers(0, 8, (deltas, 6)) / 7 + rng.normal(0, 0.01, (deltas, 6)) * rng.integers(0, 2)
    expected = np.column_stack([isotonic_regression(survival[:, minute]).x for minute in range(6)])
    assert _rising(survival) == pytest.approx(expected, abs=1e-12)
