"""Pallas kernels for NVIDIA GPUs: where they run, and how they are called.

The kernels run where a function is lowered for CUDA and the installed JAX has Pallas with its Triton backend. Elsewhere XLA compiles
a `jax.numpy` form of the same computation. A machine without a GPU does not import Pallas.

JAX 0.11 deprecates the Triton backend. Its successor in Pallas, Mosaic GPU, needs other kernels and a card of the Hopper
generation or later. JAX versions without the Triton backend therefore run the `jax.numpy` form.

References
----------
The changelog of Pallas at JAX 0.11.0, https://docs.jax.dev/en/latest/pallas/CHANGELOG.html.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import jax
from jax import lax

STAGES = 1
"""Number of loop iterations whose reads Triton overlaps. With more, it reads memory before an earlier iteration writes it."""


@cache
def triton() -> Any:
    """Return Pallas' module for Triton, or None if the installed JAX has none."""
    try:
        from jax.experimental.pallas import triton as parts
    except ImportError:
        return None
    return parts


def on_cuda(kernel: Callable[..., Any], otherwise: Callable[..., Any], *operands: Any) -> Any:
    """Return ``kernel(*operands)`` if lowered for CUDA, else ``otherwise(*operands)``; both must compute the same arrays."""
    if triton() is None:
        return otherwise(*operands)
    return lax.platform_dependent(*operands, cuda=kernel, default=otherwise)


def call(
    kernel: Callable[..., None],
    operands: Sequence[jax.Array],
    results: Sequence[jax.ShapeDtypeStruct],
    *,
    grid: tuple[int, ...],
    warps: int,
    in_place: Mapping[int, int] | None = None,
    interpret: bool = False,
) -> Any:
    """Run a kernel for each point of a grid; it receives references to all operands and then all results, unsliced.

    Parameters
    ----------
    kernel, operands, results
        The kernel, the arrays that it reads, and shape and type of the arrays that it writes.
    grid
        Number of programs along each axis of the grid.
    warps
        Number of warps (32 threads each) per program.
    in_place
        Map from the index of an operand to the index of the result that reuses its memory.
    interpret
        Whether to interpret the kernel, which any device can do; slow, for tests.
    """
    from jax.experimental import pallas

    return pallas.pallas_call(
        kernel,
        out_shape=tuple(results),
        grid=grid,
        input_output_aliases=dict(in_place or {}),
        compiler_params=None if interpret else triton().CompilerParams(num_warps=warps, num_stages=STAGES),
        interpret=interpret,
    )(*operands)


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least `least` (1 or more); vectors in a kernel must have such lengths."""
    return 1 << (least - 1).bit_length()


def wait(interpret: bool) -> None:
    """Synchronise the threads of a block and make their writes visible; interpreted kernels have one thread."""
    if not interpret:
        triton().debug_barrier()
