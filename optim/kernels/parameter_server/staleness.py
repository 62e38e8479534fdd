"""Asynchronous updates, damped by how old the parameters were that a gradient was computed from."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from optim.kernels.parameter_server.dense import updated
from optim.kernels.parameter_server.optimisers import (
    AbstractOptimiser,
    OptState,
    Updated,
    check_untraced,
    compiled_for_rule,
)
from optim.kernels.parameter_server.shapes import check_shape


@dataclass(frozen=True, kw_only=True)
class Damping:
    """Weight of a gradient by its lag: ``(1 + lag) ** -power``; 1 at lag 0, never rising.

    Parameters
    ----------
    power
        0 disables damping, 1 is the inverse of the lag plus one.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        check_untraced("[0, inf)", self, "power")  # older gradients may not weigh more

    def weight(self, lag: jax.Array) -> jax.Array:
        """Return the weight, float32, for lags counted in versions; exactly 1 at lag 0."""
        age = jnp.maximum(lag, 0).astype(jnp.float32) + 1.0
        return 1.0 / age if self.power == 1.0 else age**-self.power


@compiled_for_rule(donate_argnums=(0, 1), static_argnames=("optimiser", "damping"))
def apply_damped(
    parameters: jax.Array,
    slots: OptState,
    gradient: jax.Array,
    version: jax.Array,
    version_read: jax.Array,
    *,
    optimiser: AbstractOptimiser,
    damping: Damping,
) -> Updated:
    """Apply one gradient at once, scaled by the damping of ``version - version_read``; arrays are donated.

    Parameters
    ----------
    parameters, slots, gradient
        Shape (n,) each.
    version, version_read
        Scalars int32: updates applied by now, and when the worker pulled.

    Raises
    ------
    InvalidOptionError
        If the gradient isn't as long as the shard.
    """
    check_shape("gradient", gradient, parameters.shape, "push the shard's own range")
    weight = damping.weight(version - version_read)
    return updated(parameters, slots, (gradient,), weight[None], jnp.float32(1.0), version, optimiser=optimiser)


@compiled_for_rule(donate_argnums=(0, 1), static_argnames=("optimiser", "damping"))
def apply_damped_batch(
    parameters: jax.Array,
    slots: OptState,
    gradients: jax.Array,
    version: jax.Array,
    versions_read: jax.Array,
    *,
    optimiser: AbstractOptimiser,
    damping: Damping,
) -> tuple[jax.Array, OptState, jax.Array]:
    """Apply several gradients one after the other in their order of arrival; arrays are donated.

    Parameters
    ----------
    parameters, slots
        Shape (n,) each.
    gradients
        Shape (K, n).
    version
        Scalar int32: updates applied before the first of them.
    versions_read
        Shape (K,).

    Returns
    -------
    tuple
        Parameters, slots, and the sum of the weights used.

    Raises
    ------
    InvalidOptionError
        If there isn't one version for each gradient, or a gradient isn't as long as the shard.
    """
    count = versions_read.shape[0]
    check_shape("gradients", gradients, (count, *parameters.shape), "one row for each version read")

    def step(
        state: tuple[jax.Array, OptState, jax.Array], message: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, OptState, jax.Array], jax.Array]:
        weights, old_slots, now = state
        gradient, read = message
        weight = damping.weight(now - read)
        new, new_slots = updated(weights, old_slots, (gradient,), weight[None], one, now, optimiser=optimiser)
        return (new, new_slots, now + 1), weight

    one = jnp.float32(1.0)
    start = (parameters, slots, jnp.asarray(version, jnp.int32))
    (new, new_slots, _), used = lax.scan(step, start, (gradients, versions_read))
    return new, new_slots, jnp.sum(used)
