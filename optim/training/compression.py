"""Less than whole gradients: in few levels, or the largest entries, the same on every machine.

Nothing is fed back: what a worker kept of earlier pushes would be lost with it, or with a return to an older clock.
"""

import jax
import jax.numpy as jnp
import numpy as np

from optim.kernels.parameter_server import decode_int8, encode_int8, encode_top_k
from optim.training.messages import RowGradient, Vector


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
    message, _ = encode_int8(jnp.asarray(gradient), jnp.zeros(len(gradient), jnp.float32), key)
    return np.array(decode_int8(message))


def largest(gradient: Vector, share: float) -> RowGradient:
    """Return the share of a gradient's entries that is largest in magnitude, one at least, as rows of one number.

    Of equal magnitudes the lower index goes.

    Parameters
    ----------
    gradient
        Shape (n,), finite.
    share
        In (0, 1].
    """
    k = max(1, round(share * len(gradient)))
    message, _ = encode_top_k(jnp.asarray(gradient), jnp.zeros(len(gradient), jnp.float32), k=k)
    rows, values = np.asarray(message.indices, dtype=np.int32), np.asarray(message.values)
    order = np.argsort(rows)
    return RowGradient(rows[order], values[order, None])
