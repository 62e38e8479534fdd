"""Fitting by expectation maximisation (EM), restarted from several k-means++ seeds."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from optim.core.errors import InvalidOptionError, check_in
from optim.kernels.hidden_markov.inference import backward, forward
from optim.kernels.hidden_markov.model import FULL, HmmParameters, log_emission, regressors
from optim.kernels.k_means import plus_plus

PRIOR_VARIANCE, PRIOR_SAMPLES = 1e-3, 1.0
"""Prior of each covariance: it counts as PRIOR_SAMPLES samples with the variance PRIOR_VARIANCE (series are standardised).
It keeps the covariance of a state with constant samples positive, and has little weight compared with the data."""

RIDGE = 1e-3
"""Prior precision of the regression, relative to the state's covariance, so that a state without samples has a regression."""

_Progress = tuple[HmmParameters, jax.Array, jax.Array, jax.Array]
"""State of a restart: parameters, history of objectives, number of iterations, and gain of the last iteration."""


class Fit(NamedTuple):
    """Result of the best restart.

    Attributes
    ----------
    parameters
        The model.
    log_likelihood
        Scalar: log-likelihood of the returned parameters.
    num_iterations
        Scalar int32: number of EM iterations.
    history
        Shape (max_iterations,): log-likelihood plus `log_prior` before each iteration, NaN after the last iteration. It never
        falls.
    """

    parameters: HmmParameters
    log_likelihood: jax.Array
    num_iterations: jax.Array
    history: jax.Array


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
    """Fit a model by expectation maximisation, restarted from several k-means++ seeds.

    Parameters
    ----------
    series, lengths
        As for `filter`; the series must be standardised.
    key
        Key of all random seeds.
    num_states
        Number K of states.
    is_autoregressive
        Whether means depend on the previous sample: a switching autoregression.
    num_restarts
        Number of restarts, in sequence on a CPU and in parallel on an accelerator. The fit with the greatest
        log-likelihood is returned; in a tie, the first.
    max_iterations, tol
        A restart ends after `max_iterations` iterations, or once the mean log-likelihood per sample rises by at most `tol`.
    stickiness
        Pseudo-count of transitions from each state to itself.

    Returns
    -------
    Fit
        A local maximum of the log-likelihood plus `log_prior`.

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
        series,
        lengths,
        key,
        jnp.asarray(tol, series.dtype),
        jnp.asarray(stickiness, series.dtype),
        is_autoregressive=is_autoregressive,
        **counts,
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
        filtered, predicted, log_likelihood = forward(parameters, log_emission(parameters, series, lengths))
        smoothed, pairs = backward(parameters, filtered, predicted, lengths)
        return smoothed, pairs, jnp.sum(log_likelihood)

    def restart(key: jax.Array) -> Fit:
        points = samples.reshape(-1, samples.shape[2])
        seeds = plus_plus(points, counts.reshape(-1), key, num_states, num_states)
        distance = jnp.sum(jnp.square(samples[:, :, None, :] - seeds[None, None]), axis=3)
        belief = jax.nn.one_hot(jnp.argmin(distance, axis=2), num_states, dtype=series.dtype)
        pairs = jnp.einsum("tnj,tnk,tn->jk", belief[:-1], belief[1:], counts[1:], precision=FULL)
        first = _maximise(samples, counts, belief, pairs, stickiness, is_autoregressive)

        def is_going_on(carry: _Progress) -> jax.Array:
            *_, number, gain = carry
            return (number < max_iterations) & (gain > tol)

        def iterate(carry: _Progress) -> _Progress:
            parameters, history, number, _ = carry
            belief, pairs, total = expect(parameters)
            total += log_prior(parameters, stickiness)
            gain = (total - history[jnp.maximum(number - 1, 0)]) / num_samples
            gain = jnp.where(number > 0, gain, jnp.inf)
            improved = _maximise(samples, counts, belief, pairs, stickiness, is_autoregressive)
            return improved, history.at[number].set(total), number + 1, gain

        history = jnp.full(max_iterations, jnp.nan, series.dtype)
        start = (first, history, jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf, series.dtype))
        parameters, history, number, _ = lax.while_loop(is_going_on, iterate, start)
        *_, log_likelihood = forward(parameters, log_emission(parameters, series, lengths))
        return Fit(parameters, jnp.sum(log_likelihood), number, history)

    keys = jax.random.split(key, num_restarts)
    fits = lax.map(restart, keys) if jax.default_backend() == "cpu" else jax.vmap(restart)(keys)
    best = jnp.argmax(jnp.where(jnp.isnan(fits.log_likelihood), -jnp.inf, fits.log_likelihood))
    return jax.tree.map(lambda leaf: leaf[best], fits)  # type: ignore[no-any-return]


def _maximise(
    samples: jax.Array,
    counts: jax.Array,
    belief: jax.Array,
    pairs: jax.Array,
    stickiness: jax.Array,
    is_autoregressive: bool,
) -> HmmParameters:
    """Perform the M step: return the best parameters given the states' probabilities `belief`, shape (L, N, K)."""
    num_states, num_features = belief.shape[2], samples.shape[2]
    usable = counts.at[0].set(0.0) if is_autoregressive else counts
    weight = (belief * usable[:, :, None]).reshape(-1, num_states)
    flat = samples.reshape(-1, num_features)
    inputs = regressors(samples, is_autoregressive).reshape(flat.shape[0], -1)
    mass = jnp.sum(weight, axis=0)
    square = jnp.einsum("tk,tr,ts->krs", weight, inputs, inputs, precision=FULL)
    product = jnp.einsum("tk,tr,tv->krv", weight, inputs, flat, precision=FULL)
    regression = jnp.linalg.solve(square + RIDGE * jnp.eye(inputs.shape[1], dtype=flat.dtype)[None], product)
    error = flat[:, None, :] - jnp.einsum("tr,krv->tkv", inputs, regression, precision=FULL)
    spread = jnp.einsum("tk,tkv,tkw->kvw", weight, error, error, precision=FULL)
    prior = RIDGE * jnp.einsum("krv,krw->kvw", regression, regression, precision=FULL)
    prior += PRIOR_SAMPLES * PRIOR_VARIANCE * jnp.eye(num_features, dtype=flat.dtype)[None]
    # One extra transition from each state, shared among all states, keeps every state reachable.
    seen = pairs + 1.0 / num_states + stickiness * jnp.eye(num_states, dtype=flat.dtype)
    start = jnp.sum(belief[0] * counts[0][:, None], axis=0) + 1.0 / num_states
    return HmmParameters(
        log_initial=jnp.log(start / jnp.sum(start)),
        log_transition=jnp.log(seen / jnp.sum(seen, axis=1, keepdims=True)),
        regression=regression,
        covariance=(spread + prior) / (mass + PRIOR_SAMPLES)[:, None, None],
    )


def log_prior(parameters: HmmParameters, stickiness: jax.Array) -> jax.Array:
    """Return the logarithm of the parameters' prior up to a constant; `fit` maximises log-likelihood plus `log_prior`.

    The prior is Dirichlet for the first state's probabilities and the transitions, inverse Wishart for covariances, and
    normal for regressions.
    """
    num_states, _, num_features = parameters.regression.shape
    seen = 1.0 / num_states + stickiness * jnp.eye(num_states, dtype=parameters.log_transition.dtype)
    scale = RIDGE * jnp.einsum("krv,krw->kvw", parameters.regression, parameters.regression, precision=FULL)
    scale += PRIOR_SAMPLES * PRIOR_VARIANCE * jnp.eye(num_features, dtype=scale.dtype)[None]
    _, log_determinant = jnp.linalg.slogdet(parameters.covariance)
    misfit = jnp.trace(jnp.linalg.solve(parameters.covariance, scale), axis1=1, axis2=2)
    return (
        jnp.sum(parameters.log_initial) / num_states
        + jnp.sum(seen * parameters.log_transition)
        - 0.5 * jnp.sum(PRIOR_SAMPLES * log_determinant + misfit)
    )
