"""What is told of drawn phases, and what models of them say, comes out as it was kept."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from optim_studies import alarms
from optim_studies.continuations import Increments, LinearPaths, crps, range_of

from optim.models.containers.series import CPU, MEMORY, ContainerSeries
from optim.phases import PhaseModel, clustering, description
from optim.phases import sequences as transitions
from optim.phases import sequences as tree
from optim.phases.anomalies import DriftTrigger, LinearForecast, calibrate, container_means
from optim.phases.clustering import assign, cluster_order, group_moments, group_sums, squared_distances, updated_centres
from optim.phases.description import phase_names
from optim.phases.forecasting import ForecastMethod, PhaseForecaster, fit_dwells, forecast_segments, score_table
from optim.phases.model import majority
from optim.phases.preprocessing import ScaledSeries, Scaling, split_containers, to_grid
from optim.phases.rows import edge_rows, forecast_rows, legend, phase_rows, score_rows, sequence_rows, summary_of, watch
from optim.phases.sequences import pack, run_numbers, runs_of
from tests.support.containers.worlds import drawn_series
from tests.support.kept import Near, assert_kept, outcome, parts, short

KEPT = Path(__file__).parent / "kept"

CENTRES = 1e-5
"""Tolerance of centres: they come from sums in float32, whose last bits are another JAX's own."""
K = 3


