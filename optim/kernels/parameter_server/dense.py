"""Dense push, aggregate and apply.

Pushes are separate arguments that are summed in the order given. If they were stacked in one array, XLA's reduction
would be tens of times slower on a CPU. The fixed order makes two runs equal bit for bit. Only the same compiled
function reproduces an update exactly: plain NumPy rounds once more, because the compiler fuses each product with the
following sum.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from optim.core.errors import InvalidOptionError
from optim.kernels.parameter_server.blocks import update_in_blocks
from optim.kernels.parameter_server.optimisers import AbstractOptimiser, OptState, Updated, compiled_for_rule

MAX_FOLD = 16
"""Maximum number of pushes per compiled call; more pushes are added in several calls, in order."""


def apply_pushes(
    parameters: jax.Array,
    slots: OptState,
    pushes: Sequence[jax.Array],
    weights: jax.Array,
    version: jax.Array,
    *,
    optimiser: AbstractOptimiser,
    keep: bool = False,
) -> Updated:
    """Apply the weighted mean of a clock's pushes, summed in the order given.

    ``g = (sum over i of weights[i] float32(pushes[i])) / sum(weights)``, then the optimiser's update.

    Parameters
    ----------
    parameters, slots
        Parameters and the arrays of the optimiser's state, shape (n,) each, float32; donated, except the parameters if
        `keep` is set.
    pushes
        Gradients of the data partitions, shape (n,) each, float32 or bfloat16. More than `MAX_FOLD` pushes are added in
        groups, in the same order; each group costs two more passes over the sum.
    weights
        Shape (pushes,): number of examples of each push. If they sum to zero, the gradient is zero.
    version
        Scalar int32: number of updates applied before this update.
    optimiser
        The update rule.
    keep
        Whether to preserve the memory of the old parameters, because other threads may still read it.

    Returns
    -------
    tuple
        New parameters and slots.

    Raises
    ------
    InvalidOptionError
        If there is no push, if the numbers of weights and pushes differ, if a push and the parameters differ in length,
        or if parameters or pushes are pytrees.
    """
    for name, vector in (("parameters", parameters), *(("each push", push) for push in pushes)):
        if not hasattr(vector, "shape"):
            raise InvalidOptionError(
                f"{name} must be one float32 vector, got {type(vector).__name__}; flatten a pytree by "
                "jax.flatten_util.ravel_pytree"
            )
    if len(pushes) == 0 or weights.shape != (len(pushes),):
        raise InvalidOptionError(
            f"give at least one push, and one weight per push: weights of shape ({len(pushes)},), got {weights.shape}"
        )
    for push in pushes:
        if push.shape != parameters.shape:  # it would be broadcast
            raise InvalidOptionError(
                f"each push must have shape {parameters.shape}, got {push.shape}; push only the shard's range"
            )
    total = None
    if len(pushes) > MAX_FOLD:
        total = _total(weights)
        partial_sum = None
        for start in range(0, len(pushes), MAX_FOLD):
            group = slice(start, start + MAX_FOLD)
            partial_sum = _fold(tuple(pushes[group]), weights[group], partial_sum)
        pushes, weights = (partial_sum,), jnp.ones((1,), jnp.float32)
    run = _apply_kept if keep else _apply
    done: Updated = run(parameters, slots, tuple(pushes), weights, total, version, optimiser=optimiser)
    return done


@partial(jax.jit)
def copy_arrays(arrays: Any) -> Any:
    """Return a copy of a pytree, which stays valid when the original is donated."""
    return jax.tree.map(jnp.copy, arrays)


def _ordered_weighted_sum(
    pushes: Sequence[jax.Array], weights: jax.Array, partial_sum: jax.Array | None = None
) -> jax.Array:
    """Return the weighted sum as a chain of additions in the order given, in float32, starting from `partial_sum`."""
    for index, push in enumerate(pushes):
        # The new product is the first summand, because compilers fuse a sum's first product with the addition. So the
        # partial sum is always rounded, and the new product never.
        product = weights[index] * push.astype(jnp.float32)
        partial_sum = product if partial_sum is None else product + partial_sum
    assert partial_sum is not None, "there is a push"
    return partial_sum


def _updated(
    parameters: jax.Array,
    slots: OptState,
    pushes: tuple[jax.Array, ...],
    weights: jax.Array,
    total: jax.Array | None,
    version: jax.Array,
    *,
    optimiser: AbstractOptimiser,
) -> Updated:
    """Aggregate and apply in one pass. The weighted sum is divided by `total` or, if that is None, by the sum of weights."""
    inverse = 1.0 / (_total(weights) if total is None else total)

    def mean(pushes: tuple[jax.Array, ...]) -> jax.Array:
        return _ordered_weighted_sum(pushes, weights) * inverse

    return update_in_blocks(optimiser, mean, parameters, slots, pushes, version + 1)


@partial(jax.jit)
def _total(weights: jax.Array) -> jax.Array:
    """Return the sum of weights, or infinity if the sum is zero, so that its inverse is zero."""
    total = jnp.sum(weights)
    return jnp.where(total == 0, jnp.inf, total)


_apply = compiled_for_rule(donate_argnums=(0, 1), static_argnames="optimiser")(_updated)
_apply_kept = compiled_for_rule(donate_argnums=1, static_argnames="optimiser")(_updated)
_fold = jax.jit(_ordered_weighted_sum, donate_argnums=2)
