"""Let JAX make arrays for tests without a program of its own for every shape that is made, converted, cut or copied.

Outside of compiled functions JAX compiles each operation for each shape it meets, `jnp.asarray` included. NumPy does the
same to an array in a thousandth of the time where nothing is calculated: values are only laid out anew or converted.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax._src.interpreters import mlir
from jax.extend.core import Primitive, primitives
from numpy.typing import NDArray

Array = NDArray[Any]
EXACT = {"b": "biufc", "i": "iufc", "u": "iufc", "f": "fc", "c": "c"}
"""To what kinds of numbers NumPy converts each kind as XLA does; floating-point numbers become integers otherwise."""


@cache
def kind(dtype: np.dtype[Any]) -> str:
    """Return NumPy's letter for the kind of numbers, one for those of half precision, too, which it doesn't know."""
    return "f" if jax.dtypes.issubdtype(dtype, np.floating) else dtype.kind


def on_host(operand: object) -> Array | None:
    """Return what NumPy may work on: an array of plain numbers; none for what has a meaning beyond its values."""
    if isinstance(operand, jax.Array):
        is_plain = not jax.dtypes.issubdtype(operand.dtype, jax.dtypes.extended) and not operand.weak_type
        return np.asarray(operand) if is_plain and len(operand.devices()) == 1 else None
    if not isinstance(operand, np.ndarray | np.generic):
        return None
    host = np.asarray(operand)
    return host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False)


def convert(array: Array, *, new_dtype: Any, weak_type: bool, sharding: object) -> Array | None:
    """Convert numbers, but where NumPy might convert them differently."""
    is_exact = kind(np.dtype(new_dtype)) in EXACT[kind(array.dtype)]
    return array.astype(new_dtype) if is_exact and not weak_type and sharding is None else None


def broadcast(array: Array, *, shape: Any, broadcast_dimensions: Any, sharding: object) -> Array | None:
    """Repeat an array along new axes."""
    if sharding is not None:
        return None
    own = dict(zip(broadcast_dimensions, array.shape, strict=True))
    return np.broadcast_to(array.reshape([own.get(axis, 1) for axis in range(len(shape))]), shape)


def cut(array: Array, *starts: Array, slice_sizes: Any) -> Array:
    """Cut a block out, moved inwards where it would stick out."""
    last = np.subtract(array.shape, slice_sizes)
    first = [min(max(int(start), 0), end) for start, end in zip(starts, last.tolist(), strict=True)]
    return array[tuple(slice(start, start + size) for start, size in zip(first, slice_sizes, strict=True))]


def reshape(array: Array, *, new_sizes: Any, dimensions: object, sharding: object) -> Array | None:
    """Give an array other axes, in the same order."""
    return array.reshape(new_sizes) if dimensions is None and sharding is None else None


def drop_axes(array: Array, *, dimensions: Any) -> Array:
    """Leave out axes of length one."""
    return array.squeeze(tuple(dimensions))


def turn_axes(array: Array, *, permutation: Any) -> Array:
    """Give axes another order."""
    return array.transpose(permutation)


def count(*, dtype: Any, shape: Any, dimension: int, sharding: object) -> Array | None:
    """Number the places along an axis."""
    numbers = np.arange(shape[dimension]).astype(dtype)
    return broadcast(numbers, shape=shape, broadcast_dimensions=(dimension,), sharding=sharding)


def same(array: Array) -> Array:
    """Return the array, which is copied to where JAX keeps it."""
    return array


BY_NUMPY: dict[Primitive, Callable[..., Array | None]] = {
    **({core.stage_p: same} if hasattr(core, "stage_p") else {}),  # since JAX 0.10.1
    primitives.copy_p: same,
    primitives.convert_element_type_p: convert,
    primitives.broadcast_in_dim_p: broadcast,
    primitives.dynamic_slice_p: cut,
    primitives.iota_p: count,
    primitives.reshape_p: reshape,
    primitives.squeeze_p: drop_axes,
    primitives.transpose_p: turn_axes,
}


def unaligned(array: Array) -> Array:
    """Return a copy at a place in memory from where JAX must copy it: elsewhere it keeps NumPy's memory, and can't donate it."""
    memory = np.empty(array.nbytes + 24, np.uint8)
    begin = (8 - memory.__array_interface__["data"][0]) % 16
    made = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def quick(compiled: Callable[..., Any], by_numpy: Callable[..., Array | None]) -> Callable[..., Any]:
    """Return an operation that is done by NumPy where that gives the same, and compiled elsewhere."""

    @wraps(compiled)
    def operation(*operands: Any, **settings: Any) -> Any:
        hosts = [on_host(operand) for operand in operands]
        if any(host is None for host in hosts):
            return compiled(*operands, **settings)
        made = by_numpy(*hosts, **settings)
        if made is None or made.dtype != jax.dtypes.canonicalize_dtype(made.dtype):
            return compiled(*operands, **settings)
        return jax.device_put(unaligned(made))

    return operation


one_context = cache(mlir.make_ir_context)
"""What programs are lowered in; `cache_clear` frees what it has gathered."""


def make_quickly() -> None:
    """Replace these operations outside of compiled functions, and lower all programs in one context, for this process.

    A context of its own for each program, which JAX makes, takes as long as a fifth of compiling a small one.
    """
    for primitive, by_numpy in BY_NUMPY.items():
        primitive.def_impl(quick(primitive.impl, by_numpy))
    mlir.make_ir_context = one_context
