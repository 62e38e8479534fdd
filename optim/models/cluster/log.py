"""What happened in a run: starts, preemptions and ends, with the GPUs that each start took."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from optim.models.cluster.world import IntArray


class Event(IntEnum):
    """What an event does to its job."""

    START = 0
    PREEMPT = 1
    END = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class EventLog:
    """Events in the order in which they happened.

    Parameters
    ----------
    time_us
        When, in microseconds after the first submission; not decreasing; shape (events,).
    kind
        What (`Event`); shape (events,).
    job
        To which job; shape (events,).
    first
        Where each event's places begin; shape (events + 1,). Only starts have places.
    machine, gpus
        Machines that a start took GPUs of, and how many; shape (places,).
    """

    time_us: IntArray
    kind: NDArray[np.int8]
    job: IntArray
    first: IntArray
    machine: IntArray
    gpus: IntArray

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
        When each job first had its GPUs, and when it was done; shape (jobs,).
    executed_us, overhead_us
        Time with GPUs in progress, and lost to restarts; shape (jobs,).
    """

    policy: str
    log: EventLog
    first_start_us: IntArray
    end_us: IntArray
    executed_us: IntArray
    overhead_us: IntArray
