"""Price paths and histories: prices at times, crossings, gaps, and parts of a span."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.market.prices import Market, PricePath, history_of

A = Market(instance_type="a", zone="here", on_demand_micro=100, rate=1.0)
B = Market(instance_type="b", zone="here", on_demand_micro=200, rate=2.0)


def path(*steps):
    """Return a path of (time, price) steps."""
    times, prices = zip(*steps, strict=True)
    return PricePath(time_s=np.array(times, dtype=np.int64), price_micro=np.array(prices, dtype=np.int64))


ONE = path((0, 10), (100, 20), (300, 5))


def test_a_price_holds_from_its_change_on():
    assert [ONE.price_at(t) for t in (-1, 0, 99, 100, 299, 300, 10**9)] == [None, 10, 10, 20, 20, 5, 5]
    assert [ONE.index_at(t) for t in (-1, 0, 100)] == [-1, 0, 1]


@pytest.mark.parametrize(
    ("time_s", "bid", "crossed"),
    [
        (0, 15, 100),
        (0, 20, None),
        (100, 15, None),
        (99, 15, 100),
        (-5, 5, 0),
        (300, 1, None),
    ],
)
def test_a_bid_is_crossed_by_the_first_higher_price_after_a_time(time_s, bid, crossed):
    assert ONE.first_above(time_s, bid) == crossed


def test_long_times_without_any_change_are_gaps():
    history = history_of([A, B], [path((0, 10), (50, 11)), path((20, 5), (500, 6))], gap_s=400)
    assert (history.begin_s, history.end_s) == (0, 500)
    assert history.gaps.tolist() == [[50, 500]]
    assert history_of([A], [ONE], gap_s=201).gaps.tolist() == []
    assert history_of([A], [ONE], gap_s=200).gaps.tolist() == [[100, 300]]
    assert history_of([A], [ONE], end_s=900).end_s == 900


def test_what_comes_after_a_gap_is_unknown():
    history = history_of([A], [path((0, 10), (50, 11), (500, 12), (600, 13))], gap_s=400)
    assert history.censor_after(np.array([0, 50, 51, 500, 599])).tolist() == [50, 50, 600, 600, 600]
    assert [history.touches_gap(*span) for span in ((0, 50), (0, 51), (500, 600), (499, 550), (550, 601))] == [
        False, True, False, True, True,
    ]  # fmt: skip


def test_a_part_of_a_span_keeps_the_price_at_its_begin():
    history = history_of([A, B], [ONE, path((250, 7), (400, 8))], gap_s=10**6)
    part = history.between(150, 280)
    assert (part.begin_s, part.end_s) == (150, 280)
    assert [market.name for market in part.markets] == ["a@here", "b@here"]
    assert part.paths[0].time_s.tolist() == [150]
    assert part.paths[0].price_micro.tolist() == [20]
    assert part.paths[1].time_s.tolist() == [250]
    assert [market.name for market in history.between(0, 250).markets] == ["a@here"]
    with pytest.raises(InvalidOptionError, match="no market has a price"):
        history.between(500, 600)
    assert history.index == {"a@here": 0, "b@here": 1}


@pytest.mark.parametrize(
    ("paths", "says"),
    [
        ([], "one path per market"),
        ([path((0, 1), (0, 2))], "strictly ascending"),
        ([path((0, 0))], "prices must be positive, got 0"),
        ([path((0, 5), (1, -1))], "prices must be positive, got -1"),
    ],
)
def test_refuses_paths_that_are_none(paths, says):
    with pytest.raises(InvalidProblemError, match=says):
        history_of([A], paths)


def test_volatility_is_the_variance_of_the_price_over_on_demand_in_time_gaps_left_out():
    markets = [Market(instance_type="t", zone=zone, on_demand_micro=100, rate=1.0) for zone in ("a", "b")]
    steps = ([0, 3600, 7200, 100_000], [50, 150, 100, 100]), ([3600, 100_000], [70, 70])
    paths = [PricePath(time_s=np.array(t), price_micro=np.array(p)) for t, p in steps]
    history = history_of(markets, paths, end_s=103_600)
    assert history.gaps.tolist() == [[7200, 100_000]]
    # An hour each at a half, one and a half, and one; the price during the long gap is unknown.
    assert history.volatility() == pytest.approx([1 / 6, 0.0])
    assert [market.zone for market in history.with_markets([1]).markets] == ["b"]
