"""Every registered auction solver on every small instance that it supports: what all solvers owe."""

from functools import cache

import pytest

from optim.core.errors import UnsupportedProblemError
from optim.models.reference import reference_instance, reference_names
from optim.solvers.conformance import CHECKS, ConformanceError, Trial
from optim.solvers.solve import solve, solver_named, solvers_of
from tests.support.auction.builders import auction, linear

SOLVERS = [solver.name for solver in solvers_of("auction")]

STRESS = {
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
"""Small auctions, each with a trait that has broken a solver somewhere."""

ITERATIONS = 10
"""Of each solve."""


def cases():
    """Yield solvers and instances."""
    for solver in SOLVERS:
        for name in (*STRESS, *reference_names("auction")):
            yield solver, name


@cache
def instance_named(name):
    return STRESS[name]() if name in STRESS else reference_instance(name)


@pytest.mark.parametrize(("solver", "name"), list(cases()))
def test_keeps_what_all_solvers_promise_or_says_why_it_can_not(solver, name):
    instance = instance_named(name)
    if not solver_named("auction", solver).supports(instance):
        with pytest.raises(UnsupportedProblemError, match=rf"{solver}.*can't treat"):
            solve(instance, solver)
        return
    trial = Trial(instance, solver, iteration_limit=ITERATIONS)
    failed = []
    for check_name, check in CHECKS.items():
        try:
            check(trial)
        except ConformanceError as error:
            failed.append(f"{check_name}: {error}")
    assert failed == []
