"""Compiled queues of the capacity scheduler: who waits in each virtual cluster and width, and who waits longest for its locality.

A pass that finds no place for a width doesn't look at its jobs at all: what it needs is the first of them at a level.
"""

from optim.core.compile_cache import inner
from optim.simulation.cluster.capacity.state import (
    AFTER,
    ASKS,
    AT_LEVEL,
    BEFORE,
    CELL,
    EARLIER,
    FREE,
    GROUP,
    GROUP_WAITING,
    HEAD,
    KIND,
    LATER,
    LEVEL,
    NEVER,
    NEWEST,
    NOBODY,
    NOW,
    NUM_AT,
    OLDEST,
    SINCE,
    STATUS,
    STEP,
    TAIL,
    WAITING,
    WAITING_JOBS,
)


@inner
def _count(w, job, change):
    """Count a job in or out where it waits."""
    level, kind = w.job[job, LEVEL], w.job[job, KIND]
    w.cell[w.job[job, CELL], AT_LEVEL + level] += change
    w.kind[kind, NUM_AT + level] += change
    w.group[w.job[job, GROUP], GROUP_WAITING] += change
    w.scalar[WAITING_JOBS] += change


@inner
def _line_up(w, job):
    """Put a job behind those of its width and level, of which none began to wait later."""
    kind, level = w.job[job, KIND], w.job[job, LEVEL]
    last = w.kind[kind, NEWEST + level]
    w.job[job, EARLIER], w.job[job, LATER] = last, NOBODY
    if last == NOBODY:
        w.kind[kind, OLDEST + level] = job
    else:
        w.job[last, LATER] = job
    w.kind[kind, NEWEST + level] = job


@inner
def _step_out(w, job):
    """Take a job out of those of its width and level."""
    kind, level = w.job[job, KIND], w.job[job, LEVEL]
    before, after = w.job[job, EARLIER], w.job[job, LATER]
    if before == NOBODY:
        w.kind[kind, OLDEST + level] = after
    else:
        w.job[before, LATER] = after
    if after == NOBODY:
        w.kind[kind, NEWEST + level] = before
    else:
        w.job[after, EARLIER] = before


@inner
def wait(w, job):
    """Let a job wait from now on, by its submission among those of its virtual cluster and width."""
    w.job[job, STATUS], w.job[job, SINCE], w.job[job, LEVEL] = WAITING, w.scalar[NOW], 0
    _line_up(w, job)
    cell = w.job[job, CELL]
    before, after = w.cell[cell, TAIL], NOBODY
    if before > job:  # it has run before: its place is near the front
        before, after = NOBODY, w.cell[cell, HEAD]
        while after < job:
            before, after = after, w.job[after, AFTER]
    w.job[job, BEFORE], w.job[job, AFTER] = before, after
    if before == NOBODY:
        w.cell[cell, HEAD] = job
    else:
        w.job[before, AFTER] = job
    if after == NOBODY:
        w.cell[cell, TAIL] = job
    else:
        w.job[after, BEFORE] = job
    _count(w, job, 1)


@inner
def wait_no_more(w, job):
    """Take a job out of the queues."""
    _count(w, job, -1)
    if w.job[job, LEVEL] < 2:
        _step_out(w, job)
    cell, before, after = w.job[job, CELL], w.job[job, BEFORE], w.job[job, AFTER]
    if before == NOBODY:
        w.cell[cell, HEAD] = after
    else:
        w.job[before, AFTER] = after
    if after == NOBODY:
        w.cell[cell, TAIL] = before
    else:
        w.job[after, BEFORE] = before


@inner
def relax(w):
    """Relax the locality of the jobs that have waited long enough."""
    for kind in range(len(w.kind)):
        for level in range(2):
            job = w.kind[kind, OLDEST + level]
            while job != NOBODY and w.scalar[NOW] >= w.job[job, SINCE] + (level + 1) * w.scalar[STEP]:
                _step_out(w, job)
                _count(w, job, -1)
                w.job[job, LEVEL] = level + 1
                _count(w, job, 1)
                if level == 0:
                    _line_up(w, job)
                job = w.kind[kind, OLDEST + level]


@inner
def next_relaxation(w):
    """Return when the locality of a job that free GPUs would suffice for is relaxed next, `NEVER` without one."""
    when = NEVER
    for kind in range(len(w.kind)):
        if w.kind[kind, ASKS] <= w.scalar[FREE]:
            for level in range(2):
                job = w.kind[kind, OLDEST + level]
                if job != NOBODY:
                    when = min(when, w.job[job, SINCE] + (level + 1) * w.scalar[STEP])
    return when


@inner
def num_from(table, row, column, level):
    """Return how many jobs wait at a level or beyond, by their numbers at each level."""
    count = 0
    for each in range(level, 3):
        count += table[row, column + each]
    return count
