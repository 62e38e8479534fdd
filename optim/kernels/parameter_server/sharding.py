"""One vector over several devices: ranges, the sharded update, and the pull of all of it."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server.dense import ordered_weighted_sum
from optim.kernels.parameter_server.optimisers import AbstractOptimiser, OptState, Updated

AXIS = "shard"

ShardedUpdate = Callable[[jax.Array, OptState, jax.Array, jax.Array, jax.Array], Updated]


class Range(NamedTuple):
    """Elements `start` to `stop` of the flat vector, the latter left out."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


def shard_ranges(size: int, num_shards: int) -> tuple[Range, ...]:
    """Return contiguous ranges that cover ``0..size`` once each; their sizes differ by at most one.

    Raises
    ------
    InvalidOptionError
        If there is no shard, or a negative size.
    """
    if num_shards < 1 or size < 0:
        raise InvalidOptionError(f"need at least one shard and size >= 0, got {num_shards} shards of size {size}")
    cuts = [index * size // num_shards for index in range(num_shards + 1)]
    return tuple(Range(start, stop) for start, stop in itertools.pairwise(cuts))


def sharded_apply(mesh: Mesh, optimiser: AbstractOptimiser, *, is_exact: bool = True) -> ShardedUpdate:
    """Return the compiled update of a vector that is sharded over the axis `AXIS` of a mesh.

    The function takes parameters and slots of shape (n,), sharded by ranges and donated; pushes of shape (partitions,
    n), whose partitions lie on the devices that computed them; their weights, shape (partitions,); and the version. Both n
    and the number of partitions are multiples of the number of devices; where zeros were added to make them so, weights end
    with the last partition that has data.

    Parameters
    ----------
    mesh
        Devices along one axis.
    optimiser
        Elementwise, so shards don't meet; a clipping by the global norm would need one more reduction.
    is_exact
        Exchange ranges all to all and add them in partition order: the same bits on any number of devices. Otherwise
        each device adds its own partitions first and the sums are reduce-scattered, which moves fewer bytes and rounds
        the *sums* differently with each number of devices. What a rule makes of that is its own affair: SGD and momentum
        differ as little, but Adagrad and Adam divide by the gradient's size, and a sum about 0 whose sign depends on
        the rounding moves a parameter by up to two learning rates.

    Raises
    ------
    InvalidOptionError
        When called, if the devices don't divide n and the number of partitions.
    """
    shards = PartitionSpec(AXIS)

    def update(
        parameters: jax.Array,
        slots: OptState,
        pushes: jax.Array,
        weights: jax.Array,
        total: jax.Array,
        version: jax.Array,
    ) -> Updated:
        if is_exact:
            ranges = lax.all_to_all(pushes, AXIS, split_axis=1, concat_axis=0, tiled=True)
            summed = ordered_weighted_sum(tuple(ranges)[: len(weights)], weights)
        else:
            first = lax.axis_index(AXIS) * pushes.shape[0]
            all_weights = jnp.pad(weights, (0, mesh.devices.size * pushes.shape[0] - len(weights)))
            shard_weights = lax.dynamic_slice(all_weights, (first,), (pushes.shape[0],))
            local = ordered_weighted_sum(tuple(pushes), shard_weights)
            summed = lax.psum_scatter(local, AXIS, tiled=True)
        return optimiser.update(parameters, slots, summed * (1.0 / total), version + 1)

    mapped = jax.shard_map(
        update,
        mesh=mesh,
        in_specs=(shards, shards, PartitionSpec(AXIS, None), *[PartitionSpec()] * 3),
        out_specs=(shards, shards),
    )
    compiled = jax.jit(mapped, donate_argnums=(0, 1))

    def checked(
        parameters: jax.Array, slots: OptState, pushes: jax.Array, weights: jax.Array, version: jax.Array
    ) -> Updated:
        _check_divisible(mesh.devices.size, parameters, pushes)
        if not (weights.ndim == 1 and 0 < len(weights) <= len(pushes)):
            raise InvalidOptionError(
                f"weights must be of 1 to {len(pushes)} partitions, got shape {weights.shape}; give one for each with data"
            )
        # Summed by itself, as for one device: inside, or with zeros behind, compilers may add in another order.
        total = jnp.sum(weights)
        done: Updated = compiled(parameters, slots, pushes, weights, total, version)
        return done

    return checked


@partial(jax.jit, static_argnames="mesh")
def gather_parameters(parameters: jax.Array, *, mesh: Mesh) -> jax.Array:
    """Return the whole vector on every device."""
    gathered: jax.Array = lax.with_sharding_constraint(parameters, NamedSharding(mesh, PartitionSpec()))
    return gathered


def _check_divisible(devices: int, parameters: jax.Array, pushes: jax.Array) -> None:
    if pushes.ndim != 2 or pushes.shape[1:] != parameters.shape:
        raise InvalidOptionError(f"pushes must have shape (partitions, {parameters.size}), got {pushes.shape}")
    if any(length % devices for length in pushes.shape):
        raise InvalidOptionError(
            f"partitions and parameters must be multiples of the {devices} devices, got {pushes.shape}; pad with zeros"
        )
