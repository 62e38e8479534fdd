"""Updates of parameters and slots (the arrays of the optimiser's state) in one pass over memory."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from optim.kernels.parameter_server.optimisers import AbstractOptimiser, Arrays, OptState, Updated, after

Aggregate = Callable[[Arrays], jax.Array]

BLOCK = 1 << 13
"""Elements per block: twenty arrays of this length fit into the second-level cache of a core."""


def update_in_blocks(
    optimiser: AbstractOptimiser,
    aggregate: Aggregate,
    parameters: jax.Array,
    slots: OptState,
    pushes: Arrays,
    step: jax.Array,
) -> Updated:
    """Return ``optimiser.update`` with the gradient ``aggregate(pushes)``; both functions are elementwise on flat arrays.

    On a CPU, XLA compiles one loop per output, and each loop computes the shared terms again. An optimiser with slots would
    therefore read all pushes once per output. If the update goes block by block, all readings but the first come from
    the cache. The loop over blocks runs on one core, so several shards need one thread each. On an accelerator, which
    fuses several outputs, and for an optimiser without slots, which has only one output, the update is one fusion
    without blocks.

    Parameters
    ----------
    optimiser
        The update rule.
    aggregate
        Function from the pushes to the gradient.
    parameters, slots
        Parameters and the arrays of the optimiser's state, shape (n,) each, float32; donated arrays are updated in place.
    pushes
        Pushed gradients, shape (n,) each; they aren't changed.
    step
        Number of the update, 1 for the first.
    """

    def update(arrays: Arrays, gradient: jax.Array) -> Arrays:
        return optimiser.update_arrays(arrays, gradient, step)

    def at_once(arrays: Arrays, pushes: Arrays) -> Arrays:
        return update(arrays, aggregate(pushes))

    def in_blocks(arrays: Arrays, pushes: Arrays) -> Arrays:
        return _by_blocks(partial(_visit_blocks, update, aggregate), arrays, pushes, step)

    arrays = parameters, *slots
    if optimiser.num_slots == 0 or parameters.size == 0:
        new = at_once(arrays, pushes)
    else:
        new = lax.platform_dependent(arrays, pushes, cpu=in_blocks, default=at_once)
    return new[0], new[1:]


def _by_blocks(visit_blocks: Callable[..., Arrays], arrays: Arrays, pushes: Arrays, step: jax.Array) -> Arrays:
    """Update all full blocks in place, then the remaining elements in a copy that is padded to one block.

    Every block has the same length and the same compiled loop, so that no bit depends on the length of the arrays.
    """
    size = arrays[0].size
    start = size // BLOCK * BLOCK
    # A 0 that XLA can't know at compile time: it would unroll a loop of one known iteration, and round that block
    # differently.
    unknown = (step & 1) >> 1
    if start:
        arrays = visit_blocks(arrays, pushes, start // BLOCK + unknown)
    if start == size:
        return arrays

    def rest(array: jax.Array) -> jax.Array:
        # One element more than a block, since XLA would simplify a slice of the full array.
        return jnp.pad(array[start:], (0, BLOCK + 1 - (size - start)))

    # Read the remaining elements after the loop: XLA would copy arrays that are read before it and changed after.
    new = visit_blocks(tuple(map(rest, arrays)), tuple(map(rest, pushes)), 1 + unknown)
    kept = [block[: size - start] for block in new]
    return tuple(lax.dynamic_update_slice(*pair, (start,)) for pair in zip(arrays, kept, strict=True))


def _visit_blocks(
    update: Callable[[Arrays, jax.Array], Arrays],
    aggregate: Aggregate,
    arrays: Arrays,
    pushes: Arrays,
    num_blocks: jax.Array,
) -> Arrays:
    """Update the first `num_blocks` blocks of arrays that are longer than one block."""

    def part(array: jax.Array, start: jax.Array) -> jax.Array:
        return lax.dynamic_slice(array, (start,), (BLOCK,))

    def put(array: jax.Array, new: jax.Array, start: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(array, new, (start,))

    def visit(index: jax.Array, state: tuple[Arrays, jax.Array]) -> tuple[Arrays, jax.Array]:
        start, (arrays, scratch) = index * BLOCK, state
        # The gradient is written to memory, so that XLA computes it once and not once per array.
        scratch = put(scratch, aggregate(tuple(part(push, start) for push in pushes)), start * 0)
        gradient = part(scratch, start * 0)
        written: list[jax.Array] = []
        for number, array in enumerate(arrays):
            # XLA updates an array in place if it is read and written at the same index; it omits unused updates.
            place = after(start, written[-1], start) if written else start
            new = update(tuple(part(each, place) for each in arrays), gradient)[number]
            written.append(put(array, new, place))
        return tuple(written), scratch

    scratch = jnp.zeros((BLOCK + 1,), jnp.float32)
    done: tuple[Arrays, jax.Array] = lax.fori_loop(0, num_blocks, visit, (arrays, scratch))
    return done[0]
