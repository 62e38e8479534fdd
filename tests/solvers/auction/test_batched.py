"""The batch of fractional problems is compiled before the clock of a solve starts."""

import pytest

from optim.core.driver import Monitor
from optim.kernels.sharing import solve_all_present, solve_each_absent
from optim.solvers.auction.fractional import BatchedOptions
from optim.solvers.solve import solve, solver_named
from tests.support.auction.builders import auction, linear


@pytest.fixture(scope="module")
def five_apps():
    """Return an auction whose market has a shape that nothing else in this module has."""
    return auction([4, 4], *[linear(4, 6.0, "slot")] * 5)


def test_a_shape_met_for_the_first_time_is_compiled_outside_the_solve(five_apps):
    for compiled in (solve_all_present, solve_each_absent):
        compiled.clear_cache()
    seconds = solve(five_apps, "batched").stats.seconds
    assert seconds["compile"] > 5 * seconds["solve"] > 0


def test_solving_compiles_nothing_after_warming_up(five_apps):
    solver, options = solver_named("auction", "batched"), BatchedOptions()
    for compiled in (solve_all_present, solve_each_absent):
        compiled.clear_cache()
    solver.warm_up(five_apps, options)
    before = [compiled._cache_size() for compiled in (solve_all_present, solve_each_absent)]
    outcome = solver.run(five_apps, options, Monitor(), 0)
    assert before == [compiled._cache_size() for compiled in (solve_all_present, solve_each_absent)] == [1, 1]
    assert outcome.iterations > 0
