"""Forecasts: the mean-field forecast of one sample, its error, and sampled continuations."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optim.core.errors import InvalidOptionError
from optim.kernels.counter_random import bernoulli, seed_words
from optim.kernels.crbm.energy import FULL, hidden_input, split_windows, visible_mean
from optim.kernels.crbm.parameters import CrbmParameters
from optim.kernels.crbm.windows import windows_of

FIELD_STEPS = 5


def _forecast(parameters: CrbmParameters, history: jax.Array) -> jax.Array:
    """Return forecasts, shape (V, n), from histories, shape (D, n)."""
    bias = visible_mean(parameters, history)
    sample = history[-parameters.num_visible :]
    for _ in range(FIELD_STEPS):
        probability = jax.nn.sigmoid(hidden_input(parameters, history, sample))
        sample = jnp.matmul(parameters.weights, probability, precision=FULL) + bias
    return sample


@partial(jax.jit)
def forecast(parameters: CrbmParameters, series: jax.Array, ends: jax.Array) -> jax.Array:
    """Return the sample expected at each window's end from its history alone.

    The expected sample is computed by `FIELD_STEPS` mean-field steps, ``v = uA + a + W sigmoid(vW + uB + b)``, from the
    last sample of the history.

    Returns
    -------
    jax.Array
        Expected sample at each of `ends`, shape (n, V). The samples at `ends` themselves aren't used.
    """
    history, _ = split_windows(parameters, windows_of(parameters, series, ends))
    return _forecast(parameters, history).T


@partial(jax.jit)
def forecast_error(parameters: CrbmParameters, series: jax.Array, ends: jax.Array) -> jax.Array:
    """Return the mean squared error of `forecast` by feature, shape (V,).

    Windows with negative ends are ignored; the error is NaN if all ends are negative.
    """
    history, sample = split_windows(parameters, windows_of(parameters, series, ends))
    error = sample - _forecast(parameters, history)
    counts = (ends >= 0).astype(error.dtype)
    return jnp.sum(error * error * counts[None, :], axis=1) / jnp.sum(counts)


def spectral_radius(parameters: CrbmParameters) -> float:
    """Return the largest modulus of the autoregression's eigenvalues; if it exceeds 1, long continuations diverge.

    Hidden units add at most the sum of their weights to each step, so only the autoregression can diverge.
    The radius is computed on the host, from the companion matrix.
    """
    matrix = np.asarray(parameters.autoregression, np.float64)
    width = parameters.num_visible
    # In each step the history (oldest frame first) loses its oldest frame, and the new sample becomes the newest frame.
    companion = np.zeros((len(matrix), len(matrix)))
    companion[:-width, width:] = np.eye(len(matrix) - width)
    companion[-width:] = matrix.T
    return float(np.abs(np.linalg.eigvals(companion)).max())


@partial(jax.jit, static_argnames=("num_steps", "num_chains", "num_gibbs_steps", "is_noisy"))
def roll_out(
    parameters: CrbmParameters,
    history: jax.Array,
    key: jax.Array,
    *,
    num_steps: int,
    num_chains: int = 100,
    num_gibbs_steps: int = 5,
    is_noisy: bool = True,
) -> jax.Array:
    """Return sampled continuations of a series.

    Each step starts from the last sample and runs Gibbs sampling with the history fixed; the new sample then becomes
    part of the history.

    Parameters
    ----------
    parameters
        Parameters of the CRBM.
    history
        Shape (d, V): the last samples, oldest first.
    key
        Key of all draws.
    num_steps, num_chains
        Number of samples to continue by, and number of independent continuations.
    num_gibbs_steps
        Number of Gibbs steps between hidden and visible units per sample.
    is_noisy
        Whether each sample is drawn with unit variance around its mean given the hidden units; otherwise the sample is
        this mean. The hidden units are drawn in both cases.

    Returns
    -------
    jax.Array
        Continuations, shape (num_chains, num_steps, V).
    """
    num_visible = parameters.num_visible
    if history.shape != (parameters.num_delays, num_visible):
        raise InvalidOptionError(
            f"history must have shape ({parameters.num_delays}, {num_visible}) to fit the CRBM, got {history.shape}"
        )
    start = jnp.broadcast_to(history.reshape(-1)[:, None], (history.size, num_chains)).astype(jnp.float32)
    seed = seed_words(jax.random.fold_in(key, 0), 2)
    noise_key = jax.random.fold_in(key, 1)

    def step(past: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
        bias = visible_mean(parameters, past)
        sample = past[-num_visible:]
        for gibbs in range(num_gibbs_steps):
            probability = jax.nn.sigmoid(hidden_input(parameters, past, sample))
            hidden = bernoulli(seed, index * jnp.uint32(num_gibbs_steps) + jnp.uint32(gibbs), probability)
            sample = jnp.matmul(parameters.weights, hidden, precision=FULL) + bias
            if is_noisy:
                draw = jax.random.fold_in(jax.random.fold_in(noise_key, index), gibbs)
                sample = sample + jax.random.normal(draw, sample.shape, sample.dtype)
        return jnp.concatenate([past[num_visible:], sample]), sample

    _, samples = lax.scan(step, start, jnp.arange(num_steps, dtype=jnp.uint32))
    return samples.transpose(2, 0, 1)
