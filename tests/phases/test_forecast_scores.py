"""Scores of forecasts against a plain loop over all samples, and the continuations of a path."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.phases.description import at_level, demand_quantiles, phase_statistics
from optim.phases.forecasting import PhaseForecaster, forecast_scores, forecast_segments, score_table
from optim.phases.sequences import fit_changes, runs_of
from tests.support.containers.worlds import series_of

SEGMENTS = ([0, 0, 1, 1, 1, 2], [1, 1, 0, 2, 2, 0, 0], [2] * 5)


def runs(*segments):
    return runs_of(np.concatenate([np.array(own) for own in segments]), np.array([len(own) for own in segments]))


@pytest.mark.parametrize("method", ["same", "markov", "semi-markov"])
def test_scores_are_means_over_all_samples_that_have_a_future(method):
    made, found = PhaseForecaster(runs(*SEGMENTS), 3), runs(*SEGMENTS)
    horizons = (1, 3)
    loss, brier, number = np.zeros(2), np.zeros(2), 0
    for own in SEGMENTS:
        for now in range(len(own) - 3):
            first = now
            while first > 0 and own[first - 1] == own[now]:
                first -= 1
            ahead = made.forecast(np.array([own[now]]), now - first + 1, 3, method)
            number += 1
            for place, horizon in enumerate(horizons):
                probability = ahead[horizon - 1]
                truth = np.eye(3)[own[now + horizon]]
                likelihood = probability @ truth
                loss[place] += -np.log(likelihood) if likelihood > 0 else np.inf
                brier[place] += ((probability - truth) ** 2).sum()
    expected = {horizon: (loss[k] / number, brier[k] / number) for k, horizon in enumerate(horizons)}
    scores = forecast_scores(made, found, horizons, method)
    for horizon in horizons:
        assert scores[horizon] == pytest.approx(expected[horizon])
    table = score_table(made, found, horizons, [method])
    assert [(name, horizon) for name, horizon, _, _ in table] == [(method, 1), (method, 3)]
    assert table[1][2:] == pytest.approx(expected[3])
    with pytest.raises(InvalidOptionError, match="no series is longer than the longest horizon of 9 samples"):
        forecast_scores(made, found, (9,), method)


def test_each_segment_is_forecast_from_its_last_run_and_one_without_a_phase_is_unknown():
    made = PhaseForecaster(runs(*SEGMENTS), 3)
    both = runs([0, 1, 1, 1], [-1, -1], [2])
    found = forecast_segments(made, both, 4, "semi-markov")
    assert found[0] == pytest.approx(made.forecast(np.array([0, 1]), 3, 4, "semi-markov"))
    assert np.isnan(found[1]).all()
    assert found[2] == pytest.approx(made.forecast(np.array([2]), 1, 4, "semi-markov"))


def test_a_path_seen_from_its_beginning_goes_before_one_that_only_ends_alike():
    begun = [[0] * 2 + [1] * 2 + [2] * 2] * 3
    inside = [[2] * 2 + [0] * 2 + [1] * 2 + [0] * 2] * 9
    made = PhaseForecaster(runs(*begun, *inside), 3)
    assert made._continuations((0, 1)) == {(2,): 3}
    assert made._continuations((1, 0, 1)) == {(2,): 3, (0,): 9}
    assert made._continuations((2, 1)) == {(2,): 3, (0,): 9}
    assert PhaseForecaster(runs([0, 0]), 2)._continuations((1,)) == {(): 1}


def test_the_likelihood_of_changes_is_the_mean_logarithm_with_the_end():
    model = fit_changes(runs([0, 1, 2], [0, 1]), 3, order=2)
    expected = []
    for own in ([0, 1, 2], [0, 1]):
        expected += [np.log(model.probabilities(own[:k])[own[k]]) for k in range(len(own))]
        expected.append(np.log(model.probabilities(own)[3]))
    assert model.log_likelihood(runs([0, 1, 2], [0, 1])) == pytest.approx(np.mean(expected))


def test_demand_quantiles_mix_phases_by_their_shares():
    series = series_of([np.concatenate([np.arange(100.0), 1000 + np.arange(100.0)])])
    found = phase_statistics(series, np.repeat([0, 1], 100), 3, 3)
    shares = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.3, 0.1, 0.6], [np.nan] * 3])
    demand = demand_quantiles(found, shares, 0.75)
    assert demand[0] == pytest.approx(np.quantile(np.arange(100.0), 0.75) * np.ones(2))
    assert demand[1] == pytest.approx((1000 + np.quantile(np.arange(100.0), 0.5)) * np.ones(2))
    # A phase without samples has no weight: the rest is three to one.
    assert demand[2] == pytest.approx(99.0 * np.ones(2), abs=1.0)
    assert np.isnan(demand[3]).all()
    with pytest.raises(InvalidOptionError, match=r"level must be in \[0, 1\]"):
        demand_quantiles(found, shares, 1.5)


def test_levels_between_those_kept_lie_on_a_straight_line():
    table = np.array([[0.0, 10.0, 40.0]])
    assert [at_level(table, level)[0] for level in (0.0, 0.25, 0.5, 0.75, 1.0)] == [0.0, 5.0, 10.0, 25.0, 40.0]


def test_merging_averages_what_lies_within_runs_and_windows_by_samples():
    rng = np.random.default_rng(3)
    parts = [series_of([rng.random(60)]), series_of([3 * rng.random(20)])]
    one, two = (phase_statistics(part, np.zeros(part.num_samples, int), 1, 3) for part in parts)
    merged = one.merged(two)
    for name in ("slope", "rising", "window_deviation", "autocorrelation"):
        expected = 0.75 * getattr(one, name) + 0.25 * getattr(two, name)
        assert getattr(merged, name) == pytest.approx(expected), name
    assert merged.within == pytest.approx(np.sqrt(0.75 * one.within**2 + 0.25 * two.within**2))
    assert merged.count.tolist() == [80]
    assert merged.share.tolist() == [1.0]
