"""Watching containers one after the other: statistics of each, detected drift, and an update that ends it."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.models.containers import ContainerSeries
from optim.phases import PhaseModel
from optim.phases.anomalies import Calibration, DriftTrigger, calibrate
from optim.phases.rows import watch
from optim.workloads.containers import ContainerOptions, generate_containers


def drawn(number, seed=0, **options):
    return generate_containers(ContainerOptions(num_containers=number, **options), seed)


@pytest.fixture
def model(hundred):
    """The model of a hundred containers."""
    return hundred


def test_readings_are_the_models_scores_by_container(model):
    series = drawn(8, seed=5)
    scores = model.anomaly_scores(series)
    found = watch(model, series)
    calibration = model.calibrations_["forecast-error"]
    total = 0.0
    for reading, rows in zip(found, series.segments(), strict=True):
        own = scores[rows][3:]
        assert reading.samples == len(own)
        assert reading.anomalies == (own > calibration.threshold).sum()
        assert reading.score == pytest.approx(own.mean())
        assert reading.excess == pytest.approx((own.mean() - calibration.mean) / calibration.deviation)
        total = max(0.0, total + reading.excess - 0.5 - 2 / np.sqrt(20))
        assert reading.drift_sum == pytest.approx(total)


def test_parts_between_gaps_are_one_container_and_too_short_ones_have_no_score(model):
    series = drawn(3, seed=7)
    hole = int(series.starts[1]) + 20
    moved = series.time_s.copy()
    moved[hole : int(series.starts[2])] += 600.0
    kept = np.ones(series.num_samples, dtype=bool)
    kept[series.starts[2] + 2 :] = False
    cut = replace(
        series,
        interval_s=None,
        values=series.values[kept],
        time_s=moved[kept],
        phase=None,
        phase_names=(),
        lengths=np.array([*series.lengths[:2], 2]),
    )
    found = watch(model, cut)
    assert [reading.container for reading in found] == list(series.containers)
    assert found[1].samples == series.lengths[1] - 6
    assert found[2].samples == found[2].anomalies == 0
    assert found[2].score is found[2].excess is found[2].drift_sum is None
    assert found[2].is_update_due == found[1].is_update_due


@pytest.mark.prove
def test_drift_is_found_and_an_update_on_it_ends_the_alarm(model):
    usual, first, later = drawn(20, seed=6), drawn(40, seed=8, noise=5.0), drawn(20, seed=9, noise=5.0)
    assert not watch(model, usual)[-1].is_update_due
    due = [reading.is_update_due for reading in watch(model, first)]
    assert due[-1]
    assert due == sorted(due)
    updated = PhaseModel(**model.get_params()).fit(drawn(100)).partial_fit(first)
    assert not watch(updated, later)[-1].is_update_due


def test_after_constant_series_rounding_is_no_anomaly_and_a_change_is_one():
    def constant(value, number=4):
        return ContainerSeries.from_arrays({f"c{k}": np.full((40, 1), value) for k in range(number)}, ("cpu",), 15.0)

    flat = PhaseModel(encoder="raw-window", num_phases=1).fit(constant(2.0))
    for value in (2.0, 2.0 + 1e-6, 2.0 - 1e-6):
        readings = watch(flat, constant(value, 30))
        assert sum(reading.anomalies for reading in readings) == 0
        assert not readings[-1].is_update_due
    moved = np.full((40, 1), 2.0)
    moved[20:] = 4.0
    (reading,) = watch(flat, ContainerSeries.from_arrays({"c": moved}, ("cpu",), 15.0))
    assert reading.anomalies > 0


def test_noise_raises_threshold_and_deviation_only():
    scores, owner = np.arange(10.0) / 100, np.repeat([0, 1], 5)
    quiet, plain = calibrate(scores, owner, 0.1, noise=3.0), calibrate(scores, owner, 0.1)
    assert (quiet.threshold, quiet.deviation, quiet.mean) == (3.0, 3.0, plain.mean)
    assert plain.threshold < 0.1
    assert calibrate(100 * scores, owner, 0.1, noise=3.0) == calibrate(100 * scores, owner, 0.1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_trigger_refuses_a_score_that_is_no_number_and_stays_as_it_is(bad):
    trigger = DriftTrigger(Calibration(threshold=0.0, rate=0.01, mean=0.0, deviation=1.0, num_containers=1000))
    trigger.update(3.0)
    before = trigger.sum
    with pytest.raises(InvalidOptionError, match="must be finite"):
        trigger.update(bad)
    assert trigger.sum == before > 0
