"""Factors below a skyline solve what NumPy's dense solver solves, whatever the blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import LinAlgError

import optim
from optim.solvers.lp.interior_point import Skyline, SkylineFactor


def filled(layout, matrix):
    """Return the flat entries of a symmetric matrix's upper triangle."""
    flat = np.zeros(layout.num_entries)
    for j, base in enumerate(layout.base.tolist()):
        top = int(layout.first[np.searchsorted(layout.begin, j, side="right") - 1])
        for i in range(top, j + 1):
            flat[base + i] = matrix[i, j]
    return flat


def random_matrix(first_row, seed):
    """Return a positive definite matrix whose column j has nothing above row ``first_row[j]``."""
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
