"""Rows that describe a model, and containers watched against it."""

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
    """What a model says of a container.

    Attributes
    ----------
    container
        Which.
    samples
        Samples of the grid that have a score.
    anomalies
        Those above the calibrated threshold.
    score
        Mean score; None, as the next two, where no sample has enough history.
    excess
        The score in deviations above what was usual when the model was fitted.
    drift_sum
        The trigger's cumulative sum after this container.
    is_update_due
        Whether the trigger has gone off, at this container or before.
    """

    container: str
    samples: int
    anomalies: int
    score: float | None
    excess: float | None
    drift_sum: float | None
    is_update_due: bool


def watch(model: PhaseModel, series: ContainerSeries, kind: AnomalyKind | str | None = None) -> tuple[Reading, ...]:
    """Look at containers in their order, with one drift trigger for all.

    Parameters
    ----------
    model
        A fitted model.
    series
        Containers that it wasn't fitted on.
    kind
        The anomaly score; the model's `usual_kind` unless given.

    Returns
    -------
    tuple of Reading
        One a container; parts between gaps count together.

    Raises
    ------
    InvalidOptionError
        If the encoder doesn't allow this kind.
    """
    grid = model.prepare(series).series
    scores = model.anomaly_scores(grid, kind)
    owner = grid.owner
    trigger = model.drift_trigger(kind)
    readings = []
    for place, name in enumerate(dict.fromkeys(grid.containers)):
        own = scores[owner == place]
        own = own[np.isfinite(own)]
        score = float(own.mean()) if len(own) else None
        if score is not None:
            trigger.update(score)
        readings.append(
            Reading(
                container=name,
                samples=len(own),
                anomalies=int((own > trigger.calibration.threshold).sum()),
                score=score,
                excess=None if score is None else trigger.excess(score),
                drift_sum=None if score is None else trigger.sum,
                is_update_due=trigger.is_triggered,
            )
        )
    return tuple(readings)


HORIZONS = (1, 4, 20, 40)

"""Samples ahead that forecasts are shown and scored at."""

Rows = list[dict[str, Any]]


def phase_rows(model: FittedPhases) -> Rows:
    """Return a row a phase and resource: how often, how long, and how much."""
    found = model.statistics_
    p95, most = found.quantile(0.95), found.quantile(1.0)
    return [
        {
            "phase": phase,
            "name": name,
            "share": float(found.share[phase]),
            "dwell_mean": float(model.forecaster.dwells.mean[phase]),
            "resource": resource.name,
            "unit": resource.unit,
            "mean": float(found.mean[phase, place]),
            "deviation": float(found.deviation[phase, place]),
            "p95": float(p95[phase, place]),
            "max": float(most[phase, place]),
        }
        for phase, name in enumerate(model.names_)
        for place, resource in enumerate(model.resources_)
    ]


def summary_of(model: FittedPhases, series: ContainerSeries) -> dict[str, Any]:
    """Return what there is to say of the whole; `ari` on the series fitted on, where their true phases are known."""
    ranked, phased = model.prototypes(), model.label(series)
    truth, agreement = phased.series.phase, None
    if truth is not None:
        known = (phased.labels >= 0) & (truth >= 0)
        agreement = adjusted_rand_index(truth[known], phased.labels[known])
    return {
        "encoder": model.encoder,
        "phases": model.num_phases_,
        "order": model.order_,
        "sequences": len(ranked.coverage),
        "prototypes": len(ranked.paths),
        "anomaly_threshold": model.calibrations_[model.usual_kind].threshold,
        "ari": agreement,
    }


def sequence_rows(model: FittedPhases, series: ContainerSeries) -> Rows:
    """Return a row a container without gaps, or a part of one between gaps: its phases, and its anomalies."""
    phased = model.label(series)
    scores = model.anomaly_scores(phased.series)
    threshold = model.calibrations_[model.usual_kind].threshold
    runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
    return [
        {
            "container": phased.series.containers[segment],
            "start_s": float(phased.series.time_s[own][0]),
            "interval_s": model.interval_s,
            "samples": own.stop - own.start,
            "sequence": " ".join(pack(runs.phase[runs.offsets[segment] : runs.offsets[segment + 1]].tolist())),
            "anomalies": int((scores[own] > threshold).sum()),
            "phase": phased.labels[own].tolist(),
        }
        for segment, own in enumerate(phased.series.segments())
    ]


def edge_rows(model: FittedPhases, order: int | None = None) -> Rows:
    """Return a row a change of phase, of the model's order unless one is given."""
    found = model.graph(order)
    return [
        {"from": found.nodes[source]["label"], "to": found.nodes[target]["label"], **edge}
        for source, target, edge in found.edges(data=True)
    ]


def score_rows(
    model: FittedPhases, series: ContainerSeries, num_steps: int, methods: Sequence[ForecastMethod | str]
) -> Rows:
    """Return a row a method and horizon, of at most `num_steps` samples, with its scores on these series."""
    phased = model.label(series)
    runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
    horizons = tuple(horizon for horizon in HORIZONS if horizon <= num_steps) or (num_steps,)
    found = score_table(model.forecaster, runs, horizons, methods)
    return [
        {"method": method, "horizon": horizon, "brier": brier, "log_loss": loss if math.isfinite(loss) else None}
        for method, horizon, loss, brier in found
    ]


def forecast_rows(
    model: FittedPhases, series: ContainerSeries, num_steps: int, level: float, method: ForecastMethod | str
) -> Rows:
    """Return a row a series: its phase, those to come, and the quantile of its demand; None where no phase is known."""
    phased = model.label(series)
    ahead = model.forecast(phased.series, num_steps, method)
    demand = model.demand_quantile(phased.series, level, num_steps, method)
    rows: Rows = []
    for segment, own in enumerate(phased.series.segments()):
        now = int(phased.labels[own][-1])
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
    """Return the phases' numbers and names on a line."""
    return "phases: " + ", ".join(f"{place} {name}" for place, name in enumerate(model.names_))
