"""The picture of the study `forecast`."""

from collections.abc import Sequence

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, Gallery, legend_beside
from optim.benchmarks.record import Record
from optim.benchmarks.spec import Figure

AXES = {"days": "days of history", "error": "factor by which prices are wrong", "load": "jobs a server"}
"""Labels in the order of the panels, with what they mean."""

LINES = {
    "unguarded": ("no guard", PALETTE[0], "o-"),
    "guarded": ("guard", PALETTE[1], "s-"),
    "paper": ("paper's rule", INK, "--"),
}
"""Findings that are drawn: name in the legend, colour, style."""

WIDTH = 11.0
"""Inches."""


def draw(records: Sequence[Record]) -> list[Figure]:
    """Return the share of the bound that was earned along each axis, means over seeds."""
    sound = [record for record in records if record.error is None and record.verified]
    gallery = Gallery()
    if not sound:
        return gallery
    caption = (
        "Means over seeds. A share of 1 is the bound of the day's packing LP, which no plan beats. Without a history "
        "there is no guard: its constants come from the past."
    )
    title = "What learned prices earn of the bound"
    with gallery.picture("forecast", title, caption, WIDTH, 3.4, 1, len(AXES)) as panels:
        for panel, (axis, meaning) in zip(panels, AXES.items(), strict=True):
            mine = [record.findings for record in sound if record.labels.get("axis") == axis]
            for name, (label, colour, style) in LINES.items():
                xs, ys = _mean_curve([(found["x"], found[name]) for found in mine])
                panel.plot(xs, ys, style, color=colour, label=label, linewidth=1.6, markersize=4)
            panel.set_xlabel(meaning)
            panel.set_ylim(0, 1)
            if axis == "error":
                panel.set_xscale("log")
        panels[0].set_ylabel("share of the bound")
        legend_beside(panels[-1])
    return gallery


def _mean_curve(curves: Sequence[tuple[list[float], list[float | None]]]) -> tuple[list[float], list[float]]:
    """Return abscissas, ascending, and the means of what there is at each."""
    found: dict[float, list[float]] = {}
    for xs, ys in curves:
        for x, y in zip(xs, ys, strict=True):
            if y is not None:
                found.setdefault(x, []).append(y)
    return sorted(found), [float(np.mean(found[x])) for x in sorted(found)]
