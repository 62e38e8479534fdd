"""The C and Numba loops that kernels are compared with do the kernels' work, for every split over threads."""

from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest
from optim_studies.kernels import baselines
from optim_studies.kernels import baselines as module
from optim_studies.kernels.baselines import c_loops

from optim.kernels.parameter_server import Adagrad, Adam, Momentum, Sgd, apply_pushes


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
    """Numbers, and rows, some of them twice."""
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
    assert np.array_equal(w, source), "the copied values stay"
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
    """Linked with the usual fast flags, it would disable subnormal numbers for the entire process."""
    assert np.float64(5e-324) * 0.75 == 5e-324
    assert np.float64(2e-308) / 4 > 0


@pytest.fixture
def message():
    """Draw a table, and rows pushed into it, some of them twice."""
    rng = np.random.default_rng(3)
    rows = np.array([4, 0, 4, 2, 0, 4], np.int32)
    return rng.random((6, 3), dtype=np.float32), rows, rng.random((6, 3), dtype=np.float32)


def summed(rows, values):
    total = np.zeros((6, 3))
    np.add.at(total, rows, values)
    return total


def test_rows_step_as_often_as_they_are_pushed(message):
    table, rows, values = message
    expected = table - 0.1 * summed(rows, values)
    baselines.sparse_sgd(table, rows, values, 0.1)
    assert table == pytest.approx(expected, abs=1e-6)


def test_adagrad_adds_repeated_rows_up_before_it_squares_them(message):
    table, rows, values = message
    squares = np.full_like(table, 0.25)
    total = summed(rows, values)
    after = squares + total**2
    expected = np.where(total != 0, table - 0.1 * total / (np.sqrt(after) + 1e-3), table)
    baselines.sparse_adagrad(table, squares, rows, values, 0.1, 1e-3, np.zeros(6, np.int32), np.empty_like(values))
    assert squares == pytest.approx(after, abs=1e-6)
    assert table == pytest.approx(expected, abs=1e-6)


def test_rows_are_pulled_in_the_order_asked_for_and_vectors_copied(message):
    table, rows, _ = message
    out, flat = np.empty((6, 3), np.float32), np.empty(18, np.float32)
    baselines.pull(table, rows, out)
    baselines.copy(table.reshape(-1), flat)
    assert out.tolist() == table[rows].tolist()
    assert flat.tolist() == table.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("rule", "loop", "settings"),
    [
        (Sgd(learning_rate=0.1), baselines.dense_sgd, (0.1,)),
        (Momentum(learning_rate=0.1, decay=0.8), baselines.dense_momentum, (0.1, 0.8)),
        (Adagrad(learning_rate=0.1), baselines.dense_adagrad, (0.1, 1e-10)),
        (Adam(learning_rate=0.1), baselines.dense_adam, (0.1, 0.9, 0.999, 1e-8, 1)),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "learning_rate") else "",
)
def test_numba_makes_the_kernels_update_part_by_part(rule, loop, settings):
    rng = np.random.default_rng(0)
    start, pushes = rng.random(90, dtype=np.float32), [rng.random(90, dtype=np.float32) for _ in range(3)]
    own = [start.copy(), *(np.zeros(90, np.float32) for _ in range(rule.num_slots))]
    for low, high in ((0, 40), (40, 90)):
        loop(*own, tuple(pushes), *settings, low, high)
    parameters = jnp.array(start)
    sent = [jnp.array(push) for push in pushes]
    found, slots = apply_pushes(
        parameters, rule.initial_slots(parameters), sent, jnp.ones(3), jnp.int32(0), optimiser=rule
    )
    for mine, other in zip((found, *slots), own, strict=True):
        assert np.asarray(mine) == pytest.approx(other, abs=1e-5)
