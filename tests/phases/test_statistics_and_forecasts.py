"""Statistics against plain loops, hazards against Kaplan and Meier by hand, forecasts against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.models.containers.series import CPU, MEMORY, ContainerSeries
from optim.phases.anomalies import Calibration, DriftTrigger, calibrate
from optim.phases.clustering import cluster_order
from optim.phases.description import LEVELS, mixture_quantile, phase_names, phase_statistics
from optim.phases.forecasting import SHRINKAGE, PhaseForecaster, fit_dwells, forecast_scores
from optim.phases.model import majority
from optim.phases.sequences import runs_of


def runs(*segments):
    labels = np.concatenate([np.array(segment) for segment in segments])
    return runs_of(labels, np.array([len(segment) for segment in segments]))


def series(values, lengths, interval_s=15.0):
    lengths = np.array(lengths)
    return ContainerSeries(
        resources=(CPU, MEMORY),
        containers=tuple(f"c{k}" for k in range(len(lengths))),
        lengths=lengths,
        values=np.asarray(values, dtype=float),
        time_s=np.concatenate([np.arange(n) * interval_s for n in lengths]),
        interval_s=interval_s,
    )


def test_statistics_are_those_of_each_phases_samples():
    rng = np.random.default_rng(0)
    given_series = series(rng.random((50, 2)), [30, 20])
    labels = np.repeat([-1, 0, 1, 0, 1, 0], [3, 10, 17, 3, 12, 5])
    found = phase_statistics(given_series, labels, 3, 3)
    for phase in (0, 1):
        own = given_series.values[labels == phase]
        assert found.count[phase] == len(own)
        assert found.mean[phase] == pytest.approx(own.mean(axis=0))
        assert found.deviation[phase] == pytest.approx(own.std(axis=0))
        assert found.quantile(0.95)[phase] == pytest.approx(np.quantile(own, 0.95, axis=0))
    parts = [given_series.values[13:30], given_series.values[33:45]]
    inner = np.concatenate([part - part.mean(axis=0) for part in parts])
    assert found.within[1] == pytest.approx(np.sqrt((inner**2).mean(axis=0)))
    product = sum(((p - p.mean(0))[1:] * (p - p.mean(0))[:-1]).sum(axis=0) for p in parts)
    assert found.autocorrelation[1] == pytest.approx(product / (inner**2).sum(axis=0))
    slopes = [np.polyfit(15.0 * np.arange(4), given_series.values[t - 3 : t + 1], 1)[0] for t in range(13, 30)]
    slopes += [np.polyfit(15.0 * np.arange(4), given_series.values[t - 3 : t + 1], 1)[0] for t in range(33, 45)]
    assert found.slope[1] == pytest.approx(np.mean(slopes, axis=0))
    assert found.rising[1] == pytest.approx((np.array(slopes) > 0).mean(axis=0))
    assert found.count[2] == 0


def test_merged_statistics_are_those_of_all_samples():
    rng = np.random.default_rng(1)
    first, second = series(rng.random((60, 2)), [60]), series(2 + rng.random((40, 2)), [40])
    labels = np.arange(60) // 5 % 2
    merged = phase_statistics(first, labels, 2, 3).merged(phase_statistics(second, labels[:40], 2, 3))
    values, both = np.concatenate([first.values, second.values]), np.concatenate([labels, labels[:40]])
    for phase in (0, 1):
        own = values[both == phase]
        assert merged.mean[phase] == pytest.approx(own.mean(axis=0))
        assert merged.deviation[phase] == pytest.approx(own.std(axis=0))
        assert merged.quantile(0.25)[phase] == pytest.approx(np.quantile(own, 0.25, axis=0), abs=0.06)


@given(st.integers(0, 1000), st.floats(0.0, 1.0))
def test_mixture_quantiles_leave_their_level_below(seed, level):
    rng = np.random.default_rng(seed)
    samples = [np.round(rng.normal(size=200) * scale, 1) for scale in (1.0, 3.0)]
    quantiles = np.stack([np.quantile(part, LEVELS) for part in samples])
    weights = np.array([0.25, 0.75])
    found = mixture_quantile(quantiles, weights, level)
    # Half a per cent of each distribution may lie between two stored quantiles.
    at_most = sum(w * (part <= found + 1e-9).mean() for w, part in zip(weights, samples, strict=True))
    below = sum(w * (part < found - 1e-9).mean() for w, part in zip(weights, samples, strict=True))
    assert below - 0.02 <= level <= at_most + 0.02


def test_names_follow_the_rules():
    minutes = np.arange(40)
    rising = np.column_stack([np.full(40, 0.5), 1 + 0.1 * minutes])
    falling = np.column_stack([np.full(40, 0.5), 5 - 0.1 * minutes])
    idle = np.column_stack([np.full(40, 0.01), np.full(40, 0.01)])
    burst = np.column_stack([1.0 + 0.9 * (-1.0) ** minutes, np.full(40, 3.0)])
    stable = np.column_stack([np.full(40, 1.0), np.full(40, 3.0)])
    given_series = series(np.concatenate([rising, falling, idle, burst, stable, stable]), [40] * 6)
    labels = np.repeat(np.arange(6), 40)
    found = phase_names(phase_statistics(given_series, labels, 7, 3), (CPU, MEMORY))
    assert found == ("growth", "release", "idle", "burst", "stable-1", "stable-2", "unseen")


def test_hazards_count_cut_off_runs_as_at_risk_only():
    # Runs of phase 0: 2 and 3 samples ended, 3 and 5 cut off by the end of their series.
    found = fit_dwells(runs([0, 0, 1], [0, 0, 0, 1], [0, 0, 0], [0] * 5), 2)
    assert found.survival[0, :5] == pytest.approx([1.0, 3 / 4, 3 / 4 * 2 / 3, 1 / 2, 1 / 2])
    pooled = 2.5 / (2 + 3 + 3 + 5 + 1)
    assert found.hazard[0, 1] == pytest.approx((1 + SHRINKAGE * pooled) / (4 + SHRINKAGE))


def test_without_cut_offs_mean_dwell_is_the_mean():
    found = fit_dwells(runs([0, 0, 1], [0, 0, 0, 0, 1]), 2)
    assert found.mean[0] == pytest.approx(3.0)
    assert found.p90[0] == 4


@pytest.fixture(scope="module")
def forecaster():
    """Three phases in a circle, with geometric dwell of mean five."""
    rng = np.random.default_rng(2)
    segments = []
    for _ in range(150):
        labels, phase = [], int(rng.integers(3))
        for _ in range(12):
            labels += [phase] * int(rng.geometric(0.2))
            phase = (phase + 1) % 3
        segments.append(labels)
    return PhaseForecaster(runs(*segments), 3), segments


@pytest.mark.parametrize("method", ["markov", "semi-markov", "prototype", "same"])
def test_forecasts_are_distributions(forecaster, method):
    found = forecaster[0].forecast(np.array([0, 1]), 3, 30, method)
    assert found.shape == (30, 3)
    assert (found >= -1e-12).all()
    assert found.sum(axis=1) == pytest.approx(1.0)


def test_markov_forecast_is_the_power_of_the_matrix(forecaster):
    found = forecaster[0].forecast(np.array([2]), 1, 7, "markov")
    assert found[6] == pytest.approx(np.linalg.matrix_power(forecaster[0].by_sample, 7)[2])


@pytest.mark.parametrize("method", ["semi-markov", "prototype"])
def test_with_geometric_dwell_the_others_come_to_the_same_as_the_chain(forecaster, method):
    chain = np.zeros((3, 3))
    for phase in range(3):
        chain[phase, phase], chain[phase, (phase + 1) % 3] = 0.8, 0.2
    expected = np.stack([np.linalg.matrix_power(chain, h)[1] for h in range(1, 9)])
    found = forecaster[0].forecast(np.array([0, 1]), 2, 8, method)
    # Three deviations of hazards estimated from 600 runs, carried on for eight steps.
    assert np.abs(found - expected).max() < 0.08


def test_fixed_dwell_is_foreseen_by_the_semi_markov_forecast_only():
    made = PhaseForecaster(runs(*[[0] * 10 + [1] * 10 + [0] * 10 + [1] * 3] * 40), 2)
    assert made.forecast(np.array([0]), 9, 3, "semi-markov")[2, 1] > 0.85
    assert made.forecast(np.array([0]), 2, 3, "semi-markov")[2, 1] < 0.1
    assert made.forecast(np.array([0]), 9, 3, "markov")[2, 1] < 0.4


def test_a_known_path_is_foreseen_to_the_sample_whatever_the_dwell_so_far():
    # Six samples of 0, then 1 for ever, as nearly all training paths went; hazards shrink towards their mean.
    made = PhaseForecaster(runs(*[[0] * 6 + [1] * 40] * 3000), 2)
    for dwell in range(1, 7):
        found = made.forecast(np.array([0]), dwell, 8, "prototype")[:, 0]
        still = 6 - dwell
        assert (found[:still] > 0.9).all()
        assert (found[still:] < 0.1).all()
    held = PhaseForecaster(runs([0] * 600), 1)
    for dwell in (510, 511, 512, 513, 600):
        assert held.forecast(np.array([0]), dwell, 2, "prototype").tolist() == [[1.0], [1.0]]


def test_paths_tell_the_next_phase_where_the_present_one_does_not():
    made = PhaseForecaster(runs(*[[0] * 5 + [2] * 5 + [0] * 5] * 20, *[[1] * 5 + [2] * 5 + [1] * 5] * 20), 3)
    after_zero = made.forecast(np.array([0, 2]), 5, 2, "prototype")[1]
    assert after_zero[0] > 10 * after_zero[1]
    assert made.forecast(np.array([0, 2]), 5, 2, "semi-markov")[1, 1] > 0.2


def test_scores_favour_the_truth_and_sameness_has_no_doubt(forecaster):
    made, segments = forecaster
    test = runs(*segments[:20])
    chain = forecast_scores(made, test, (1, 20), "markov", max_points=100)
    same = forecast_scores(made, test, (1, 20), "same", max_points=100)
    assert chain[20][0] < same[20][0]
    assert chain[20][1] < same[20][1]
    assert chain[1][0] < chain[20][0]


def test_a_forecast_without_a_phase_is_refused(forecaster):
    with pytest.raises(InvalidOptionError, match="needs at least one phase"):
        forecaster[0].forecast(np.array([], dtype=int), 1, 1, "markov")
    with pytest.raises(InvalidOptionError, match="method"):
        forecaster[0].forecast(np.array([1]), 1, 1, "magic")


def test_clusters_are_ordered_by_memory_then_cpu():
    values = np.array([[5.0, 1.0], [1.0, 2.0], [1.0, 1.0], [0.0, 9.0]])
    assert cluster_order(values, np.array([0, 1, 2, 3]), 5, (CPU, MEMORY)).tolist() == [2, 0, 1, 3, 4]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 6))
def test_majority_counts_the_last_labels_only(labels, size):
    found = majority(np.array(labels), np.array([len(labels)]), size, 3)
    for place, label in enumerate(labels):
        last = labels[max(0, place - size + 1) : place + 1]
        most = max(last.count(other) for other in range(3))
        best = [other for other in range(3) if last.count(other) == most]
        assert found[place] == (label if label in best else best[0])


def test_threshold_leaves_the_stated_share_above_it():
    scores = np.arange(1000.0)
    found = calibrate(scores, np.repeat(np.arange(10), 100), 0.01)
    assert 0.009 <= (scores > found.threshold).mean() <= 0.01
    assert found.mean == pytest.approx(scores.mean())


def test_trigger_stays_silent_without_drift_and_speaks_soon_after_it():
    rng = np.random.default_rng(3)
    trigger = DriftTrigger(Calibration(threshold=0.0, rate=0.01, mean=2.0, deviation=0.5, num_containers=1000))
    assert not any(trigger.update(2.0 + 0.5 * rng.normal()) for _ in range(100))
    steps = next(k for k in range(100) if trigger.update(3.0 + 0.5 * rng.normal()))
    assert steps < 10
    assert trigger.update(0.0)
    trigger.reset()
    assert not trigger.update(2.0)
