"""A single shard: the pushes that it accepts, the order of its additions, and its answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from optim.kernels.parameter_server import Adagrad, Adam, RowLayout, Rows, Sgd, push_sparse
from optim.kernels.parameter_server.sparse import add_rows
from optim.training.messages import Applied, Copy, Host, Push, ShardValues
from optim.training.server import ServedShard, apply_row_pushes

SIZE, P, CLOCKS = 64, 6, 3
RNG = np.random.default_rng(0)
GRADIENTS = RNG.standard_normal((CLOCKS, P, SIZE)).astype(np.float32)
START = RNG.standard_normal(SIZE).astype(np.float32)


def make_shard(sync_every=2):
    slots = (np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32))
    values = ShardValues(0, 0, START, slots)
    optimiser = Adam(learning_rate=0.1)
    return ServedShard(Host(generation=1, values=values, optimiser=optimiser, num_partitions=P, sync_every=sync_every))


def push(clock, partition):
    gradient = GRADIENTS[clock, partition]
    return Push(generation=1, shard=0, partition=partition, clock=clock, gradient=gradient, weight=1.0 + partition)


def play(order, shard=None):
    shard = make_shard() if shard is None else shard
    replies = [reply for clock, partition in order for reply in shard.push(push(clock, partition))]
    return shard, replies


IN_ORDER = [(clock, partition) for clock in range(CLOCKS) for partition in range(P)]


@given(st.permutations(IN_ORDER), st.lists(st.sampled_from(IN_ORDER), max_size=5))
def test_neither_order_nor_repetition_of_pushes_changes_a_bit(order, repeated):
    expected, _ = play(IN_ORDER)
    shard, replies = play([*order, *repeated])
    assert np.array_equal(shard.values().parameters, expected.values().parameters)
    assert all(map(np.array_equal, shard.values().slots, expected.values().slots))
    assert [reply.clock for reply in replies if isinstance(reply, Applied)] == [1, 2, 3]


def test_without_the_fixed_order_of_the_sum_bits_differ(monkeypatch):
    """The guard behind the test above: the order of arrival would show."""
    expected, _ = play(IN_ORDER)
    monkeypatch.setattr(ServedShard, "_order", lambda self, pushes: list(pushes))
    shard, _ = play(IN_ORDER[::-1])
    assert not np.array_equal(shard.values().parameters, expected.values().parameters)


@pytest.mark.parametrize("sync_every", [1, 2, 4])
def test_a_copy_is_sent_at_every_clock_that_is_asked_for_with_the_values_of_that_clock(sync_every):
    # At the second clock one partition has no gradient, at the third none has.
    clocks = [[push(clock, partition) for partition in range(P)] for clock in range(CLOCKS)]
    clocks[1][2] = replace(clocks[1][2], weight=0.0)
    clocks[2] = [replace(each, weight=0.0) for each in clocks[2]]
    shard, replies = make_shard(sync_every), []
    for pushes in clocks:
        replies += [reply for each in pushes for reply in shard.push(each)]
    copies = {reply.values.clock: reply.values for reply in replies if isinstance(reply, Copy)}
    assert list(copies) == [clock for clock in (1, 2, 3) if clock % sync_every == 0]
    published = {reply.clock: reply.parameters for reply in replies if isinstance(reply, Applied)}
    assert all(np.array_equal(values.parameters, published[clock]) for clock, values in copies.items())
    assert np.array_equal(published[3], published[2])


@pytest.mark.parametrize("kind", [Applied, Copy])
def test_what_was_handed_out_does_not_change_later(kind):
    shard, replies = play(IN_ORDER[: 2 * P])
    sent = [reply for reply in replies if isinstance(reply, kind)][-1]
    vector = sent.parameters if kind is Applied else sent.values.parameters
    before = vector.copy()
    play(IN_ORDER[2 * P :], shard)
    assert np.array_equal(vector, before)


@pytest.mark.parametrize("method", ["loop", "sort"])
@pytest.mark.parametrize("optimiser", [Sgd(learning_rate=0.1), Adagrad(learning_rate=0.1)])
def test_pushes_by_rows_change_the_table_as_one_push_of_all_their_rows_does(optimiser, method):
    width, weights = 4, np.array([1, 2, 5], np.float32)
    rows = [np.sort(RNG.choice(16, size, replace=False)).astype(np.int32) for size in (3, 7, 12)]
    values = [RNG.standard_normal((len(each), width)).astype(np.float32) for each in rows]
    layout = RowLayout(optimiser=optimiser, width=width, method=method)
    start = jnp.asarray(START), optimiser.initial_slots(jnp.asarray(START))
    gradients = [jnp.asarray(each.ravel()) for each in values]
    parameters, slots = apply_row_pushes(*start, gradients, rows, weights, np.int32(0), layout=layout)
    shares = [each * share for each, share in zip(values, weights / weights.sum(), strict=True)]
    table = Rows(jnp.asarray(START.reshape(-1, width)), optimiser.initial_slots(jnp.zeros((16, width))))
    table = push_sparse(table, np.concatenate(rows), np.concatenate(shares), np.int32(0), layout=layout)
    for flat, expected in zip((parameters, *slots), (table.parameters, *table.slots), strict=True):
        assert np.allclose(flat.reshape(-1, width), expected, rtol=1e-5, atol=1e-6)  # a few roundings of float32


@pytest.mark.prove  # less optimisation contracts nothing
def test_products_are_rounded_before_they_are_added():
    values, share = RNG.standard_normal((50, 8)).astype(np.float32), np.float32(0.3)
    rows = (np.arange(50) % 5).astype(np.int32)
    once = jax.jit(lambda *pushed: add_rows(jnp.zeros((5, 8)), *pushed))(rows, values, share)
    assert np.array_equal(once, add_rows(jnp.zeros((5, 8)), rows, share * values))
