"""The loops in C do what NumPy does, whatever part each thread has."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from optim_studies.kernels import baselines as module
from optim_studies.kernels.baselines import c_loops


@pytest.fixture(scope="module")
def loops():
    """Loops on three threads, where a compiler is."""
    with ThreadPoolExecutor(3) as pool:
        found = c_loops(pool, 3)
        if found is None:
            pytest.skip("no C compiler")
        yield found


@pytest.fixture
def draw():
    """Numbers, and rows of which some come twice."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 30, 50).astype(np.int32)
    table, values = rng.random((30, 20), np.float32), rng.random((50, 20), np.float32)
    return rng, rows, table, values


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_dense_steps_and_copies_are_numpys(loops, draw, size):
    rng = draw[0]
    w, pushes = rng.random(size, np.float32), [rng.random(size, np.float32) for _ in range(3)]
    expected = w - 0.1 * np.mean(pushes, axis=0)
    loops.dense_sgd(w, pushes, 0.1)
    np.testing.assert_allclose(w, expected, rtol=1e-5, atol=1e-6)
    source, target = w.copy(), np.zeros(size, np.float32)
    loops.stream_copy(w, target)
    assert np.array_equal(target, source)
    assert np.array_equal(w, source), "what is copied stays"
    loops.in_place(target)
    np.testing.assert_allclose(target, w + 1, rtol=1e-6)


def test_pushed_rows_are_numpys(loops, draw):
    _, rows, table, values = draw
    expected = table.copy()
    np.subtract.at(expected, rows, np.float32(0.1) * values)
    loops.sparse_sgd(table, rows, values, 0.1)
    np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-6)
    out = np.empty((50, 20), np.float32)
    loops.pull(table, rows, out)
    assert np.array_equal(out, table[rows])


def test_repeated_rows_add_up_before_adagrad_squares_them(loops, draw):
    _, rows, table, values = draw
    squares, first, after = np.ones_like(table), np.full(30, -1, np.int32), np.empty(50, np.int32)
    total = np.zeros_like(table)
    np.add.at(total, rows, values)
    kept, own = squares + total**2, table.copy()
    loops.sparse_adagrad(table, squares, rows, values, 0.1, 1e-7, first, after)
    assert (first == -1).all(), "as it was, for the next push"
    np.testing.assert_allclose(squares, kept, rtol=1e-4)
    np.testing.assert_allclose(table, own - 0.1 * total / (np.sqrt(kept) + 1e-7), rtol=1e-4, atol=1e-6)


def test_without_a_compiler_there_are_no_loops(monkeypatch):
    module._compiled.cache_clear()
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert c_loops(None, 1) is None
    module._compiled.cache_clear()


def test_subnormal_numbers_are_still_there_once_the_library_is_loaded(loops):
    """Linked with the usual fast flags, it would switch them off for the whole process."""
    assert np.float64(5e-324) * 0.75 == 5e-324
    assert np.float64(2e-308) / 4 > 0
