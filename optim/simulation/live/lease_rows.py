"""What a replay with real processes tells: a row a moment, and a summary."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

CLOCK = "clock"
"""Event of the rows between the simulation's own: a clock of training is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """A moment of a replay.

    Attributes
    ----------
    policy, event
        Whose, and what happened: a `Change` of the simulation, or a clock of training.
    hours
        Since the start, by the simulation's time.
    machines, processes
        Instances held by the simulated job, and the processes that stand for them.
    clock, loss
        Clocks of training that count, and the mean loss that the last of them began with; None before the first.
    bill_usd, free_hours
        Due so far, and machine-hours that evictions have made free.
    lost_clocks
        Clocks that this event has undone.
    seconds
        Since the replay's begin, by this machine's time.
    """

    policy: str
    event: str
    hours: float
    machines: int
    processes: int
    clock: int
    loss: float | None
    bill_usd: float
    free_hours: float
    lost_clocks: int = 0
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSummary:
    """A replay as a whole.

    Attributes
    ----------
    policy
        Whose.
    hours, is_done
        Simulated time of the job, and whether it was finished within the horizon.
    bill_usd, free_hours, evictions
        The simulation's figures.
    clocks, lost_clocks, gradients
        Clocks at the end, clocks undone on the way, and gradients computed for all of them.
    processes_started
        By how many processes.
    last_loss
        At the end.
    is_exact
        Whether losses and parameters are those of one undisturbed machine, bit for bit; None if it was stopped.
    seconds
        That it took.
    late_median, late_p90, late_end
        How far clocks were from when the simulation has them, as shares of its job's time at the replay's scale: the
        median and the ninth decile of the distances, and by how much the last clock was late (negative: early). None
        where no scale was set.
    bill_if_late_usd
        The bill if machines had been held as long as the last clock was late, at the same dollars an hour.
    """

    policy: str
    summary: bool = True
    hours: float
    is_done: bool
    bill_usd: float
    free_hours: float
    evictions: int
    clocks: int
    lost_clocks: int
    gradients: int
    processes_started: int
    last_loss: float | None
    is_exact: bool | None
    seconds: float
    late_median: float | None = None
    late_p90: float | None = None
    late_end: float | None = None
    bill_if_late_usd: float | None = None


def with_lateness(summary: TrainingSummary, rows: Sequence[TrainingRow], hour_s: float) -> TrainingSummary:
    """Return a summary with how well the replay kept the simulation's time.

    Parameters
    ----------
    summary, rows
        Of one policy's replay.
    hour_s
        What an hour lasts in it; where it is 0 nothing was to be kept.
    """
    clocks = [row for row in rows if row.event == CLOCK and row.policy == summary.policy]
    whole = hour_s * max((row.hours for row in clocks), default=0.0)
    if not whole:
        return summary
    late = np.array([row.seconds - hour_s * row.hours for row in clocks]) / whole
    return replace(
        summary,
        late_median=float(np.median(np.abs(late))),
        late_p90=float(np.quantile(np.abs(late), 0.9)),
        late_end=float(late[-1]),
        bill_if_late_usd=summary.bill_usd * (1.0 + max(0.0, float(late[-1]))),
    )