def drawn_labels(seed, number=8, *, unknown=0.05):
    """Draw the labels of some segments whose runs last a while; some samples have none."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(12, 60, number)
    labels = np.concatenate([(rng.choice(K, size // 5 + 1, p=[0.2, 0.5, 0.3])).repeat(5)[:size] for size in lengths])
    labels[:: int(1 / unknown)] = rng.integers(0, K, len(labels[:: int(1 / unknown)]))
    return np.where(rng.random(len(labels)) < unknown, -1, labels), lengths


def drawn_runs(seed, **options):
    return runs_of(*drawn_labels(seed, **options))


def test_runs_dwells_and_changes_come_out_as_before():
    found = {}
    for seed, least in product(range(3), (1, 3)):
        labels, lengths = drawn_labels(seed)
        runs = runs_of(labels, lengths, least)
        found[f"runs {seed} {least}"] = [runs, runs.num_segments, list(runs.sequences())]
    one, other = drawn_runs(0), drawn_runs(1)
    labels, lengths = drawn_labels(5)
    found["joined"] = one.joined(other)
    found["numbers"] = run_numbers(labels, np.repeat(np.arange(len(lengths)), lengths))
    found["dwells"] = fit_dwells(one, K)
    for smoothing in (0.0, 1.5):
        found[f"transitions {smoothing}"] = [
            transitions.sample_transitions(one, K, smoothing),
            transitions.change_transitions(one, K, smoothing),
        ]
    for order in (1, 2, 3):
        model = transitions.fit_changes(one, K, order)
        histories = [(), (0,), (2, 1), (0, 1, 2), (1, 0, 1, 2)]
        found[f"changes {order}"] = [
            [model.probabilities(history) for history in histories],
            model.log_likelihood(other),
        ]
        graph = transitions.transition_graph(one, ["low", "mid", "high"], order)
        found[f"graph {order}"] = (
            [[str(node), data] for node, data in sorted(graph.nodes(data=True), key=str)],
            sorted(map(str, graph.edges(data=True))),
        )
    found["order"] = transitions.choose_order(one, other, K)
    assert_kept(KEPT / "runs.json", found)


def test_forecasts_and_their_scores_come_out_as_before():
    training, others = drawn_runs(2, number=14), drawn_runs(3, number=5)
    forecaster = PhaseForecaster(training, K)
    found = {}
    for method in ForecastMethod:
        for phases, dwell in (([0], 1), ([1, 0], 4), ([2, 1, 2], 30)):
            found[f"{method} {phases} {dwell}"] = forecaster.forecast(np.array(phases), dwell, 9, method)
        found[f"{method} segments"] = forecast_segments(forecaster, others, 4, method)
    found["scores"] = score_table(forecaster, others, (1, 4, 8), max_points=25)
    found["far"] = outcome(score_table, forecaster, others, (900,))
    assert_kept(KEPT / "forecasts.json", found)


def test_statistics_names_and_quantiles_of_demand_come_out_as_before():
    found, rng = {}, np.random.default_rng(1)
    series, fresh = drawn_series(31, 9), drawn_series(32, 5)
    labels, more = (
        np.where(np.random.default_rng(9).random(len(each.phase)) < 0.1, -1, each.phase) for each in (series, fresh)
    )
    told, others = (description.phase_statistics(*each, K, 3) for each in ((series, labels), (fresh, more)))
    found |= {"told": parts(told), "merged": parts(told.merged(others)), "share": told.share}
    found["quantiles"] = [told.quantile(level) for level in (0.0, 0.1234, 0.95, 1.0)]
    shares = rng.dirichlet(np.ones(K), 4)
    shares[2] = np.nan
    found["demand"] = [description.demand_quantiles(told, shares, level) for level in (0.05, 0.5, 0.99)]
    found["mixture"] = [
        description.mixture_quantile(told.quantiles[:, 0], shares[0], level) for level in (0.0, 0.3, 1.0)
    ]
    found["names"] = [phase_names(each, series.resources) for each in (told, others)]
    found["sums"] = [group_sums(series.values, series.phase, K), group_moments(series.values, series.phase, K)]
    order = cluster_order(series.values, labels, K, series.resources)
    found["order"] = order
    assert_kept(KEPT / "statistics.json", found)


def test_sequences_trees_and_prototypes_come_out_as_before():
    runs, found = drawn_runs(6, number=20), {}
    short_runs = runs_of((np.arange(120) // 6) % 2 + (np.arange(120) // 48), np.full(10, 12))
    for name, each in (("long", runs), ("alike", short_runs)):
        sequences = tree.packed_sequences(each)
        made = tree.prefix_tree(sequences)
        found[name] = {
            "sequences": [" ".join(one) for one in sequences], "counts": [[" ".join(path), count] for path, count in tree.paths_by_count(sequences)],
            "nodes": sorted(map(str, made.nodes(data=True))), "edges": sorted(map(str, made.edges(data=True))),
            "prototypes": [parts(tree.prototypes(sequences, share)) for share in (0.2, 0.75, 1.0)],
            "covered": tree.prototypes(sequences, 0.5).share_covered(sequences[::3]), "none": tree.prototypes(sequences).share_covered([]),
        }  # fmt: skip
    rng = np.random.default_rng(0)
    for number in range(25):
        tokens = rng.integers(0, 2 + number % 3, int(rng.integers(1, 12))).tolist()
        found[f"packed {tokens}"] = " ".join(pack(tokens))
    assert_kept(KEPT / "trees.json", found)


def test_agreement_alarms_and_drift_come_out_as_before():
    found, rng = {}, np.random.default_rng(4)
    for seed in range(4):
        truth, lengths = drawn_labels(seed, unknown=0.02)
        truth = np.maximum(truth, 0)
        labels = np.where(rng.random(len(truth)) < 0.2 * seed, rng.integers(0, 4, len(truth)), truth)
        found[f"agreement {seed}"] = [
            clustering.confusion(truth, labels), clustering.adjusted_rand_index(truth, labels),
            clustering.adjusted_mutual_information(truth, labels), clustering.matched_f1(truth, labels),
            *(clustering.near_change(truth, lengths, distance) for distance in (0, 1, 3)), majority(labels - 1, lengths, 3, 4), majority(labels, lengths, 1, 4),
        ]  # fmt: skip
        scores = rng.gamma(2.0, 1.0, len(truth)) + 4.0 * (truth == 2)
        scores[rng.random(len(scores)) < 0.05] = np.nan
        summed = alarms.accumulated(scores, lengths, 2.0, 1.4)
        onset, end = np.where(np.arange(len(lengths)) % 3, 5, -1), np.full(len(lengths), 9)
        for threshold, mute in ((4.0, 0), (6.0, 4), (90.0, 2)):
            raised = alarms.alarms(scores, lengths, threshold, mute)
            found[f"alarms {seed} {threshold}"] = [raised, alarms.score_alarms(raised, lengths, onset, end, 30.0)]
        found[f"accumulated {seed}"] = [
            summed,
            *(alarms.threshold_for(scores, lengths, rate, 30.0) for rate in (0.5, 20.0, 500.0)),
        ]
        owner, known = np.repeat(np.arange(len(lengths)), lengths), np.isfinite(scores)
        calibration = calibrate(scores[known], owner[known], 0.05, 0.3 * (seed % 2))
        trigger = DriftTrigger(calibration, 0.3, 2.0)
        means = container_means(scores[known], owner[known])
        found[f"drift {seed}"] = [
            calibration,
            means,
            *([trigger.update(float(mean) + 0.4 * seed), trigger.sum, trigger.excess(float(mean))] for mean in means),
        ]
        trigger.reset()
        found[f"reset {seed}"] = [trigger.sum, trigger.is_triggered, *map(alarms.mute_samples, (1.0, 15.0, 700.0))]
    assert_kept(KEPT / "agreement.json", found)


def irregular(seed):
    """Draw series of samples that come unevenly, some twice within a point of the grid, with gaps and an end at each."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 25, 5)
    size = int(lengths.sum())
    steps = rng.choice([4.0, 15.0, 16.5, 31.0, 58.0, 200.0], size, p=[0.1, 0.4, 0.2, 0.15, 0.1, 0.05])
    return ContainerSeries(
        resources=(CPU, MEMORY), containers=("a", "b", "b", "c", "d"), lengths=lengths, values=rng.integers(0, 40, (size, 2)) / 4,
        time_s=np.cumsum(steps) + rng.random(size), phase=rng.integers(0, 2, size), phase_names=("x", "y"),
        limit=np.full((5, 2), 9.0),
    )  # fmt: skip


