"""Refusal of arrays that would be broadcast, or fail deep inside a compiled function."""

from typing import Any

import jax.numpy as jnp

from optim.core.errors import InvalidOptionError


def check_shape(name: str, array: Any, shape: tuple[int, ...], remedy: str) -> None:
    """Raise unless an array has the shape; inside a compiled function, the check runs only during tracing.

    Raises
    ------
    InvalidOptionError
        If it has another one.
    """
    if array.shape != shape:
        raise InvalidOptionError(f"{name} must have shape {shape}, got {array.shape}; {remedy}")


def check_rows(rows: Any, values: Any, width: int) -> None:
    """Raise unless rows are integers, each with a gradient of the table's width.

    Raises
    ------
    InvalidOptionError
        If they aren't.
    """
    if rows.ndim != 1 or not jnp.issubdtype(rows.dtype, jnp.integer):
        raise InvalidOptionError(
            f"rows must be a vector of integers, got shape {rows.shape} of {rows.dtype}; pass numbers of the table's rows"
        )
    check_shape("values", values, (rows.shape[0], width), "each pushed row has a gradient as wide as the table")


def check_wide(parameters: Any) -> None:
    """Raise unless parameters are in 32 bits or more: a shard adds small steps to them, which 16 bits lose.

    Raises
    ------
    InvalidOptionError
        If they are in 16 bits.
    """
    if parameters.dtype.itemsize < 4 and jnp.issubdtype(parameters.dtype, jnp.floating):
        raise InvalidOptionError(
            f"parameters must be float32, got {parameters.dtype}; pass parameters.astype('float32') (gradients may be bfloat16)"
        )
