"""Pictures of a deadline policy: its choice of spot machines, on-demand machines or waiting, by time and remaining work."""

from typing import Any

import numpy as np

from optim.models.bidding.market.prices import HOUR_S
from optim.simulation.spot.deadline_policy import CHOICES, DeadlinePolicy, DeadlineView, Machines

SHADES = ("#e8e8e8", "#3f9b5f", "#2166ac")
"""Colours of waiting, spot machines and on-demand machines."""

POINTS = 160
"""Maximum number of grid points per axis."""


def decisions(policy: DeadlinePolicy, *, is_available: bool, held: Machines, spell_s: float | None) -> Any:
    """Return the decisions of a policy on a grid of times and remaining work.

    Returns
    -------
    tuple
        Decisions as indices in `CHOICES`, shape (amounts of work, times), NaN where the deadline can't be met or the
        remaining work is impossibly little at that time; then the times and the amounts of remaining work, in hours.
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
    """Draw the decisions without rented machines, by time and remaining work; impossible states are white.

    Parameters
    ----------
    axes
        Axes to draw on.
    policy
        The policy.
    is_available
        Whether spot machines are available.
    spell_s
        Seconds since availability last changed; None if it last changed before the start.
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
