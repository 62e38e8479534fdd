"""Backups: a message counts once, and a replayed gradient gives the server's own bits; snapshots are consistent."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim.kernels.parameter_server.delta as delta_module
from optim.kernels.parameter_server import (
    Adam,
    Backup,
    GradientDelta,
    Momentum,
    Sgd,
    apply_pushes,
    copy_arrays,
    replay_gradients,
    shard_ranges,
)

SIZE, CLOCKS = 9, 5
OPTIMISERS = (Sgd(learning_rate=0.1), Momentum(learning_rate=0.1), Adam(learning_rate=0.1))
RNG = np.random.default_rng(0)
PUSHES = RNG.normal(size=(CLOCKS, 3, SIZE)).astype(np.float32)
WEIGHTS = jnp.asarray([1.0, 2.0, 0.5])


def optimisers():
    return pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: type(optimiser).__name__)


def advance(arrays, clock, optimiser, keep=False, part=slice(None)):
    pushes = [jnp.asarray(push[part]) for push in PUSHES[clock]]
    return apply_pushes(*arrays, pushes, WEIGHTS, jnp.int32(clock), optimiser=optimiser, keep=keep)


def start(optimiser, size=SIZE):
    parameters = jnp.zeros(size)
    return parameters, optimiser.initial_slots(parameters)


def gradients(low, high):
    """Return the message with the pushes of clocks low to high."""
    pushes = tuple(tuple(jnp.asarray(push) for push in PUSHES[clock]) for clock in range(low, high))
    return GradientDelta(shard=0, from_clock=low, pushes=pushes, weights=(WEIGHTS,) * (high - low))


def flat(arrays):
    parameters, slots = arrays
    return np.concatenate([np.asarray(array) for array in (parameters, *slots)])


def history(optimiser):
    """Return the active server's arrays after each number of clocks."""
    arrays = start(optimiser)
    found = [flat(arrays)]
    for clock in range(CLOCKS):
        arrays = advance(arrays, clock, optimiser)
        found.append(flat(arrays))
    return found


intervals = st.tuples(st.integers(0, CLOCKS), st.integers(0, CLOCKS)).map(sorted)
messages = st.lists(intervals, max_size=12)


@optimisers()
@given(sent=messages)
def test_replayed_gradients_give_the_active_bits_whatever_is_repeated_late_or_reordered(optimiser, sent):
    wanted = history(optimiser)
    backup = Backup(0, 0, *start(optimiser))
    for low, high in sent:
        clock = backup.clock
        backup, is_taken = replay_gradients(backup, gradients(low, high), optimiser=optimiser)
        assert is_taken == (low == clock and high > low)
        assert backup.clock == (high if is_taken else clock)
    assert np.array_equal(flat((backup.parameters, backup.slots)), wanted[backup.clock])


@optimisers()
def test_without_the_guard_a_repeated_message_counts_twice(optimiser, monkeypatch):
    monkeypatch.setattr(delta_module, "_follows", lambda *_: True)
    backup = Backup(0, 0, *start(optimiser))
    for low, high in [(0, 1), (0, 1), (1, 2)]:
        backup, _ = replay_gradients(backup, gradients(low, high), optimiser=optimiser)
    assert not np.array_equal(flat((backup.parameters, backup.slots)), history(optimiser)[2])


def test_a_message_for_another_shard_is_refused():
    optimiser = OPTIMISERS[0]
    backup = Backup(3, 0, *start(optimiser))
    same, is_taken = replay_gradients(backup, gradients(0, 2), optimiser=optimiser)
    assert not is_taken
    assert same is backup


@optimisers()
def test_backup_and_what_is_outstanding_make_the_active_server(optimiser):
    backup, _ = replay_gradients(Backup(0, 0, *start(optimiser)), gradients(0, 2), optimiser=optimiser)
    behind = flat((backup.parameters, backup.slots))
    assert np.array_equal(behind, history(optimiser)[2])
    caught_up, _ = replay_gradients(backup, gradients(2, CLOCKS), optimiser=optimiser)
    assert np.array_equal(flat((caught_up.parameters, caught_up.slots)), history(optimiser)[CLOCKS])


def test_differences_of_parameters_would_round_anew():
    """Why values or gradients are sent: adding up differences first changes floats."""
    rng = np.random.default_rng(1)
    w, first, second = (jnp.asarray(rng.normal(size=1000), jnp.float32) for _ in range(3))
    assert np.any(np.asarray(w + (first + second)) != np.asarray((w + first) + second))


@optimisers()
def test_a_snapshot_outlives_the_updates_after_it(optimiser):
    arrays = start(optimiser)
    for clock in range(2):
        arrays = advance(arrays, clock, optimiser)
    snapshot = copy_arrays(arrays)
    for clock in range(2, CLOCKS):
        arrays = advance(arrays, clock, optimiser)
    assert np.array_equal(flat(snapshot), history(optimiser)[2])


@optimisers()
def test_restoring_a_snapshot_of_all_shards_and_replaying_is_as_if_nothing_had_failed(optimiser):
    """Each shard keeps its old arrays at its first update beyond the clock, whenever that comes."""
    ranges = [slice(*part) for part in shard_ranges(SIZE, 3)]
    shards = [start(optimiser, part.stop - part.start) for part in ranges]
    reached, snapshots, clock = [0, 0, 0], {}, 2
    for shard in (0, 1, 0, 0, 2, 1, 1, 2, 0, 2, 1):
        is_first_beyond = reached[shard] == clock
        before = shards[shard]
        shards[shard] = advance(before, reached[shard], optimiser, keep=is_first_beyond, part=ranges[shard])
        if is_first_beyond:
            snapshots[shard] = before
        reached[shard] += 1
    assert sorted(snapshots) == [0, 1, 2]
    restored = []
    for shard, part in enumerate(ranges):
        arrays = snapshots[shard]
        for again in range(clock, CLOCKS):
            arrays = advance(arrays, again, optimiser, part=part)
        restored.append(np.stack([np.asarray(array) for array in (arrays[0], *arrays[1])]))
    assert np.array_equal(np.concatenate(restored, axis=1).reshape(-1), history(optimiser)[CLOCKS])
