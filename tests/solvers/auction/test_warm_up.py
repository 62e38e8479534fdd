"""What is compiled before the clock of a solve starts is all that a solve runs."""

import sys

from numba.core.dispatcher import Dispatcher

from optim.models.reference import reference_instance
from optim.solvers.auction.settlement import compile_loops
from optim.solvers.solve import solve


def loops():
    """Return every compiled loop of the auction's solvers by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("optim.solvers.auction.")]
    return {
        f"{loop.__module__}.{loop.__name__}": loop
        for module in modules
        for loop in vars(module).values()
        if isinstance(loop, Dispatcher)
    }


def test_after_warming_up_no_loop_is_compiled_or_loaded():
    solve(reference_instance("auction-tiny-0"), "exact")  # imports what solvers import when they are run
    found = loops()
    assert len(found) > 10
    for loop in found.values():
        loop.overloads.clear()
        loop._reset_overloads()
    compile_loops.__wrapped__()
    after = {name: len(loop.overloads) for name, loop in found.items()}
    for instance in ("auction-named-0", "auction-slots-0"):
        for solver in ("exact", "greedy", "count-dp", "convex"):
            solve(reference_instance(instance), solver)
    assert {name: len(loop.overloads) for name, loop in found.items()} == after
    assert max(after.values()) == 1