def test_grids_scalings_and_windows_come_out_as_before():
    found, rng = {}, np.random.default_rng(8)
    for seed, (interval, gap) in product(range(3), ((15.0, 60.0), (30.0, 90.0), (15.0, 20.0))):
        grid = outcome(to_grid, irregular(seed), interval, gap)
        if not isinstance(grid, str):
            told = grid.series
            grid = [
                told.containers,
                told.lengths,
                told.values,
                told.time_s - told.time_s[0],
                told.phase,
                told.limit,
                grid.row,
            ]
        found[f"grid {seed} {interval} {gap}"] = grid
    values = drawn_series(33, 6).values
    for has_logarithm in (False, True):
        scaling = Scaling.fit(values, has_logarithm=has_logarithm)
        found[f"scaling {has_logarithm}"] = [parts(scaling), scaling.apply(values[:30] * 2)]
    series = ScaledSeries(values=rng.normal(size=(90, 2)).cumsum(axis=0), lengths=np.array([4, 30, 1, 35, 20]))
    cut = [
        series.padded(3),
        series.sampled(2, np.random.default_rng(1)),
        series.random_crops(10, np.random.default_rng(2)),
        series.sampled(9, rng),
    ]
    found["cut"] = [[each.values, each.lengths] for each in cut]
    found["split"] = [
        split_containers(drawn_series(34, 12), share, np.random.default_rng(3), least)
        for share, least in ((0.2, 1), (0.5, 40), (0.9, 60), (0.5, 69))
    ]
    forecast = LinearForecast.fit(series)
    found["linear"] = [parts(forecast), forecast.errors(series), forecast.scores(series), forecast.min_score]
    ends = np.array([10, 25, 50])
    for paths in (Increments(), LinearPaths()):
        drawn = paths.fit(series, 0).paths(series, ends, 4, 3, np.random.default_rng(5))
        found[type(paths).__name__] = [drawn, crps(drawn[:, :, 0, 0], series.values[ends + 1, 0])]
    found["range"] = [range_of(series), outcome(Increments().fit(series, 0).paths, series, ends, 99, 2, rng)]
    codes, centres = rng.normal(size=(40, 3)), rng.normal(size=(4, 3))
    found["clusters"] = [
        assign(codes, centres),
        squared_distances(codes, centres),
        updated_centres(centres, np.array([3.0, 0.0, 9.0, 1.0]), codes),
    ]
    assert_kept(KEPT / "grids.json", found)


