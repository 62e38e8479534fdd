"""Compressed pushes with error feedback: what a message leaves out stays with the worker and goes with a later one."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server.shapes import check_shape

_INT8_LIMIT = 127.0


class TopK(NamedTuple):
    """The k entries of largest magnitude: `values` at `indices`, both of shape (k,)."""

    indices: jax.Array
    values: jax.Array


class Quantised(NamedTuple):
    """Levels of shape (n,), int8, and their common scale."""

    levels: jax.Array
    scale: jax.Array


@partial(jax.jit, donate_argnums=1, static_argnames="k")
def encode_top_k(gradient: jax.Array, residual: jax.Array, *, k: int) -> tuple[TopK, jax.Array]:
    """Return the k largest entries of ``gradient + residual`` and the new residual; `residual` is donated.

    Decoded message plus new residual equal ``gradient + residual`` exactly. Of equal magnitudes the lower index goes.
    Sums below float32's normal numbers (1.2e-38) are 0 where XLA makes them so, as it does on CPUs.

    Parameters
    ----------
    gradient, residual
        Shape (n,), float32.
    k
        Entries to send, 1 to n.

    Raises
    ------
    InvalidOptionError
        If k is out of range, or the residual isn't as long as the gradient.
    """
    check_shape("residual", residual, gradient.shape, "start with zeros of the gradient's length")
    if not 1 <= k <= gradient.size:
        raise InvalidOptionError(f"k must be from 1 to the gradient's length {gradient.size}, got {k}")
    total = gradient + residual
    _, indices = lax.top_k(jnp.abs(total), k)
    return TopK(indices=indices, values=total[indices]), total.at[indices].set(0.0)


@partial(jax.jit, static_argnames="size")
def decode_top_k(message: TopK, *, size: int) -> jax.Array:
    """Return the message as an array of shape (size,), zero where nothing was sent."""
    empty = jnp.zeros((size,), message.values.dtype)
    return empty.at[message.indices].set(message.values, unique_indices=True)


@partial(jax.jit, donate_argnums=1)
def encode_int8(gradient: jax.Array, residual: jax.Array, key: jax.Array) -> tuple[Quantised, jax.Array]:
    """Return ``gradient + residual`` in 255 levels, rounded at random without bias, and the new residual.

    `residual` is donated. Decoded message plus new residual equal the sum up to one rounding of float32; no entry errs
    by more than one level, which is the largest magnitude over 127, and no less than float32's smallest normal number.

    Parameters
    ----------
    gradient, residual
        Shape (n,), float32.
    key
        Randomness of the rounding: one for each partition and clock.

    Raises
    ------
    InvalidOptionError
        If the residual isn't as long as the gradient.
    """
    check_shape("residual", residual, gradient.shape, "start with zeros of the gradient's length")
    total = gradient + residual
    largest = jnp.max(jnp.abs(total))
    # Compiled code takes what is below the smallest normal number for 0, and nothing is to be divided by that.
    scale = jnp.maximum(largest / _INT8_LIMIT, jnp.finfo(jnp.float32).tiny)
    noise = jax.random.uniform(key, total.shape, jnp.float32)
    levels = jnp.clip(jnp.floor(total / scale + noise), -_INT8_LIMIT, _INT8_LIMIT).astype(jnp.int8)
    message = Quantised(levels=levels, scale=scale)
    return message, total - decode_int8(message)


@partial(jax.jit)
def decode_int8(message: Quantised) -> jax.Array:
    """Return the message as float32."""
    return message.levels.astype(jnp.float32) * message.scale
