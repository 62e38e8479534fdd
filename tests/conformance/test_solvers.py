"""Every registered admission solver on every small instance that it supports: what all solvers owe."""

from functools import cache

import pytest
from optim_studies.stress import KNOWN_OPTIMA, STRESS_INSTANCES

from optim.core.errors import UnsupportedProblemError
from optim.models.admission.instance import AdmissionInstance
from optim.models.reference import reference_instance
from optim.solvers.conformance import CHECKS, ConformanceError, Trial
from optim.solvers.solve import solve, solvers_of

SOLVERS = [solver.name for solver in solvers_of("admission")]
REFERENCES = ("tiny-0", "tiny-1")
INSTANCES = [*STRESS_INSTANCES, *REFERENCES]

LONG = ("branch-and-price", "column-generation", "compact-milp", "dorm", "online-learned", "search")
"""Solvers that take longest: each meets every third instance, and each instance a third of them; all do in `make prove`."""

ITERATIONS = 10
"""Of each solve: rounds, nodes or moves."""

REL_TOL = 1e-9
"""Rounding of sums of a few utilities, relative."""


def cases(names):
    """Return solvers and instances."""
    chosen = []
    for solver in SOLVERS:
        for name in names:
            is_left = solver in LONG and (LONG.index(solver) + INSTANCES.index(name)) % 3
            chosen.append(pytest.param(solver, name, marks=pytest.mark.prove if is_left else ()))
    return chosen


@cache
def instance_named(name: str) -> AdmissionInstance:
    """Return a stress or a reference instance."""
    return STRESS_INSTANCES[name]() if name in STRESS_INSTANCES else reference_instance(name)


@cache
def trial(solver: str, name: str) -> Trial:
    """Return a solver's trial on an instance; solved once for all checks."""
    return Trial(instance_named(name), solver, iteration_limit=ITERATIONS)


def is_supported(solver: str, name: str) -> bool:
    """Tell whether the solver says that it can treat the instance."""
    return bool(next(entry for entry in solvers_of("admission") if entry.name == solver).supports(instance_named(name)))


@pytest.mark.parametrize(("solver", "name"), cases(INSTANCES))
def test_keeps_what_all_solvers_promise_or_says_why_it_can_not(solver, name):
    if not is_supported(solver, name):
        with pytest.raises(UnsupportedProblemError, match=rf"{solver}.*can't treat"):
            solve(instance_named(name), solver)
        return
    failed = []
    for check_name, check in CHECKS.items():
        try:
            check(trial(solver, name))
        except ConformanceError as error:
            failed.append(f"{check_name}: {error}")
    assert failed == []


@pytest.mark.parametrize(("solver", "name"), cases(KNOWN_OPTIMA))
def test_known_optimum_lies_between_objective_and_bound(solver, name):
    if is_supported(solver, name):
        solution, optimum = trial(solver, name).solution, KNOWN_OPTIMA[name]
        slack = REL_TOL * max(1.0, optimum)
        assert solution.objective is None or solution.objective <= optimum + slack
        assert solution.bound is None or solution.bound >= optimum - slack
