"""The report of a phase model: one HTML page that needs nothing but itself."""

from html import escape
from pathlib import Path

from optim.benchmarks.page import figure_element, page, table
from optim.benchmarks.pictures.phases import phase_figures
from optim.core.files import write_bytes
from optim.models.containers.series import ContainerSeries
from optim.phases.coding import PhasedSeries
from optim.phases.forecasting import score_table
from optim.phases.model import PhaseModel
from optim.phases.runs import runs_of
from optim.phases.statistics import LEVELS
from optim.phases.tree import packed_sequences
from optim.phases.watching import watch

HORIZONS = (1, 4, 20, 40)
"""Samples ahead that forecasts are scored at: a quarter of a minute to ten minutes."""

MOST_FORECASTS = 200


def write_phase_report(model: PhaseModel, series: ContainerSeries | None, path: Path) -> None:
    """Write the page; it is whole or absent."""
    write_bytes(path, render_phases(model, series).encode())


def render_phases(model: PhaseModel, series: ContainerSeries | None = None) -> str:
    """Return the page as HTML; `series`, if given, are drawn by phase and scored."""
    phased = None if series is None else model.label(series)
    number = model.runs_.num_segments
    body = [
        "<h1>Phases of containers</h1>",
        f'<p class="headline">{model.num_phases_} phases by {escape(model.encoder)} from {number} series</p>',
        *(figure_element(figure) for figure in phase_figures(model, phased)),
        "<h2>Phases</h2>",
        _statistics(model),
        "<h2>Changes</h2>",
        _changes(model),
        "<h2>Prototypes</h2>",
        _prototypes(model, phased),
        "" if phased is None else _forecasts(model, phased),
        _count_rule(model),
        "" if series is None else "<h2>Watching</h2>" + _watching(model, series),
        "<h2>Parameters</h2>",
        table(("name", "value"), [(name, str(value)) for name, value in model.get_params().items()], "prose"),
    ]
    return page("phases", body)


def _statistics(model: PhaseModel) -> str:
    found = model.statistics_
    header = [
        *("phase", "name", "share %", "dwell, mean", "dwell, p90", "resource", "mean", "deviation"),
        *("median", "p95", "p99", "max", "slope a minute", "rising %", "lag-1"),
    ]
    rows = []
    for phase in range(model.num_phases_):
        for place, resource in enumerate(model.resources_):
            levels = found.quantiles[phase, place]
            rows.append(
                (
                    *(phase, model.names_[phase], 100 * float(found.share[phase])),
                    *(float(model.forecaster.dwells.mean[phase]), float(model.forecaster.dwells.p90[phase])),
                    *(f"{resource.name} [{resource.unit}]", float(found.mean[phase, place])),
                    float(found.deviation[phase, place]),
                    *(float(levels[round(level * (len(LEVELS) - 1))]) for level in (0.5, 0.95, 0.99, 1.0)),
                    *(60 * float(found.slope[phase, place]), 100 * float(found.rising[phase, place])),
                    float(found.autocorrelation[phase, place]),
                )
            )
    return table(header, rows) + '<p class="note">Dwell in samples; the last run of a series counts as cut off.</p>'


def _changes(model: PhaseModel) -> str:
    graph = model.graph()
    rows = [
        (graph.nodes[source]["label"], graph.nodes[target]["label"], edge["count"], edge["probability"])
        for source, target, edge in graph.edges(data=True)
    ]
    text = ", ".join(f"{order}: {value:.3f}" for order, value in enumerate(model.order_likelihoods_, start=1))
    note = f'<p class="note">Order {model.order_}; held-out log-likelihood a change by order: {text}.</p>'
    return note + table(("from", "to", "count", "probability"), rows)


def _prototypes(model: PhaseModel, phased: PhasedSeries | None) -> str:
    found = model.prototypes()
    rows = [(" ".join(path), count) for path, count in zip(found.paths, found.counts, strict=True)]
    plain = len({tuple(phase.tolist()) for phase, _ in model.runs_.sequences()})
    text = (
        f"{len(found.paths)} of {len(found.coverage)} distinct sequences ({plain} before packing) cover 90 % of the series "
        "that the model was fitted on"
    )
    if phased is not None:
        runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
        text += f", and {100 * found.share_covered(packed_sequences(runs)):.1f} % of those drawn here"
    return f'<p class="note">{text}.</p>' + table(("sequence", "series"), rows)


def _forecasts(model: PhaseModel, phased: PhasedSeries) -> str:
    """Score all methods on the given series, at those horizons that the longest of them allows."""
    runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
    longest = max((int(dwell.sum()) for _, dwell in runs.sequences()), default=0)
    horizons = tuple(horizon for horizon in HORIZONS if horizon < longest)
    if not horizons:
        return ""
    rows = score_table(model.forecaster, runs, horizons, max_points=MOST_FORECASTS)
    note = '<p class="note">Forecasts from random samples of the series drawn here; lower is better.</p>'
    return "<h2>Forecasts</h2>" + note + table(("method", "samples ahead", "log-loss", "Brier score"), rows)


def _count_rule(model: PhaseModel) -> str:
    if not model.count_rows_:
        return ""
    header = ("phases", "held-out sum of squares", "gain", "stability", "silhouette", "passes")
    rows = [
        (row.num_clusters, row.held_out, row.gain, row.stability, row.silhouette, row.passes)
        for row in model.count_rows_
    ]
    return "<h2>Number of phases</h2>" + table(header, rows)


def _watching(model: PhaseModel, series: ContainerSeries) -> str:
    rows = []
    for kind in model.anomaly_kinds:
        readings = watch(model, series, kind)
        number = sum(reading.samples for reading in readings)
        share = 100 * sum(reading.anomalies for reading in readings) / number if number else None
        threshold = model.calibrations_[str(kind)].threshold
        rows.append((str(kind), threshold, share, readings[-1].is_update_due))
    return table(("score", "threshold", "anomalies %", "update due"), rows)
