"""Waiting times of jobs by cause: quota, fragmentation, lack of GPUs, or the policy's order."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import WHOLE_MILLI, Workload, hosts

START, MACHINE_DOWN, REPAIR = int(Event.START), int(Event.FAIL), int(Event.REPAIR)

CAUSES = ("over_quota", "fragmented", "full", "order")
"""Causes of waiting; the first that applies counts.

``over_quota``: the policy has quotas, and the job's virtual cluster uses its quota or more. ``fragmented``: as many usable GPUs
are free as the gang needs, but the placement rule can't place the gang. ``full``: fewer usable GPUs are free than the gang
needs. ``order``: the gang could be placed, but the policy's order delays the job."""

OVER_QUOTA, FRAGMENTED, FULL, ORDER = range(len(CAUSES))


class Happened(NamedTuple):
    """Columns of an `EventLog`; `slot` is empty if the log names no single GPUs."""

    kind: NDArray[np.int8]
    job: IntArray
    first: IntArray
    machine: IntArray
    gpus: IntArray
    slot: IntArray


class Asked(NamedTuple):
    """Distinct requests of jobs, one row per demand class.

    Parameters
    ----------
    gang
        Number of GPUs; shape (classes,).
    part
        Required free part of each GPU, in thousandths; shape (classes,).
    host
        vCPU and memory per GPU, 0 if no machine can run out of them; shape (2, classes).
    usable
        Whether each machine can run the class; shape (classes, machines).
    largest
        Number of GPUs of the largest usable machine; shape (classes,).
    """

    gang: IntArray
    part: IntArray
    host: IntArray
    usable: NDArray[np.bool_]
    largest: IntArray


class FreeCounts(NamedTuple):
    """Free resources of machines, and the part usable by each demand class; updated in place by events.

    Parameters
    ----------
    size
        Number of GPUs of each machine; shape (machines,).
    host
        Free vCPU and free memory of each machine; shape (2, machines).
    is_down
        Whether each machine is down; shape (machines,).
    first
        Index in `left` of each machine's first GPU; shape (machines,).
    left
        Free part of each GPU, in thousandths; shape (GPUs,).
    free
        Number of GPUs of each machine with a large enough free part; shape (classes, machines).
    total
        Number of free GPUs; shape (classes,).
    within
        Number of free GPUs with enough vCPU and memory; shape (classes,).
    whole
        Number of GPUs of the empty machines with enough vCPU and memory for all their GPUs; shape (classes,).
    holding
        Number of machines on which the gang fits; shape (classes,).
    """

    size: IntArray
    host: IntArray
    is_down: NDArray[np.bool_]
    first: IntArray
    left: IntArray
    free: IntArray
    total: IntArray
    within: IntArray
    whole: IntArray
    holding: IntArray


