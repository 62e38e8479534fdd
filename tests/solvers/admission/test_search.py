"""Neighbourhood search and price-and-branch: plans that verify, an incremental state that never drifts."""

import numpy as np
import pytest

import optim
from optim.core.errors import InvalidOptionError
from optim.solvers.admission.neighbourhood.plan_moves import Neighbourhood
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.dual_points import search_scale
from optim.solvers.admission.pricing.job_tables import JobTables

BEST_KNOWN = {"tiny-0": 63.885, "tiny-1": 168.34535773057462, "tiny-2": 307.838127568622}
"""Optima on real servers, by the compact MILP."""


@pytest.fixture(name="search")
def fixture_search():
    """A neighbourhood over small-0 at prices from a line search, with a first plan."""
    instance = optim.reference_instance("small-0")
    tables = JobTables.build(instance)
    rows = CapacityRows.of(tables)
    start = np.divide(1.0, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0)
    search = Neighbourhood(tables, rows, search_scale(tables, rows, start), seed=5)
    search.construct(np.arange(instance.num_jobs), 0.5)
    return search


@pytest.mark.parametrize("name", sorted(BEST_KNOWN))
def test_search_finds_the_optimum_of_tiny_instances(name):
    instance = optim.reference_instance(name)
    solution = optim.solve(instance, "search", options={"num_moves": 20_000})
    assert solution.objective == pytest.approx(BEST_KNOWN[name], rel=1e-9)
    assert optim.verify(instance, solution).is_ok


@pytest.mark.parametrize("solver", ["search", "price-and-branch"])
def test_same_seed_gives_the_same_plan(solver):
    instance = optim.reference_instance("small-1")
    options = {"num_moves": 1000} if solver == "search" else {}
    first, second = (optim.solve(instance, solver, options=options, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.decision.workers, second.decision.workers)
    np.testing.assert_array_equal(first.decision.ps, second.decision.ps)
    assert optim.verify(instance, first).is_ok


def test_residuals_equal_capacity_less_the_plan_after_any_moves(search):
    full = search.state.workers.left.copy(), search.state.ps.left.copy()
    search.run(500, 0.1, 5)
    search.clear()
    instance = search.instance
    for left, servers in (
        (search.state.workers.left, instance.worker_servers),
        (search.state.ps.left, instance.ps_servers),
    ):
        expected = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
        np.testing.assert_array_equal(left, expected)
    assert (full[0] >= 0).all()
    assert (full[1] >= 0).all()


def test_moves_never_lose_the_best_plan(search):
    record = search.record
    for _ in range(5):
        search.run(100, 50.0, 8)
        assert search.record >= record
        record = search.record
        assert search.best_plan().objective(search.instance) == pytest.approx(record)


def test_an_adopted_plan_is_continued_from(search):
    plan = search.best_plan()
    search.clear()
    search.adopt(plan)
    assert search.value == pytest.approx(plan.objective(search.instance))
    search.run(50, 1.0, 3)
    assert search.record >= plan.objective(search.instance) - 1e-9


@pytest.mark.parametrize(
    "options",
    [
        {"lp_tol": 0.0},  # a relative gap of zero is never reached
        {"num_moves": -1},  # counts can't be negative
        {"largest_ruin": 0},  # a move must take a job out
        {"start_heat": 0.001, "end_heat": 0.01},  # cooling must not heat
        {"temperature": 3},  # unknown name
    ],
)
def test_refuses_bad_options(options):
    with pytest.raises(InvalidOptionError):
        optim.solve(optim.reference_instance("tiny-0"), "search", options=options)


def test_time_limit_zero_still_returns_a_verified_solution():
    instance = optim.reference_instance("small-2")
    solution = optim.solve(instance, "search", time_limit_s=0.0)
    assert solution.termination == "time_limit"
    assert optim.verify(instance, solution).is_ok
