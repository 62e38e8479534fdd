"""The fractional programmes against closed forms: identical apps share equally, and prices are what a GPU adds."""

import numpy as np
import pytest

from optim.models.auction.market import FractionalMarket, eisenberg_gale, elapsed_programme, solve_cone

TOL = 1e-5
"""Clarabel's own tolerances, times the size of the values."""


def identical_apps(number, supply, *, elapsed=0.0, cap=100.0):
    """Return apps whose speed is one a GPU of the one good; work 12 and ideal time 3."""
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
    assert found.share[:, 0] == pytest.approx([6.0 / number] * number, rel=TOL)
    assert found.value == pytest.approx(number * np.log(6.0 / number), rel=TOL, abs=TOL)
    assert found.price == pytest.approx([number / 6.0], rel=TOL)  # d/ds n log(s / n)


@pytest.mark.parametrize("elapsed", [0.0, 5.0])
def test_the_value_of_an_app_is_its_ideal_time_over_its_whole_time(elapsed):
    found = solve_cone(elapsed_programme(identical_apps(3, 6.0, elapsed=elapsed)))
    assert found.value == pytest.approx(-3 * np.log((elapsed + 12.0 / 2.0) / 3.0), rel=TOL)


def test_no_app_is_faster_than_its_cap_and_what_is_left_over_has_no_price():
    found = solve_cone(eisenberg_gale(identical_apps(2, 6.0, cap=1.5)))
    assert found.speed == pytest.approx([1.5, 1.5], rel=TOL)
    assert found.price == pytest.approx([0.0], abs=TOL)
