"""Free energy and its terms, for windows given as columns."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from optim.kernels.crbm.parameters import CrbmParameters
from optim.kernels.crbm.windows import windows_of

FULL = lax.Precision.HIGHEST
"""Precision of matrix products: full float32 on every device."""


def split_windows(parameters: CrbmParameters, windows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split windows, shape ((d + 1) V, n), into histories, shape (D, n), and samples, shape (V, n)."""
    length = parameters.autoregression.shape[0]
    return windows[:length], windows[length:]


def visible_mean(parameters: CrbmParameters, history: jax.Array) -> jax.Array:
    """Return the visible units' dynamic bias ``A^T u + a``, shape (V, n)."""
    return jnp.matmul(parameters.autoregression.T, history, precision=FULL) + parameters.visible_bias[:, None]


def hidden_input(parameters: CrbmParameters, history: jax.Array, sample: jax.Array) -> jax.Array:
    """Return the input of the hidden units, ``W^T v + B^T u + b``, shape (H, n)."""
    dynamic = jnp.matmul(parameters.conditioning.T, history, precision=FULL) + parameters.hidden_bias[:, None]
    return jnp.matmul(parameters.weights.T, sample, precision=FULL) + dynamic


def window_free_energy(parameters: CrbmParameters, windows: jax.Array) -> jax.Array:
    """Return each window's free energy, shape (n,), for windows as columns."""
    history, sample = split_windows(parameters, windows)
    distance = sample - visible_mean(parameters, history)
    gain = jax.nn.softplus(hidden_input(parameters, history, sample))
    return 0.5 * jnp.sum(distance * distance, axis=0) - jnp.sum(gain, axis=0)


@partial(jax.jit)
def free_energy(parameters: CrbmParameters, series: jax.Array, ends: jax.Array) -> jax.Array:
    """Return each sample's free energy: minus its log-density given its history, up to a term of the history alone.

    ``F(v | u) = |v - uA - a|^2 / 2 - sum over j of softplus((vW + uB + b)_j)``, so that exp(-F) is the sum over all
    hidden states of exp(-energy).

    Parameters
    ----------
    parameters
        Parameters of the CRBM. Each padded hidden unit lowers the energy by log 2, so call `trim_parameters` first.
    series
        Concatenated series of T samples and V features, shape (T, V).
    ends
        Shape (n,): positions of the windows' last samples, see `window_ends`.

    Returns
    -------
    jax.Array
        Free energy at each of `ends`, shape (n,); NaN where `ends` is negative.
    """
    windows = windows_of(parameters, series, ends)
    return jnp.where(ends < 0, jnp.nan, window_free_energy(parameters, windows))
