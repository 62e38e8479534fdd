"""The Numba loops that kernels are measured beside do the kernels' work."""

import jax.numpy as jnp
import numpy as np
import pytest
from optim_studies.kernels import baselines

from optim.kernels.parameter_server import Adagrad, Adam, Momentum, Sgd, apply_pushes


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


def test_a_push_is_added_with_its_weight():
    total, gradient = np.array([1.0, 2.0], np.float32), np.array([4.0, -2.0], np.float32)
    baselines.push(total, gradient, 0.5)
    assert total.tolist() == [3.0, 1.0]


def test_numba_does_the_same_work_where_it_has_a_state_of_its_own():
    rng = np.random.default_rng(0)
    total, left, gradient = np.zeros(200, np.float32), np.zeros(200, np.float32), rng.random(200, dtype=np.float32)
    baselines.push_int8(total, left, gradient, rng.random(200, dtype=np.float32), 127.0)
    assert total + left == pytest.approx(gradient, abs=1e-6)
    assert np.abs(left).max() <= np.abs(gradient).max() / 127
    held, weights = gradient.copy(), np.array([1.0, 0.5], np.float32)
    baselines.damped_sgd(held, np.stack([gradient, gradient]), weights, 0.1)
    assert held == pytest.approx(gradient * 0.85, abs=1e-6)


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
