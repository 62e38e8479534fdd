"""One picture of a training run replayed on spot machines: machines, loss, bill and free hours, one column per policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from optim.core.text import keep_texts_plain
from optim.report.plots import INK, PALETTE, canvas
from optim.simulation.emulation.lease_run import TrainingRow
from optim.simulation.emulation.timeline import Change

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, RED = PALETTE[:4]
ROOM = 1.1
"""Factor by which axes extend beyond the data."""

DOTS_PER_INCH = 150


def draw_replays(rows: Sequence[TrainingRow], path: Path) -> None:
    """Write a picture of the rows of several policies.

    Parameters
    ----------
    rows
        Rows grouped by policy; at least one.
    path
        Output file; its suffix determines the format.
    """
    by_policy: dict[str, list[TrainingRow]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, []).append(row)
    last_h = ROOM * max(row.hours for row in rows)
    columns = len(by_policy)
    with canvas(5.2 * columns + 0.6, 7.6, rows=4, columns=columns) as (drawing, panels):
        for column, (policy, mine) in enumerate(by_policy.items()):
            machines, loss, bill, free = panels[column::columns]
            machines.set_title(policy, fontsize=11)
            _draw_steps(machines, mine, [row.machines for row in mine], "allocated machines", BLUE)
            _draw_loss(loss, mine)
            _draw_steps(bill, mine, [row.bill_usd for row in mine], "bill in $", ORANGE)
            _draw_steps(free, mine, [row.free_hours for row in mine], "free machine-hours", GREEN)
            for panel in (machines, loss, bill, free):
                _mark_evictions(panel, mine)
                panel.set_xlim(0, last_h)
            free.set_xlabel("hours since the start")
            loss.legend(loc="upper right", fontsize=8)
        _share_heights(panels, columns)
        keep_texts_plain(drawing)
        drawing.savefig(path, facecolor="white", dpi=DOTS_PER_INCH)


def _draw_steps(panel: "Axes", rows: Sequence[TrainingRow], values: Sequence[float], name: str, colour: str) -> None:
    """Draw a step function, and annotate its last value except for machines."""
    hours = [row.hours for row in rows]
    panel.step(hours, values, where="post", color=colour, linewidth=1.8)
    if colour != BLUE:  # the machine count ends at 0
        panel.fill_between(hours, values, step="post", color=colour, alpha=0.12, linewidth=0)
        panel.annotate(f"{values[-1]:.4g}", (hours[-1], values[-1]), xytext=(4, -3), textcoords="offset points")
    panel.set_ylabel(name)


def _draw_loss(panel: "Axes", rows: Sequence[TrainingRow]) -> None:
    """Draw the loss with checkpoints and restarts; a restart raises the loss."""
    known = [(row.hours, row.loss, row.event) for row in rows if row.loss is not None]
    panel.plot([hours for hours, _, _ in known], [loss for _, loss, _ in known], color=INK, linewidth=1.4)
    saved = [(hours, loss) for hours, loss, event in known if event == Change.SAVED]
    label = "checkpoint" if saved else None
    panel.plot([hours for hours, _ in saved], [loss for _, loss in saved], "o", color=BLUE, markersize=4, label=label)
    restarts = [row for row in rows if row.event == Change.RESTARTED]
    for row in restarts:
        clocks = f"{row.lost_clocks} clock{'s' * (row.lost_clocks != 1)} lost"
        height = row.loss if row.loss is not None else panel.get_ylim()[1]
        panel.annotate(clocks, (row.hours, height), xytext=(5, 4), textcoords="offset points", fontsize=8, color=RED)
    panel.plot([], [], color=RED, linewidth=1.0, linestyle="--", label="eviction")
    panel.set_ylabel("training loss")


def _mark_evictions(panel: "Axes", rows: Sequence[TrainingRow]) -> None:
    for row in rows:
        if row.event == Change.WARNED:
            panel.axvline(row.hours, color=RED, linewidth=0.9, linestyle="--", alpha=0.7)


def _share_heights(panels: Sequence["Axes"], columns: int) -> None:
    """Give all panels of a row the same scale, so that policies can be compared."""
    for first in range(0, len(panels), columns):
        row = panels[first : first + columns]
        high = max(panel.get_ylim()[1] for panel in row)
        for panel in row:
            panel.set_ylim(0, high)
