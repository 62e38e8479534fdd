"""Waiting and what for: a fair share of the GPUs, room in one place, or any room at all."""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster, FloatArray, IntArray

CAUSES = ("over_quota", "fragmented", "full")
"""Why a job waits at an instant, the first that holds: its virtual cluster holds its quota or more; as many GPUs as the gang
needs are free, though not where or for whom; fewer are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WaitingSpells:
    """When jobs waited, one row a spell.

    Parameters
    ----------
    job
        Who; shape (spells,).
    begin_us, end_us
        From a submission or a loss of GPUs to the next start, or to the job's or the run's end; shape (spells,).
    cause_us
        How long for which of `CAUSES`; shape (spells, causes).
    """

    job: IntArray
    begin_us: IntArray
    end_us: IntArray
    cause_us: FloatArray

    def shares(self) -> FloatArray:
        """Return the share of all waiting time by cause, zeros if nobody waited."""
        total = self.cause_us.sum(axis=0)
        return np.asarray(total / max(float(total.sum()), 1.0))


def quotas(jobs: Workload, cluster: Cluster) -> IntArray:
    """Return the GPUs of each virtual cluster: in proportion to its GPU-time, by largest remainders."""
    time = [0] * len(jobs.groups)
    for group, gang, duration in zip(jobs.group.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), strict=True):
        time[group] += gang * duration
    parts = [divmod(cluster.num_gpus * each, sum(time)) for each in time]
    given: IntArray = np.array([whole for whole, _ in parts], np.int64)
    most = sorted(range(len(parts)), key=lambda group: -parts[group][1])[: cluster.num_gpus - int(given.sum())]
    given[most] += 1
    return given


def waiting(
    jobs: Workload, cluster: Cluster, log: EventLog, end_us: IntArray, quota: IntArray | None = None
) -> WaitingSpells:
    """Return when jobs waited in a run, and what for.

    Parameters
    ----------
    jobs, cluster, log
        What was played, and its events.
    end_us
        When jobs that wait at last stop to: when they are sent away, or the run is over (`last_times`); shape (jobs,).
    quota
        GPUs of each virtual cluster; those of `quotas` unless given.

    Notes
    -----
    Causes are told as in the Philly study: a job whose virtual cluster uses up its share waits for that share, whatever is
    free; only below it can fragmentation be to blame.
    """
    spells = _spells(jobs, log, end_us)
    quota = quotas(jobs, cluster) if quota is None else quota
    marks = np.concatenate([[0.0], log.time_us.astype(float)])
    free = np.concatenate([[cluster.num_gpus], free_gpus(cluster, log)])
    change, group_of = held_change(log), jobs.group[log.job]
    cause = np.zeros((len(spells[0]), len(CAUSES)))
    group, width = jobs.group[spells[0]], jobs.gpus[spells[0]]
    length = np.diff(marks)
    for number in np.unique(group).tolist():
        used = np.concatenate([[0], np.cumsum(np.where(group_of == number, change, 0))])
        is_over = used >= quota[number]
        for gang in np.unique(width[group == number]).tolist():
            mine = (group == number) & (width == gang)
            has_room = free >= gang
            for place, holds in enumerate((is_over, ~is_over & has_room)):
                area = np.concatenate([[0.0], np.cumsum(holds[:-1] * length)])
                cause[mine, place] = _until(spells[2][mine], marks, area, holds) - _until(
                    spells[1][mine], marks, area, holds
                )
    cause[:, 2] = np.maximum(0.0, (spells[2] - spells[1]) - cause[:, 0] - cause[:, 1])
    return WaitingSpells(job=spells[0], begin_us=spells[1], end_us=spells[2], cause_us=cause)


def _until(when: IntArray, marks: FloatArray, area: FloatArray, holds: IntArray) -> FloatArray:
    """Return for how long a step function held before some times."""
    at = np.searchsorted(marks, when, side="right") - 1
    return np.asarray(area[at] + holds[at] * (when - marks[at]), float)


def last_times(log: EventLog, count: int) -> IntArray:
    """Return when each of so many jobs was done or sent away, or else the last event's time."""
    end = np.full(count, int(log.time_us[-1]), np.int64)
    end[log.job[log.is_over]] = log.time_us[log.is_over]
    return end


def _spells(jobs: Workload, log: EventLog, end_us: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return owner, begin and end of each spell of waiting."""
    starts = np.flatnonzero(log.kind == Event.START)
    stops = np.flatnonzero(log.is_lost)
    begins = np.concatenate([jobs.submit_us, log.time_us[stops]])
    owners = np.concatenate([np.arange(len(jobs)), log.job[stops]])
    never = np.flatnonzero(np.bincount(owners, minlength=len(jobs)) > np.bincount(log.job[starts], minlength=len(jobs)))
    ends = np.concatenate([log.time_us[starts], end_us[never]])
    enders = np.concatenate([log.job[starts], never])
    by_owner, by_ender = np.lexsort((begins, owners)), np.lexsort((ends, enders))
    return owners[by_owner], begins[by_owner], ends[by_ender]


def held_change(log: EventLog) -> IntArray:
    """Return how many GPUs more each event lets its job hold."""
    order = np.argsort(log.job, kind="stable")
    width, is_start = log.width[order], log.kind[order] == Event.START
    before = np.concatenate(
        [[0], np.where(is_start, width, 0)[:-1]]
    )  # events of a job alternate, so the last one tells
    is_same = np.diff(log.job[order], prepend=-1) == 0
    change = np.empty(len(log), np.int64)
    change[order] = np.where(is_start, width, np.where(is_same, -before, 0))
    return change


def down_change(cluster: Cluster, log: EventLog) -> IntArray:
    """Return how many GPUs more are down after each event."""
    sign = (log.kind == Event.FAIL).astype(np.int64) - (log.kind == Event.REPAIR)
    change = np.zeros(len(log), np.int64)
    at = np.flatnonzero(sign)
    change[at] = sign[at] * cluster.gpus[log.machine[log.first[at]]]
    return change


def free_gpus(cluster: Cluster, log: EventLog) -> IntArray:
    """Return how many GPUs nobody holds after each event, those of machines that are down left out."""
    return np.asarray(cluster.num_gpus - np.cumsum(down_change(cluster, log)) - held_gpus(cluster, log))


def held_gpus(cluster: Cluster, log: EventLog) -> IntArray:
    """Return how many GPUs somebody holds after each event."""
    if not log.names_gpus:
        return np.asarray(np.cumsum(held_change(log)))
    first = np.concatenate([[0], np.cumsum(cluster.gpus)])
    place = (first[log.machine] + log.slot).tolist()
    holders, held = [0] * cluster.num_gpus, 0
    held_by: dict[int, list[int]] = {}
    after = np.empty(len(log), np.int64)
    bounds = log.first.tolist()
    for event, (kind, job) in enumerate(zip(log.kind.tolist(), log.job.tolist(), strict=True)):
        if kind == Event.START:
            held_by[job] = place[bounds[event] : bounds[event + 1]]
            for gpu in held_by[job]:
                held += holders[gpu] == 0
                holders[gpu] += 1
        else:
            for gpu in held_by.pop(job, ()):
                holders[gpu] -= 1
                held -= holders[gpu] == 0
        after[event] = held
    return after
