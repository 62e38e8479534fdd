"""Plots of a phase model, and its HTML report."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.files import write_bytes
from optim.models.containers.series import ContainerSeries
from optim.phases.description import LEVELS
from optim.phases.forecasting import score_table
from optim.phases.model import PhasedSeries, PhaseModel
from optim.phases.rows import watch
from optim.phases.sequences import END, START, packed_sequences, runs_of
from optim.report.page import figure_element, page, table
from optim.report.plots import INK, PALETTE, Figure, FigureList

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

UNKNOWN_COLOUR = "#9aa0a6"

MAX_CONTAINERS = 4

MAX_TREE_PATHS = 12

MIN_EDGE = 0.03
"""Minimum probability of an edge that is drawn; the table contains all edges."""


def phase_colour(phase: int) -> str:
    """Return the colour of a phase, grey for an unknown phase."""
    return UNKNOWN_COLOUR if phase < 0 else PALETTE[phase % len(PALETTE)]


def draw_series(panel: "Axes", phased: PhasedSeries, model: PhaseModel, segment: int, resource: int) -> None:
    """Draw a resource of one segment, each sample in the colour of its phase."""
    rows = phased.series.rows(segment)
    minutes = (phased.series.time_s[rows] - phased.series.time_s[rows][0]) / 60.0
    values, labels = phased.series.values[rows, resource], phased.labels[rows]
    panel.plot(minutes, values, color=INK, linewidth=0.5, alpha=0.35)
    for phase in np.unique(labels).tolist():
        name = "no history" if phase < 0 else model.names_[phase]
        own = labels == phase
        panel.plot(minutes[own], values[own], ".", markersize=3.5, color=phase_colour(phase), label=name)
    unit = phased.series.resources[resource].unit
    panel.set_ylabel(f"{phased.series.names[resource]}{f' [{unit}]' if unit else ''}")
    panel.set_xlabel("minutes")


def draw_graph(panel: "Axes", model: PhaseModel) -> None:
    """Draw the graph of phase changes (of order 1) on a circle, with probabilities on its edges."""
    graph = model.graph(1)
    nodes = list(graph)
    angle = {node: 2 * np.pi * (0.25 - place / len(nodes)) for place, node in enumerate(nodes)}
    position = {node: np.array([np.cos(a), np.sin(a)]) for node, a in angle.items()}
    shares = model.statistics_.share
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.set(xlim=(-1.5, 1.5), ylim=(-1.35, 1.35))
    for source, target, edge in graph.edges(data=True):
        if edge["probability"] >= MIN_EDGE:
            _draw_edge(panel, position[source], position[target], edge["probability"])
    for node, data in graph.nodes(data=True):
        phase = node[-1]
        is_border = phase in (START, END)
        size = 500.0 if is_border else 500.0 + 2500.0 * float(shares[phase])
        colour = UNKNOWN_COLOUR if is_border else phase_colour(phase)
        x, y = position[node].tolist()
        panel.scatter(x, y, s=size, color=colour, zorder=3)
        panel.annotate(data["label"], (1.22 * x, 1.22 * y), ha="center", va="center", zorder=4)


def _draw_edge(panel: "Axes", begin: FloatArray, end: FloatArray, probability: float) -> None:
    """Draw one arrow, curved so that opposite arrows do not overlap."""
    style = {"arrowstyle": "-|>", "color": INK, "alpha": 0.25 + 0.6 * probability, "linewidth": 0.5 + 2.5 * probability}
    bent = {"connectionstyle": "arc3,rad=0.14", "shrinkA": 16, "shrinkB": 16}
    panel.annotate("", tuple(end.tolist()), tuple(begin.tolist()), arrowprops={**style, **bent})
    across = np.array([end[1] - begin[1], begin[0] - end[0]])
    spot = begin + 0.36 * (end - begin) + 0.06 * across
    panel.annotate(f"{probability:.2f}", tuple(spot.tolist()), ha="center", va="center", fontsize=7.5)


def draw_tree(panel: "Axes", model: PhaseModel) -> None:
    """Draw the most frequent paths of the prefix tree; paths that aren't prototypes are pale."""
    found = model.prototypes()
    tree = model.tree()
    ranked = sorted((path for path in tree if tree.nodes[path]["ends"]), key=lambda path: -tree.nodes[path]["ends"])
    shown = sorted(ranked[:MAX_TREE_PATHS])
    panel.set_axis_off()
    depth = max((len(path) for path in shown), default=0)
    panel.set(xlim=(-0.5, depth + 2.0), ylim=(len(shown) - 0.4, -0.6))
    height: dict[tuple[str, ...], float] = {}
    for place, path in enumerate(shown):
        height[path] = float(place)
    for prefix in sorted({path[:length] for path in shown for length in range(len(path))}, key=len, reverse=True):
        below = [height[other] for other in height if len(other) == len(prefix) + 1 and other[:-1] == prefix]
        height.setdefault(prefix, float(np.mean(below)))
    total = max(tree.nodes[()]["count"], 1)
    known = set(found.paths)
    for path, y in height.items():
        if path:
            weight = 0.4 + 5 * tree.nodes[path]["count"] / total
            panel.plot([len(path) - 1, len(path)], [height[path[:-1]], y], color=INK, linewidth=weight, alpha=0.3)
    for path, y in height.items():
        is_prototype = any(own[: len(path)] == path for own in known)
        _draw_node(panel, tree, path, y, is_prototype)


