"""What a replay with real processes tells: a row a moment, and a summary."""

from dataclasses import dataclass

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
