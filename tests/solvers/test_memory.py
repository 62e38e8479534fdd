"""Repeated solves don't increase memory: all arrays of compiled loops are released."""

import gc

import pytest
from numba.core.runtime import rtsys

from optim.core.stopping import IterationLimit
from optim.models.reference import reference_instance
from optim.solvers.solve import solve
from tests.support.admission.tiny import BY_HAND

SOLVERS = {
    "tiny-0": ("online", "rrh"),
    "plain": ("column-generation", "search", "branch-and-price"),
    "auction-tiny-0": ("exact", "greedy"),
    "spot-tiny-own": ("greedy", "exchange", "dinkelbach"),
}


@pytest.fixture
def live_allocations():
    """Give a function that counts allocations of compiled loops that were not released.

    Garbage is collected only here: new objects are young then, and the rest of the process isn't traversed.
    """
    gc.disable()

    def count() -> int:
        gc.collect(0)
        stats = rtsys.get_allocation_stats()
        return stats.alloc - stats.free

    yield count
    gc.enable()


@pytest.mark.parametrize(("name", "solver"), [(name, solver) for name, held in SOLVERS.items() for solver in held])
def test_solving_again_leaves_nothing_behind(name, solver, live_allocations):
    instance = BY_HAND[name] if name in BY_HAND else reference_instance(name)
    counts = []
    for _ in range(3):
        assert solve(instance, solver, seed=0, stop=IterationLimit(5)).problem
        counts.append(live_allocations())
    assert counts[1] == counts[2], "arrays that a compiled loop made live on"
