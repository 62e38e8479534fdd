"""What the bidding solvers do under their options, against a record: see `tests.support.golden`."""

import pytest

import optim
from optim.core.errors import OptimError
from tests.support.bidding.small_markets import drawn, lasting, published_vector, varied
from tests.support.golden import check

OPTIONS = {
    "dinkelbach": ({}, {"tol": 0.05, "heuristic": True}),
    "exchange": ({}, {"bound": False}),
    "frontier": ({"max_points": 6, "tol": 1e-3},),
    "greedy": ({}, {"bound": False}),
}
INSTANCES = [published_vector(), *(form(seed) for seed in range(5) for form in (drawn, varied, lasting))]


def attempt(instance, solver, options):
    """Solve an instance if the solver does."""
    try:
        return optim.solve(instance, solver, options=options)
    except OptimError as error:
        return str(error)


def solved(solver):
    """Solve instances of every form under each of a solver's options, fewer of them where each takes long."""
    instances = INSTANCES[:: 4 if solver == "frontier" else 1]
    first, *others = OPTIONS[solver]
    found = [attempt(instance, solver, first) for instance in instances[::2]]
    return found + [attempt(instance, solver, options) for options in others for instance in instances[::3]]


@pytest.mark.parametrize("solver", OPTIONS)
def test_does_what_the_golden_record_says(solver):
    check("solvers/bidding", solver, lambda: solved(solver))
