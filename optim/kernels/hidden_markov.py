"""Hidden Markov models with Gaussian emissions, plain or autoregressive: filtering, smoothing and fitting by EM.

Series are padded to one length and advance together; every pass is one scan over time, on probabilities
whose scale is taken out sample by sample.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.kernels.k_means import plus_plus

FULL = lax.Precision.HIGHEST
LOG_2_PI = float(np.log(2.0 * np.pi))
COVARIANCE_FLOOR = 1e-3
"""Added to each variance: for standardised series, a thirtieth of a deviation."""

LEAST_PROBABILITY = 1e-30
"""No state is ruled out further: a sample that no state allows leaves probabilities that can still be normalised."""


class HmmParameters(NamedTuple):
    """A model of K states for V features.

    A sample in state k is normal with mean ``x M_k`` and covariance ``S_k``. Its regressors x are (1), or (1, last
    sample) where the model is autoregressive; the first sample of an autoregressive series says nothing of its state.

    Attributes
    ----------
    log_initial
        Shape (K,).
    log_transition
        Shape (K, K): from row to column.
    regression
        M, shape (K, 1, V), or (K, 1 + V, V) where autoregressive.
    covariance
        S, shape (K, V, V).
    """

    log_initial: jax.Array
    log_transition: jax.Array
    regression: jax.Array
    covariance: jax.Array

    @property
    def is_autoregressive(self) -> bool:
        """Whether means depend on the last sample."""
        return bool(self.regression.shape[-2] > 1)

    @property
    def num_free(self) -> int:
        """Free parameters, as information criteria count them."""
        num_states, num_regressors, num_features = self.regression.shape[-3:]
        emission = num_regressors * num_features + num_features * (num_features + 1) // 2
        return int(num_states * (num_states - 1) + num_states - 1 + num_states * emission)


class Fit(NamedTuple):
    """The best of all restarts.

    Attributes
    ----------
    parameters
        The model.
    log_likelihood
        Scalar, of the parameters returned.
    num_iterations
        Scalar int32.
    history
        Shape (max_iterations,): log-likelihood before each iteration, NaN beyond the last. With priors (ridge, floor,
        `stickiness`) it need not rise at every step.
    """

    parameters: HmmParameters
    log_likelihood: jax.Array
    num_iterations: jax.Array
    history: jax.Array


def pad_series(series: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return concatenated series (T, V) as an array (series, longest, V), zeros beyond each one's end."""
    counts = np.asarray(lengths, dtype=np.int64)
    begins = np.cumsum(counts) - counts
    padded = np.zeros((counts.size, int(counts.max(initial=0)), series.shape[1]), np.float32)
    row = np.repeat(np.arange(counts.size), counts)
    padded[row, np.arange(int(counts.sum())) - np.repeat(begins, counts)] = series
    return padded


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
    filtered, _, log_likelihood = _forward(parameters, _log_emission(parameters, series, lengths))
    return filtered.transpose(2, 0, 1), log_likelihood


