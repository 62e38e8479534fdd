"""The report of a comparison of policies: the table at equal risk, and allocation against risk as curves."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np

from optim.benchmarks.pictures.plots import INK, PALETTE, as_svg, canvas
from optim.benchmarks.report import table
from optim.benchmarks.spec import Figure
from optim.core.files import write_bytes
from optim.simulation.containers.catalogue import ORACLES, REFERENCE
from optim.simulation.containers.comparison import ALL_RESOURCES, Row
from optim.simulation.containers.trade_off import TradePoint

MOST_CURVES = 12
"""More can't be told apart by their colours."""

WORST = 1.6
"""Allocations above this many times the cheapest one at the risk lie outside the picture."""


def write_container_report(rows: Sequence[Row], points: Sequence[TradePoint], risk: float, path: Path) -> None:
    """Write the page; it is whole or absent."""
    write_bytes(path, render_containers(rows, points, risk).encode())


def render_containers(rows: Sequence[Row], points: Sequence[TradePoint], risk: float) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    rows
        Of `compare_policies`.
    points
        Of `trade_curve`, for the same policies.
    risk
        Under-provisioned time that the rows are tuned to.
    """
    style = (files("optim.benchmarks") / "report.css").read_text(encoding="utf-8")
    script = (files("optim.benchmarks") / "report.js").read_text(encoding="utf-8")
    figure = trade_figure(rows, points, risk)
    body = [
        "<h1>Allocations of containers</h1>",
        f'<p class="headline">{100 * risk:g} % under-provisioned time, savings against {escape(REFERENCE)}</p>',
        f"<figure><h3>{escape(figure.title)}</h3>{figure.svg}<figcaption>{escape(figure.caption)}</figcaption></figure>",
        "<h2>At equal risk</h2>",
        _rows(rows),
        "<h2>Curves</h2>",
        _points(points),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>optim: containers</title><style>{style}</style></head>\n"
        f"<body>{''.join(body)}<script>{script}</script></body></html>\n"
    )


def trade_figure(rows: Sequence[Row], points: Sequence[TradePoint], risk: float) -> Figure:
    """Return the picture: a panel a resource, a curve a policy, the wanted risk as a line."""
    resources = list(dict.fromkeys(point.resource for point in points))
    names = drawn_policies(rows)
    with canvas(11, 4.2, 1, len(resources)) as (drawing, panels):
        for panel, resource in zip(panels, resources, strict=True):
            lowest = np.inf
            for place, name in enumerate(names):
                own = [point for point in points if point.policy == name and point.resource == resource]
                across = [100 * point.under_time for point in own]
                height = [point.allocation_over_demand for point in own]
                style = "--" if name in ORACLES else "-"
                panel.plot(across, height, style, color=PALETTE[place], linewidth=1.3, label=name)
            for row in rows:
                if row.resource == resource and row.policy in names:
                    lowest = min(lowest, row.allocation_over_demand)
                    colour = PALETTE[names.index(row.policy)]
                    panel.plot(100 * row.under_time, row.allocation_over_demand, "o", color=colour, markersize=4)
            panel.axvline(100 * risk, color=INK, linewidth=0.6, linestyle=":")
            panel.set(
                xlabel="under-provisioned time [%]", ylabel="allocation over demand", title=resource, xlim=(0, 25)
            )
            if np.isfinite(lowest):
                panel.set_ylim(0.8 * lowest, WORST * lowest)
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        caption = (
            f"Each policy at all its multipliers; the dots are those tuned to {100 * risk:g} %. Lower is cheaper, further left "
            f"is safer. Dashed: references that know the future. At most {MOST_CURVES} policies are drawn, the cheapest "
            f"at this risk and {REFERENCE}; the tables have them all."
        )
        return Figure(title="Allocation against risk", svg=as_svg(drawing, "trade-off"), caption=caption)


def drawn_policies(rows: Sequence[Row]) -> list[str]:
    """Return the policies that are drawn, in the order of the rows: the reference and the cheapest."""
    whole = [row for row in rows if row.resource == ALL_RESOURCES]
    ranked = sorted(whole, key=lambda row: (row.policy != REFERENCE, row.total_allocation, row.policy))
    chosen = {row.policy for row in ranked[:MOST_CURVES]}
    return [row.policy for row in whole if row.policy in chosen]


def _rows(rows: Sequence[Row]) -> str:
    header = (
        *("policy", "resource", "multiplier", "risk met", "under time %", "allocation over demand", "saving %"),
        *("low", "high", "over %", "lacking %", "kills", "changes"),
    )
    return table(
        header,
        [
            (
                *(row.policy, row.resource, row.multiplier, row.is_reached, 100 * row.under_time),
                *(row.allocation_over_demand, 100 * row.reduction, 100 * row.reduction_low, 100 * row.reduction_high),
                *(100 * row.over_share, 100 * row.under_share, row.oom, row.changes),
            )
            for row in rows
        ],
    )


def _points(points: Sequence[TradePoint]) -> str:
    header = (
        *("policy", "resource", "multiplier", "under time %", "allocation over demand"),
        *("over %", "lacking %", "kills", "changes"),
    )
    return table(
        header,
        [
            (
                *(point.policy, point.resource, point.multiplier, 100 * point.under_time),
                *(point.allocation_over_demand, 100 * point.over_share, 100 * point.under_share),
                *(point.oom, point.changes),
            )
            for point in points
        ],
    )
