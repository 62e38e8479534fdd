"""The states' probabilities: given the samples so far, given whole series, and after one more sample."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from optim.kernels.hidden_markov.model import FULL, HmmParameters, log_density, log_emission

MIN_PROBABILITY = 1e-30
"""No state is ruled out further: a sample that no state allows leaves probabilities that can still be normalised."""


@partial(jax.jit)
def filter(  # the field's word; the built-in of that name isn't used here
    parameters: HmmParameters, series: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the states' probabilities given the samples so far, and each series' log-likelihood.

    Parameters
    ----------
    parameters
        The model.
    series
        Shape (N, L, V): N series, padded.
    lengths
        Shape (N,), int32.

    Returns
    -------
    tuple
        Probabilities of shape (N, L, K); beyond a series' end they are predictions. Log-likelihoods of shape (N,); for an
        autoregressive model, of all samples after the first.
    """
    filtered, _, log_likelihood = forward(parameters, log_emission(parameters, series, lengths))
    return filtered.transpose(2, 0, 1), log_likelihood


@partial(jax.jit)
def negative_log_likelihood(parameters: HmmParameters, series: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return minus the log-density of each sample given those before it, shape (N, L); see `filter`.

    0 where there is nothing to tell: beyond a series' end, and at the first sample of an autoregressive model. A series' sum is
    minus its log-likelihood.
    """
    emission = log_emission(parameters, series, lengths)
    _, predicted, _ = forward(parameters, emission)
    return -logsumexp(jnp.log(predicted).swapaxes(1, 2) + emission, axis=2).T


@partial(jax.jit)
def smooth(parameters: HmmParameters, series: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return the states' probabilities given whole series, shape (N, L, K); see `filter`."""
    filtered, predicted, _ = forward(parameters, log_emission(parameters, series, lengths))
    return backward(parameters, filtered, predicted, lengths)[0].swapaxes(0, 1)


@partial(jax.jit)
def advance(
    parameters: HmmParameters, belief: jax.Array, sample: jax.Array, previous: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the states' probabilities after one more sample, and the sample's log-density.

    Parameters
    ----------
    parameters
        The model.
    belief
        Shape (K,): probabilities after the previous sample.
    sample, previous
        Shape (V,) each; a plain model ignores the previous one.
    """
    pair = jnp.stack([previous, sample])[None]
    emission = log_density(parameters, pair)[1, 0]
    joint = logsumexp(jnp.log(belief)[:, None] + parameters.log_transition, axis=0) + emission
    total = logsumexp(joint)
    return jnp.exp(joint - total), total


def forward(parameters: HmmParameters, log_emission: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return probabilities after each sample and before it, shape (L, K, N) each, and log-likelihoods (N,)."""
    # One scale a sample, taken out before: within the scan there are only products, sums and one division.
    largest = jnp.max(log_emission, axis=2)
    likelihood = jnp.exp(log_emission - largest[:, :, None]).swapaxes(1, 2)
    backwards = jnp.exp(parameters.log_transition).T

    def step(predicted: jax.Array, likelihood: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        joint = predicted * likelihood
        total = jnp.sum(joint, axis=0)
        filtered = joint / total[None, :]
        after = jnp.maximum(jnp.matmul(backwards, filtered, precision=FULL), MIN_PROBABILITY)
        return after, (filtered, predicted, total)

    initial = jnp.maximum(jnp.exp(parameters.log_initial), MIN_PROBABILITY)
    start = jnp.broadcast_to(initial[:, None], likelihood.shape[1:])
    _, (filtered, predicted, totals) = lax.scan(step, start, likelihood)
    return filtered, predicted, jnp.sum(jnp.log(totals) + largest, axis=0)


def backward(
    parameters: HmmParameters, filtered: jax.Array, predicted: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return smoothed probabilities (L, N, K) and expected transitions (K, K), padding left out of the latter."""
    transition = jnp.exp(parameters.log_transition)

    def step(after: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        filtered, predicted = inputs
        # Bayes backwards: P(i now | j next) is the filtered i times the transition over the predicted j.
        ratio = after / predicted
        smoothed = filtered * jnp.matmul(transition, ratio, precision=FULL)
        return smoothed, (smoothed, ratio)

    _, (smoothed, ratio) = lax.scan(step, filtered[-1], (filtered[:-1], predicted[1:]), reverse=True)
    later = (jnp.arange(1, filtered.shape[0])[:, None] < lengths[None, :]).astype(filtered.dtype)
    now = (filtered[:-1] * later[:, None, :]).swapaxes(0, 1).reshape(transition.shape[0], -1)
    then = ratio.swapaxes(0, 1).reshape(transition.shape[0], -1)
    pairs = transition * jnp.matmul(now, then.T, precision=FULL)
    return jnp.concatenate([smoothed, filtered[-1:]]).swapaxes(1, 2), pairs
