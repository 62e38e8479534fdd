"""A cluster's present state: the running jobs with their GPUs and start times, and the present time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.workload import Workload

Gpus = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Present(ComparesByValue):
    """Initial state of a run that doesn't begin with an empty cluster.

    Parameters
    ----------
    now_us
        The present time, in microseconds on the clock of the jobs' submissions.
    starts
        One start per running job, with its GPUs, in order of time; there are no other events. All other jobs submitted by
        now are waiting.
    """

    now_us: int
    starts: EventLog

    def check(self, jobs: Workload, cluster: Cluster) -> None:
        """Check that the running jobs are consistent with the jobs and the cluster.

        Raises
        ------
        InvalidProblemError
            If a job is unknown, runs twice, started before its submission or after now, would have ended by now, or holds GPUs
            that don't exist, are taken, differ in number from its gang, or have a type on which it can't run.
        """
        starts, free = self.starts, cluster.gpus.copy()
        if len(starts) and ((starts.kind != Event.START).any() or (np.diff(starts.time_us) < 0).any()):
            raise InvalidProblemError("a present state must contain only starts of jobs, in order of time")
        seen: set[int] = set()
        for event, (time, job) in enumerate(zip(starts.time_us.tolist(), starts.job.tolist(), strict=True)):
            if not 0 <= job < len(jobs) or job in seen:
                raise InvalidProblemError(f"present state: job {job} {'runs twice' if job in seen else 'is unknown'}")
            seen.add(job)
            name = jobs.ids[job][:40]
            if not jobs.submit_us[job] <= time <= self.now_us:
                raise InvalidProblemError(f"job {name} must start between its submission and now; correct its start")
            if time + int(jobs.duration_us[job]) <= self.now_us:
                raise InvalidProblemError(f"job {name} is running, but its run time has passed; increase its run time")
            places = slice(int(starts.first[event]), int(starts.first[event + 1]))
            machines, counts = starts.machine[places], starts.gpus[places]
            if counts.sum() != jobs.gpus[job]:
                raise InvalidProblemError(
                    f"job {name} holds {counts.sum()} GPUs, but its gang is {jobs.gpus[job]}; correct one of them"
                )
            if len(machines) and (machines.min() < 0 or machines.max() >= cluster.num_machines):
                raise InvalidProblemError(
                    f"job {name} holds GPUs of a machine outside the cluster; enlarge the cluster"
                )
            np.subtract.at(free, machines, counts)
            if free.min() < 0:
                machine = int(free.argmin())
                raise InvalidProblemError(
                    f"with job {name}, jobs hold more than the {cluster.gpus[machine]} GPUs of machine {machine}; "
                    "enlarge the cluster (--gpus), or correct the state"
                )
            if (jobs.room_on(cluster, job)[machines] < 1).any():
                raise InvalidProblemError(
                    f"job {name} holds GPUs on which it can't run; correct the type of these GPUs"
                )

    def is_running(self, count: int) -> NDArray[np.bool_]:
        """Return which of the first `count` jobs are running; shape (jobs,)."""
        running = np.zeros(count, np.bool_)
        running[self.starts.job] = True
        return running

    def is_pending(self, jobs: Workload) -> NDArray[np.bool_]:
        """Return which jobs are submitted but not running; shape (jobs,)."""
        return (jobs.submit_us <= self.now_us) & ~self.is_running(len(jobs))

    def held_us(self, count: int) -> IntArray:
        """Return how long each of the first `count` jobs has run, 0 if it isn't running; shape (jobs,)."""
        held = np.zeros(count, np.int64)
        held[self.starts.job] = self.now_us - self.starts.time_us
        return held

    def gpu_numbers(self, cluster: Cluster) -> list[Gpus]:
        """Return the GPU numbers of each start; if it names no GPUs, the lowest numbers of free GPUs of its machines."""
        lowest = np.cumsum(cluster.gpus) - cluster.gpus
        free = [list(range(int(first), int(first + size))) for first, size in zip(lowest, cluster.gpus, strict=True)]
        starts, numbers = self.starts, []
        for event in range(len(starts)):
            taken: list[int] = []
            for at in range(int(starts.first[event]), int(starts.first[event + 1])):
                machine, slot = int(starts.machine[at]), int(starts.slot[at])
                chosen = [int(lowest[machine]) + slot] if slot >= 0 else free[machine][: int(starts.gpus[at])]
                free[machine] = [gpu for gpu in free[machine] if gpu not in chosen]
                taken.extend(chosen)
            numbers.append(tuple(sorted(taken)))
        return numbers


def starts_of(rows: list[tuple[int, int, list[tuple[int, int]]]]) -> EventLog:
    """Return the log of starts given as (time, job, places), sorted by time; places are pairs (machine, GPUs)."""
    ordered = sorted(rows)
    places = [place for _, _, taken in ordered for place in taken]
    counts = [len(taken) for _, _, taken in ordered]
    return EventLog(
        time_us=np.array([time for time, _, _ in ordered], np.int64),
        kind=np.full(len(ordered), Event.START, np.int8),
        job=np.array([job for _, job, _ in ordered], np.int64),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        machine=np.array([machine for machine, _ in places], np.int64),
        gpus=np.array([gpus for _, gpus in places], np.int64),
    )


def present_at(jobs: Workload, log: EventLog, now_us: int) -> tuple[Workload, Present]:
    """Return the jobs that haven't ended by `now_us`, including jobs submitted later, and the cluster's state at that time.

    Raises
    ------
    InvalidProblemError
        If a job was stopped before, so that its last start doesn't determine its remaining work, or a machine failed.
    """
    until = int(np.searchsorted(log.time_us, now_us, side="right"))
    kind, job = log.kind[:until], log.job[:until]
    if not np.isin(kind, (Event.START, Event.END, Event.LEAVE)).all():
        raise InvalidProblemError("a present state can be taken only from a run without preemptions and failures")
    is_left = np.ones(len(jobs), np.bool_)
    is_left[job[kind != Event.START]] = False
    row = np.cumsum(is_left) - 1
    starts = []
    for event in np.flatnonzero((kind == Event.START) & is_left[job]).tolist():
        places: dict[int, int] = {}
        for at in range(int(log.first[event]), int(log.first[event + 1])):
            places[int(log.machine[at])] = places.get(int(log.machine[at]), 0) + int(log.gpus[at])
        starts.append((int(log.time_us[event]), int(row[job[event]]), sorted(places.items())))
    return jobs.select(np.flatnonzero(is_left)), Present(now_us=now_us, starts=starts_of(starts))
