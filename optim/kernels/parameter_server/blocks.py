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

    XLA makes one loop for each output on a CPU and computes what the outputs share again in each, so an optimiser with
    slots would read all pushes once for every slot. Block by block, the second and third reading come from the cache.
    The loop runs on one core: several shards want a thread each. An accelerator has fusions of several outputs, and
    an optimiser without slots has one output; there all is one fusion.

    Parameters
    ----------
    optimiser
        The rule.
    aggregate
        Makes a gradient of the pushes.
    parameters, slots
        Shape (n,) each; donated, they are updated in place.
    pushes
        Arrays of shape (n,) that are only read.
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
    """Run over blocks; the last one reaches back into the one before it where the blocks don't fill the arrays.

    What it finds done there it leaves alone. A shorter block of its own would be written to a copy of the whole array.
    """
    size = parameters.size
    block = min(BLOCK, size)

    def visit(index: jax.Array, state: tuple[jax.Array, OptState, jax.Array]) -> tuple[jax.Array, OptState, jax.Array]:
        start = jnp.minimum(index * block, size - block)

        def part(array: jax.Array) -> jax.Array:
            return lax.dynamic_slice(array, (start,), (block,))

        def put(array: jax.Array, new: jax.Array, at: jax.Array) -> jax.Array:
            # Where blocks fill the arrays all is due; asked all the same, as XLA rounds otherwise in another loop.
            new = jnp.where(start + jnp.arange(block) >= index * block, new, part(array))
            return lax.dynamic_update_slice(array, new, (at,))

        weights, slots, scratch = state
        # Written to memory, the gradient is worked out once and not once for each array; one element more, as XLA would
        # see through an update of all of them.
        scratch = lax.dynamic_update_slice(scratch, aggregate(tuple(part(push) for push in pushes)), (start * 0,))
        gradient = lax.dynamic_slice(scratch, (start * 0,), (block,))
        new, new_slots = optimiser.update(part(weights), tuple(part(slot) for slot in slots), gradient, step)
        written = [put(weights, new, start)]
        for slot, values in zip(slots, new_slots, strict=True):
            written.append(put(slot, values, after(start, written[-1], start)))
        return written[0], tuple(written[1:]), scratch

    scratch = jnp.zeros((block + 1,), jnp.float32)
    # The number of turns is one that XLA doesn't know: it would unroll a loop of one, and round a short vector otherwise.
    done: tuple[jax.Array, OptState, jax.Array] = lax.fori_loop(
        0, -(-size // block) + ((step & 1) >> 1), visit, (parameters, slots, scratch)
    )
    return done[:2]
