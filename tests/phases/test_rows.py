"""Rows against the model's arrays."""

import numpy as np
import pytest

from optim.phases.clustering import adjusted_rand_index
from optim.phases.rows import edge_rows, forecast_rows, legend, phase_rows, score_rows, sequence_rows, summary_of
from optim.workloads.containers import ContainerOptions, generate_containers
from tests.support.containers.worlds import series_of

SERIES = generate_containers(ContainerOptions(num_containers=4), 3)


def test_a_row_a_phase_and_resource_holds_its_statistics(hundred):
    rows, found = phase_rows(hundred), hundred.statistics_
    assert [(row["phase"], row["resource"]) for row in rows] == [
        (k, name) for k in range(4) for name in ("cpu", "memory")
    ]
    for row in rows:
        k, place = row["phase"], ("cpu", "memory").index(row["resource"])
        assert row["name"] == hundred.names_[k]
        assert row["unit"] == ("cores", "GiB")[place]
        assert (row["mean"], row["deviation"]) == (found.mean[k, place], found.deviation[k, place])
        assert (row["p95"], row["max"]) == (found.quantile(0.95)[k, place], found.quantiles[k, place, -1])
        assert (row["share"], row["dwell_mean"]) == (found.share[k], hundred.forecaster.dwells.mean[k])


def test_the_summary_agrees_with_the_truth_where_there_is_one(hundred):
    labels = hundred.predict(SERIES)
    known = labels >= 0
    summary = summary_of(hundred, SERIES)
    assert summary["ari"] == pytest.approx(adjusted_rand_index(SERIES.phase[known], labels[known]))
    assert (summary["encoder"], summary["phases"], summary["order"]) == ("window-statistics", 4, hundred.order_)
    assert summary["sequences"] >= summary["prototypes"] == len(hundred.prototypes().paths)
    assert summary["anomaly_threshold"] == hundred.calibrations_["forecast-error"].threshold
    assert summary_of(hundred, series_of([SERIES.values[:30]]))["ari"] is None


def test_sequences_and_anomalies_are_those_of_each_series(hundred):
    labels, scores = hundred.predict(SERIES), hundred.anomaly_scores(SERIES)
    threshold = hundred.calibrations_["forecast-error"].threshold
    for row, own, name in zip(sequence_rows(hundred, SERIES), SERIES.segments(), SERIES.containers, strict=True):
        assert row["container"] == name
        assert (row["start_s"], row["interval_s"]) == (SERIES.time_s[own][0], 15.0)
        assert row["samples"] == own.stop - own.start == len(row["phase"])
        assert row["phase"] == labels[own].tolist()
        assert row["anomalies"] == int(np.sum(scores[own] > threshold))
        assert row["sequence"]


def test_edges_are_those_of_the_graph(hundred):
    graph = hundred.graph(1)
    rows = edge_rows(hundred, 1)
    assert len(rows) == graph.number_of_edges()
    label = {graph.nodes[node]["label"]: node for node in graph}
    for row in rows:
        edge = graph.edges[label[row["from"]], label[row["to"]]]
        assert (row["count"], row["probability"]) == (edge["count"], edge["probability"])


def test_forecasts_are_shown_at_the_horizons_within_reach(hundred):
    series = series_of([SERIES.values[:60], SERIES.values[:2]])
    ahead = hundred.forecast(series, 20)
    demand = hundred.demand_quantile(series, 0.9, 20)
    known, unknown = forecast_rows(hundred, series, 20, 0.9, "semi-markov")
    assert list(known) == ["container", "phase", "in_1", "in_4", "in_20", "cpu_p90", "memory_p90"]
    assert known["phase"] == hundred.names_[hundred.predict(series)[59]]
    for horizon in (1, 4, 20):
        assert list(known[f"in_{horizon}"].values()) == ahead[0, horizon - 1].tolist()
    assert (known["cpu_p90"], known["memory_p90"]) == tuple(demand[0])
    assert unknown == {**dict.fromkeys(known), "container": "c1"}


@pytest.mark.parametrize(("steps", "horizons"), [(40, [1, 4, 20, 40]), (5, [1, 4]), (3, [1])])
def test_scores_stop_at_the_furthest_horizon_that_is_asked_for(hundred, steps, horizons):
    rows = score_rows(hundred, SERIES, steps, ["same", "markov"])
    assert [(row["method"], row["horizon"]) for row in rows] == [(m, h) for m in ("same", "markov") for h in horizons]
    assert all((row["log_loss"] is None or row["log_loss"] >= 0) and 0 <= row["brier"] <= 2 for row in rows)


def test_the_legend_numbers_the_phases(hundred):
    assert legend(hundred).startswith(f"phases: 0 {hundred.names_[0]}, 1 {hundred.names_[1]}")
