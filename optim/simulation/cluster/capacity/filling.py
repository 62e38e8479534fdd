"""Compiled filling of the capacity scheduler: waiting jobs take what is free, always one of the virtual cluster that uses least."""

from optim.core.compile_cache import inner
from optim.simulation.cluster.capacity.room import choose, least_level, take_chosen
from optim.simulation.cluster.capacity.state import (
    AFTER,
    ASKS,
    AT_LEVEL,
    FREE,
    GROUP_WAITING,
    HEAD,
    KIND,
    LEAST_LEVEL,
    LEVEL,
    NO_LEVEL,
    NOBODY,
    NUM_AT,
    STARTED,
    STARTING,
    STATUS,
    USED,
)
from optim.simulation.cluster.capacity.waiting import num_from, wait_no_more


@inner
def _find_levels(w):
    """Note the least level at which each width finds a place; return how many widths have a job for it."""
    count = 0
    for kind in range(len(w.kind)):
        w.kind[kind, LEAST_LEVEL] = NO_LEVEL
        if w.kind[kind, ASKS] <= w.scalar[FREE] and num_from(w.kind, kind, NUM_AT, 0):
            level = least_level(w, kind)
            w.kind[kind, LEAST_LEVEL] = level
            count += num_from(w.kind, kind, NUM_AT, level) > 0
    return count


@inner
def _first_in(w, group):
    """Return the first job of a virtual cluster that finds a place, `NOBODY` if none does."""
    first = NOBODY
    for kind in range(len(w.kind)):
        level, cell = w.kind[kind, LEAST_LEVEL], group * len(w.kind) + kind
        if num_from(w.cell, cell, AT_LEVEL, level):
            job = w.cell[cell, HEAD]
            while w.job[job, LEVEL] < level:
                job = w.job[job, AFTER]
            if first == NOBODY or job < first:
                first = job
    return first


@inner
def _least_used(w):
    """Return the first job with a place of the virtual cluster that uses least of its quota, `NOBODY` if there is none."""
    best, least = NOBODY, 0.0
    for group in range(len(w.group)):
        share = w.group[group, USED] / w.quota[group]
        if w.group[group, GROUP_WAITING] and (best == NOBODY or share < least):
            job = _first_in(w, group)
            if job != NOBODY:
                best, least = job, share
    return best


@inner
def start(w, job):
    """Let a job that waits have the GPUs chosen for it."""
    wait_no_more(w, job)
    take_chosen(w, job)
    w.job[job, STATUS] = STARTING
    w.started[w.scalar[STARTED]] = job
    w.scalar[STARTED] += 1


@inner
def fill(w):
    """Place waiting jobs until none finds a place any more."""
    while _find_levels(w):
        job = _least_used(w)
        choose(w, w.job[job, KIND], w.job[job, LEVEL])
        start(w, job)
