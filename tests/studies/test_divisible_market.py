"""The fractional market: the interior-point batch against Clarabel, closed forms, and theoretical guarantees."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.divisible_market import (
    FractionalMarket,
    eisenberg_gale,
    elapsed_programme,
    envy_ratio,
    market_of,
    solve_cone,
    solve_fractional,
)

from optim.core.errors import InvalidProblemError
from optim.solvers.solve import solve
from tests.support.auction.builders import auction, linear

TOL = 1e-4
"""The gap to which both solvers are asked to close."""

APPS, GOODS = 4, 3
"""One shape for all random markets: a batch is compiled once a shape."""


def market(speed, supply, *, elapsed=0.0, cap=np.inf):
    speed = np.asarray(speed, dtype=float)
    n = len(speed)
    most = np.minimum(cap, 2 * (speed * np.asarray(supply)).sum(axis=1))
    return FractionalMarket(
        speed=speed,
        supply=np.asarray(supply, dtype=float),
        cap=np.broadcast_to(most, n).astype(float),
        elapsed_min=np.broadcast_to(np.asarray(elapsed, dtype=float), n),
        work_min=np.ones(n),
        ideal_min=np.ones(n),
        machine_good=np.arange(len(supply)),
        app=np.arange(n),
    )


cells = st.integers(1, 20).map(lambda v: v / 10)
linear_markets = st.builds(
    market,
    st.lists(st.lists(cells, min_size=GOODS, max_size=GOODS), min_size=APPS, max_size=APPS),
    st.lists(st.integers(1, 6).map(float), min_size=GOODS, max_size=GOODS),
)
old_markets = st.builds(
    lambda speed, supply, elapsed, cap: market(speed, supply, elapsed=elapsed, cap=cap),
    st.lists(st.lists(cells, min_size=GOODS, max_size=GOODS), min_size=APPS, max_size=APPS),
    st.lists(st.integers(1, 6).map(float), min_size=GOODS, max_size=GOODS),
    st.lists(st.integers(0, 30).map(lambda v: v / 10), min_size=APPS, max_size=APPS),
    st.integers(5, 60).map(lambda v: v / 10),
)


@given(st.one_of(linear_markets, old_markets))
def test_value_and_bound_meet_and_shares_keep_to_the_supply(given_market):
    found = solve_fractional(given_market, tol=TOL)
    assert -1e-9 <= found.bound - found.value <= TOL
    assert found.widest <= TOL
    assert (found.share >= 0).all()
    assert (found.share.sum(axis=0) <= given_market.supply + 1e-9).all()
    assert (found.speed <= given_market.cap + 1e-9).all()
    assert (found.kept_low > 0).all()
    assert (found.kept_low <= found.kept_high).all()
    assert (found.kept_high <= 1).all()


@pytest.mark.parametrize("seed", range(8))
def test_every_payment_agrees_with_clarabels(seed):
    rng = np.random.default_rng(seed)
    drawn = market(
        rng.uniform(0.1, 2.0, (APPS, GOODS)),
        rng.uniform(1.0, 6.0, GOODS),
        elapsed=rng.uniform(0.0, 3.0, APPS) * (rng.random(APPS) < 0.7),
        cap=rng.uniform(0.5, 6.0),
    )
    found = solve_fractional(drawn, tol=TOL)
    main = solve_cone(elapsed_programme(drawn))
    assert found.value == pytest.approx(main.value, abs=2 * TOL)
    own = drawn.log_values(main.speed)
    for i in range(APPS):
        without = solve_cone(elapsed_programme(drawn.without(i))).value
        assert found.kept_share[i] == pytest.approx(np.exp(own.sum() - own[i] - without), abs=1e-3)


@given(linear_markets)
def test_linear_values_keep_the_bound_of_the_theory_and_nobody_envies(given_market):
    """Cole, Gkatzelis, Goel: c >= (1 - 1/n)^(n-1) for concave homogeneous values; equal budgets leave no envy."""
    found = solve_fractional(given_market, tol=TOL)
    assert (found.kept_high >= (1 - 1 / APPS) ** (APPS - 1) - 1e-9).all()
    assert envy_ratio(given_market, found.share) <= 1 + APPS * TOL + 1e-3


@given(linear_markets)
def test_no_allocation_is_better_for_all(given_market):
    """Pareto efficiency by prices: the sum of u_j(y) / u_j(x) is at most n for every feasible y."""
    found = solve_fractional(given_market, tol=TOL)
    weights = given_market.speed / found.speed[:, None]
    best = float((weights.max(axis=0) * given_market.supply).sum())
    assert best <= APPS + 0.1  # the prices are within the gap's square root of the optimum's


@pytest.mark.parametrize(
    ("number", "goods"),
    [(APPS, GOODS), *(pytest.param(number, 1, marks=pytest.mark.prove) for number in (2, 3, 8))],
)
def test_identical_apps_have_the_closed_form(number, goods):
    found = solve_fractional(market([[1.0] * goods] * number, [4.0] * goods), tol=1e-8)
    assert found.kept_share == pytest.approx([(1 - 1 / number) ** (number - 1)] * number, abs=1e-6)


def test_prices_add_up_to_one_an_app_where_no_cap_binds():
    speed, supply = [[1.0, 0.5, 0.7], [0.4, 1.0, 0.2], [1.0, 1.0, 0.5], [0.3, 0.6, 1.0]], [3.0, 2.0, 4.0]
    found = solve_fractional(market(speed, supply), tol=1e-8)
    assert float((found.price * np.array(supply)).sum()) == pytest.approx(APPS, abs=1e-3)


def test_the_homogeneous_programme_is_the_one_with_no_elapsed_time():
    m = market([[1.0, 0.5], [0.4, 1.0]], [3.0, 2.0])
    one, other = solve_cone(eisenberg_gale(m)), solve_cone(elapsed_programme(m))
    assert one.value == pytest.approx(other.value, abs=1e-6)
    assert one.price == pytest.approx(other.price, abs=1e-4)


def test_elapsed_time_brings_envy():
    """E = (0, 10), W = 1, one GPU: the new app has more of it than the old one would prefer; two other apps have separate goods."""
    m = market([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1.0] * 3, elapsed=[0, 10, 0, 0])
    found = solve_fractional(m, tol=1e-8)
    assert envy_ratio(m, found.share) == pytest.approx(0.0885 / 0.0698, abs=0.02)


def test_the_fractional_value_is_no_bound_where_empty_rows_are_worth_something():
    """One GPU, and four apps of value 1 with it and .9 without; the divisible market counts no value without GPUs."""
    instance = auction([1], *[[(1, "slot", 1 / 0.9)]] * 4)
    market_value = solve_fractional(market_of(instance)).value
    whole = solve(instance, "exact").objective  # relative to the empty rows, whose log values are 0 here
    assert market_value < whole


def test_refuses_a_market_that_makes_no_sense():
    with pytest.raises(InvalidProblemError, match="supply must be positive"):
        market([[1.0]], [0.0])
    with pytest.raises(InvalidProblemError, match="positive for at least one good"):
        market([[0.0]], [1.0], cap=1.0)


CLARABEL_TOL = 1e-5
"""Clarabel's tolerances, times the size of the values."""


