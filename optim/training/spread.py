"""The arrays of a shard spread over several devices of the machine that serves it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server import AbstractOptimiser, gather_parameters, sharded_apply
from optim.kernels.parameter_server.sharding import AXIS
from optim.training.held import AbstractHeld
from optim.training.messages import Push, Vector


class SpreadArrays(AbstractHeld):
    """Parameters and slots of a shard, each device holding a range of them; what comes by rows is applied whole.

    A clock's gradients are cut into ranges, exchanged all to all and added in partition order: on any number of devices the
    bits are those of one.

    Parameters
    ----------
    parameters, slots
        Shape (n,) each; zeros are put behind until the devices divide n, and stay zeros.
    optimiser
        The rule.
    devices
        How many of them.

    Raises
    ------
    InvalidOptionError
        If JAX shows fewer.
    """

    def __init__(self, parameters: Vector, slots: Sequence[Vector], optimiser: AbstractOptimiser, devices: int) -> None:
        there = jax.devices()
        if len(there) < devices:
            raise InvalidOptionError(
                f"a shard is to be spread over {devices} devices, JAX shows {len(there)}; ask for fewer, or set "
                f"XLA_FLAGS=--xla_force_host_platform_device_count={devices}"
            )
        self._size, self._count = len(parameters), devices
        self._mesh = Mesh(np.array(there[:devices]), (AXIS,))
        self._update = sharded_apply(self._mesh, optimiser)
        ranges = NamedSharding(self._mesh, PartitionSpec(AXIS))
        padded = [_padded(np.asarray(array, dtype=np.float32), devices) for array in (parameters, *slots)]
        own, *rest = jax.device_put(padded, ranges)
        self._arrays: tuple[jax.Array, tuple[jax.Array, ...]] = own, tuple(rest)

    def parameters(self) -> jax.Array:
        """Return the parameters, shape (n,)."""
        return self._gathered(self._arrays[0])

    def slots(self) -> tuple[jax.Array, ...]:
        """Return the slots, shape (n,) each."""
        return tuple(map(self._gathered, self._arrays[1]))

    def apply_whole(self, gradients: Sequence[jax.Array | Vector], weights: Sequence[float], clock: int) -> None:
        """Apply the mean of gradients of shape (n,), in their order; zeros make up a number that devices divide."""
        share = np.array(weights, dtype=np.float32)
        rows = -(-len(share) // self._count) * self._count
        pushes = np.zeros((rows, len(self._arrays[0])), dtype=np.float32)
        for row, gradient in zip(pushes, gradients, strict=False):
            row[: self._size] = gradient
        sent = jax.device_put(pushes, NamedSharding(self._mesh, PartitionSpec(AXIS, None)))
        self._arrays = self._update(*self._arrays, sent, jnp.asarray(share), jnp.asarray(clock, jnp.int32))

    def apply_rows(self, pushes: Sequence[Push], clock: int) -> None:
        """Apply the mean of gradients that come by rows, as whole ones."""
        self.apply_whole([self.whole(push) for push in pushes], [push.weight for push in pushes], clock)

    def replay(self, clocks: Sequence[Sequence[Push]], clock: int) -> None:
        """Apply the means of clocks of whole pushes, one after the other."""
        for at, pushes in enumerate(clocks, start=clock):
            self.apply_whole([push.gradient for push in pushes], [push.weight for push in pushes], at)

    def _gathered(self, array: jax.Array) -> jax.Array:
        return gather_parameters(array, mesh=self._mesh)[: self._size]


def _padded(array: Vector, count: int) -> Vector:
    """Return an array with zeros behind it, up to a multiple of a number."""
    return np.concatenate([array, np.zeros(-len(array) % count, dtype=np.float32)])
