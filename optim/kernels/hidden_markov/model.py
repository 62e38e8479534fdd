"""The parameters of a hidden Markov model, and the densities of samples in its states."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular

FULL = lax.Precision.HIGHEST
LOG_2_PI = float(np.log(2.0 * np.pi))


class HmmParameters(NamedTuple):
    """A model of K states for V features.

    A sample in state k is normally distributed with mean ``x M_k`` and covariance ``S_k``. The row vector x of
    regressors is (1), or (1, previous sample) if the model is autoregressive. The first sample of an autoregressive
    series gives no evidence on its state.

    Attributes
    ----------
    log_initial
        Shape (K,): log-probability of each state at the first sample.
    log_transition
        Shape (K, K): log-probability of each transition, from row to column.
    regression
        M, shape (K, 1, V), or (K, 1 + V, V) for an autoregressive model.
    covariance
        S, shape (K, V, V).
    """

    log_initial: jax.Array
    log_transition: jax.Array
    regression: jax.Array
    covariance: jax.Array

    @property
    def is_autoregressive(self) -> bool:
        """Whether means depend on the previous sample."""
        return bool(self.regression.shape[-2] > 1)

    @property
    def num_free(self) -> int:
        """Number of free parameters, as information criteria count them."""
        num_states, num_regressors, num_features = self.regression.shape[-3:]
        emission = num_regressors * num_features + num_features * (num_features + 1) // 2
        return int(num_states * (num_states - 1) + num_states - 1 + num_states * emission)


def pad_series(series: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return concatenated series, shape (T, V), as an array of shape (series, longest length, V), padded with zeros."""
    counts = np.asarray(lengths, dtype=np.int64)
    begins = np.cumsum(counts) - counts
    padded = np.zeros((counts.size, int(counts.max(initial=0)), series.shape[1]), np.float32)
    row = np.repeat(np.arange(counts.size), counts)
    padded[row, np.arange(int(counts.sum())) - np.repeat(begins, counts)] = series
    return padded


def regressors(samples: jax.Array, is_autoregressive: bool) -> jax.Array:
    """Return the regressors, shape (L, N, R), of samples of shape (L, N, V), with time as the first axis."""
    ones = jnp.ones_like(samples[:, :, :1])
    if not is_autoregressive:
        return ones
    previous = jnp.concatenate([samples[:1], samples[:-1]])
    return jnp.concatenate([ones, previous], axis=2)


def log_density(parameters: HmmParameters, series: jax.Array) -> jax.Array:
    """Return each sample's log-density in each state, shape (L, N, K), for series of shape (N, L, V)."""
    samples = series.swapaxes(0, 1)
    inputs = regressors(samples, parameters.is_autoregressive)
    error = samples[:, :, None, :] - jnp.einsum("tnr,krv->tnkv", inputs, parameters.regression, precision=FULL)
    root = jnp.linalg.cholesky(parameters.covariance)
    identity = jnp.broadcast_to(jnp.eye(root.shape[-1], dtype=root.dtype), root.shape)
    inverse = solve_triangular(root, identity, lower=True)
    scaled = jnp.einsum("kwv,tnkv->tnkw", inverse, error, precision=FULL)
    log_root = jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
    return -0.5 * (jnp.sum(scaled * scaled, axis=3) + root.shape[-1] * LOG_2_PI) - log_root[None, None, :]


def log_emission(parameters: HmmParameters, series: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return `log_density`, but 0 for padding and for the first sample of an autoregressive series; shape (L, N, K)."""
    time = jnp.arange(series.shape[1])[:, None]
    counts = time < lengths[None, :]
    if parameters.is_autoregressive:
        counts = counts & (time > 0)
    return jnp.where(counts[:, :, None], log_density(parameters, series), 0.0)
