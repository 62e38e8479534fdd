"""Scores against their definition, and continuations against the densities that models have in closed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.continuations import CrbmPaths, Increments, LinearPaths, SwitchingPaths, crps, range_of
from scipy.stats import norm

from optim.core.errors import InvalidProblemError
from optim.phases.encoders.crbm import CrbmOptions
from optim.phases.encoders.hmm import HmmOptions
from optim.phases.preprocessing import ScaledSeries

PATHS = 4000
MEAN_TOL = 5 / np.sqrt(PATHS)
"""Five standard deviations of a mean of this number of draws with standard deviation one."""


def autoregressive(seed=0, lengths=(300, 200), noise=0.2):
    """Two resources that return to 0, each by half of where it is."""
    rng = np.random.default_rng(seed)
    values = np.zeros((sum(lengths), 2))
    for row in range(1, len(values)):
        values[row] = values[row - 1] * np.array([0.5, 0.9]) + noise * rng.normal(size=2)
    return ScaledSeries(values=values, lengths=np.array(lengths))


@given(st.lists(st.integers(-20, 20), min_size=2, max_size=8), st.integers(-25, 25))
def test_crps_is_its_definition_over_all_pairs(samples, observed):
    number = len(samples)
    far = sum(abs(x - observed) for x in samples) / number
    apart = sum(abs(x - y) for x in samples for y in samples) / (2 * number * (number - 1))
    assert crps(np.array(samples, dtype=float), np.array(float(observed))) == pytest.approx(far - apart)


def test_crps_of_normal_draws_is_the_closed_form_and_least_at_the_truth():
    draws = np.random.default_rng(1).normal(size=20_000)
    for y in (0.0, 1.3):
        exact = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
        assert crps(draws, np.array(y)) == pytest.approx(exact, abs=0.02)
    truth = np.random.default_rng(2).normal(size=400)
    scores = [crps(factor * draws[:2000, None] + shift, truth).mean() for factor, shift in ((1, 0), (2, 0), (1, 1))]
    assert scores[0] < min(scores[1:])


def test_increments_are_stretches_of_the_training_series():
    series = autoregressive(lengths=(30, 6))
    found = Increments().fit(series, 0).paths(series, np.array([10]), 8, 50, np.random.default_rng(0))
    assert found.shape == (1, 50, 8, 2)
    known = {series.values[k + 8].tobytes(): k for k in range(22)}
    for path in found[0]:
        change = path - series.values[10]
        near = [k for k in known.values() if np.allclose(series.values[k + 1 : k + 9] - series.values[k], change)]
        assert len(near) == 1
    with pytest.raises(InvalidProblemError, match="more than 40 samples"):
        Increments().fit(series, 0).paths(series, np.array([10]), 40, 2, np.random.default_rng(0))


def test_linear_paths_have_the_mean_and_the_variance_of_the_autoregression():
    series = autoregressive()
    start = np.array([[3.0, 3.0]] * 4)
    ahead = ScaledSeries(values=start, lengths=np.array([4]))
    fitted = LinearPaths().fit(series, 0)
    assert range_of(series)[1].max() < 2.5  # it starts beyond the observed range, and isn't clipped to it
    found = fitted.paths(ahead, np.array([3]), 5, PATHS, np.random.default_rng(0))[0]
    state, size = start[:3].ravel(), fitted._forecast.matrix
    for step in range(5):
        mean = state @ size + fitted._forecast.bias
        assert found[:, step].mean(axis=0) == pytest.approx(mean, abs=MEAN_TOL)
        state = np.concatenate([state[2:], mean])
    assert found[:, 0].std(axis=0) == pytest.approx(fitted._errors.std(axis=0), rel=0.1)


@pytest.mark.prove
def test_one_state_is_the_autoregression_and_its_variance_adds_up():
    series = autoregressive()
    fitted = SwitchingPaths(HmmOptions(num_states=1, num_restarts=1, max_iterations=3)).fit(series, 0)
    model = fitted._encoder.arrays()
    found = fitted.paths(series, np.array([100]), 2, PATHS, np.random.default_rng(0))[0]
    bias, matrix = model["regression"][0][0], model["regression"][0][1:]
    first = bias + series.values[100] @ matrix
    assert found[:, 0].mean(axis=0) == pytest.approx(first, abs=MEAN_TOL)
    assert found[:, 1].mean(axis=0) == pytest.approx(bias + first @ matrix, abs=MEAN_TOL)
    covariance = model["covariance"][0] + matrix.T @ model["covariance"][0] @ matrix
    assert np.cov(found[:, 1].T) == pytest.approx(covariance, abs=0.1 * covariance.max())


@pytest.mark.prove
def test_a_machine_without_hidden_weights_is_the_linear_forecast_with_its_errors():
    series = autoregressive()
    fitted = CrbmPaths(CrbmOptions(num_epochs=1, learning_rate=1e-12)).fit(series, 0)
    found = fitted.paths(series, np.array([100, 400]), 3, PATHS, np.random.default_rng(0))
    linear = LinearPaths().fit(series, 0)
    expected = linear.paths(series, np.array([100, 400]), 3, PATHS, np.random.default_rng(1))
    assert found.mean(axis=1) == pytest.approx(expected.mean(axis=1), abs=0.05)
    assert found.std(axis=1) == pytest.approx(expected.std(axis=1), rel=0.15)


@pytest.mark.parametrize("way", ["linear", pytest.param("switching", marks=pytest.mark.prove)])
def test_later_samples_change_nothing_and_nothing_leaves_what_was_seen(way):
    series = autoregressive()
    later = series.values.copy()
    later[101:] += 1.0
    changed = ScaledSeries(values=later, lengths=series.lengths)
    options = HmmOptions(num_states=2, num_restarts=1, max_iterations=3)
    fitted = (LinearPaths() if way == "linear" else SwitchingPaths(options)).fit(series, 0)
    found = [fitted.paths(given, np.array([50, 100]), 30, 20, np.random.default_rng(3)) for given in (series, changed)]
    assert np.array_equal(*found)
    low, high = range_of(series)
    assert (found[0] >= low).all()
    assert (found[0] <= high).all()