def identical_apps(number, supply, *, elapsed=0.0, cap=100.0):
    """Return apps whose speed is 1 per GPU of the single good; work 12 and ideal time 3."""
    return FractionalMarket(
        speed=np.ones((number, 1)),
        supply=np.array([supply]),
        cap=np.full(number, cap),
        elapsed_min=np.full(number, elapsed),
        work_min=np.full(number, 12.0),
        ideal_min=np.full(number, 3.0),
        machine_good=np.zeros(1, dtype=np.int64),
        app=np.arange(number),
    )


@pytest.mark.parametrize("number", [1, 2, 3])
def test_identical_apps_share_the_supply_of_a_good_equally(number):
    found = solve_cone(eisenberg_gale(identical_apps(number, 6.0)))
    assert found.share[:, 0] == pytest.approx([6.0 / number] * number, rel=CLARABEL_TOL)
    assert found.value == pytest.approx(number * np.log(6.0 / number), rel=CLARABEL_TOL, abs=CLARABEL_TOL)
    assert found.price == pytest.approx([number / 6.0], rel=CLARABEL_TOL)  # d/ds n log(s / n)


@pytest.mark.parametrize("elapsed", [0.0, 5.0])
def test_the_value_of_an_app_is_its_ideal_time_over_its_whole_time(elapsed):
    found = solve_cone(elapsed_programme(identical_apps(3, 6.0, elapsed=elapsed)))
    assert found.value == pytest.approx(-3 * np.log((elapsed + 12.0 / 2.0) / 3.0), rel=CLARABEL_TOL)


def test_no_app_is_faster_than_its_cap_and_what_is_left_over_has_no_price():
    found = solve_cone(eisenberg_gale(identical_apps(2, 6.0, cap=1.5)))
    assert found.speed == pytest.approx([1.5, 1.5], rel=CLARABEL_TOL)
    assert found.price == pytest.approx([0.0], abs=CLARABEL_TOL)


def test_a_market_follows_from_the_bids():
    """A bid of value v has speed v here; of an app's bids that can use a GPU, the one with most speed a GPU counts."""
    instance = auction([4, 2], linear(4, 8.0, "slot"), [({1: 2}, 6.0)])
    found = market_of(instance)
    columns = sorted(zip(found.supply.tolist(), found.speed.T.tolist(), strict=True))
    assert columns == [(2.0, [2.0, 3.0]), (4.0, [2.0, 0.0])]
    assert found.cap.tolist() == [8.0, 6.0]


def test_the_fastest_bid_per_gpu_gives_the_speed_and_the_fastest_of_all_the_cap():
    """Decreasing returns: one GPU at 4, two at 6, and four that no machine has; the second app requests too many."""
    instance = auction([2, 2], [(1, "slot", 4.0), (2, "machine", 6.0), (4, "machine", 20.0)], [(5, "cluster", 9.0)])
    found = market_of(instance)
    assert (found.speed.tolist(), found.supply.tolist()) == ([[4.0]], [4.0])
    assert (found.cap.tolist(), found.app.tolist()) == ([6.0], [0])
