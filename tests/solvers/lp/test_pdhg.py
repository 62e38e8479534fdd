"""The first-order master against HiGHS on random packing programmes, its projection against brute force, its steps by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array

import optim
from optim.core.stopping import IterationLimit
from optim.solvers.lp.pdhg import Columns, _within_share, solve_pdhg, step_sizes
from tests.solvers.lp.test_interior_point import optimum, random_programme


@pytest.mark.parametrize("seed", range(25))
def test_both_values_enclose_the_optimum_and_meet(seed):
    matrix, job, value, num_jobs = random_programme(seed)
    expected = optimum(matrix, job, value, num_jobs)
    solved = solve_pdhg(matrix, job, value, num_jobs, tol=1e-4, most_steps=20_000)
    assert solved.is_converged
    assert expected * (1 - 1e-4) <= solved.value <= expected * (1 + 1e-9)
    assert expected * (1 - 1e-9) <= solved.bound <= expected * (1 + 1.1e-4)


@pytest.mark.parametrize("most_steps", [1, 40, 400])
def test_what_any_number_of_steps_gives_is_attained_and_proven(most_steps):
    matrix, job, value, num_jobs = random_programme(4)
    solved = solve_pdhg(matrix, job, value, num_jobs, tol=1e-12, most_steps=most_steps)
    assert solved.steps == most_steps
    assert not solved.is_converged
    assert (matrix @ solved.x <= 1 + 1e-12).all()
    assert (np.bincount(job, solved.x, num_jobs) <= 1 + 1e-9).all()
    assert solved.value == pytest.approx(value @ solved.x)
    assert (solved.row_price >= 0).all()
    loss = matrix.T @ solved.row_price + solved.job_price[job] - value
    np.testing.assert_allclose(solved.dual_slack, loss, atol=1e-12)
    assert (loss >= -1e-12).all()
    assert solved.bound == pytest.approx(solved.row_price.sum() + solved.job_price.sum())


def test_steps_go_on_from_where_others_ended():
    matrix, job, value, num_jobs = random_programme(4)
    before = solve_pdhg(matrix, job, value, num_jobs, tol=1e-4, most_steps=20_000)
    x, more = np.append(before.last_x, np.nan), np.append(matrix.toarray(), np.full((12, 1), 0.9), axis=1)
    found = solve_pdhg(
        csc_array(more), np.append(job, num_jobs - 1), np.append(value, 0.01), num_jobs,
        tol=1e-4, most_steps=20_000, x=x, row_price=before.last_price,
    )  # fmt: skip
    assert found.steps < before.steps / 3
    assert found.value == pytest.approx(before.value, rel=2e-4)


@given(x=st.lists(st.floats(-3, 3), min_size=1, max_size=6), scale=st.sampled_from([1.0, 1e3, 1e9]))
def test_shares_are_moved_to_the_nearest_point_that_sums_to_one_at_most(x, scale):
    point = scale * np.array(x)
    moved = point.copy()
    _within_share(moved)
    # The multiplier by bisection instead of by reductions.
    low, high = 0.0, 3.0 * scale
    for _ in range(100):
        middle = 0.5 * (low + high)
        if np.maximum(point - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    np.testing.assert_allclose(moved, np.maximum(point - high, 0), atol=1e-9 + 1e-14 * scale)


def test_rows_and_columns_without_entries_do_no_harm():
    matrix = csc_array(np.array([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    solved = solve_pdhg(matrix, np.array([0, 0, 2]), np.array([2.0, 1.0, 3.0]), 3, tol=1e-6, most_steps=4000)
    assert solved.value == pytest.approx(5.0)
    none = solve_pdhg(csc_array((2, 0)), np.zeros(0, dtype=np.int64), np.zeros(0), 1, tol=1e-6, most_steps=40)
    assert (none.value, none.bound) == (0.0, 0.0)


@pytest.mark.parametrize("name", ["small-0", "small-2"])
def test_column_generation_by_steps_finds_the_bound_of_newtons_method(monkeypatch, name):
    instance = optim.reference_instance(name)
    by_newton = optim.solve(instance, "column-generation")
    monkeypatch.setattr("optim.solvers.admission.packing.packing_lp.MAX_DENSE", 0)
    loose = optim.solve(instance, "column-generation", options={"tol": 1e-3})
    assert loose.stats.counts["newton_steps"] == 0 < loose.stats.counts["saddle_steps"]
    assert loose.stats.counts["master"] * (1 + 1e-3) >= loose.bound >= by_newton.bound * (1 - 1e-6)
    assert loose.stats.counts["master"] <= by_newton.bound
    assert optim.verify(instance, loose).is_ok


def test_a_large_master_that_is_stopped_fits_and_is_worth_what_is_said(monkeypatch):
    from optim.core.driver import Monitor
    from optim.solvers.admission.column_generation import ColumnGenerationOptions, solve_packing_lp
    from optim.solvers.admission.packing.capacity_rows import CapacityRows
    from optim.solvers.admission.pricing.classes import JobTables

    monkeypatch.setattr("optim.solvers.admission.packing.packing_lp.MAX_DENSE", 0)
    tables = JobTables.build(optim.reference_instance("small-2"))
    rows = CapacityRows.of(tables)
    for rounds in range(1, 4):
        options = ColumnGenerationOptions(tol=1e-4)
        result = solve_packing_lp(tables, rows, options, Monitor(IterationLimit(rounds)))
        assert (result.pool.share @ result.x <= 1 + 1e-9).all()
        assert 0.9 * result.master <= result.pool.value @ result.x <= result.master * (1 + 1e-9)


MASTER = Columns(
    job_start=np.array([0, 2, 3, 4, 4]),
    start=np.array([0, 1, 3, 4, 4]),
    row=np.array([0, 0, 1, 0], dtype=np.int32),
    entry=np.array([0.5, 0.25, 0.5, 0.5]),
    value=np.ones(4),
)
"""Four jobs on three rows: two columns, 0.5 of row 0 or 0.25 of it and 0.5 of row 1; one, 0.5 of row 0; an empty one; none."""


def test_a_step_is_the_inverse_sum_of_the_largest_entries():
    """Of a job: of its fullest column, 0.75 and 0.5. Of a row: over jobs, 0.5 + 0.5 and 0.5; row 2 has none."""
    job_step, row_step = np.full(4, np.nan), np.full(3, np.nan)
    step_sizes(MASTER, job_step, row_step)
    assert job_step == pytest.approx([1 / 0.75, 1 / 0.5, 1.0, 1.0])
    assert row_step == pytest.approx([1 / (0.5 + 0.5), 1 / 0.5, 0.0])
