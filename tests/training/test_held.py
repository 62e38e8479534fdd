"""A shard's arrays: by rows and by whole gradients the same update, and the choice between the two."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.kernels.parameter_server import Adagrad, Sgd
from optim.training.messages import Push
from optim.training.server import HostRows, ShardStore, is_by_rows, padded

ROWS, WIDTH = 9, 4
SIZE = ROWS * WIDTH
RNG = np.random.default_rng(3)
START = RNG.standard_normal(SIZE).astype(np.float32)


def push(partition, rows, *, width=WIDTH, weight_decay_center=None, density=0.1, weight=None):
    rows = np.array(rows, dtype=np.int32)
    gradient = np.random.default_rng(partition).standard_normal(len(rows) * width).astype(np.float32)
    weight = 1.0 + partition if weight is None else weight
    return Push(
        generation=0, shard=0, partition=partition, clock=0, gradient=gradient, rows=rows, width=width, weight_decay_center=weight_decay_center,
        density=density, weight=weight,
    )  # fmt: skip


def dense(one):
    table = np.zeros((SIZE // one.width, one.width))
    for row, values in zip(one.rows, one.gradient.reshape(-1, one.width), strict=True):
        table[row] = values
    return table.ravel()


def plain(pushes, parameters, squares, rate, weight_decay_center=None):
    """Adagrad (or descent, without squares) in float64 by the weighted mean."""
    weights = np.array([one.weight for one in pushes])
    mean = weights @ [dense(one) for one in pushes] / weights.sum()
    if weight_decay_center is not None:
        mean = mean + parameters - weight_decay_center
    if squares is None:
        return parameters - rate * mean, None
    squares = squares + mean**2
    return parameters - rate * mean / (np.sqrt(squares) + 1e-10), squares


def held(rule):
    return ShardStore(START, [np.zeros(SIZE, np.float32)] * rule.num_slots, rule)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("rule", [Sgd(learning_rate=0.3), Adagrad(learning_rate=0.3)])
def test_rows_and_whole_gradients_in_turns_are_the_same_update(rule, platform, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    arrays, squares = held(rule), np.zeros(SIZE) if rule.num_slots else None
    expected = START.astype(np.float64)
    turns = [
        [push(0, [1, 2, 8]), push(1, [2, 3]), push(2, [])],
        [push(3, [0, 2]), push(4, [2, 4, 5])],
        [push(5, [0, 7, 30], width=1), push(6, [7], width=1)],
        [push(7, [6])],
    ]
    for clock, pushes in enumerate(turns):
        if clock == 1:
            arrays.apply_whole([arrays.whole(one) for one in pushes], [one.weight for one in pushes], clock)
        else:
            arrays.apply_rows(pushes, clock)
        expected, squares = plain(pushes, expected, squares, 0.3)
        assert np.asarray(arrays.parameters()) == pytest.approx(expected, abs=1e-5)
        if squares is not None:
            assert np.asarray(arrays.slots()[0]) == pytest.approx(squares, abs=1e-5)


@pytest.mark.parametrize("is_by_row", [True, False])
def test_what_draws_the_parameters_is_a_part_of_every_gradient(is_by_row):
    arrays, expected = held(Sgd(learning_rate=0.5)), START.astype(np.float64)
    for clock, rows in enumerate(([1, 2], [0, 8])):
        pushes = [push(0, rows, weight_decay_center=0.25), push(1, [2], weight_decay_center=0.25)]
        if is_by_row:
            arrays.apply_rows(pushes, clock)
        else:
            arrays.apply_whole([arrays.whole(one) for one in pushes], [one.weight for one in pushes], clock)
        expected, _ = plain(pushes, expected, None, 0.5, 0.25)
        assert np.asarray(arrays.parameters()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("platform", "is_here"), [("cpu", True), ("gpu", False)])
def test_rows_lie_in_this_processs_memory_on_a_cpu(platform, is_here, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    pushed = []
    monkeypatch.setattr(HostRows, "push", lambda self, rows, values, clock: pushed.append(clock))
    held(Sgd(learning_rate=0.1)).apply_rows([push(0, [1])], 7)
    assert pushed == [7] * is_here


def test_what_was_given_stays_as_it_was():
    start = START.copy()
    arrays = ShardStore(start, (), Sgd(learning_rate=1.0))
    arrays.apply_rows([push(0, [1])], 0)
    arrays.apply_whole([np.ones(SIZE, np.float32)], [1.0], 1)
    assert np.array_equal(start, START)


@given(st.integers(0, 10**6))
def test_padding_is_an_eighth_at_most_and_leaves_few_lengths(count):
    length = padded(count)
    assert max(64, count) <= length <= max(64, count * 1.125 + 64)
    assert length.bit_length() <= 7 or length % (1 << (length.bit_length() - 5)) == 0


def test_few_rows_are_applied_as_such_and_many_as_whole_gradients():
    few, many = ([push(k, [k], density=density) for k in range(4)] for density in (0.02, 0.9))
    assert is_by_rows(few, 0)
    assert is_by_rows(few, 1)
    assert is_by_rows(few[:1], 0), "of one partition"
    assert not is_by_rows(many, 0)
    # Whole gradients pass over the slots too; narrow rows cost more for each of their numbers.
    middle = [push(k, [k], density=0.25) for k in range(4)]
    assert (is_by_rows(middle, 0), is_by_rows(middle, 1)) == (False, True)
    assert not is_by_rows([push(k, [k], width=1, density=0.25) for k in range(4)], 1)


def test_an_accelerator_sorts_rows_and_compares_bytes(monkeypatch):
    pushes = [push(k, [k], density=0.3) for k in range(4)]
    assert not is_by_rows(pushes, 0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert is_by_rows(pushes, 0)
    assert not is_by_rows([push(k, [k], density=0.5) for k in range(4)], 0)


@pytest.mark.parametrize(
    "other",
    [
        push(1, [1, 2], width=2, density=0.01),
        push(1, [1], weight_decay_center=1.0, density=0.01),
        Push(generation=0, shard=0, partition=1, clock=0, gradient=START, weight=1.0),
    ],
)
def test_pushes_of_several_kinds_are_applied_whole(other):
    one = push(0, [1], density=0.01)
    assert is_by_rows([one, one], 0)
    assert not is_by_rows([one, other], 0)
