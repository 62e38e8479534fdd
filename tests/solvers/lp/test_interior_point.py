"""The interior-point master against HiGHS on random packing programmes, and its factors below a skyline."""

import highspy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import LinAlgError
from scipy.sparse import csc_array, random_array

import optim
from optim.solvers.lp.highs import silent_highs
from optim.solvers.lp.interior_point import (
    NewtonSystem,
    Skyline,
    SkylineFactor,
    WarmStart,
    newton_matrix,
    solve_packing,
)


def random_programme(seed):
    """A packing programme with a few jobs, each with several columns, rows scaled to right-hand side 1."""
    rng = np.random.default_rng(seed)
    num_rows, num_jobs = 12, 6
    job = np.sort(rng.integers(0, num_jobs, 30))
    matrix = csc_array(
        random_array((num_rows, 30), density=0.3, rng=rng, data_sampler=lambda size: rng.random(size) + 0.1)
    )
    return with_wide_indices(matrix), job, rng.random(30) * 10 + 1, num_jobs


def with_wide_indices(matrix):
    """The same matrix with indices of 64 bits, as columns have them: loops are compiled for no others."""
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return matrix


def optimum(matrix, job, value, num_jobs):
    """The optimum by HiGHS' simplex."""
    solver = silent_highs()
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    count = len(value)
    solver.addVars(count, np.zeros(count), np.full(count, highspy.kHighsInf))
    solver.changeColsCost(count, np.arange(count, dtype=np.int32), value)
    dense = np.vstack([matrix.toarray(), np.equal(job[None, :], np.arange(num_jobs)[:, None])])
    for row in dense:
        index = np.flatnonzero(row).astype(np.int32)
        solver.addRow(-highspy.kHighsInf, 1.0, len(index), index, row[index].astype(float))
    solver.run()
    return solver.getInfo().objective_function_value


@pytest.mark.parametrize("seed", range(25))
def test_value_and_duals_reach_the_optimum(seed):
    matrix, job, value, num_jobs = random_programme(seed)
    expected = optimum(matrix, job, value, num_jobs)
    solved = solve_packing(matrix, job, value, num_jobs, tol=1e-8)
    assert solved.is_converged
    assert solved.value == pytest.approx(expected, rel=1e-7)
    assert solved.row_price.sum() + solved.job_price.sum() == pytest.approx(expected, rel=1e-7)
    assert (matrix @ solved.x <= 1 + 1e-8).all()
    assert (matrix.T @ solved.row_price + solved.job_price[job] >= value - 1e-6).all()


@pytest.mark.parametrize("seed", range(25))
def test_a_point_of_fewer_columns_and_rows_is_a_start(seed):
    matrix, job, value, num_jobs = random_programme(seed)
    rng = np.random.default_rng(seed)
    old, kept = np.flatnonzero(rng.random(30) < 0.7), np.flatnonzero(rng.random(12) < 0.7)
    before = solve_packing(csc_array(matrix[kept][:, old]), job[old], value[old], num_jobs, tol=1e-4)
    x, row_price = np.full(30, np.nan), np.zeros(12)
    x[old], row_price[kept] = before.x, before.row_price
    start = WarmStart(x=x, row_price=row_price, job_price=before.job_price, complementarity=1e-3)
    solved = solve_packing(matrix, job, value, num_jobs, tol=1e-8, start=start)
    assert solved.is_converged
    assert solved.value == pytest.approx(optimum(matrix, job, value, num_jobs), rel=1e-7)


def test_a_start_is_shrunk_until_every_row_has_room_and_never_stretched():
    """By hand: two columns of two jobs, with values so small that the first point is good enough.

    Both rows may hold 1.
    """
    matrix = with_wide_indices(csc_array(np.array([[1.0, 1.0], [0.5, 0.0]])))
    job, value = np.arange(2), np.array([0.01, 0.02])
    for shares, expected in ([0.25, 0.5], [0.25, 0.5]), ([0.75, 0.5], [0.6, 0.4]):
        start = WarmStart(x=np.array(shares), row_price=np.zeros(2), job_price=value, complementarity=1e-3)
        solved = solve_packing(matrix, job, value, 2, tol=1.0, start=start)
        assert solved.iterations == 0
        assert solved.x == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-8])
def test_every_answer_is_feasible_to_rounding(tol):
    matrix, job, value, num_jobs = random_programme(4)
    solved = solve_packing(matrix, job, value, num_jobs, tol=tol)
    assert (matrix @ solved.x <= 1 + 1e-14).all()
    assert (np.bincount(job, solved.x, num_jobs) <= 1 + 1e-14).all()
    assert solved.value <= solved.row_price.sum() + solved.job_price.sum() + 1e-9


def test_solves_the_exact_system_with_columns_ignored_in_the_factor(monkeypatch):
    matrix, job, _, num_jobs = random_programme(3)
    matrix.sort_indices()
    rng = np.random.default_rng(0)
    weight, row_ratio, job_ratio = 10.0 ** rng.uniform(-4, 0, 30), rng.random(12), rng.random(num_jobs)
    right = rng.random(12)
    exact, rough = (NewtonSystem(matrix, job, num_jobs) for _ in range(2))
    monkeypatch.setattr("optim.solvers.lp.interior_point.IGNORED_WEIGHT", 0.0)
    assert exact.factorise(weight, row_ratio, job_ratio)
    monkeypatch.setattr("optim.solvers.lp.interior_point.IGNORED_WEIGHT", 1e-2)
    assert rough.factorise(weight, row_ratio, job_ratio)
    np.testing.assert_allclose(rough.solve(right), exact.solve(right), rtol=1e-6)


