"""What the problem tells of an instance, of a plan, and of a claim."""

from dataclasses import replace

from optim.models.auction.problem import PROBLEM
from optim.solvers.solve import solve
from tests.support.auction.builders import auction

ONE = auction([2], [(2, "machine", 4.0)], [(2, "machine", 2.0)])
"""Two apps that want the same two GPUs."""


def test_tells_what_a_plan_does():
    figures = PROBLEM.decision_figures(ONE, solve(ONE, "exact").decision)
    assert (figures["winners"], figures["awarded_gpus"], figures["idle_gpus"]) == (1, 2, 0)
    assert figures["max_rho"] == 1.0


def test_verifies_what_holds_and_refuses_what_does_not():
    solution = solve(ONE, "exact")
    assert PROBLEM.verify(ONE, solution).is_ok
    assert not PROBLEM.verify(ONE, replace(solution, objective=solution.objective + 1.0)).is_ok


def test_describes_an_instance():
    assert PROBLEM.describe(ONE)["apps"] == 2
