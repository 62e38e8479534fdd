"""Price functions: their ends, their shape, and ratios of U to L that no float holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.arrays import FloatArray
from optim.core.errors import InvalidOptionError
from optim.solvers.admission.posted_prices.price_functions import ExponentialPrice, PriceFunction, ZeroStartPrice

PRICE_TOL = 1e-12
"""Relative tolerance: a price takes a few operations on logarithms below 1,000."""

FUNCTIONS = [ExponentialPrice(), ZeroStartPrice(), ExponentialPrice(full_at=0.9), ZeroStartPrice(full_at=0.9)]
IDS = ["exponential", "zero-start", "exponential-strict", "zero-start-strict"]

logs = st.floats(-600, 600)


def at(function: PriceFunction, share: FloatArray, log_lower: float, log_upper: float) -> FloatArray:
    ones = np.ones_like(share)
    return function.price(share, log_lower * ones, log_upper * ones)


def test_the_exponential_price_is_the_papers() -> None:
    lower, upper = 0.25, 40.0
    share = np.linspace(0, 1, 11)
    price = at(ExponentialPrice(), share, math.log(lower), math.log(upper))
    assert price == pytest.approx(lower * (upper / lower) ** share, rel=PRICE_TOL)


def test_the_zero_start_price_is_its_formula() -> None:
    scale, upper = 0.25, 40.0
    share = np.linspace(0, 1, 11)
    price = at(ZeroStartPrice(), share, math.log(scale), math.log(upper))
    assert price == pytest.approx(scale * ((1 + upper / scale) ** share - 1), rel=PRICE_TOL)


@pytest.mark.parametrize("function", FUNCTIONS, ids=IDS)
def test_the_price_is_u_from_full_at_on(function: ExponentialPrice | ZeroStartPrice) -> None:
    share = np.array([function.full_at, 1.0, 1.1])
    assert at(function, share, math.log(0.3), math.log(7.0)) == pytest.approx([7.0] * 3, rel=PRICE_TOL)
    assert at(function, 0.99 * share[:1], math.log(0.3), math.log(7.0))[0] < 7.0


def test_an_empty_row_costs_l_or_nothing() -> None:
    empty = np.zeros(1)
    assert at(ExponentialPrice(), empty, math.log(0.3), math.log(7.0))[0] == pytest.approx(0.3, rel=PRICE_TOL)
    assert at(ZeroStartPrice(), empty, math.log(0.3), math.log(7.0))[0] == 0.0


@pytest.mark.parametrize("function", FUNCTIONS, ids=IDS)
@given(lower=logs, spread=st.floats(1e-9, 1200), shares=st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_prices_never_fall_as_a_row_fills_and_never_exceed_u(
    function: PriceFunction, lower: float, spread: float, shares: list[float]
) -> None:
    upper = min(lower + spread, 650.0)
    price = at(function, np.array(sorted(shares)), lower, upper)
    assert np.isfinite(price).all()
    assert (price[1:] >= price[:-1] * (1 - PRICE_TOL)).all()
    assert (price <= np.exp(upper) * (1 + PRICE_TOL)).all()
    assert (price >= 0).all()


@pytest.mark.parametrize("function", FUNCTIONS, ids=IDS)
def test_ratios_beyond_any_float_have_prices(function: PriceFunction) -> None:
    # U / L = exp(1200): neither the ratio nor L itself is a float.
    price = at(function, np.array([0.0, 0.5, 1.0]), -900.0, 300.0)
    assert price[0] == 0.0
    assert 0.0 < price[1] < price[2]
    assert price[2] == pytest.approx(math.exp(300.0), rel=PRICE_TOL)


def test_nearly_empty_rows_have_accurate_zero_start_prices() -> None:
    share = 1e-14
    price = at(ZeroStartPrice(), np.array([share]), 0.0, math.log(100.0))[0]
    assert price == pytest.approx(share * math.log(101.0), rel=1e-9)


@pytest.mark.parametrize("function", FUNCTIONS, ids=IDS)
def test_rows_that_no_job_uses_have_no_price(function: PriceFunction) -> None:
    price = function.price(np.array([0.0, 0.5, 1.0]), np.full(3, -np.inf), np.full(3, -np.inf))
    assert (price == 0).all()


@pytest.mark.parametrize("full_at", [0.0, -0.1, 1.01, math.nan])
@pytest.mark.parametrize("kind", [ExponentialPrice, ZeroStartPrice])
def test_refuses_a_share_outside_its_range(kind: type[ExponentialPrice | ZeroStartPrice], full_at: float) -> None:
    with pytest.raises(InvalidOptionError, match=r"full_at must be in \(0, 1\]"):
        kind(full_at=full_at)