@partial(jax.jit)
def smooth(parameters: HmmParameters, series: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return the states' probabilities given whole series, shape (N, L, K); see `filter`."""
    filtered, predicted, _ = _forward(parameters, _log_emission(parameters, series, lengths))
    return _backward(parameters, filtered, predicted, lengths)[0].swapaxes(0, 1)


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
    emission = _log_density(parameters, pair)[1, 0]
    joint = logsumexp(jnp.log(belief)[:, None] + parameters.log_transition, axis=0) + emission
    total = logsumexp(joint)
    return jnp.exp(joint - total), total


def fit(
    series: jax.Array,
    lengths: jax.Array,
    key: jax.Array,
    *,
    num_states: int,
    is_autoregressive: bool = False,
    num_restarts: int = 10,
    max_iterations: int = 100,
    tol: float = 1e-5,
    stickiness: float = 0.0,
) -> Fit:
    """Fit a model by expectation maximisation, from k-means++ seeds, restarted.

    Parameters
    ----------
    series, lengths
        As for `filter`; standardised.
    key
        Key of all seeds.
    num_states
        K.
    is_autoregressive
        Whether means depend on the last sample: a switching autoregression.
    num_restarts
        Seeds tried, one after another; the greatest log-likelihood wins, the first among equals.
    max_iterations, tol
        A restart ends after so many iterations, or once the mean log-likelihood a sample rises by less than `tol`.
    stickiness
        Transitions from each state to itself that are counted beside those seen.

    Returns
    -------
    Fit
        A local maximum.

    Raises
    ------
    InvalidOptionError
        If a count is below 1, or there are fewer samples than states.

    References
    ----------
    Rabiner (1989). A tutorial on hidden Markov models. doi:10.1109/5.18626, sections III and IV.
    Hamilton (1990). Analysis of time series subject to changes in regime. doi:10.1016/0304-4076(90)90093-9.
    """
    counts = {"num_states": num_states, "num_restarts": num_restarts, "max_iterations": max_iterations}
    check_in("[1, inf)", counts)
    if series.ndim != 3 or series.shape[0] * series.shape[1] < num_states:
        raise InvalidOptionError(
            f"series must have shape (N, L, V) with at least num_states = {num_states} samples, got {series.shape}"
        )
    return _fit(  # type: ignore[no-any-return]
        series, lengths, key, jnp.float32(tol), jnp.float32(stickiness), is_autoregressive=is_autoregressive, **counts
    )


@partial(jax.jit, static_argnames=("num_states", "is_autoregressive", "num_restarts", "max_iterations"))
def _fit(
    series: jax.Array,
    lengths: jax.Array,
    key: jax.Array,
    tol: jax.Array,
    stickiness: jax.Array,
    *,
    num_states: int,
    is_autoregressive: bool,
    num_restarts: int,
    max_iterations: int,
) -> Fit:
    samples = series.swapaxes(0, 1)
    counts = (jnp.arange(samples.shape[0])[:, None] < lengths[None, :]).astype(series.dtype)
    num_samples = jnp.maximum(jnp.sum(counts), 1.0)

    def expect(parameters: HmmParameters) -> tuple[jax.Array, jax.Array, jax.Array]:
        filtered, predicted, log_likelihood = _forward(parameters, _log_emission(parameters, series, lengths))
        smoothed, pairs = _backward(parameters, filtered, predicted, lengths)
        return smoothed, pairs, jnp.sum(log_likelihood)

    def restart(key: jax.Array) -> Fit:
        points = samples.reshape(-1, samples.shape[2])
        seeds = plus_plus(points, counts.reshape(-1), key, num_states, num_states)
        distance = jnp.sum(jnp.square(samples[:, :, None, :] - seeds[None, None]), axis=3)
        belief = jax.nn.one_hot(jnp.argmin(distance, axis=2), num_states, dtype=series.dtype)
        pairs = jnp.einsum("tnj,tnk,tn->jk", belief[:-1], belief[1:], counts[1:], precision=FULL)
        first = _maximise(samples, counts, belief, pairs, stickiness, is_autoregressive)

        def is_going_on(carry: tuple[HmmParameters, jax.Array, jax.Array, jax.Array]) -> jax.Array:
            *_, number, gain = carry
            return (number < max_iterations) & (gain > tol)

        def iterate(
            carry: tuple[HmmParameters, jax.Array, jax.Array, jax.Array],
        ) -> tuple[HmmParameters, jax.Array, jax.Array, jax.Array]:
            parameters, history, number, _ = carry
            belief, pairs, total = expect(parameters)
            gain = (total - history[jnp.maximum(number - 1, 0)]) / num_samples
            gain = jnp.where(number > 0, gain, jnp.inf)
            improved = _maximise(samples, counts, belief, pairs, stickiness, is_autoregressive)
            return improved, history.at[number].set(total), number + 1, gain

        history = jnp.full(max_iterations, jnp.nan, series.dtype)
        start = (first, history, jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf, series.dtype))
        parameters, history, number, _ = lax.while_loop(is_going_on, iterate, start)
        *_, log_likelihood = _forward(parameters, _log_emission(parameters, series, lengths))
        return Fit(parameters, jnp.sum(log_likelihood), number, history)

    found = lax.map(restart, jax.random.split(key, num_restarts))
    best = jnp.argmax(jnp.where(jnp.isnan(found.log_likelihood), -jnp.inf, found.log_likelihood))
    return jax.tree.map(lambda leaf: leaf[best], found)  # type: ignore[no-any-return]


def _regressors(samples: jax.Array, is_autoregressive: bool) -> jax.Array:
    """Return regressors (L, N, R) of samples (L, N, V), time first."""
    ones = jnp.ones_like(samples[:, :, :1])
    if not is_autoregressive:
        return ones
    previous = jnp.concatenate([samples[:1], samples[:-1]])
    return jnp.concatenate([ones, previous], axis=2)


