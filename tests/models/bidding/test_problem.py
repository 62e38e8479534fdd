"""What the problem tells of an instance, of a footprint, and of a claim."""

from dataclasses import replace

import pytest

from optim.models.bidding.problem import PROBLEM
from optim.solvers.solve import solve
from tests.support.bidding.small_markets import published_vector

VECTOR = published_vector()


def test_tells_what_a_footprint_holds_and_costs():
    figures = PROBLEM.decision_figures(VECTOR, solve(VECTOR, "dinkelbach").decision)
    assert figures["instances"] == 6 + 5
    assert figures["cost_usd"] == pytest.approx(0.63 + 6 * 0.045 + 5 * 0.12)


def test_verifies_what_holds_and_refuses_what_does_not():
    solution = solve(VECTOR, "dinkelbach")
    assert PROBLEM.verify(VECTOR, solution).is_ok
    assert not PROBLEM.verify(VECTOR, replace(solution, objective=0.99 * solution.objective)).is_ok
