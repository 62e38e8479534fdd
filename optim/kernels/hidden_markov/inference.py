"""The states' probabilities given the samples so far, given the full series, and after one more sample."""

from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp

from optim.kernels.hidden_markov.model import FULL, HmmParameters, log_density, log_emission

FEW_STATES = 8
"""Maximum number of states K for which an accelerator scans series by doubling, with O(K^3) operations per sample."""

MIN_PROBABILITY = 1e-30
"""Lower limit of probabilities, so that they can be normalised even after a sample that no state allows."""


@partial(jax.jit)
def filter(  # the usual term; the built-in of that name isn't used here
    parameters: HmmParameters, series: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the states' probabilities given the samples so far, and each series' log-likelihood.

    Parameters
    ----------
    parameters
        The model.
    series
        Shape (N, L, V): N series of V features, padded to L samples.
    lengths
        Shape (N,), int32: number of samples of each series.

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
    """Return minus the log-density of each sample given the earlier samples, shape (N, L); see `filter`.

    The result is 0 beyond a series' end, and at the first sample for an autoregressive model. Its sum over a series is
    minus the series' log-likelihood.
    """
    emission = log_emission(parameters, series, lengths)
    _, predicted, _ = forward(parameters, emission)
    return -logsumexp(jnp.log(predicted).swapaxes(1, 2) + emission, axis=2).T


@partial(jax.jit)
def smooth(parameters: HmmParameters, series: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return the states' probabilities given the full series, shape (N, L, K); see `filter`."""
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
        The new sample and the one before it, shape (V,) each. Only an autoregressive model uses the previous sample.
    """
    pair = jnp.stack([previous, sample])[None]
    emission = log_density(parameters, pair)[1, 0]
    joint = logsumexp(jnp.log(belief)[:, None] + parameters.log_transition, axis=0) + emission
    total = logsumexp(joint)
    return jnp.exp(joint - total), total


def is_by_doubling(parameters: HmmParameters) -> bool:
    """Return whether to scan series by doubling, which is faster on an accelerator with few states, but slower on a CPU."""
    return bool(parameters.log_initial.shape[-1] <= FEW_STATES) and jax.default_backend() != "cpu"


def forward(parameters: HmmParameters, log_emission: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the states' probabilities after and before each sample, shape (L, K, N) each, and log-likelihoods, shape (N,)."""
    way = forward_by_doubling if is_by_doubling(parameters) else forward_by_sample
    return way(parameters, log_emission)


def backward(
    parameters: HmmParameters, filtered: jax.Array, predicted: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return smoothed probabilities, shape (L, N, K), and expected numbers of transitions without padding, shape (K, K)."""
    way = smoothed_by_doubling if is_by_doubling(parameters) else smoothed_by_sample
    smoothed, ratio = way(parameters, filtered, predicted)
    transition = jnp.exp(parameters.log_transition)
    later = (jnp.arange(1, filtered.shape[0])[:, None] < lengths[None, :]).astype(filtered.dtype)
    now = (filtered[:-1] * later[:, None, :]).swapaxes(0, 1).reshape(transition.shape[0], -1)
    then = ratio.swapaxes(0, 1).reshape(transition.shape[0], -1)
    pairs = transition * jnp.matmul(now, then.T, precision=FULL)
    return jnp.concatenate([smoothed, filtered[-1:]]).swapaxes(1, 2), pairs


def forward_by_sample(parameters: HmmParameters, log_emission: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the results of `forward`, computed one sample after the other."""
    # One scale per sample is factored out before the scan, which then has only products, sums and one division.
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


def smoothed_by_sample(
    parameters: HmmParameters, filtered: jax.Array, predicted: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return smoothed probabilities of all samples but the last, and the ratio smoothed / predicted of all but the first."""
    transition = jnp.exp(parameters.log_transition)

    def step(after: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        filtered, predicted = inputs
        # Bayes' rule: P(i now | j next) = filtered[i] * transition[i, j] / predicted[j].
        ratio = after / predicted
        smoothed = filtered * jnp.matmul(transition, ratio, precision=FULL)
        return smoothed, (smoothed, ratio)

    _, smoothed = lax.scan(step, filtered[-1], (filtered[:-1], predicted[1:]), reverse=True)
    return smoothed  # type: ignore[no-any-return]


def forward_by_doubling(parameters: HmmParameters, log_emission: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute `forward` by products of 1, 2, 4, ... steps at once, in as many rounds as the length has binary digits.

    The matrix of a step contains each transition's probability times the sample's likelihood in the new state. Products are
    stored as logarithms relative to their largest entry, to avoid underflow and loss of digits in large sums.
    """
    least = float(np.log(MIN_PROBABILITY))
    largest = jnp.max(log_emission, axis=2)
    log_likelihood = (log_emission - largest[:, :, None]).swapaxes(1, 2)
    steps = jnp.maximum(parameters.log_transition, least)[None, :, :, None] + log_likelihood[:, None]
    first = jnp.maximum(parameters.log_initial, least)[None, None, :, None] + log_likelihood[:1, None]
    steps = jnp.concatenate([jnp.broadcast_to(first, steps[:1].shape), steps[1:]])
    product = lax.associative_scan(_product, steps)
    filtered = jax.nn.softmax(product[:, 0], axis=1)
    initial = jnp.broadcast_to(jnp.exp(parameters.log_initial)[None, :, None], filtered[:1].shape)
    later = jnp.einsum("ij,tin->tjn", jnp.exp(parameters.log_transition), filtered[:-1], precision=FULL)
    predicted = jnp.maximum(jnp.concatenate([initial, later]), MIN_PROBABILITY)
    totals = logsumexp(jnp.log(predicted) + log_likelihood, axis=1)
    return filtered, predicted, jnp.sum(totals + largest, axis=0)


def smoothed_by_doubling(
    parameters: HmmParameters, filtered: jax.Array, predicted: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the results of `smoothed_by_sample`, computed by an associative scan as in `forward_by_doubling`."""
    least = float(np.log(MIN_PROBABILITY))
    # A sample's evidence for a state is the ratio of filtered to predicted probability, up to a factor.
    log_evidence = jnp.log(jnp.maximum(filtered, MIN_PROBABILITY)) - jnp.log(predicted)
    steps = jnp.maximum(parameters.log_transition, least)[None, :, :, None] + log_evidence[1:, None]
    product = lax.associative_scan(lambda later, earlier: _product(earlier, later), steps, reverse=True)
    odds = filtered[:-1] * jnp.exp(jax.nn.log_softmax(logsumexp(product, axis=2), axis=1))
    smoothed = odds / jnp.sum(odds, axis=1, keepdims=True)
    return smoothed, jnp.concatenate([smoothed[1:], filtered[-1:]]) / predicted[1:]


def _product(first: jax.Array, second: jax.Array) -> jax.Array:
    """Return the logarithms of matrix products, shape (steps, K, K, N), shifted so that the largest of each product is 0."""
    terms = [first[:, :, k, None] + second[:, k, None] for k in range(first.shape[1])]
    largest = reduce(jnp.maximum, terms)
    total = largest + jnp.log(sum(jnp.exp(term - largest) for term in terms))
    return total - jnp.max(total, axis=(1, 2), keepdims=True)
