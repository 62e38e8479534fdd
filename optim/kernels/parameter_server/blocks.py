"""Updates of parameters and slots at one pass over memory."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from optim.kernels.parameter_server.optimisers import AbstractOptimiser, OptState, Updated, after

Arrays = tuple[jax.Array, ...]
Aggregate = Callable[[Arrays], jax.Array]

BLOCK = 1 << 13
"""Elements of a block: twenty arrays of it fit the second-level cache of a core."""


def update_in_blocks(
    optimiser: AbstractOptimiser,
    aggregate: Aggregate,
    parameters: jax.Array,
    slots: OptState,
    pushes: Arrays,
    step: jax.Array,
) -> Updated:
    """Return ``optimiser.update`` by ``aggregate(pushes)``, both elementwise on flat arrays.

    On a CPU, XLA compiles one loop per output, and each loop computes the shared terms again. An optimiser with slots would
    therefore read all pushes once per slot. Block by block, the second and third reading come from the cache. The loop over
    blocks runs on one core, so that several shards need one thread each. An accelerator fuses several outputs, and an
    optimiser without slots has one output: there one fusion does the update.

    Parameters
    ----------
    optimiser
        The update rule.
    aggregate
        Function from pushes to the gradient.
    parameters, slots
        Shape (n,) each, float32; donated arrays are updated in place.
    pushes
        Arrays of shape (n,), read only.
    step
        Number of the update, 1 for the first.
    """

    def update_all(parameters: jax.Array, slots: OptState, pushes: Arrays) -> Updated:
        return optimiser.update(parameters, slots, aggregate(pushes), step)

    if optimiser.num_slots == 0 or parameters.size == 0:
        return update_all(parameters, slots, pushes)
    in_blocks = partial(_by_blocks, optimiser, aggregate, step)
    updated: Updated = lax.platform_dependent(parameters, slots, pushes, cpu=in_blocks, default=update_all)
    return updated


def _by_blocks(
    optimiser: AbstractOptimiser,
    aggregate: Aggregate,
    step: jax.Array,
    parameters: jax.Array,
    slots: OptState,
    pushes: Arrays,
) -> Updated:
    """Update all full blocks in place, then the remaining elements in a copy that is padded to one block.

    Every block has the same length and the same compiled loop, so that no bit depends on the length of the arrays.
    """
    size = parameters.size
    start = size // BLOCK * BLOCK
    # XLA doesn't know this 0. It would unroll a loop of one known turn, and round its block otherwise.
    unknown = (step & 1) >> 1
    visit_blocks = partial(_visit_blocks, optimiser, aggregate, step)
    if start:
        parameters, slots = visit_blocks(parameters, slots, pushes, start // BLOCK + unknown)
    if start == size:
        return parameters, slots

    def rest(array: jax.Array) -> jax.Array:
        # One element more than a block: XLA would simplify slices of the full array.
        return jnp.pad(array[start:], (0, BLOCK + 1 - (size - start)))

    def put(array: jax.Array, new: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(array, new[: size - start], (start,))

    # The remaining elements are read after the loop: XLA would copy arrays that are read before and changed after.
    arrays = parameters, slots
    new = visit_blocks(rest(parameters), tuple(map(rest, slots)), tuple(map(rest, pushes)), 1 + unknown)
    updated: Updated = jax.tree.map(put, arrays, new)
    return updated


def _visit_blocks(
    optimiser: AbstractOptimiser,
    aggregate: Aggregate,
    step: jax.Array,
    parameters: jax.Array,
    slots: OptState,
    pushes: Arrays,
    num_blocks: jax.Array,
) -> Updated:
    """Update the first `num_blocks` blocks of arrays that are longer than one block."""

    def part(array: jax.Array, start: jax.Array) -> jax.Array:
        return lax.dynamic_slice(array, (start,), (BLOCK,))

    def put(array: jax.Array, new: jax.Array, start: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(array, new, (start,))

    def visit(index: jax.Array, state: tuple[jax.Array, OptState, jax.Array]) -> tuple[jax.Array, OptState, jax.Array]:
        start = index * BLOCK
        weights, slots, scratch = state
        # The gradient is written to memory, so that XLA computes it once and not once per array.
        scratch = put(scratch, aggregate(tuple(part(push, start) for push in pushes)), start * 0)
        gradient = part(scratch, start * 0)

        def update(start: jax.Array) -> Updated:
            return optimiser.update(part(weights, start), tuple(part(slot, start) for slot in slots), gradient, step)

        written = [put(weights, update(start)[0], start)]
        for number, slot in enumerate(slots):
            # Read and written at the same place, a slot changes in place. XLA leaves out the other arrays' updates.
            place = after(start, written[-1], start)
            written.append(put(slot, update(place)[1][number], place))
        return written[0], tuple(written[1:]), scratch

    scratch = jnp.zeros((BLOCK + 1,), jnp.float32)
    done: tuple[jax.Array, OptState, jax.Array] = lax.fori_loop(0, num_blocks, visit, (parameters, slots, scratch))
    return done[:2]
