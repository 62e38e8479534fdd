"""Pictures of a benchmark as inline SVG that reads well on light and on dark pages."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.benchmarks.pictures.compact import compact_svg
from optim.benchmarks.pictures.profiles import draw_profiles, sense_of
from optim.benchmarks.record import PHASES, QUANTILES, Record
from optim.benchmarks.spec import Figure
from optim.benchmarks.statistics import shifted_geometric_mean
from optim.core.missing import require
from optim.core.status import Sense
from optim.core.text import keep_texts_plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

INK = "#0a0b0c"
"""Stands for the page's text colour: `as_svg` replaces it by ``currentColor``."""

PALETTE = (
    "#3b82c4", "#e0803a", "#3f9b5f", "#c4504f", "#8a6fc0", "#a0744f",
    "#d170a8", "#7d8a96", "#b0a02c", "#2fa5b0", "#5f6fd6", "#cf9a6a",
)  # fmt: skip
"""Middle tones, told apart on white and on black alike."""

MOST_PANELS = 24
"""Instances drawn at most; the table holds the rest."""

LONGEST_TITLE = 44
"""Characters that fit over one of three panels."""

LEAST_SECONDS = 1e-4
"""Left end of the axis of seconds: below lies the clock's noise."""

LEAST_MS = 1e-4
"""Left end of the axis of decisions' milliseconds."""

WIDEST_GAP = 1000.0
"""Right end of the axis of gaps, in per cent: beyond it nothing is known."""

WHOLE = "whole solve"
"""Seconds that no solver counts by itself."""

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@contextmanager
def canvas(width: float, height: float, rows: int = 1, columns: int = 1) -> Iterator[tuple["Canvas", list["Axes"]]]:
    """Give a canvas of so many inches with its panels; the report's style holds inside the block only."""
    mpl = require("matplotlib", "a picture")
    new_canvas = require("matplotlib.figure", "a picture").Figure

    with mpl.rc_context(_STYLE):
        drawing = new_canvas(figsize=(width, height), layout="constrained")
        yield drawing, list(drawing.subplots(rows, columns, squeeze=False).flat)


class Gallery(list[Figure]):
    """The pictures of a page, in the order in which they are drawn."""

    @contextmanager
    def picture(
        self, name: str, title: str, caption: str, width: float, height: float, rows: int = 1, columns: int = 1
    ) -> Iterator[list["Axes"]]:
        """Give the panels of a new picture; it hangs in the gallery once the block is through."""
        with canvas(width, height, rows, columns) as (drawing, panels):
            yield panels
            self.append(Figure(title=title, caption=caption, svg=as_svg(drawing, name)))


def legend_beside(panel: "Axes") -> None:
    """Put a panel's legend to its right."""
    panel.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def as_svg(drawing: "Canvas", name: str) -> str:
    """Return a canvas as an ``<svg>`` element for a page; call it inside `canvas`.

    Text takes the page's colour, no two pictures on a page share an id, and everything that names a foreign address (name
    spaces, metadata) is taken out.
    """
    mpl = require("matplotlib", "a picture")

    keep_texts_plain(drawing)
    buffer = StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        drawing.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href", "href").replace(INK, "currentColor")
    text = re.sub(r'(<svg[^>]*?)\swidth="[^"]*"', r"\1", text, count=1)
    return compact_svg(re.sub(r'(<svg[^>]*?)\sheight="[^"]*"', r'\1 role="img"', text, count=1).strip())


def standard_figures(records: Sequence[Record]) -> list[Figure]:
    """Return the pictures that every suite has, leaving out those without data."""
    gallery = Gallery()
    for draw in (_values, _gaps, _profiles, _seconds, _decisions):
        draw(gallery, records)
    return gallery


def name_rows(panel: "Axes", names: Sequence[str]) -> None:
    """Name the rows of a picture from the top, and leave half a row of room at both ends."""
    panel.set_yticks(range(len(names)), list(reversed(names)))
    panel.set_ylim(-0.6, len(names) - 0.4)


def solvers_in(records: Iterable[Record]) -> list[str]:
    """Return the solvers of records, sorted."""
    return sorted({record.solver for record in records})


def colours_of(records: Iterable[Record]) -> dict[str, str]:
    """Return a colour for each solver, the same in every picture of a suite."""
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(solvers_in(records))}