@pytest.fixture(scope="module")
def model():
    """Three phases of fourteen drawn containers, by windows' statistics."""
    return PhaseModel(encoder="window-statistics", num_phases=3, min_dwell=2, smoothing=3).fit(drawn_series(41, 14))


def test_what_a_model_says_comes_out_as_before(model, tmp_path):
    fresh = drawn_series(42, 6)
    found = {
        "centres": Near(model.centres_, CENTRES), "names": model.names_, "order": [model.order_, *model.order_likelihoods_],
        "calibrations": {name: parts(each) for name, each in model.calibrations_.items()}, "legend": legend(model),
        "labels": model.predict(fresh), "codes": model.transform(fresh)[20:60], "scores": model.anomaly_scores(fresh),
        "containers": model.container_scores(fresh), "demand": model.demand_quantile(fresh, 0.9, 6),
        "ahead": [model.forecast(fresh, 5, method) for method in ForecastMethod], "kinds": [model.anomaly_kinds, model.default_score],
        "phases": phase_rows(model), "summary": summary_of(model, fresh), "sequences": sequence_rows(model, fresh),
        "edges": [edge_rows(model, order) for order in (None, 1, 2)], "score rows": score_rows(model, fresh, 6, tuple(ForecastMethod)),
        "forecast rows": forecast_rows(model, fresh, 4, 0.95, ForecastMethod.MARKOV), "watched": [parts(each) for each in watch(model, fresh)],
        "tree": short(sorted(map(str, model.tree().nodes(data=True)))), "prototypes": parts(model.prototypes()),
    }  # fmt: skip
    model.save(tmp_path / "model")
    path = next(tmp_path.iterdir())
    again = PhaseModel.load(path)
    assert np.array_equal(again.predict(fresh), model.predict(fresh))
    again.partial_fit(drawn_series(43, 7))
    found |= {
        "updated": [
            Near(again.centres_, CENTRES),
            again.weights_,
            parts(again.statistics_),
            again.predict(fresh),
            again.runs_,
        ]
    }
    found |= {"updated calibrations": {name: parts(each) for name, each in again.calibrations_.items()}}
    found["no model"] = str(outcome(PhaseModel.load, tmp_path / "none")).replace(str(tmp_path), "")
    path.write_bytes(path.read_bytes()[:200])
    found["cut"] = str(outcome(PhaseModel.load, path)).replace(str(tmp_path), "")
    assert_kept(KEPT / "model.json", found)


def test_models_with_other_settings_come_out_as_before():
    found = {}
    padded = PhaseModel(
        encoder="raw-window",
        encoder_options={"num_delays": 1},
        num_phases=3,
        is_padded=True,
        has_logarithm=False,
        order=2,
        resources=("cpu",),
    )
    labels = padded.fit_predict(drawn_series(44, 9))
    found["padded"] = [labels, Near(padded.centres_, CENTRES), padded.names_, padded.order_, padded.get_params()]
    found["before"] = [
        outcome(PhaseModel().predict, drawn_series(44, 3)),
        outcome(PhaseModel(order=0).fit, drawn_series(44, 3)),
    ]
    assert_kept(KEPT / "settings.json", found)
