"""Compiled books of the capacity scheduler: what starts and stops do to a job, and the log of them."""

from optim.core.compile_cache import inner
from optim.models.cluster.log import Event
from optim.simulation.cluster.capacity.room import give_back
from optim.simulation.cluster.capacity.state import (
    ACTIVE,
    AFTER,
    BEFORE,
    BEGUN,
    CALLS,
    CHECKPOINT,
    DURATION,
    END,
    ENDS,
    EVENTS,
    EXECUTED,
    FACTOR,
    FAILS,
    FIRST_GPU,
    FIRST_START,
    GOOD,
    HELD_BACK,
    LAST_RUNNING,
    LAST_TRY,
    LOST,
    MACHINE_OF,
    NEXT_GPU,
    NOBODY,
    NOW,
    ORDER,
    ORDERS,
    OVER,
    OVERHEAD,
    PAUSED,
    PLACES,
    RACK,
    RETRY_WAIT,
    RUN_SINCE,
    RUNNING,
    RUNNING_JOBS,
    SERVED,
    SLOWDOWN,
    STATUS,
    TOLD,
    TRIED,
    TRIES,
    TRY_BASE,
    TURNS,
)
from optim.simulation.cluster.capacity.waiting import wait
from optim.simulation.cluster.keys import time_for, work_in
from optim.simulation.cluster.queues import push_event

STARTS, PREEMPTED, ENDED, CRASHED = int(Event.START), int(Event.PREEMPT), int(Event.END), int(Event.CRASH)
FAULTED, GAVE_UP = int(Event.FAULT), int(Event.GIVE_UP)


@inner
def log(w, kind, job, first_gpu):
    """Write an event with the GPUs from one of its job on."""
    event, entry, gpu = w.scalar[EVENTS], w.scalar[PLACES], first_gpu
    while gpu != NOBODY:
        w.place[entry] = gpu
        entry += 1
        gpu = w.gpu[gpu, NEXT_GPU]
    w.event[event, 0], w.event[event, 1], w.event[event, 2] = w.scalar[NOW], kind, job
    w.event[event, 3] = entry - w.scalar[PLACES]
    w.scalar[EVENTS], w.scalar[PLACES] = event + 1, entry


@inner
def push_turn(w, when, job):
    """Note when a try of a job fails, or when it may wait again after one."""
    push_event(w.scalar, w.version, w.turn_time, w.turn_job, w.turn_version, TURNS, when, job)


@inner
def _begin_of_try(w, job):
    """Return where in a job's run time its present try begins."""
    number, good = w.job[job, TRIED], w.job[job, GOOD]
    return min(number * w.job[job, FAILS], good) if number < w.job[job, TRIES] else good


@inner
def _slowdown(w, job):
    """Return the slowdown of a job where it is placed, by the smallest part that holds all of its GPUs."""
    first = w.gpu[w.job[job, FIRST_GPU], MACHINE_OF]
    gpu, level = w.job[job, FIRST_GPU], 0
    while gpu != NOBODY:
        machine = w.gpu[gpu, MACHINE_OF]
        if w.machine[machine, RACK] != w.machine[first, RACK]:
            level = 2
        elif machine != first:
            level = max(level, 1)
        gpu = w.gpu[gpu, NEXT_GPU]
    return w.job[job, SLOWDOWN + level]


@inner
def _list_running(w, job):
    """Put a job among the running ones: by start, and by row where they start together."""
    after, before = NOBODY, w.scalar[LAST_RUNNING]
    while before != NOBODY and w.job[before, BEGUN] == w.scalar[NOW] and before > job:
        before, after = w.job[before, BEFORE], before
    w.job[job, BEFORE], w.job[job, AFTER] = before, after
    if before != NOBODY:
        w.job[before, AFTER] = job
    if after == NOBODY:
        w.scalar[LAST_RUNNING] = job
    else:
        w.job[after, BEFORE] = job
    w.scalar[RUNNING_JOBS] += 1


@inner
def begin(w, job):
    """Let a job that has its GPUs run."""
    now, is_first = w.scalar[NOW], w.job[job, FIRST_START] < 0
    if is_first:
        w.job[job, FIRST_START] = now
    since = now if is_first else now + w.scalar[OVERHEAD]
    w.job[job, STATUS], w.job[job, BEGUN], w.job[job, RUN_SINCE] = RUNNING, now, since
    w.job[job, ORDER] = w.scalar[ORDERS]
    w.scalar[ORDERS] += 1
    w.version[job] += 1
    _list_running(w, job)
    w.job[job, FACTOR] = _slowdown(w, job)
    log(w, STARTS, job, w.job[job, FIRST_GPU])
    if w.job[job, TRIED] < w.job[job, TRIES]:
        push_turn(w, since + w.job[job, FAILS] - (w.job[job, EXECUTED] - w.job[job, TRY_BASE]), job)
        return
    end = since + time_for(w.job[job, DURATION] - w.job[job, SERVED], w.job[job, FACTOR])
    push_event(w.scalar, w.version, w.end_time, w.end_job, w.end_version, ENDS, end, job)
    told = since + w.job[job, TOLD] - w.job[job, EXECUTED]
    if w.job[job, TOLD] > w.job[job, EXECUTED] and told < end:
        push_turn(w, told, job)  # policies are told: a pass, that is all


@inner
def stop(w, job, kind):
    """Book what a job did that has lost its GPUs, take it out of those that run, and log why."""
    elapsed = max(0, w.scalar[NOW] - w.job[job, RUN_SINCE])
    w.job[job, EXECUTED] += elapsed
    w.job[job, PAUSED] += w.scalar[NOW] - w.job[job, BEGUN] - elapsed
    done = w.job[job, SERVED] + work_in(elapsed, w.job[job, FACTOR])
    if kind == ENDED:
        done = w.job[job, DURATION]
    elif kind == CRASHED:
        kept = max(w.job[job, SERVED], done // w.scalar[CHECKPOINT] * w.scalar[CHECKPOINT])
        w.job[job, LOST] += done - kept
        done = kept
    elif kind == FAULTED:
        w.job[job, LOST] += done - _begin_of_try(w, job)
        w.job[job, TRIED] += 1
        w.job[job, TRY_BASE] = w.job[job, EXECUTED]
        done = _begin_of_try(w, job)
    w.job[job, SERVED] = done
    w.version[job] += 1
    before, after = w.job[job, BEFORE], w.job[job, AFTER]
    if before != NOBODY:
        w.job[before, AFTER] = after
    if after == NOBODY:
        w.scalar[LAST_RUNNING] = before
    else:
        w.job[after, BEFORE] = before
    w.scalar[RUNNING_JOBS] -= 1
    if kind == FAULTED and w.job[job, TRIED] >= w.job[job, LAST_TRY]:
        kind = GAVE_UP
    if kind in (ENDED, GAVE_UP):
        w.job[job, STATUS], w.job[job, END] = OVER, w.scalar[NOW]
        w.scalar[ACTIVE] -= 1
    if kind in (ENDED, GAVE_UP, FAULTED):
        w.scalar[CALLS] = NOBODY
    log(w, kind, job, NOBODY)


@inner
def lose(w, job, kind):
    """Let a job lose its GPUs before the pass: to its end, or to a failure, after which it waits unless it is held back."""
    give_back(w, job)
    stop(w, job, kind)
    if w.job[job, STATUS] == OVER:
        return
    if kind == FAULTED and w.scalar[RETRY_WAIT] > 0:
        w.job[job, STATUS] = HELD_BACK
        push_turn(w, w.scalar[NOW] + w.scalar[RETRY_WAIT], job)
    else:
        wait(w, job)
