"""A shard's arrays: updates by rows and by full gradients are equal, and the choice between them."""

import jax
import numpy as np
import pytest

from optim.kernels.parameter_server import Adagrad, Sgd
from optim.training.messages import Host, Push, Pushes, ShardValues
from optim.training.server import ServedShard, is_by_rows

ROWS, WIDTH = 9, 4
SIZE = ROWS * WIDTH
RNG = np.random.default_rng(3)
START = RNG.standard_normal(SIZE).astype(np.float32)


def push(partition, rows, *, width=WIDTH, density=0.1, weight=None):
    rows = np.array(rows, dtype=np.int32)
    gradient = np.random.default_rng(partition).standard_normal(len(rows) * width).astype(np.float32)
    weight = 1.0 + partition if weight is None else weight
    return Push(
        generation=0, shard=0, partition=partition, clock=0, gradient=gradient, rows=rows, width=width,
        density=density, weight=weight,
    )  # fmt: skip


def dense(one):
    if one.rows is None:
        return one.gradient
    table = np.zeros((SIZE // one.width, one.width))
    for row, values in zip(one.rows, one.gradient.reshape(-1, one.width), strict=True):
        table[row] = values
    return table.ravel()


def plain(pushes, parameters, squares, rate):
    """Adagrad (or descent, without squares) in float64 by the weighted mean."""
    weights = np.array([one.weight for one in pushes])
    mean = weights @ [dense(one) for one in pushes] / weights.sum()
    if squares is None:
        return parameters - rate * mean, None
    squares = squares + mean**2
    return parameters - rate * mean / np.sqrt(squares + 1e-20), squares


def held(rule, pushes=Pushes.ROWS):
    values = ShardValues(0, 0, START, (np.zeros(SIZE, np.float32),) * rule.num_slots)
    return ServedShard(
        Host(generation=0, values=values, optimiser=rule, num_partitions=1, sync_every=99, pushes=pushes)
    )


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("rule", [Sgd(learning_rate=0.3), Adagrad(learning_rate=0.3)])
def test_rows_and_whole_gradients_in_turns_are_the_same_update(rule, platform, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    shard, squares = held(rule), np.zeros(SIZE) if rule.num_slots else None
    expected = START.astype(np.float64)
    whole = Push(generation=0, shard=0, partition=9, clock=0, gradient=START[::-1].copy(), rows=None, weight=0.5)
    turns = [
        [push(0, [1, 2, 8]), push(1, [2, 3]), push(2, [])],
        [push(3, [0, 2]), push(4, [2, 4, 5]), whole],
        [push(5, [0, 7, 30], width=1), push(6, [7], width=1)],
        [push(7, [6])],
    ]
    for pushes in turns:
        shard._apply(pushes)
        expected, squares = plain(pushes, expected, squares, 0.3)
        assert np.asarray(shard.values().parameters) == pytest.approx(expected, abs=1e-5)
        if squares is not None:
            assert np.asarray(shard.values().slots[0]) == pytest.approx(squares, abs=1e-5)


def test_pushes_by_rows_are_applied_whole_where_that_is_sooner():
    pushes = [push(0, [1, 2, 8], density=0.9), push(1, [2, 3], density=0.9)]
    shard = held(Sgd(learning_rate=0.3), Pushes.AUTO)
    assert not shard._takes_rows(pushes)
    shard._apply(pushes)
    expected, _ = plain(pushes, START.astype(np.float64), None, 0.3)
    assert np.asarray(shard.values().parameters) == pytest.approx(expected, abs=1e-5)


def test_what_was_given_and_what_was_published_stay_as_they_were():
    start = START.copy()
    shard = held(Adagrad(learning_rate=1.0))
    published = shard.applied().parameters
    saved = shard.values()
    for turn in range(3):
        shard._apply([push(turn, [1])])
    assert np.array_equal(start, START)
    assert np.array_equal(published, START)
    assert not np.any(saved.slots[0])


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
        Push(generation=0, shard=0, partition=1, clock=0, gradient=START, weight=1.0),
    ],
)
def test_pushes_of_several_kinds_are_applied_whole(other):
    one = push(0, [1], density=0.01)
    assert is_by_rows([one, one], 0)
    assert not is_by_rows([one, other], 0)