def test_newton_matrix_equals_its_definition():
    matrix, job, _, num_jobs = random_programme(3)
    matrix.sort_indices()
    rng = np.random.default_rng(0)
    weight, row_ratio, job_ratio = rng.random(30) + 0.1, rng.random(12), rng.random(num_jobs)
    start = np.searchsorted(job, np.arange(num_jobs + 1))
    newton, diagonal = newton_matrix(
        12 * np.arange(12), 144, start, matrix.indptr, matrix.indices, matrix.data, weight, row_ratio, job_ratio, 0.0
    )
    dense = matrix.toarray()
    member = np.equal(job[None, :], np.arange(num_jobs)[:, None]).astype(float)
    coupling = member @ np.diag(weight) @ dense.T
    expected_diagonal = member @ weight + job_ratio
    expected = dense @ np.diag(weight) @ dense.T + np.diag(row_ratio)
    expected -= coupling.T @ np.diag(1 / expected_diagonal) @ coupling
    np.testing.assert_allclose(diagonal, expected_diagonal)
    np.testing.assert_allclose(newton.reshape(len(dense), -1), np.tril(expected), atol=1e-12)


def test_newton_matrix_keeps_its_digits_where_one_column_dominates():
    dense = np.array([[1.0, 0.5], [0.25, 1.0]])
    matrix = with_wide_indices(csc_array(dense))
    weight = np.array([1e12, 1.0])
    newton, _ = newton_matrix(
        np.array([0, 2]),
        4,
        np.array([0, 2]),
        matrix.indptr,
        matrix.indices,
        matrix.data,
        weight,
        np.zeros(2),
        np.zeros(1),
        0.0,
    )
    difference = dense[:, 1] - dense[:, 0]
    np.testing.assert_allclose(newton.reshape(len(dense), -1), np.tril(np.outer(difference, difference)), rtol=1e-9)


@pytest.mark.parametrize("weights", [(0.0, 0.0), (np.nan, 1.0)])
def test_a_job_whose_columns_weigh_nothing_has_no_newton_step(weights):
    """As where numbers of an instance are so far apart that x / z underflows: the programme is left unsolved, not crashed."""
    system = NewtonSystem(csc_array(np.array([[1.0, 1.0]])), np.array([0, 0]), 1)
    assert system.factorise(np.ones(2), np.ones(1), np.ones(1))
    assert not system.factorise(np.array(weights), np.ones(1), np.zeros(1))


def filled(layout, matrix):
    """Return the flat entries of a symmetric matrix's upper triangle."""
    flat = np.zeros(layout.num_entries)
    for j, base in enumerate(layout.base.tolist()):
        top = int(layout.first[np.searchsorted(layout.begin, j, side="right") - 1])
        for i in range(top, j + 1):
            flat[base + i] = matrix[i, j]
    return flat


def random_matrix(first_row, seed):
    """Return a positive definite matrix whose column j has no entry above row ``first_row[j]``."""
    rng = np.random.default_rng(seed)
    count = len(first_row)
    upper = np.triu(rng.normal(size=(count, count)))
    upper[np.arange(count)[:, None] < first_row[None, :]] = 0.0
    # By its factor: U'U has the skyline of U.
    upper[np.diag_indices(count)] = 1.0 + rng.random(count)
    return upper.T @ upper


@given(data=st.data(), seed=st.integers(0, 2**32 - 1), block=st.integers(1, 9), is_dense=st.booleans())
def test_solves_as_the_dense_solver_does(data, seed, block, is_dense):
    count = data.draw(st.integers(0, 20))
    first_row = np.array([data.draw(st.integers(0, j)) for j in range(count)], dtype=np.int64)
    matrix = random_matrix(first_row, seed)
    layout = Skyline.over(first_row, max_dense=count if is_dense else 0, block=block)
    right = np.random.default_rng(seed).normal(size=count)
    found = SkylineFactor(layout, filled(layout, matrix)).solve(right)
    np.testing.assert_allclose(matrix @ found, right, atol=1e-7 * float(np.abs(found).max(initial=1.0)))


def test_keeps_nothing_above_the_blocks_of_the_skyline():
    narrow = np.maximum(np.arange(100) - 3, 0)
    assert Skyline.over(narrow, max_dense=0, block=4).num_entries <= 100 * 11
    assert Skyline.over(narrow).num_entries == 100 * 100


@pytest.mark.parametrize("block", [2, 8])
def test_a_matrix_that_is_not_positive_definite_is_refused(block):
    matrix = np.eye(6)
    matrix[4, 5] = matrix[5, 4] = 2.0
    layout = Skyline.over(np.zeros(6, dtype=np.int64), max_dense=0, block=block)
    with pytest.raises(LinAlgError, match="at row 5"):
        SkylineFactor(layout, filled(layout, matrix))


def test_column_generation_finds_the_same_bound_with_skylines(monkeypatch):
    instance = optim.reference_instance("small-1")
    dense = optim.solve(instance, "column-generation")
    over, layouts = Skyline.over, []

    def in_blocks(first_row):
        layouts.append(over(first_row, max_dense=0, block=5))
        return layouts[-1]

    monkeypatch.setattr(Skyline, "over", in_blocks)
    monkeypatch.setattr("optim.solvers.admission.packing.packing_lp.MAX_DENSE", 0)
    found = optim.solve(instance, "column-generation")
    assert found.bound == pytest.approx(dense.bound, rel=2e-6)
    assert all(len(layout.first) > 1 for layout in layouts)
