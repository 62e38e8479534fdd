"""Pictures of a deadline's rule: by time and work left, whether it takes spot machines, machines on demand, or waits."""

from typing import Any

import numpy as np

from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.spot.deadline_policy import CHOICES, DeadlinePolicy, DeadlineView, Machines

SHADES = ("#e8e8e8", "#3f9b5f", "#2166ac")
"""Of waiting, spot machines, and machines on demand."""

POINTS = 160
"""Of the picture each way, at most."""


def decisions(policy: DeadlinePolicy, *, is_available: bool, held: Machines, spell_s: float | None) -> Any:
    """Return what a policy decides on a grid, and the grid's times and work left in hours.

    Returns
    -------
    tuple
        Shape (works, times) of positions in `CHOICES`, NaN where the deadline can't be met any more or so little work
        can't be left; then both axes.
    """
    job = policy.job
    ticks = -(-job.deadline_s // job.tick_s)
    times = np.unique(np.linspace(0, ticks - 1, POINTS).astype(np.int64)) * job.tick_s
    works = np.linspace(job.work_s / POINTS, job.work_s, POINTS)
    found = np.full((len(works), len(times)), np.nan)
    for column, elapsed_s in enumerate(times.tolist()):
        for row, left_s in enumerate(works.tolist()):
            if (
                job.work_s - elapsed_s
                <= left_s
                <= job.deadline_s - elapsed_s - (job.setup_s if held is Machines.NONE else 0)
            ):
                view = DeadlineView(elapsed_s, left_s, is_available, held=held, spell_s=spell_s)
                found[row, column] = CHOICES.index(policy.decide(view))
    return found, times / HOUR_S, works / HOUR_S


def draw_switching(axes: Any, policy: DeadlinePolicy, *, is_available: bool, spell_s: float | None = None) -> None:
    """Draw what is done with nothing held, by time and work left; white is what can't be.

    Parameters
    ----------
    axes
        Where.
    policy
        Whose rule.
    is_available
        Whether spot machines could be had.
    spell_s
        For how long that has been so; None for since before the start.
    """
    from matplotlib.colors import ListedColormap

    found, times, works = decisions(policy, is_available=is_available, held=Machines.NONE, spell_s=spell_s)
    axes.pcolormesh(times, works, found, cmap=ListedColormap(SHADES), vmin=-0.5, vmax=2.5, shading="nearest")
    for shade, word in zip(SHADES, ("wait", "spot", "on demand"), strict=True):
        axes.plot([], [], "s", color=shade, label=word)
    lasted = "" if spell_s is None else f" for {spell_s / HOUR_S:.3g} h"
    axes.set(
        xlabel="hours since the start",
        ylabel="hours of work left",
        title=f"{'machines' if is_available else 'none'}{lasted}",
    )
