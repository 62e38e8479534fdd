"""The linear forecast against a plain regression, scores by their formula, and their calibration."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.phases.anomalies import Calibration, DriftTrigger, LinearForecast, calibrate, container_means
from optim.phases.preprocessing import ScaledSeries


def series(seed=0, lengths=(40, 3, 30)):
    rng = np.random.default_rng(seed)
    return ScaledSeries(values=rng.normal(size=(sum(lengths), 2)), lengths=np.array(lengths))


def test_errors_are_those_of_the_regression_on_three_samples_and_scores_their_mean_square():
    given = series()
    inputs, outputs = [], []
    for start, length in zip(given.starts, given.lengths, strict=True):
        for now in range(start + 3, start + length):
            inputs.append([*given.values[now - 3 : now].ravel(), 1.0])
            outputs.append(given.values[now])
    inputs, outputs = np.array(inputs), np.array(outputs)
    solution = np.linalg.lstsq(inputs, outputs, rcond=None)[0]
    errors = outputs - inputs @ solution
    found = LinearForecast.fit(given)
    assert found.errors(given) == pytest.approx(errors, abs=1e-4)
    assert found.deviation == pytest.approx(errors.std(axis=0), abs=1e-4)
    expected = np.log1p(((errors / errors.std(axis=0)) ** 2).mean(axis=1))
    assert found.scores(given) == pytest.approx(expected, abs=1e-3)
    assert found.min_score == 0.0


def test_constant_series_leave_a_least_deviation_and_a_least_score():
    flat = ScaledSeries(values=np.ones((20, 2)), lengths=np.array([20]))
    found = LinearForecast.fit(flat)
    assert found.deviation.tolist() == [1e-3, 1e-3]
    assert found.min_score == pytest.approx(np.log(2))


def test_a_calibration_doubts_the_mean_of_few_containers():
    scores, owner = np.array([1.0, 3.0, 4.0, 6.0, 8.0, 8.0]), np.array([0, 0, 1, 1, 5, 5])
    assert container_means(scores, owner).tolist() == [2.0, 5.0, 8.0]
    found = calibrate(scores, owner, 0.25)
    assert (found.mean, found.num_containers, found.rate) == (5.0, 3, 0.25)
    assert found.deviation == pytest.approx(3.0 * np.sqrt(4 / 3))
    assert found.threshold == 8.0
    assert calibrate(scores, owner, 0.5).threshold == 6.0


def test_a_single_container_is_calibrated_by_its_own_mean():
    assert calibrate(np.array([2.0, 4.0]), np.zeros(2, int), 0.1).deviation == 3.0
    assert calibrate(np.zeros(4), np.zeros(4, int), 0.1).deviation == 1e-12
    assert calibrate(np.array([2.0, 4.0]), np.zeros(2, int), 0.1, noise=7.0).deviation == 7.0


def test_calibration_needs_a_rate_and_a_score():
    with pytest.raises(InvalidOptionError, match=r"anomaly_rate must be in \(0, 1\), got 1.0"):
        calibrate(np.ones(3), np.zeros(3, int), 1.0)
    with pytest.raises(InvalidProblemError, match="no score to calibrate with"):
        calibrate(np.zeros(0), np.zeros(0, int), 0.1)


def test_the_trigger_adds_up_excesses_less_slack_and_doubt():
    trigger = DriftTrigger(Calibration(threshold=0.0, rate=0.1, mean=1.0, deviation=2.0, num_containers=16), 0.5, 3.0)
    sums = []
    for score in (5.0, 1.0, 7.0, 6.0):
        trigger.update(score)
        sums.append((trigger.sum, trigger.is_triggered))
    assert sums == [(1.0, False), (0.0, False), (2.0, False), (3.5, True)]
    for wrong in ({"slack": -0.1}, {"limit": 0.0}):
        with pytest.raises(InvalidOptionError, match="slack >= 0 and limit > 0"):
            DriftTrigger(trigger.calibration, **wrong)
