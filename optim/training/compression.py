"""Less than whole gradients: in few levels, or the largest entries; what these leave out may be fed back."""

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


def largest(gradient: Vector, share: float, left: Vector | None = None) -> tuple[RowGradient, Vector]:
    """Return the share of a gradient's entries that is largest in magnitude, one at least, as rows of one number, and the rest.

    Of equal magnitudes the lower index goes. What is returned adds up to the gradient and what was left, exactly.

    Parameters
    ----------
    gradient
        Shape (n,), finite.
    share
        In (0, 1].
    left
        Shape (n,): what earlier pushes left out, which is added first; zeros if not given.

    References
    ----------
    Stich, Cordonnier, Jaggi (2018), Sparsified SGD with memory; Karimireddy, Rebjock, Stich, Jaggi (2019), Error feedback
    fixes SignSGD and other gradient compression schemes.
    """
    k = max(1, round(share * len(gradient)))
    before = jnp.zeros(len(gradient), jnp.float32) if left is None else jnp.array(left, copy=True)
    message, rest = encode_top_k(jnp.asarray(gradient), before, k=k)
    rows, values = np.asarray(message.indices, dtype=np.int32), np.asarray(message.values)
    order = np.argsort(rows)
    return RowGradient(rows[order], values[order, None]), np.array(rest)
