"""Elementwise updates of several arrays at once, at one pass over memory."""

from collections.abc import Callable

import jax
from jax import lax

Arrays = tuple[jax.Array, ...]
Update = Callable[[Arrays, Arrays], Arrays]

BLOCK = 1 << 16
"""Elements of a block: with a dozen arrays it fits a core's second-level cache or the shared third level."""


def update_in_blocks(update: Update, carried: Arrays, read: Arrays) -> Arrays:
    """Return ``update(carried, read)`` for an elementwise `update` of flat arrays.

    XLA makes one loop for each output on a CPU and computes what the outputs share again in each, so an optimiser with
    slots would read all pushes once for every slot. Block by block the second and third reading come from the cache. On
    an accelerator one fusion has several outputs, and nothing is gained.

    Parameters
    ----------
    update
        Elementwise: equal on a block and on the whole.
    carried
        Arrays to replace, all of shape (n,); donated, they are updated in place.
    read
        Arrays of shape (n,) that are only read.
    """
    if len(carried) == 1 or carried[0].size < 2 * BLOCK:
        return update(carried, read)
    updated: Arrays = lax.platform_dependent(carried, read, cpu=lambda c, r: _by_blocks(update, c, r), default=update)
    return updated


def _by_blocks(update: Update, carried: Arrays, read: Arrays) -> Arrays:
    """Run over whole blocks, then over what is left."""
    size = carried[0].size

    def advance(arrays: Arrays, start: jax.Array | int, length: int) -> Arrays:
        old = tuple(lax.dynamic_slice(array, (start,), (length,)) for array in arrays)
        seen = tuple(lax.dynamic_slice(array, (start,), (length,)) for array in read)
        new = update(old, seen)
        return tuple(lax.dynamic_update_slice(array, part, (start,)) for array, part in zip(arrays, new, strict=True))

    blocks = size // BLOCK
    done: Arrays = lax.fori_loop(0, blocks, lambda i, arrays: advance(arrays, i * BLOCK, BLOCK), carried)
    return done if size == blocks * BLOCK else advance(done, blocks * BLOCK, size - blocks * BLOCK)
