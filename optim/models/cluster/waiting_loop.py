"""Compiled: for how long jobs waited for what, from one event to the next."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.compile_cache import compiled, inner
from optim.models.cluster.log import Event
from optim.models.cluster.world import IntArray

START, FAIL, REPAIR = int(Event.START), int(Event.FAIL), int(Event.REPAIR)
OVER_QUOTA, FRAGMENTED, FULL, ORDER = range(4)
"""In the order of `optim.models.cluster.waiting.CAUSES`."""


class Happened(NamedTuple):
    """Columns of an `EventLog`; where its places name no GPUs, `slot` is empty."""

    kind: NDArray[np.int8]
    job: IntArray
    first: IntArray
    machine: IntArray
    gpus: IntArray
    slot: IntArray


class Asked(NamedTuple):
    """What differs in what jobs ask for, one row a kind of job.

    Parameters
    ----------
    gang
        GPUs; shape (kinds,).
    part
        What must be left of each, in thousandths; shape (kinds,).
    host
        vCPU and memory for each GPU, 0 where it can't bind; shape (2, kinds).
    usable
        Machines on which it may run; shape (kinds, machines).
    largest
        GPUs of the largest of them; shape (kinds,).
    """

    gang: IntArray
    part: IntArray
    host: IntArray
    usable: NDArray[np.bool_]
    largest: IntArray


class Room(NamedTuple):
    """What is left of machines, and what of it each kind of job can use; it changes with the events.

    Parameters
    ----------
    size, host, is_down
        GPUs of each machine, what is left of its vCPU and memory, and whether it is down.
    first, left
        Where each machine's GPUs begin, and what is left of each GPU, in thousandths.
    free
        GPUs of each machine on which a kind of job finds its part; shape (kinds, machines).
    total, within, whole, holding
        GPUs that are free in all, those with vCPU and memory beside them, those of wholly free machines, and how many
        machines hold the gang; each of shape (kinds,).
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


@inner
def _count(room, asked, machine, sign):
    """Count a machine in, or out of, what each kind of job can use."""
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


@inner
def _take(room, asked, log, place, job, part, host, sign):
    """Let a place be taken (1) or given back (-1) by a job; parts of GPUs and demands on hosts are those of all jobs."""
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


@inner
def _why(room, asked, kind, may_spread):
    """Return why a kind of job waits now, quotas aside."""
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
    """Return for how long each spell had which cause, in microseconds; shape (spells, causes).

    Parameters
    ----------
    time, what
        When something happens, in order: an event by its number, then behind the events the begins of spells, then their ends.
    part, host, kind_of, group_of
        Of each job: what it takes of a GPU and of the host, and its kind and virtual cluster.
    row, group
        Of each pair of kind and virtual cluster: the two.
    quota
        GPUs of each virtual cluster, infinite where the policy goes by no quotas.
    who
        The pair of each spell's job.
    spells
        How many there are.
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
        if log.kind[at] == FAIL or log.kind[at] == REPAIR:
            machine = log.machine[log.first[at]]
            _count(room, asked, machine, -1)
            room.is_down[machine] = log.kind[at] == FAIL
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
