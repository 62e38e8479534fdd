"""Figures of bidding instances and footprints by hand, and the problem's description of them."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.bidding.cost_per_work import describe, footprint_load
from optim.models.bidding.decision import FootprintPlan
from optim.models.bidding.problem import PROBLEM
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import drawn, hour_instance, published_vector


def test_describes_an_hour():
    given = hour_instance([0, 0, 1], [0.1, 0.1, 0.2], [1.0, 1.0, 2.0], evicted=[0.5, 0.2, 0.2], cap=4, fixed_usd=0.3)
    figures = describe(given)
    assert (figures["markets"], figures["bids"], figures["caps"], figures["form"]) == (2, 3, 1, "hour")
    assert figures["mean_evicted"] == pytest.approx(0.3)
    assert (figures["fixed_usd"], figures["one_bid_per_market"], figures["scalability"]) == (0.3, False, "linear")


def test_describes_windows():
    given = next(drawn(seed) for seed in range(50) if "windows" in drawn(seed).name)
    figures = describe(given)
    assert figures["form"] == "scenarios"
    assert (figures["scenarios"], figures["slots"]) == (given.outlook.num_scenarios, given.outlook.num_slots)
    assert figures["mean_evicted"] == pytest.approx(np.mean(given.outlook.evicted_s >= 0))


def test_tells_what_a_footprint_holds_costs_and_does():
    given = hour_instance([0, 0, 1], [0.1, 0.2, 0.4], [1.0, 1.0, 2.0], cap=4, fixed_usd=0.3)
    load = footprint_load(given, FootprintPlan.of(np.array([1, 0, 2])))
    assert (load["instances"], load["bids"], load["markets"]) == (3, 2, 2)
    assert load["cost_usd"] == pytest.approx(0.3 + 0.1 + 0.8)
    assert load["work"] == pytest.approx(5.0)
    assert load["cap_used"] == pytest.approx(0.75)


def test_of_several_caps_the_fullest_counts_and_one_of_zero_is_not_used():
    given = hour_instance([0, 1], [0.1, 0.2], [1.0, 1.0], cap=4)
    caps = replace(
        given.caps,
        names=("a", "b", "c"),
        weight=np.array([[1.0, 1.0], [0.0, 2.0], [0.0, 0.0]]),
        limit=np.array([4.0, 2.0, 0.0]),
    )
    load = footprint_load(replace(given, caps=caps), FootprintPlan.of(np.array([1, 1])))
    assert load["cap_used"] == 1.0
    none = footprint_load(replace(given, caps=caps), FootprintPlan.of(np.array([0, 0])))
    assert (none["cap_used"], none["instances"], none["bids"], none["markets"]) == (0.0, 0, 0, 0)


VECTOR = published_vector()


def test_tells_what_a_footprint_holds_and_costs():
    figures = PROBLEM.decision_figures(VECTOR, solve(VECTOR, "dinkelbach").decision)
    assert figures["instances"] == 6 + 5
    assert figures["cost_usd"] == pytest.approx(0.63 + 6 * 0.045 + 5 * 0.12)


def test_verifies_what_holds_and_refuses_what_does_not():
    solution = solve(VECTOR, "dinkelbach")
    assert PROBLEM.verify(VECTOR, solution).is_ok
    assert not PROBLEM.verify(VECTOR, replace(solution, objective=0.99 * solution.objective)).is_ok
