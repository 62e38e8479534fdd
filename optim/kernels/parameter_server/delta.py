"""The stream that keeps a backup: what an active server sends of its progress, and how a backup takes it.

A message covers an interval of clocks and is taken only by a backup that stands at the interval's start: repeated,
late or reordered messages change nothing. It carries the gradients to replay. A difference of parameters
wouldn't do: it can't rebuild the optimiser's slots, and ``w + (d1 + d2)`` isn't ``(w + d1) + d2``.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optim.kernels.parameter_server.dense import apply_pushes
from optim.kernels.parameter_server.optimisers import AbstractOptimiser, OptState


class Backup(NamedTuple):
    """A copy of a shard as of the end of `clock` clocks.

    Attributes
    ----------
    shard, clock
        Which shard, and how many clocks its arrays hold.
    parameters, slots
        Shape (n,) each.
    """

    shard: int
    clock: int
    parameters: jax.Array
    slots: OptState


class GradientDelta(NamedTuple):
    """What was applied from `from_clock` on: for each clock its pushes in partition order, and their weights."""

    shard: int
    from_clock: int
    pushes: tuple[tuple[jax.Array, ...], ...]
    weights: tuple[jax.Array, ...]

    @property
    def to_clock(self) -> int:
        """The clock that a backup reaches by replaying them all."""
        return self.from_clock + len(self.pushes)


@partial(jax.jit)
def copy_arrays(arrays: tuple[jax.Array, OptState]) -> tuple[jax.Array, OptState]:
    """Return copies that outlive the donation of the originals."""
    parameters, slots = arrays
    return jnp.copy(parameters), tuple(jnp.copy(slot) for slot in slots)


def replay_gradients(backup: Backup, delta: GradientDelta, *, optimiser: AbstractOptimiser) -> tuple[Backup, bool]:
    """Return the backup after replaying the gradients by the server's own function, so equal bit for bit.

    The backup's arrays are donated if the message is taken.
    """
    if not _follows(backup, delta.shard, delta.from_clock, delta.to_clock):
        return backup, False
    parameters, slots, clock = backup.parameters, backup.slots, backup.clock
    for pushes, weights in zip(delta.pushes, delta.weights, strict=True):
        version = jnp.asarray(clock, jnp.int32)
        parameters, slots = apply_pushes(parameters, slots, pushes, weights, version, optimiser=optimiser)
        clock += 1
    return Backup(backup.shard, clock, parameters, slots), True


def _follows(backup: Backup, shard: int, from_clock: int, to_clock: int) -> bool:
    return shard == backup.shard and from_clock == backup.clock and to_clock > from_clock
