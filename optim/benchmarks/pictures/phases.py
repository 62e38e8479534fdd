"""Pictures of a phase model: series coloured by phase, graph, tree, coverage."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, Gallery
from optim.benchmarks.spec import Figure
from optim.models.containers.series import FloatArray
from optim.phases.coding import PhasedSeries
from optim.phases.model import PhaseModel
from optim.phases.transitions import END, START

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

UNKNOWN_COLOUR = "#9aa0a6"
MOST_CONTAINERS = 4
MOST_TREE_PATHS = 12
LEAST_EDGE = 0.03
"""Edges of the graph with a smaller probability aren't drawn; the table has them all."""


def phase_colour(phase: int) -> str:
    """Return the colour of a phase, grey where there is none."""
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
    """Draw the graph of order one on a circle, probabilities on its edges."""
    graph = model.graph(1)
    nodes = list(graph)
    angle = {node: 2 * np.pi * (0.25 - place / len(nodes)) for place, node in enumerate(nodes)}
    position = {node: np.array([np.cos(a), np.sin(a)]) for node, a in angle.items()}
    shares = model.statistics_.share
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.set(xlim=(-1.5, 1.5), ylim=(-1.35, 1.35))
    for source, target, edge in graph.edges(data=True):
        if edge["probability"] >= LEAST_EDGE:
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
    """Draw one arrow, bent so that there and back are apart."""
    style = {"arrowstyle": "-|>", "color": INK, "alpha": 0.25 + 0.6 * probability, "linewidth": 0.5 + 2.5 * probability}
    bent = {"connectionstyle": "arc3,rad=0.14", "shrinkA": 16, "shrinkB": 16}
    panel.annotate("", tuple(end.tolist()), tuple(begin.tolist()), arrowprops={**style, **bent})
    across = np.array([end[1] - begin[1], begin[0] - end[0]])
    spot = begin + 0.36 * (end - begin) + 0.06 * across
    panel.annotate(f"{probability:.2f}", tuple(spot.tolist()), ha="center", va="center", fontsize=7.5)


def draw_tree(panel: "Axes", model: PhaseModel) -> None:
    """Draw the most frequent paths of the prefix tree; prototypes are full, others pale."""
    found = model.prototypes()
    tree = model.tree()
    ranked = sorted((path for path in tree if tree.nodes[path]["ends"]), key=lambda path: -tree.nodes[path]["ends"])
    shown = sorted(ranked[:MOST_TREE_PATHS])
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
    gallery = Gallery()
    if phased is not None:
        _series(gallery, model, phased)
    caption = "Discs: phases, their size the share of samples. Arrows: probability of the next phase, at least 3 %."
    with gallery.picture("graph", "Which phase follows which", caption, 8, 6.4) as (panel,):
        draw_graph(panel, model)
    caption = (
        "The most frequent sequences, repetitions packed into (x y)+; numbers at the ends count containers. Full "
        "colours: prototypes, the fewest sequences that cover nine containers in ten."
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


def _series(gallery: Gallery, model: PhaseModel, phased: PhasedSeries) -> None:
    chosen, width = longest_segments(phased, MOST_CONTAINERS), len(phased.series.resources)
    rows = width * len(chosen)
    caption = "What containers consumed, in the colour of the phase at each sample."
    with gallery.picture("series", "Series by phase", caption, 11, 2.1 * rows, rows) as panels:
        for place, panel in enumerate(panels):
            segment, resource = chosen[place // width], place % width
            draw_series(panel, phased, model, segment, resource)
            if resource == 0:
                panel.set_title(phased.series.containers[segment], loc="left")
                panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=2)


def longest_segments(phased: PhasedSeries, number: int) -> Sequence[int]:
    """Return segments with different sequences of phases where there are some, the longest first."""
    order = np.argsort(-phased.series.lengths, kind="stable").tolist()
    seen: set[tuple[int, ...]] = set()
    fresh: list[int] = []
    others: list[int] = []
    for segment in order:
        key = tuple(np.unique(phased.labels[phased.series.rows(segment)]).tolist())
        (others if key in seen else fresh).append(segment)
        seen.add(key)
    return [*fresh, *others][:number]