def _draw_node(panel: "Axes", tree: "nx.DiGraph[tuple[str, ...]]", path: tuple[str, ...], y: float, full: bool) -> None:
    token = tree.nodes[path]["token"] or "start"
    colour = phase_colour(int(token)) if token.isdigit() else UNKNOWN_COLOUR
    box = {"boxstyle": "round,pad=0.25", "facecolor": colour, "alpha": 0.9 if full else 0.35, "linewidth": 0}
    panel.annotate(token, (len(path), y), ha="center", va="center", fontsize=8, bbox=box, color="white")
    if tree.nodes[path]["ends"]:
        panel.annotate(f"{tree.nodes[path]['ends']}", (len(path) + 0.42, y), va="center", fontsize=7.5)


def phase_figures(model: PhaseModel, phased: PhasedSeries | None) -> list[Figure]:
    """Return the pictures of a report."""
    gallery = FigureList()
    if phased is not None:
        _series(gallery, model, phased)
    caption = "Discs: phases, sized by their share of samples. Arrows: probability of the next phase, at least 3 %."
    with gallery.picture("graph", "Transitions between phases", caption, 8, 6.4) as (panel,):
        draw_graph(panel, model)
    caption = (
        "The most frequent sequences, with repetitions written as (x y)+; numbers at the ends count containers. Full "
        "colours: prototypes, the smallest set of sequences that covers 90 % of the containers."
    )
    with gallery.picture("tree", "Tree and prototypes", caption, 11, 4.6) as (panel,):
        draw_tree(panel, model)
    caption = "Share of the training containers that the most frequent sequences cover."
    with gallery.picture("coverage", "Coverage", caption, 8, 2.8) as (panel,):
        coverage = model.prototypes().coverage
        panel.plot(range(1, len(coverage) + 1), coverage, color=PALETTE[0], marker=".", markersize=3)
        panel.axhline(0.9, color=INK, linewidth=0.6, linestyle=":")
        panel.set(xlabel="number of sequences", ylabel="share of containers", ylim=(0, 1.03))
    return gallery


def _series(gallery: FigureList, model: PhaseModel, phased: PhasedSeries) -> None:
    chosen, width = longest_segments(phased, MAX_CONTAINERS), len(phased.series.resources)
    rows = width * len(chosen)
    caption = "Resource usage of containers, in the colour of the phase at each sample."
    with gallery.picture("series", "Series by phase", caption, 11, 2.1 * rows, rows) as panels:
        for place, panel in enumerate(panels):
            segment, resource = chosen[place // width], place % width
            draw_series(panel, phased, model, segment, resource)
            if resource == 0:
                panel.set_title(phased.series.containers[segment], loc="left")
                panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=2)


def longest_segments(phased: PhasedSeries, number: int) -> Sequence[int]:
    """Return the longest segments; segments with the same phases as a longer segment come last."""
    order = np.argsort(-phased.series.lengths, kind="stable").tolist()
    seen: set[tuple[int, ...]] = set()
    fresh: list[int] = []
    others: list[int] = []
    for segment in order:
        key = tuple(np.unique(phased.labels[phased.series.rows(segment)]).tolist())
        (others if key in seen else fresh).append(segment)
        seen.add(key)
    return [*fresh, *others][:number]


HORIZONS = (1, 4, 20, 40)
"""Horizons for scoring forecasts, in samples: 15 seconds to ten minutes if a sample is taken every 15 seconds."""

MAX_FORECASTS = 200


def write_phase_report(model: PhaseModel, series: ContainerSeries | None, path: Path) -> None:
    """Write the report of a phase model to a file, atomically."""
    write_bytes(path, render_phases(model, series).encode())


def render_phases(model: PhaseModel, series: ContainerSeries | None = None) -> str:
    """Return the report as HTML; `series`, if given, are drawn by phase and scored."""
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
        *("phase", "name", "share %", "sojourn, mean", "sojourn, p90", "resource", "mean", "deviation"),
        *("median", "p95", "p99", "max", "slope per minute", "rising %", "lag-1"),
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
    return table(header, rows) + '<p class="note">Sojourn in samples; the last run of a series is censored.</p>'


def _changes(model: PhaseModel) -> str:
    graph = model.graph()
    rows = [
        (graph.nodes[source]["label"], graph.nodes[target]["label"], edge["count"], edge["probability"])
        for source, target, edge in graph.edges(data=True)
    ]
    text = ", ".join(f"{order}: {value:.3f}" for order, value in enumerate(model.order_likelihoods_, start=1))
    note = f'<p class="note">Order {model.order_}; held-out log-likelihood per change, by order: {text}.</p>'
    return note + table(("from", "to", "count", "probability"), rows)


def _prototypes(model: PhaseModel, phased: PhasedSeries | None) -> str:
    found = model.prototypes()
    rows = [(" ".join(path), count) for path, count in zip(found.paths, found.counts, strict=True)]
    plain = len({tuple(phase.tolist()) for phase, _ in model.runs_.sequences()})
    text = (
        f"{len(found.paths)} of {len(found.coverage)} distinct sequences ({plain} with repetitions written out) cover 90 % of the series "
        "that the model was fitted on"
    )
    if phased is not None:
        runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
        text += f", and {100 * found.share_covered(packed_sequences(runs)):.1f} % of those drawn here"
    return f'<p class="note">{text}.</p>' + table(("sequence", "series"), rows)


def _forecasts(model: PhaseModel, phased: PhasedSeries) -> str:
    """Return the scores of all forecast methods on the series, at horizons shorter than the longest series."""
    runs = runs_of(phased.labels, phased.series.lengths, model.min_dwell)
    longest = max((int(dwell.sum()) for _, dwell in runs.sequences()), default=0)
    horizons = tuple(horizon for horizon in HORIZONS if horizon < longest)
    if not horizons:
        return ""
    rows = score_table(model.forecaster, runs, horizons, max_points=MAX_FORECASTS)
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
