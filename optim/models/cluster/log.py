"""What happened in a run: starts, preemptions and ends, with the GPUs that each start took, and machines that failed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue, IntArray
from optim.models.cluster.columns import LATER, column, form
from optim.models.cluster.proof import Worth
from optim.models.cluster.rules import Rules


class Event(IntEnum):
    """What an event does to its job, or to its machine."""

    START = 0
    PREEMPT = 1
    END = 2
    LEAVE = 3
    """Sent away for good before its work is done: refused, or given up."""
    CRASH = 4
    """Loses its GPUs, and its work since the last checkpoint, to the failure of a machine just before."""
    FAIL = 5
    """The machine has no GPUs from now on; the jobs on it crash."""
    REPAIR = 6
    FAULT = 7
    """A try of the job fails: it loses its GPUs and all work of the try, and is queued again."""
    GIVE_UP = 8
    """A try of the job fails, and is the last one: over, and not done."""


NO_JOB = -1
"""In place of a job where an event is a machine's."""

NEVER = 2**62

PROMISES = ("estimate_us", "reserved_us", "promised_us")
"""Columns of a log that policies with reservations fill."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EventLog(ComparesByValue):
    """Events in the order in which they happened.

    Parameters
    ----------
    time_us
        When, in microseconds after the first submission; not decreasing; shape (events,).
    kind
        What (`Event`); shape (events,).
    job
        To which job, `NO_JOB` if to a machine; shape (events,).
    first
        Where each event's places begin; shape (events + 1,). Starts have places, and failures and repairs one.
    machine, gpus
        Machines that a start took GPUs of, and how many; of a failure or repair the machine, and 0; shape (places,).
        Jobs may hold one GPU together (`Rules.jobs_a_gpu`, `Rules.is_shared`): a sum over starts counts it once for each.
    slot
        Which GPU of its machine a place is, where a policy names single ones; -1 otherwise; shape (places,).
    estimate_us
        Of a start under a policy with reservations: how long the job is expected to run, at least 1; -1 otherwise; shape (events,).
    reserved_us, promised_us
        Of the first start of a job that had a reservation before: when the policy first made one, and the start that it promised
        then; -1 otherwise; shape (events,).
    """

    time_us: IntArray = field(metadata=form())
    kind: NDArray[np.int8] = field(metadata=form())
    job: IntArray = field(metadata=form())
    first: IntArray = field(metadata=form())
    machine: IntArray = field(metadata=form())
    gpus: IntArray = field(metadata=form())
    slot: IntArray = column(-1, since=1)
    estimate_us: IntArray = column(-1, least=-1, most=NEVER, since=LATER)
    reserved_us: IntArray = column(-1, least=-1, most=NEVER, since=LATER)
    promised_us: IntArray = column(-1, least=-1, most=NEVER, since=LATER)

    def __post_init__(self) -> None:
        """Fill what was left out."""
        for name, rows in (("slot", self.machine), *((each, self.time_us) for each in PROMISES)):
            if len(getattr(self, name)) != len(rows):
                object.__setattr__(self, name, np.full(len(rows), -1))

    def with_promises(self, estimate_us: IntArray, reserved_us: IntArray, promised_us: IntArray) -> "EventLog":
        """Return the log with what a policy expected and promised of each job, a row per job, -1 for nothing, at the jobs' starts."""
        starts = np.flatnonzero(self.kind == Event.START)
        first = starts[np.unique(self.job[starts], return_index=True)[1]]
        columns = {name: np.full(len(self), -1) for name in PROMISES}
        columns["estimate_us"][starts] = estimate_us[self.job[starts]]
        columns["reserved_us"][first] = reserved_us[self.job[first]]
        columns["promised_us"][first] = promised_us[self.job[first]]
        return replace(self, **columns)

    @property
    def names_gpus(self) -> bool:
        """Whether starts name single GPUs, as those of planning policies do."""
        return len(self.slot) > 0 and bool(self.slot.min() >= 0)

    @property
    def is_lost(self) -> NDArray[np.bool_]:
        """Whether a job loses its GPUs by the event and goes on waiting; shape (events,)."""
        return np.isin(self.kind, (Event.PREEMPT, Event.CRASH, Event.FAULT))

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Whether a job is over with the event, done or not; shape (events,)."""
        return np.isin(self.kind, (Event.END, Event.LEAVE, Event.GIVE_UP))

    def is_done(self, count: int) -> NDArray[np.bool_]:
        """Return which of so many jobs did all of their work; shape (jobs,)."""
        done = np.zeros(count, np.bool_)
        done[self.job[self.kind == Event.END]] = True
        return done

    @property
    def width(self) -> IntArray:
        """GPUs that each start takes, 0 for other events; shape (events,)."""
        taken = np.concatenate([[0], np.cumsum(self.gpus)])
        return np.asarray(taken[self.first[1:]] - taken[self.first[:-1]], np.int64)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.time_us)

    def rows(self) -> list[tuple[int, int, int, tuple[tuple[int, int], ...]]]:
        """Return the events as tuples (time, kind, job, places), for people and tests."""
        places = list(zip(self.machine.tolist(), self.gpus.tolist(), strict=True))
        first = self.first.tolist()
        return [
            (time, kind, job, tuple(places[first[event] : first[event + 1]]))
            for event, (time, kind, job) in enumerate(
                zip(self.time_us.tolist(), self.kind.tolist(), self.job.tolist(), strict=True)
            )
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a policy did.

    Parameters
    ----------
    policy
        Its name.
    log
        All events.
    first_start_us, end_us
        When each job first had its GPUs, and when it was done, was sent away, or the run ended; shape (jobs,).
    executed_us, overhead_us
        Time with GPUs in progress, and lost to restarts; shape (jobs,).
    lost_us
        Work that failures, of machines and of the jobs' own tries, undid; shape (jobs,).
    is_done
        Whether each job did all of its work; shape (jobs,).
    rules
        What the policy was allowed to, and what starts cost.
    allocated_gpu_us, overhead_gpu_us
        GPU-time held by somebody, and lost to restarts.
    figures
        What the policy says of itself by name: conflicts, refusals, rounds.
    worth
        What jobs are worth by when they end, where the policy goes by that.
    halted
        Why the run ended with jobs unfinished, where an engine ended it; empty otherwise.
    """

    policy: str
    log: EventLog
    first_start_us: IntArray
    end_us: IntArray
    executed_us: IntArray
    overhead_us: IntArray
    lost_us: IntArray
    is_done: NDArray[np.bool_]
    rules: Rules
    allocated_gpu_us: float
    overhead_gpu_us: float
    figures: Mapping[str, float] = field(default_factory=dict)
    worth: Worth | None = None
    halted: str = ""