@compiled
def _count(room, asked, machine, sign):
    """Add a machine to the totals of each demand class (sign 1), or subtract it (-1)."""
    if room.is_down[machine]:
        return
    for kind in range(len(asked.gang)):
        if not asked.usable[kind, machine]:
            continue
        free = room.free[kind, machine]
        within = free
        for what in range(2):
            if asked.host[what, kind] > 0:
                within = min(within, room.host[what, machine] // asked.host[what, kind])
        room.total[kind] += sign * free
        room.within[kind] += sign * within
        room.whole[kind] += sign * within if within == room.size[machine] else 0
        room.holding[kind] += sign if within >= asked.gang[kind] else 0


@compiled
def _take(room, asked, log, place, job, part, host, sign):
    """Allocate (sign 1) or release (-1) a job's GPUs in one place of the log; `part` and `host` are all jobs' requests."""
    machine = log.machine[place]
    _count(room, asked, machine, -1)
    if len(log.slot):
        gpu = room.first[machine] + log.slot[place]
        before, after = room.left[gpu], room.left[gpu] - sign * part[job]
        room.left[gpu] = after
        for kind in range(len(asked.gang)):
            room.free[kind, machine] += (after >= asked.part[kind]) - (before >= asked.part[kind])
    else:
        for kind in range(len(asked.gang)):
            room.free[kind, machine] -= sign * log.gpus[place]
    for what in range(2):
        room.host[what, machine] -= sign * host[what, job] * log.gpus[place]
    _count(room, asked, machine, 1)


@compiled
def _why(room, asked, kind, may_spread):
    """Return why a demand class waits now, apart from quotas."""
    gang = asked.gang[kind]
    if room.total[kind] < gang:
        return FULL
    if may_spread:
        has_place = room.within[kind] >= gang
    elif gang <= asked.largest[kind]:
        has_place = room.holding[kind] > 0
    else:
        has_place = room.whole[kind] >= gang
    return ORDER if has_place else FRAGMENTED


@compiled
def waited_for(time, what, log, asked, room, part, host, kind_of, group_of, row, group, quota, may_spread, who, spells):
    """Return the waiting time of each spell by cause, in microseconds; shape (spells, causes).

    Parameters
    ----------
    time
        Times in order.
    what
        Code of the occurrence at each time: the index of an event, `events` + s for the beginning of spell s, or
        `events` + `spells` + s for the end of spell s.
    part, host, kind_of, group_of
        Part of a GPU, host resources per GPU, demand class and virtual cluster of each job.
    row, group
        Demand class and virtual cluster of each pair of a class and a cluster that occurs among the jobs.
    quota
        Quota of each virtual cluster in GPUs, infinite for policies without quotas.
    who
        Index of the pair to which each spell's job belongs.
    spells
        Number of spells.
    """
    events = len(log.kind)
    begun = np.full(len(kind_of), -1)
    held = np.zeros(len(quota), np.int64)
    passed = np.zeros((len(row), 4), np.int64)
    waited = np.zeros((spells, 4), np.int64)
    why = np.zeros(len(asked.gang), np.int64)
    for machine in range(len(room.size)):
        _count(room, asked, machine, 1)
    for step in range(len(time)):
        if step and time[step] > time[step - 1]:
            for kind in range(len(why)):
                why[kind] = _why(room, asked, kind, may_spread)
            for pair in range(len(row)):
                is_over = held[group[pair]] >= quota[group[pair]]
                cause = OVER_QUOTA if is_over else why[row[pair]]
                passed[pair, cause] += time[step] - time[step - 1]
        at = what[step]
        if at >= events + spells:
            for cause in range(4):
                waited[at - events - spells, cause] += passed[who[at - events - spells], cause]
            continue
        if at >= events:
            for cause in range(4):
                waited[at - events, cause] -= passed[who[at - events], cause]
            continue
        job = log.job[at]
        if log.kind[at] == MACHINE_DOWN or log.kind[at] == REPAIR:
            machine = log.machine[log.first[at]]
            _count(room, asked, machine, -1)
            room.is_down[machine] = log.kind[at] == MACHINE_DOWN
            _count(room, asked, machine, 1)
            continue
        is_start = log.kind[at] == START
        of = at if is_start else begun[job]
        begun[job] = at if is_start else -1
        if of >= 0:
            for place in range(log.first[of], log.first[of + 1]):
                _take(room, asked, log, place, job, part, host, 1 if is_start else -1)
                held[group_of[job]] += log.gpus[place] if is_start else -log.gpus[place]
    return waited


@dataclass(frozen=True, kw_only=True, eq=False)
class WaitingSpells:
    """Waiting spells of jobs, one row per spell.

    Parameters
    ----------
    job
        Row of the waiting job; shape (spells,).
    begin_us
        Begin of the spell, a submission or a loss of GPUs; shape (spells,).
    end_us
        End of the spell: the next start, the job's end, or the run's end; shape (spells,).
    cause_us
        Time by cause (`CAUSES`); shape (spells, causes).
    """

    job: IntArray
    begin_us: IntArray
    end_us: IntArray
    cause_us: FloatArray

    def shares(self) -> FloatArray:
        """Return the share of each cause in all waiting time, zeros if no job waited."""
        total = self.cause_us.sum(axis=0)
        return np.asarray(total / max(float(total.sum()), 1.0))


def quotas(jobs: Workload, cluster: Cluster, rules: Rules) -> FloatArray:
    """Return the quota of each virtual cluster in GPUs, infinite for policies without quotas."""
    if not rules.knows_quotas:
        return np.full(len(jobs.groups), np.inf)
    return np.array(rules.quotas or _untold(jobs, cluster).tolist(), np.float64)


def _untold(jobs: Workload, cluster: Cluster) -> IntArray:
    """Return quotas for logs of earlier versions, which lack them: proportional to GPU-time, by largest remainders."""
    time = [0] * len(jobs.groups)
    for group, gang, duration in zip(jobs.group.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist(), strict=True):
        time[group] += gang * duration
    parts = [divmod(cluster.num_gpus * each, sum(time)) for each in time]
    given: IntArray = np.array([whole for whole, _ in parts], np.int64)
    most = sorted(range(len(parts)), key=lambda group: -parts[group][1])[: cluster.num_gpus - int(given.sum())]
    given[most] += 1
    return given


def waiting(jobs: Workload, cluster: Cluster, log: EventLog, end_us: IntArray, rules: Rules) -> WaitingSpells:
    """Return the waiting spells of a run with their causes.

    Parameters
    ----------
    jobs, cluster, log
        Jobs, cluster and events of the run.
    end_us
        End of each job's last spell if it never starts again: its rejection, or the end of the run (`last_times`);
        shape (jobs,).
    rules
        Rules of the run: placement of gangs, sharing of GPUs, and quotas.

    Notes
    -----
    Causes follow the Philly study: while a job's virtual cluster uses its quota or more, the cause is the quota; fragmentation
    counts only while the virtual cluster uses less.
    """
    job, begin, end = _spells(jobs, log, end_us)
    part = jobs.share_milli if rules.is_shared else np.full(len(jobs), WHOLE_MILLI)
    asks = np.stack([jobs.cpu_milli, jobs.memory_mib])
    if not (rules.is_shared or jobs.strains_hosts(cluster, rules.jobs_a_gpu)):
        asks = np.zeros_like(asks)
    # A gang of several GPUs takes entirely free GPUs even if its share of each is smaller.
    needs = np.column_stack(
        [jobs.gpus, np.where(jobs.gpus > 1, WHOLE_MILLI, part), asks.T, jobs.gpu_type_slowdown_ppm > 0]
    )
    rows, kind_of = np.unique(needs, axis=0, return_inverse=True)
    pairs, pair_of = np.unique(np.column_stack([kind_of.ravel(), jobs.group]), axis=0, return_inverse=True)
    asked, room = _asked_and_room(rows, cluster)
    times = np.concatenate([log.time_us, begin, end])
    order = np.argsort(times, kind="stable")
    slot = log.slot if log.names_gpus else log.slot[:0]
    happened = Happened(log.kind, log.job, log.first, log.machine, log.gpus, slot)
    of_jobs = (part, asks, kind_of.ravel(), jobs.group)
    pair = (pairs[:, 0].copy(), pairs[:, 1].copy(), quotas(jobs, cluster, rules))
    cause = waited_for(
        times[order], order, happened, asked, room, *of_jobs, *pair, rules.may_spread, pair_of.ravel()[job], len(job)
    )
    return WaitingSpells(job=job, begin_us=begin, end_us=end, cause_us=cause.astype(float))


def _asked_and_room(rows: IntArray, cluster: Cluster) -> tuple["Asked", "FreeCounts"]:
    """Return the requests of each demand class, and the free resources of an empty cluster."""
    types = rows[:, 4:] > 0
    usable = types[:, cluster.kind] if types.shape[1] else np.ones((len(rows), cluster.num_machines), np.bool_)
    largest = np.where(usable, cluster.gpus, 0).max(axis=1)
    asked = Asked(rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2:4].T.copy(), usable, largest)
    first = np.concatenate([[0], np.cumsum(cluster.gpus)]).astype(np.int64)
    left = np.full(cluster.num_gpus, WHOLE_MILLI, np.int64)
    free = np.tile(cluster.gpus, (len(rows), 1))
    counts = [np.zeros(len(rows), np.int64) for _ in range(4)]
    is_down = np.zeros(cluster.num_machines, np.bool_)
    return asked, FreeCounts(cluster.gpus, hosts(cluster), is_down, first, left, free, *counts)


