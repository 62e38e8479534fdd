"""Table rows with a model's phases, its changes of phase, and its results for containers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.models.containers.series import ContainerSeries
from optim.phases.anomalies import AnomalyKind
from optim.phases.clustering import adjusted_rand_index
from optim.phases.forecasting import ForecastMethod, score_table
from optim.phases.model import FittedPhases, PhaseModel
from optim.phases.sequences import pack, runs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A model's anomaly result for one container.

    Attributes
    ----------
    container
        Name of the container.
    samples
        Number of grid samples with a score.
    anomalies
        Number of samples above the calibrated threshold.
    score
        Mean anomaly score. `score`, `excess` and `drift_sum` are None if no sample has enough history.
    excess
        Number of standard deviations by which the score is above the calibration's mean.
    drift_sum
        Cumulative sum of the drift trigger after this container.
    is_update_due
        Whether the drift trigger has fired, at this container or an earlier one.
    """

    container: str
    samples: int
    anomalies: int
    score: float | None
    excess: float | None
    drift_sum: float | None
    is_update_due: bool


def watch(model: PhaseModel, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> tuple[Reading, ...]:
    """Score containers in their order, with one drift trigger for all.

    Parameters
    ----------
    model
        A fitted model.
    series
        Containers that weren't used for the fit.
    kind
        The anomaly score; by default the model's `default_score`.

    Returns
    -------
    tuple of Reading
        One result per container, over all of its segments.

    Raises
    ------
    InvalidOptionError
        If the encoder doesn't allow this score.
    """
    grid = model.prepare(series).series
    scores = model.anomaly_scores(grid, kind)
    owner = grid.owner
    trigger = model.drift_trigger(kind)
    readings = []
    for place, name in enumerate(dict.fromkeys(grid.containers)):
        container_scores = scores[owner == place]
        container_scores = container_scores[np.isfinite(container_scores)]
        score = float(container_scores.mean()) if len(container_scores) else None
        if score is not None:
            trigger.update(score)
        readings.append(
            Reading(
                container=name,
                samples=len(container_scores),
                anomalies=int((container_scores > trigger.calibration.threshold).sum()),
                score=score,
                excess=None if score is None else trigger.excess(score),
                drift_sum=None if score is None else trigger.sum,
                is_update_due=trigger.is_triggered,
            )
        )
    return tuple(readings)


HORIZONS = (1, 4, 20, 40)
"""Horizons, in samples, at which forecasts are reported and scored."""

Rows = list[dict[str, Any]]


def phase_rows(model: FittedPhases) -> Rows:
    """Return one row per phase and resource: share of the phase, mean dwell time, and use of the resource."""
    statistics = model.statistics_
    p95, maximum = statistics.quantile(0.95), statistics.quantile(1.0)
    return [
        {
            "phase": phase,
            "name": name,
            "share": float(statistics.share[phase]),
            "dwell_mean": float(model.forecaster.dwells.mean[phase]),
            "resource": resource.name,
            "unit": resource.unit,
            "mean": float(statistics.mean[phase, place]),
            "deviation": float(statistics.deviation[phase, place]),
            "p95": float(p95[phase, place]),
            "max": float(maximum[phase, place]),
        }
        for phase, name in enumerate(model.names_)
        for place, resource in enumerate(model.resources_)
    ]


def summary_of(model: FittedPhases, series: ContainerSeries) -> dict[str, Any]:
    """Return the model's summary, with the adjusted Rand index `ari` on these series if their true phases are known."""
    ranked, phased = model.prototypes(), model.label(series)
    truth, ari = phased.series.phase, None
    if truth is not None:
        known = (phased.labels >= 0) & (truth >= 0)
        ari = adjusted_rand_index(truth[known], phased.labels[known])
    return {
        "encoder": model.encoder,
        "phases": model.num_phases_,
        "order": model.order_,
        "sequences": len(ranked.coverage),
        "prototypes": len(ranked.paths),
        "anomaly_threshold": model.calibrations_[model.default_score].threshold,
        "ari": ari,
    }


def sequence_rows(model: FittedPhases, series: ContainerSeries) -> Rows:
    """Return one row per segment (a container, or its part between two gaps): the phases and the anomalies."""
    phased = model.label(series)
    scores = model.anomaly_scores(phased.series)
    threshold = model.calibrations_[model.default_score].threshold
    runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
    return [
        {
            "container": phased.series.containers[segment],
            "start_s": float(phased.series.time_s[rows][0]),
            "interval_s": model.interval_s,
            "samples": rows.stop - rows.start,
            "sequence": " ".join(pack(runs.phase[runs.offsets[segment] : runs.offsets[segment + 1]].tolist())),
            "anomalies": int((scores[rows] > threshold).sum()),
            "phase": phased.labels[rows].tolist(),
        }
        for segment, rows in enumerate(phased.series.segments())
    ]


def edge_rows(model: FittedPhases, order: int | None = None) -> Rows:
    """Return one row per change of phase, by default of the model's order."""
    graph = model.graph(order)
    return [
        {"from": graph.nodes[source]["label"], "to": graph.nodes[target]["label"], **edge}
        for source, target, edge in graph.edges(data=True)
    ]


def score_rows(
    model: FittedPhases, series: ContainerSeries, num_steps: int, methods: Sequence[ForecastMethod | str]
) -> Rows:
    """Return one row per method and horizon (up to `num_steps` samples) with the forecast's scores on these series."""
    phased = model.label(series)
    runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
    horizons = tuple(horizon for horizon in HORIZONS if horizon <= num_steps) or (num_steps,)
    scores = score_table(model.forecaster, runs, horizons, methods)
    return [
        {"method": method, "horizon": horizon, "brier": brier, "log_loss": loss if math.isfinite(loss) else None}
        for method, horizon, loss, brier in scores
    ]


def forecast_rows(
    model: FittedPhases, series: ContainerSeries, num_steps: int, level: float, method: ForecastMethod | str
) -> Rows:
    """Return one row per segment: phase, forecast and demand quantile; these are None if the phase is unknown."""
    phased = model.label(series)
    ahead = model.forecast(phased.series, num_steps, method)
    demand = model.demand_quantile(phased.series, level, num_steps, method)
    rows: Rows = []
    for segment, samples in enumerate(phased.series.segments()):
        now = int(phased.labels[samples][-1])
        row: dict[str, Any] = {"phase": model.names_[now]}
        for horizon in HORIZONS:
            if horizon <= num_steps:
                row[f"in_{horizon}"] = dict(zip(model.names_, ahead[segment, horizon - 1].tolist(), strict=True))
        for place, resource in enumerate(model.resources_):
            row[f"{resource.name}_p{100 * level:g}"] = float(demand[segment, place])
        known = row if now >= 0 else dict.fromkeys(row)
        rows.append({"container": phased.series.containers[segment], **known})
    return rows


def legend(model: FittedPhases) -> str:
    """Return a line with the phases' numbers and names."""
    return "phases: " + ", ".join(f"{place} {name}" for place, name in enumerate(model.names_))
