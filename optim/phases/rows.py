"""What a fitted model tells a person, as rows of plain values."""

import math
from collections.abc import Sequence
from typing import Any

from optim.models.containers.series import ContainerSeries
from optim.phases.agreement import adjusted_rand_index
from optim.phases.compression import pack
from optim.phases.fitted import FittedPhases
from optim.phases.forecasting import ForecastMethod, score_table
from optim.phases.runs import runs_of

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
