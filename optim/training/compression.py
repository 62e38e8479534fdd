"""Gradients as they are pushed: in few levels, by a rounding that is the same on every machine."""

import jax
import jax.numpy as jnp
import numpy as np

from optim.kernels.parameter_server import decode_int8, encode_int8
from optim.training.messages import Vector


def quantised(gradient: Vector, partition: int, clock: int) -> Vector:
    """Return what arrives of a gradient that is pushed in 255 levels; its mean over draws is the gradient.

    Parameters
    ----------
    gradient
        Shape (n,), finite.
    partition, clock
        What the draws follow from.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), partition), clock)
    # Nothing is fed back: what a worker kept of earlier pushes would be lost with it, or with a return to an older clock.
    message, _ = encode_int8(jnp.asarray(gradient), jnp.zeros(len(gradient), jnp.float32), key)
    return np.array(decode_int8(message))