def last_times(log: EventLog, count: int) -> IntArray:
    """Return when each of the first `count` jobs completed or was rejected, or else the time of the last event."""
    end = np.full(count, int(log.time_us[-1]), np.int64)
    end[log.job[log.is_over]] = log.time_us[log.is_over]
    return end


def _spells(jobs: Workload, log: EventLog, end_us: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return job, begin and end of each waiting spell."""
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
    """Return the change in the number of allocated GPUs at each event."""
    order = np.argsort(log.job, kind="stable")
    width, is_start = log.width[order], log.kind[order] == Event.START
    before = np.concatenate([[0], np.where(is_start, width, 0)[:-1]])  # a job's starts and stops alternate
    is_same = np.diff(log.job[order], prepend=-1) == 0
    change = np.empty(len(log), np.int64)
    change[order] = np.where(is_start, width, np.where(is_same, -before, 0))
    return change


def down_change(cluster: Cluster, log: EventLog) -> IntArray:
    """Return the change in the number of GPUs of failed machines at each event."""
    sign = (log.kind == Event.FAIL).astype(np.int64) - (log.kind == Event.REPAIR)
    change = np.zeros(len(log), np.int64)
    at = np.flatnonzero(sign)
    change[at] = sign[at] * cluster.gpus[log.machine[log.first[at]]]
    return change


def held_gpus(cluster: Cluster, log: EventLog) -> IntArray:
    """Return the number of allocated GPUs after each event; a shared GPU counts once."""
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


def waited_by_job(jobs: Workload, log: EventLog) -> IntArray:
    """Return each job's time without GPUs from its submission to its end, in microseconds; shape (jobs,).

    Unfinished jobs count to the log's end. The waiting time after a failed attempt is included.
    """
    job, begin, end = _spells(jobs, log, last_times(log, len(jobs)))
    waited = np.zeros(len(jobs), np.int64)
    np.add.at(waited, job, end - begin)
    return waited
