"""The event log of a run: starts with their GPUs, preemptions, ends, and failures of machines."""

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
    """Type of an event of a job or a machine."""

    START = 0
    """The job takes GPUs."""
    PREEMPT = 1
    """The job loses its GPUs and waits again."""
    END = 2
    """The job is done."""
    LEAVE = 3
    """The policy rejects the job or gives it up before its work is done."""
    CRASH = 4
    """The job loses its GPUs, and its work since the last checkpoint, because its machine has just failed."""
    FAIL = 5
    """The machine has no GPUs until its repair; the jobs on it crash."""
    REPAIR = 6
    """The machine has its GPUs again."""
    FAULT = 7
    """An attempt of the job fails: the job loses its GPUs and all work of the attempt, and is queued again."""
    GIVE_UP = 8
    """The last allowed attempt of the job fails: the job ends without being done."""


NO_JOB = -1
"""Job number of the events of machines."""

NEVER = 2**62

PROMISES = ("estimate_us", "reserved_us", "promised_us")
"""Columns that only policies with reservations fill."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EventLog(ComparesByValue):
    """Events in the order in which they happened.

    An event's places are the machines that it concerns or, if the policy assigns single GPUs, the GPUs.

    Parameters
    ----------
    time_us
        Time in microseconds after the first submission; not decreasing; shape (events,).
    kind
        Type (`Event`); shape (events,).
    job
        Job, or `NO_JOB` for events of machines; shape (events,).
    first
        Index of each event's first place; shape (events + 1,). Starts have one or more places, failures and repairs exactly
        one, other events none.
    machine, gpus
        Machine of each place and number of GPUs that the start takes there, 0 for failures and repairs; shape (places,).
        If jobs share a GPU (`Rules.jobs_a_gpu`, `Rules.is_shared`), the start of each of these jobs counts it.
    slot
        Index of the GPU within its machine, if the policy assigns single GPUs; -1 otherwise; shape (places,).
    estimate_us
        Expected run time of the job, at least 1, at starts under a policy with reservations; -1 otherwise; shape (events,).
    reserved_us, promised_us
        At the first start of a job that had a reservation: the time when its first reservation was made, and the start
        time that this reservation promised; -1 at all other events; shape (events,).
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
        """Fill in defaults."""
        for name, rows in (("slot", self.machine), *((each, self.time_us) for each in PROMISES)):
            if len(getattr(self, name)) != len(rows):
                object.__setattr__(self, name, np.full(len(rows), -1))

    def with_promises(self, estimate_us: IntArray, reserved_us: IntArray, promised_us: IntArray) -> "EventLog":
        """Return the log with these columns filled in at the jobs' starts; arguments have one value per job, -1 for none."""
        starts = np.flatnonzero(self.kind == Event.START)
        first = starts[np.unique(self.job[starts], return_index=True)[1]]
        columns = {name: np.full(len(self), -1) for name in PROMISES}
        columns["estimate_us"][starts] = estimate_us[self.job[starts]]
        columns["reserved_us"][first] = reserved_us[self.job[first]]
        columns["promised_us"][first] = promised_us[self.job[first]]
        return replace(self, **columns)

    @property
    def names_gpus(self) -> bool:
        """Whether starts name single GPUs, as under planning policies."""
        return len(self.slot) > 0 and bool(self.slot.min() >= 0)

    @property
    def is_lost(self) -> NDArray[np.bool_]:
        """Whether a job loses its GPUs and waits again; shape (events,)."""
        return np.isin(self.kind, (Event.PREEMPT, Event.CRASH, Event.FAULT))

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """Whether the event ends a job, done or not; shape (events,)."""
        return np.isin(self.kind, (Event.END, Event.LEAVE, Event.GIVE_UP))

    def is_done(self, count: int) -> NDArray[np.bool_]:
        """Return which of the first `count` jobs completed their work; shape (jobs,)."""
        done = np.zeros(count, np.bool_)
        done[self.job[self.kind == Event.END]] = True
        return done

    @property
    def width(self) -> IntArray:
        """Number of GPUs that each start takes, 0 for other events; shape (events,)."""
        taken = np.concatenate([[0], np.cumsum(self.gpus)])
        return np.asarray(taken[self.first[1:]] - taken[self.first[:-1]], np.int64)

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.time_us)

    def rows(self) -> list[tuple[int, int, int, tuple[tuple[int, int], ...]]]:
        """Return the events as tuples (time, kind, job, places)."""
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
    """The result of simulating a policy.

    Parameters
    ----------
    policy
        Name of the policy.
    log
        All events.
    first_start_us
        Time of each job's first start; shape (jobs,).
    end_us
        Time when each job completed, was rejected, or the run ended; shape (jobs,).
    executed_us
        Time with GPUs that each job spent on progress; shape (jobs,).
    overhead_us
        Time with GPUs that each job spent on restarts; shape (jobs,).
    lost_us
        Work undone by preemptions, failures of machines and failed attempts; shape (jobs,).
    is_done
        Whether each job completed its work; shape (jobs,).
    rules
        Permissions of the policy, and costs of starts.
    allocated_gpu_us
        Allocated GPU-time.
    overhead_gpu_us
        GPU-time lost to restarts.
    figures
        Statistics that the policy reports by name, such as conflicts, refusals and rounds.
    worth
        Utilities of jobs by completion time, if the policy uses them.
    halted
        Reason if the engine ended the run with unfinished jobs; empty otherwise.
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
