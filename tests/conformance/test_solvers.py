"""The conformance checks of every registered solver, on every small instance of its problem that it supports."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from optim_studies.stress import KNOWN_OPTIMA, STRESS_INSTANCES

from optim.core.errors import UnsupportedProblemError
from optim.models.catalogue import problem_names
from optim.models.reference import reference_instance, reference_names
from optim.solvers.conformance import CHECKS, ConformanceError, Trial
from optim.solvers.solve import solve, solver_named, solver_names
from tests.support.auction.builders import auction, linear
from tests.support.bidding.small_markets import drawn, hour_instance

AUCTIONS = {
    "no apps": lambda: auction([4]),
    "no bids": lambda: auction([4], [], []),
    "nothing on offer": lambda: auction([0], [(1, "slot", 2.0)]),
    "bids too large": lambda: auction([2], [(3, "slot", 2.0)]),
    "one app": lambda: auction([4], linear(4, 8.0)),
    "equal apps": lambda: auction([4, 4], *[linear(4, 8.0, "slot")] * 3),
    "two racks": lambda: auction([(0, [2]), (1, [2])], [(3, "rack", 9.0)], [(3, "cluster", 2.0)], [(1, "slot", 2.0)]),
    "slots": lambda: auction([(0, [2, 2])], [(3, "slot", 9.0), (3, "machine", 8.0)], [(1, "slot", 2.0)]),
    "named": lambda: auction([2, 2], [({0: 1, 1: 1}, 3.0)], [({0: 2}, 4.0)], [(1, "slot", 2.0)]),
    "gangs": lambda: auction([6], [(4, "slot", 5.0)], [(4, "slot", 4.0), (2, "slot", 2.0)], gangs=[4, 2]),
    "three fives": lambda: auction([8, 8], *[[(5, "machine", 4.0)]] * 3),
    "zero": lambda: auction([2], [(2, "slot", 50.0)], [(1, "slot", 1.1)], [(1, "slot", 1.2)], empty_value="zero"),
}
"""Small auctions, each with a trait that has broken some solver."""

BIDS = {
    "no-bids": lambda: hour_instance([], [], [], name="no-bids", fixed_usd=1.0),
    "no-work": lambda: hour_instance([0], [0.1], [0.0], name="no-work", fixed_usd=1.0),
    "cap-of-none": lambda: hour_instance([0], [0.1], [1.0], cap=0, name="cap-of-none", fixed_usd=1.0),
    "free": lambda: hour_instance([0], [0.0], [1.0], name="free"),
    "one-bid": lambda: hour_instance([0], [0.1], [1.0], name="one-bid"),
    "all-there": lambda: hour_instance([0], [0.1], [1.0], name="all-there", fixed_usd=0.1, fixed_rate=5.0),
    "drawn-hour": lambda: drawn(3),
    "drawn-windows": lambda: drawn(1),
}
"""Instances with one trait each that solvers may handle wrongly."""

SPECIAL = {"admission": STRESS_INSTANCES, "auction": AUCTIONS, "bidding": BIDS}
REFERENCES = {
    "admission": ("tiny-0", "tiny-1"),
    "auction": reference_names("auction"),
    "bidding": ("spot-vector", "spot-tiny-own", "spot-tiny-any", "spot-tiny-market", "spot-tiny-windows"),
}
INSTANCES = {problem: [*SPECIAL[problem], *REFERENCES[problem]] for problem in SPECIAL}

LONG = ("branch-and-price", "column-generation", "compact-milp", "dorm", "online-learned", "search")
"""Solvers that take longest: each meets every third instance, and each instance a third of them; all do in `make prove`."""

ITERATIONS = 10
"""Of each solve: rounds, nodes or moves."""

REL_TOL = 1e-9
"""Rounding of sums of a few utilities, relative."""


def cases(instances):
    """Return problems, solvers and instances."""
    chosen = []
    for problem, names in instances.items():
        for solver in solver_names(problem):
            for name in names:
                is_left = solver in LONG and (LONG.index(solver) + INSTANCES[problem].index(name)) % 3
                chosen.append(pytest.param(problem, solver, name, marks=pytest.mark.prove if is_left else ()))
    return chosen


@cache
def instance_named(problem: str, name: str) -> Any:
    """Return a special or a reference instance."""
    return SPECIAL[problem][name]() if name in SPECIAL[problem] else reference_instance(name)


@cache
def trial(problem: str, solver: str, name: str) -> Trial:
    """Return a solver's trial on an instance; solved once for all checks."""
    return Trial(instance_named(problem, name), solver, iteration_limit=ITERATIONS)


def is_supported(problem: str, solver: str, name: str) -> bool:
    """Return whether the solver claims to support the instance."""
    return bool(solver_named(problem, solver).supports(instance_named(problem, name)))


def test_every_problem_is_looked_at():
    assert set(SPECIAL) == set(problem_names())


@pytest.mark.parametrize(("problem", "solver", "name"), cases(INSTANCES))
def test_keeps_what_all_solvers_promise_or_says_why_it_can_not(problem, solver, name):
    if not is_supported(problem, solver, name):
        with pytest.raises(UnsupportedProblemError, match=rf"{solver}.*can't treat"):
            solve(instance_named(problem, name), solver)
        return
    failed = []
    for check_name, check in CHECKS.items():
        try:
            check(trial(problem, solver, name))
        except ConformanceError as error:
            failed.append(f"{check_name}: {error}")
    assert failed == []


@pytest.mark.parametrize(("problem", "solver", "name"), cases({"admission": KNOWN_OPTIMA}))
def test_known_optimum_lies_between_objective_and_bound(problem, solver, name):
    if is_supported(problem, solver, name):
        solution, optimum = trial(problem, solver, name).solution, KNOWN_OPTIMA[name]
        slack = REL_TOL * max(1.0, optimum)
        assert solution.objective is None or solution.objective <= optimum + slack
        assert solution.bound is None or solution.bound >= optimum - slack


@pytest.mark.parametrize("name", REFERENCES["bidding"])
def test_all_bounds_of_bidding_lie_below_all_objectives(name):
    known = [solver for solver in solver_names("bidding") if is_supported("bidding", solver, name)]
    solutions = [trial("bidding", solver, name).solution for solver in known]
    best = min(s.objective for s in solutions if s.objective is not None)
    assert np.isfinite(best)
    assert all(s.bound is None or s.bound <= best * (1 + 1e-12) for s in solutions)