def _cases(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return records by what was solved: instance, seed and labels."""
    cases: dict[str, list[Record]] = {}
    several_seeds = len({record.seed for record in records}) > 1
    for record in records:
        marks = [f"seed {record.seed}"] if several_seeds else []
        marks += [f"{name} {value}" for name, value in sorted(record.labels.items())]
        cases.setdefault(", ".join([record.instance, *marks]), []).append(record)
    return cases


def _values(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw objectives as bars and bounds as ticks, in per cent of the best value known."""
    valued = [record for record in records if record.verified and (record.objective, record.bound) != (None, None)]
    cases = dict(list(_cases(valued).items())[:MOST_PANELS])
    if not cases:
        return
    colours, columns = colours_of(records), min(3, len(cases))
    rows, most = -(-len(cases) // columns), max(len(group) for group in cases.values())
    caption = (
        "Bars: the objective of each solver. Ticks: its proven bound, not drawn beyond 200 %. "
        "100 % is the best objective that any solver found on the instance."
    )
    with gallery.picture(
        "values", "Objective and bound", caption, 11, rows * (0.75 + 0.2 * most), rows, columns
    ) as panels:
        for panel, (title, group) in zip(panels, cases.items(), strict=False):
            better = min if sense_of(group[0].problem) is Sense.MINIMISE else max
            best = better([r.objective for r in group if r.objective is not None] or [r.bound or 0.0 for r in group])
            unit = 100.0 / best if best else 1.0
            for y, record in enumerate(reversed(group)):
                if record.objective is not None:
                    panel.barh(y, record.objective * unit, color=colours[record.solver], height=0.62)
                if record.bound is not None:
                    panel.plot(record.bound * unit, y, "|", color=INK, markersize=9, markeredgewidth=1.4)
            name_rows(panel, [record.solver for record in group])
            panel.set_title(shorten(title, LONGEST_TITLE, placeholder=" ..."), fontsize=9.5, loc="left")
            most_drawn = max(value or 0.0 for record in group for value in (record.objective, record.bound))
            panel.set_xlim(0, min(200.0, max(112.0, 1.04 * unit * most_drawn)))
            panel.grid(visible=False, axis="y")
        for panel in panels[len(cases) :]:
            panel.set_visible(False)
        panels[0].figure.supxlabel("per cent of the best objective found", fontsize=9)


def _gaps(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw one dot an instance: the certified gap of each solver."""
    certified = [record for record in records if record.gap is not None and record.verified]
    if not certified:
        return
    names, colours = solvers_in(certified), colours_of(records)
    caption = (
        "A dot an instance; the tick is the median. Gap: (bound - objective) / |objective|, both verified. "
        f"Gaps above {WIDEST_GAP:g} % are drawn at the right end."
    )
    with gallery.picture("gaps", "Certified gap by solver", caption, 9, 0.8 + 0.32 * len(names)) as (panel,):
        for y, name in enumerate(reversed(names)):
            mine = [record.gap or 0.0 for record in certified if record.solver == name]
            gaps = np.clip(100.0 * np.array(mine), 0.0, WIDEST_GAP)
            panel.plot(gaps, np.full(len(gaps), y), "o", color=colours[name], alpha=0.75, markersize=6)
            panel.plot(np.median(gaps), y, "|", color=INK, markersize=15, markeredgewidth=1.8)
        name_rows(panel, names)
        panel.set_xscale("symlog", linthresh=1.0)
        panel.set_xlim(left=-0.1)
        panel.set_xlabel("certified gap in per cent (linear below 1 %, logarithmic above)")


def _profiles(gallery: Gallery, records: Sequence[Record]) -> None:
    draw_profiles(gallery, records, colours_of(records))


def _seconds(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw the shifted geometric mean of the whole solve and of each phase."""
    timed = [record for record in records if record.error is None]
    if not timed:
        return
    names = solvers_in(timed)
    caption = (
        "Whole solve: measured from outside, less compiling. Phases: as the solver counts them. "
        f"Means under {LEAST_SECONDS:g} s are drawn at the left end."
    )
    with gallery.picture("seconds", "Seconds by phase", caption, 9, 0.9 + 0.32 * len(names)) as (panel,):
        for phase, colour, marker in zip((WHOLE, *PHASES), (INK, *PALETTE), "|^sod", strict=False):
            means = []
            for name in reversed(names):
                mine = [record for record in timed if record.solver == name]
                spent = [record.run_s if phase == WHOLE else record.seconds.get(phase, 0.0) for record in mine]
                means.append(max(shifted_geometric_mean(spent, shift=0.01), LEAST_SECONDS))
            panel.plot(means, range(len(names)), marker, color=colour, label=phase, markersize=7, alpha=0.9)
        name_rows(panel, names)
        panel.set(xscale="log", xlabel="seconds, shifted geometric mean over instances (shift 0.01 s)")
        legend_beside(panel)


def _decisions(gallery: Gallery, records: Sequence[Record]) -> None:
    """Draw the distribution of decision times of online solvers, one curve an instance."""
    online = [(record.solver, record.decision_ms["quantiles"]) for record in records if record.decision_ms is not None]
    if not online:
        return
    colours = colours_of(records)
    with gallery.picture("decisions", "Decision times", "Online solvers only, a curve an instance.", 9, 3.4) as (
        panel,
    ):
        labelled: set[str] = set()
        for solver, quantiles in online:
            label = None if solver in labelled else solver
            labelled.add(solver)
            times = np.maximum(quantiles, LEAST_MS)
            panel.plot(times, 100.0 * np.array(QUANTILES), color=colours[solver], label=label, alpha=0.7)
        panel.set(
            xscale="log", ylim=(0, 104), xlabel="milliseconds a decision, at most", ylabel="per cent of decisions"
        )
        legend_beside(panel)