def _log_density(parameters: HmmParameters, series: jax.Array) -> jax.Array:
    """Return each sample's log-density in each state, shape (L, N, K), for series (N, L, V)."""
    samples = series.swapaxes(0, 1)
    inputs = _regressors(samples, parameters.is_autoregressive)
    error = samples[:, :, None, :] - jnp.einsum("tnr,krv->tnkv", inputs, parameters.regression, precision=FULL)
    root = jnp.linalg.cholesky(parameters.covariance)
    identity = jnp.broadcast_to(jnp.eye(root.shape[-1], dtype=root.dtype), root.shape)
    inverse = solve_triangular(root, identity, lower=True)
    scaled = jnp.einsum("kwv,tnkv->tnkw", inverse, error, precision=FULL)
    log_root = jnp.sum(jnp.log(jnp.diagonal(root, axis1=1, axis2=2)), axis=1)
    return -0.5 * (jnp.sum(scaled * scaled, axis=3) + root.shape[-1] * LOG_2_PI) - log_root[None, None, :]


def _log_emission(parameters: HmmParameters, series: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return log-densities (L, N, K), 0 for samples that say nothing: padding, and the first of an autoregression."""
    time = jnp.arange(series.shape[1])[:, None]
    counts = time < lengths[None, :]
    if parameters.is_autoregressive:
        counts = counts & (time > 0)
    return jnp.where(counts[:, :, None], _log_density(parameters, series), 0.0)


def _forward(parameters: HmmParameters, log_emission: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return probabilities after each sample and before it, shape (L, K, N) each, and log-likelihoods (N,)."""
    # One scale a sample, taken out before: within the scan there are only products, sums and one division.
    largest = jnp.max(log_emission, axis=2)
    likelihood = jnp.exp(log_emission - largest[:, :, None]).swapaxes(1, 2)
    backwards = jnp.exp(parameters.log_transition).T

    def step(predicted: jax.Array, likelihood: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        joint = predicted * likelihood
        total = jnp.sum(joint, axis=0)
        filtered = joint / total[None, :]
        after = jnp.maximum(jnp.matmul(backwards, filtered, precision=FULL), LEAST_PROBABILITY)
        return after, (filtered, predicted, total)

    initial = jnp.maximum(jnp.exp(parameters.log_initial), LEAST_PROBABILITY)
    start = jnp.broadcast_to(initial[:, None], likelihood.shape[1:])
    _, (filtered, predicted, totals) = lax.scan(step, start, likelihood)
    return filtered, predicted, jnp.sum(jnp.log(totals) + largest, axis=0)


def _backward(
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


def _maximise(
    samples: jax.Array,
    counts: jax.Array,
    belief: jax.Array,
    pairs: jax.Array,
    stickiness: jax.Array,
    is_autoregressive: bool,
) -> HmmParameters:
    """Return the parameters that the expected statistics suggest; samples (L, N, V), belief (L, N, K)."""
    num_states, num_features = belief.shape[2], samples.shape[2]
    usable = counts.at[0].set(0.0) if is_autoregressive else counts
    weight = (belief * usable[:, :, None]).reshape(-1, num_states)
    flat = samples.reshape(-1, num_features)
    inputs = _regressors(samples, is_autoregressive).reshape(flat.shape[0], -1)
    mass = jnp.sum(weight, axis=0)
    square = jnp.einsum("tk,tr,ts->krs", weight, inputs, inputs, precision=FULL)
    product = jnp.einsum("tk,tr,tv->krv", weight, inputs, flat, precision=FULL)
    # A little ridge keeps a state without samples, or with constant ones, solvable.
    ridge = 1e-3 * jnp.eye(inputs.shape[1], dtype=flat.dtype)
    regression = jnp.linalg.solve(square + ridge[None], product)
    error = flat[:, None, :] - jnp.einsum("tr,krv->tkv", inputs, regression, precision=FULL)
    spread = jnp.einsum("tk,tkv,tkw->kvw", weight, error, error, precision=FULL)
    floor = COVARIANCE_FLOOR * jnp.eye(num_features, dtype=flat.dtype)
    # One transition more to every state, shared, keeps each state within reach.
    seen = pairs + 1.0 / num_states + stickiness * jnp.eye(num_states, dtype=flat.dtype)
    start = jnp.sum(belief[0] * counts[0][:, None], axis=0) + 1.0 / num_states
    return HmmParameters(
        log_initial=jnp.log(start / jnp.sum(start)),
        log_transition=jnp.log(seen / jnp.sum(seen, axis=1, keepdims=True)),
        regression=regression,
        covariance=spread / jnp.maximum(mass, 1e-3)[:, None, None] + floor[None],
    )
