"""Report of a comparison of container policies: table at equal risk, and curves of allocation against risk."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from optim.core.files import write_bytes
from optim.core.policies import clairvoyant_names
from optim.report.page import figure_element, page, table
from optim.report.plots import PALETTE, Figure, FigureList
from optim.rightsizing.comparison import ALL_RESOURCES, Row, TradePoint
from optim.rightsizing.policy import REFERENCE

MAX_CURVES = 12
"""Maximum number of curves, because more colours could not be distinguished."""

ROW_COLUMNS = {
    "policy": ("policy", 1),
    "resource": ("resource", 1),
    "multiplier": ("multiplier", 1),
    "risk met": ("is_reached", 1),
    "risk %": ("risk", 100),
    "allocation over demand": ("allocation_over_demand", 1),
    "saving %": ("reduction", 100),
    "low": ("reduction_low", 100),
    "high": ("reduction_high", 100),
    "saving bound %": ("most", 100),
    "excess %": ("over_share", 100),
    "shortage %": ("under_share", 100),
    "kills": ("kills", 1),
    "throttled %": ("throttled_time", 100),
    "changes": ("changes", 1),
}
"""Columns of the table at equal risk: the field of `Row`, and the factor by which it is multiplied."""

POINT_COLUMNS = {
    name: ROW_COLUMNS[name]
    for name in ROW_COLUMNS
    if name not in ("risk met", "saving %", "low", "high", "saving bound %")
}

WORST = 1.6
"""Upper end of the vertical axis, relative to the lowest tuned allocation."""


def write_container_report(rows: Sequence[Row], points: Sequence[TradePoint], required: str, path: Path) -> None:
    """Write the report of a comparison to a file, atomically."""
    write_bytes(path, render_containers(rows, points, required).encode())


def render_containers(rows: Sequence[Row], points: Sequence[TradePoint], required: str) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    rows
        Rows of `compare_policies`.
    points
        Points of `trade_curve` for the same policies.
    required
        Description of the requirement to which the rows are tuned.
    """
    body = [
        "<h1>Allocations of containers</h1>",
        f'<p class="headline">tuned to {escape(required)} on other containers; savings compared with {escape(REFERENCE)}</p>',
        figure_element(trade_figure(rows, points)),
        "<h2>At equal risk</h2>",
        "<p>low and high: 95 % interval of the saving, by bootstrap over containers.</p>",
        _table(ROW_COLUMNS, rows),
        "<h2>Curves</h2>",
        _table(POINT_COLUMNS, points),
    ]
    return page("containers", body)


def trade_figure(rows: Sequence[Row], points: Sequence[TradePoint]) -> Figure:
    """Return a picture with one panel per resource, one curve per policy, and a dot for each tuned policy."""
    resources = list(dict.fromkeys(point.resource for point in points))
    colours = dict(zip(drawn_policies(rows), PALETTE, strict=False))
    caption = (
        f"Each policy at all its multipliers; dots are the tuned ones. Lower is cheaper, further left "
        f"is safer. Dashed: references that know the future. The picture shows {REFERENCE} and the cheapest policies at "
        f"this risk, at most {MAX_CURVES}; the tables contain all."
    )
    gallery = FigureList()
    with gallery.picture("trade-off", "Allocation against risk", caption, 11, 4.2, 1, len(resources)) as panels:
        for panel, resource in zip(panels, resources, strict=True):
            for name, colour in colours.items():
                own = [point for point in points if point.policy == name and point.resource == resource]
                across, height = (
                    [100 * point.risk for point in own],
                    [point.allocation_over_demand for point in own],
                )
                style = "--" if name in clairvoyant_names("containers") else "-"
                panel.plot(across, height, style, color=colour, linewidth=1.3, label=name)
            tuned = [row for row in rows if row.resource == resource and row.policy in colours]
            for row in tuned:
                place = (100 * row.risk, row.allocation_over_demand)
                panel.plot(*place, "o", color=colours[row.policy], markersize=4)
            panel.set(xlabel="risk [%]", ylabel="allocation over demand", title=resource, xlim=(0, 25))
            lowest = min((row.allocation_over_demand for row in tuned), default=np.inf)
            if np.isfinite(lowest):
                panel.set_ylim(0.8 * lowest, WORST * lowest)
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return gallery[0]


def drawn_policies(rows: Sequence[Row]) -> list[str]:
    """Return the policies to draw (the reference and those with the least allocation), in the order of the rows."""
    whole = [row for row in rows if row.resource == ALL_RESOURCES]
    ranked = sorted(whole, key=lambda row: (row.policy != REFERENCE, row.total_allocation, row.policy))
    chosen = {row.policy for row in ranked[:MAX_CURVES]}
    return [row.policy for row in whole if row.policy in chosen]


def _table(columns: Mapping[str, tuple[str, float]], rows: Sequence[Row] | Sequence[TradePoint]) -> str:
    """Return a table of the rows' fields, multiplied by the factors of the columns."""
    return table(
        tuple(columns), [[_cell(getattr(row, name), factor) for name, factor in columns.values()] for row in rows]
    )


def _cell(value: object, factor: float) -> object:
    return factor * value if factor != 1 and isinstance(value, (int, float)) else value
