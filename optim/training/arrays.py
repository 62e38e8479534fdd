"""The trainer's vectors on JAX's device or in host memory, and explicit transfers between the two.

In one process parameters and gradients stay on the device from clock to clock. Only the following values are transferred,
by `to_device` and `to_host`:

- a gradient's loss, and whether the gradient is finite;
- clocks, weights and row numbers;
- parameters and gradients of a NumPy application, and of machines that are processes;
- values for checkpoints, and a run's final parameters.

Functions for NumPy arrays don't import JAX, as machines that only compute don't need it.
"""

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np


def to_device(tree: Any) -> Any:
    """Return arrays on the device; arrays already there are returned unchanged."""
    import jax

    return jax.device_put(tree)


def to_host(tree: Any) -> Any:
    """Return NumPy arrays; on a CPU they are views that can't be written to."""
    if isinstance(tree, np.ndarray):
        return tree
    import jax

    return jax.device_get(tree)


def begin_transfer(tree: Any) -> None:
    """Begin to copy a pytree's device arrays to the host; `to_host` waits for the copies."""
    import jax

    for leaf in jax.tree.leaves(tree):
        if isinstance(leaf, jax.Array):
            leaf.copy_to_host_async()


class Parts:
    """A vector in parts, one per shard.

    Parameters
    ----------
    parts
        The shards' parameters, in order.
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts

    @cached_property
    def whole(self) -> Any:
        """The parts as one vector, joined at first use; a single part is returned unchanged."""
        parts = self._parts
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, np.ndarray) for part in parts):
            return np.concatenate(parts)
        return _kernels()["join"](to_device(list(parts)))


def cut(vector: Any, part: slice) -> Any:
    """Return a slice of a vector; for NumPy a view."""
    if isinstance(vector, np.ndarray):
        return vector[part]
    if (part.start, part.stop) == (0, len(vector)):
        return vector
    return _kernels()["cut"](vector, start=part.start, stop=part.stop)


def contribution(gradient: Any, share: float, rows: Any, width: int, size: int) -> Any:
    """Return a gradient times `share`, as a full vector even if it was pushed by rows; zeros if `share` is 0."""
    gradient, rows, factor = to_device((gradient, rows, np.float32(share)))
    return _kernels()["contribution"](gradient, factor, rows, width=width, size=size)


def descended(parameters: Any, gradients: Sequence[Any], rate: float) -> Any:
    """Return the parameters after a step along each of the gradients, one after the other, at the given rate."""
    if not gradients:
        return parameters
    return _kernels()["descended"](*to_device((parameters, list(gradients), np.float32(rate))))


@cache
def _kernels() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def cut(vector: Any, *, start: int, stop: int) -> Any:
        return lax.slice(vector, (start,), (stop,))

    def contribution(gradient: Any, share: Any, rows: Any, *, width: int, size: int) -> Any:
        scaled = jnp.where(share == 0, jnp.float32(0), share * gradient)
        if rows is None:
            return scaled
        table = jnp.zeros((size // width, width), jnp.float32)
        return table.at[rows].set(scaled.reshape(-1, width), unique_indices=True).ravel()

    def descended(parameters: Any, gradients: list[Any], rate: Any) -> Any:
        for gradient in gradients:
            parameters = parameters - rate * gradient
        return parameters

    return {
        "cut": jax.jit(cut, static_argnames=("start", "stop")),
        "join": jax.jit(jnp.concatenate),
        "contribution": jax.jit(contribution, static_argnames=("width", "size")),
        "descended": jax.jit(descended),
    }
