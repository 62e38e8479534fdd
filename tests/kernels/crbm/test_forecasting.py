"""Forecasts against a plain mean field, and continuations against a linear autoregression and exact moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.kernels.crbm import (
    CrbmParameters,
    encode,
    forecast,
    forecast_error,
    free_energy,
    roll_out,
    spectral_radius,
    window_ends,
)
from optim.kernels.crbm.forecasting import FIELD_STEPS
from tests.support.kernels.plain_crbm import random_parameters, sigmoid, windows

TOL = 1e-5
FIRST_STEP = {"num_steps": 1, "num_chains": 20_000, "num_gibbs_steps": 12}
"""Compiled once for the tests of moments."""


def machine(seed, scale=0.3):
    parameters = random_parameters(np.random.default_rng(seed), 2, 3, 4, scale)
    return parameters, CrbmParameters(*(jnp.asarray(one, jnp.float32) for one in parameters))


def test_windows_of_nothing_have_no_error_and_series_of_another_width_are_refused():
    _, kernel = machine(1)
    series = jnp.zeros((30, 2))
    assert np.isnan(forecast_error(kernel, series, jnp.full(4, -1, jnp.int32))).all()
    ends = jnp.arange(3, 9, dtype=jnp.int32)
    for look in (encode, free_energy, forecast, forecast_error):
        with pytest.raises(
            InvalidOptionError, match=r"series must have shape \(samples, 2\) to fit the CRBM, got \(30, 3\)"
        ):
            look(kernel, jnp.zeros((30, 3)), ends)
        with pytest.raises(InvalidOptionError, match=r"got \(3, 2\); give longer series"):
            look(kernel, jnp.zeros((3, 2)), ends)
    with pytest.raises(InvalidOptionError, match=r"history must have shape \(3, 2\) to fit the CRBM, got \(2, 2\)"):
        roll_out(kernel, jnp.zeros((2, 2)), jax.random.key(0), num_steps=1)


@pytest.mark.parametrize(("lengths", "num_delays"), [([-1], 3), ([4, -2], 3), ([4], -1)])
def test_windows_of_negative_lengths_are_refused(lengths, num_delays):
    with pytest.raises(InvalidOptionError, match="must be at least 0, got"):
        window_ends(lengths, num_delays)


def test_a_forecast_is_the_mean_field_from_the_last_sample_of_the_history():
    (W, A, B, a, b), kernel = machine(1)
    series = np.random.default_rng(2).standard_normal((30, 2))
    ends = window_ends([12, 18], 3)
    u, v = windows(series, ends, 3)
    expected = u[:, -2:]
    for _ in range(FIELD_STEPS):
        expected = u @ A + a + sigmoid(expected @ W + u @ B + b) @ W.T
    arrays = (kernel, jnp.asarray(series, jnp.float32))
    np.testing.assert_allclose(forecast(*arrays, jnp.asarray(ends)), expected, rtol=TOL, atol=TOL)
    padded = jnp.asarray([*ends.tolist(), -1, -1])
    np.testing.assert_allclose(
        forecast_error(*arrays, padded), np.mean((v - expected) ** 2, axis=0), rtol=TOL, atol=TOL
    )


def test_a_forecast_does_not_see_the_sample_that_it_forecasts():
    _, kernel = machine(3)
    series = np.random.default_rng(4).standard_normal((4, 2)).astype(np.float32)
    other = series.copy()
    other[3] += 5
    one, two = (forecast(kernel, jnp.asarray(array), jnp.asarray([3])) for array in (series, other))
    np.testing.assert_array_equal(one, two)


def test_without_hiddens_and_noise_continuations_follow_the_linear_autoregression():
    (_, A, _, a, _), kernel = machine(5)
    kernel = kernel._replace(weights=jnp.zeros_like(kernel.weights))
    past = np.random.default_rng(6).standard_normal((3, 2))
    found = roll_out(
        kernel, jnp.asarray(past, jnp.float32), jax.random.key(0), num_steps=6, num_chains=2, is_noisy=False
    )
    frames = list(past)
    for _ in range(6):
        frames.append(np.concatenate(frames[-3:]) @ A + a)
    for chain in np.asarray(found):
        np.testing.assert_allclose(chain, frames[3:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_spectral_radius_is_the_growth_of_long_continuations(seed):
    rng = np.random.default_rng(seed)
    (_, A, *_), kernel = machine(seed, 0.6)
    frames = list(rng.standard_normal((3, 2)))
    logs = []
    for _ in range(4000):
        frames = [*frames[1:], np.concatenate(frames) @ A]
        size = np.linalg.norm(frames)
        frames = [frame / size for frame in frames]
        logs.append(np.log(size))
    assert spectral_radius(kernel) == pytest.approx(np.exp(np.mean(logs[500:])), rel=2e-3)


def test_the_spectral_radius_of_one_feature_is_the_largest_root_of_its_polynomial():
    # Oldest first: v_t = 0.2 v_{t-3} - 0.5 v_{t-2} + 0.9 v_{t-1}.
    _, kernel = machine(0)
    single = kernel._replace(
        weights=jnp.zeros((1, 4)), autoregression=jnp.array([[0.2], [-0.5], [0.9]]), visible_bias=jnp.zeros(1)
    )
    assert spectral_radius(single) == pytest.approx(np.abs(np.roots([1, -0.9, 0.5, -0.2])).max(), rel=1e-6)


@pytest.mark.prove
def test_the_first_step_has_the_mean_of_the_distribution_given_the_history():
    (W, A, B, a, b), kernel = machine(7)
    past = np.random.default_rng(8).standard_normal((3, 2))
    u = past.reshape(-1)
    # Given the history, a hidden state's weight is its energy's, with the visibles integrated out.
    states = np.array(np.meshgrid(*[[0.0, 1.0]] * 4)).reshape(4, -1).T
    means = u @ A + a + states @ W.T
    log_weight = states @ (u @ B + b) + 0.5 * np.sum(means**2, axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    found = roll_out(kernel, jnp.asarray(past, jnp.float32), jax.random.key(1), **FIRST_STEP)
    samples = np.asarray(found)[:, 0]
    spread = np.sqrt(samples.var(axis=0) / len(samples))
    assert (np.abs(samples.mean(axis=0) - weight @ means) < 5 * spread).all()


@pytest.mark.parametrize("is_noisy", [pytest.param(False, marks=pytest.mark.prove), True])
def test_continuations_depend_on_the_key_alone(is_noisy):
    _, kernel = machine(9)
    past = jnp.ones((3, 2))
    options = {"num_steps": 4, "num_chains": 5, "is_noisy": is_noisy}
    one, again, other = (roll_out(kernel, past, jax.random.key(key), **options) for key in (0, 0, 1))
    assert one.shape == (5, 4, 2)
    np.testing.assert_array_equal(one, again)
    assert (np.asarray(one) != np.asarray(other)).any()


def test_noise_of_continuations_is_normal_with_unit_variance():
    (_, A, _, a, _), kernel = machine(10)
    kernel = kernel._replace(weights=jnp.zeros_like(kernel.weights))
    past = np.random.default_rng(11).standard_normal((3, 2))
    count = FIRST_STEP["num_chains"]
    found = roll_out(kernel, jnp.asarray(past, jnp.float32), jax.random.key(2), **FIRST_STEP)
    noise = np.asarray(found)[:, 0] - (past.reshape(-1) @ A + a)
    # Six standard errors of the mean, of the variance and of the covariance of normal noise.
    assert np.abs(noise.mean(axis=0)).max() < 6 / np.sqrt(count)
    assert np.abs(noise.var(axis=0) - 1).max() < 6 * np.sqrt(2 / count)
    assert abs(np.mean(noise[:, 0] * noise[:, 1])) < 6 / np.sqrt(count)
