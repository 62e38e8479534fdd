"""Codes of windows: the hidden units' probabilities given a window's last sample and its history."""

from functools import partial

import jax
import jax.numpy as jnp

from optim.kernels.crbm.energy import hidden_input, split_windows
from optim.kernels.crbm.parameters import CrbmParameters
from optim.kernels.crbm.windows import windows_of


@partial(jax.jit)
def hidden_logits(parameters: CrbmParameters, series: jax.Array, ends: jax.Array) -> jax.Array:
    """Return the log-odds of the hidden units for each window, the input of the sigmoid.

    Parameters
    ----------
    parameters
        Parameters of the CRBM.
    series
        Concatenated series of T samples and V features, shape (T, V).
    ends
        Shape (n,): positions of the windows' last samples, see `window_ends`.

    Returns
    -------
    jax.Array
        Log-odds of H hidden units, shape (n, H); NaN where `ends` is negative, so that padding can't be taken for a
        code.
    """
    windows = windows_of(parameters, series, ends)
    logits = hidden_input(parameters, *split_windows(parameters, windows)).T
    return jnp.where(ends[:, None] < 0, jnp.nan, logits)


@partial(jax.jit)
def encode(parameters: CrbmParameters, series: jax.Array, ends: jax.Array) -> jax.Array:
    """Return each window's code, ``sigmoid(vW + uB + b)`` at the window's last sample, shape (n, H).

    Samples without enough history have no window and no code; the result has no rows for them. See
    `hidden_logits` for the parameters.
    """
    return jax.nn.sigmoid(hidden_logits(parameters, series, ends))
