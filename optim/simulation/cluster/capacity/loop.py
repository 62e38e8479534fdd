"""The compiled loop of the capacity scheduler: what the engine of planning policies does, event by event, with its passes.

At one instant: ends, failures (tries, then machines) and repairs, submissions, then one pass.
"""

from optim.core.compile_cache import compiled, inner
from optim.models.cluster.log import NO_JOB, Event
from optim.models.cluster.workload import US
from optim.simulation.cluster.capacity.filling import fill
from optim.simulation.cluster.capacity.room import set_free
from optim.simulation.cluster.capacity.running import CRASHED, ENDED, FAULTED, PREEMPTED, begin, log, lose, stop
from optim.simulation.cluster.capacity.state import (
    ACTIVE,
    AGAIN,
    ARRIVED,
    ASKS,
    AT_LEVEL,
    BEFORE,
    CALLS,
    DOWN,
    ENDS,
    EVENTS,
    FIRST,
    FRAGMENT_S,
    FREE,
    HELD_BACK,
    HOLDER,
    IDLE_CALLS,
    IS_OVER,
    LAST_RUNNING,
    NEVER,
    NEXT_GPU,
    NOBODY,
    NOW,
    NUM_AT,
    ORDER,
    OUTAGES,
    PLACES,
    RUNNING_JOBS,
    SEEN_AT,
    SEEN_FAIR_SHARE,
    SEEN_FRAGMENTATION,
    SHARE_S,
    SIZE,
    STARTED,
    STATUS,
    STOPPED,
    SUBMIT,
    TRIED,
    TRIES,
    TURNS,
    USED,
    WAITING_JOBS,
)
from optim.simulation.cluster.capacity.taking_back import take_back
from optim.simulation.cluster.capacity.waiting import next_relaxation, num_from, relax, wait
from optim.simulation.cluster.planning.engine import MOST_CALLS, MOST_IDLE_CALLS
from optim.simulation.cluster.queues import next_event, pop_event

FAILED, REPAIRED = int(Event.FAIL), int(Event.REPAIR)


@inner
def _next_turn(w):
    return next_event(w.scalar, w.version, w.turn_time, w.turn_job, w.turn_version, TURNS)


@inner
def _next_end(w):
    return next_event(w.scalar, w.version, w.end_time, w.end_job, w.end_version, ENDS)


@inner
def _end_jobs(w):
    """Let jobs end whose work is done."""
    while _next_end(w) <= w.scalar[NOW]:
        job = w.end_job[0]
        pop_event(w.scalar, w.end_time, w.end_job, w.end_version, ENDS)
        lose(w, job, ENDED)


@inner
def _take_turns(w):
    """Let tries fail whose time has come, and those wait again that were held back long enough."""
    while _next_turn(w) <= w.scalar[NOW]:
        job = w.turn_job[0]
        pop_event(w.scalar, w.turn_time, w.turn_job, w.turn_version, TURNS)
        if w.job[job, STATUS] == HELD_BACK:
            w.scalar[CALLS] = NOBODY
            wait(w, job)
        elif w.job[job, TRIED] < w.job[job, TRIES]:
            lose(w, job, FAULTED)


@inner
def _first_on(w, machine):
    """Return the first job that has GPUs of a machine, `NOBODY` if there is none."""
    first, job = w.machine[machine, FIRST], NOBODY
    for gpu in range(first, first + w.machine[machine, SIZE]):
        holder = w.gpu[gpu, HOLDER]
        if holder != NOBODY and (job == NOBODY or holder < job):
            job = holder
    return job


@inner
def _log_machine(w, kind, machine):
    gpu = w.machine[machine, FIRST]
    next_gpu = w.gpu[gpu, NEXT_GPU]
    w.gpu[gpu, NEXT_GPU] = NOBODY
    log(w, kind, NO_JOB, gpu)
    w.gpu[gpu, NEXT_GPU] = next_gpu


@inner
def _break(w):
    """Let the machines whose time has come fail, or be repaired."""
    while w.scalar[OUTAGES] < len(w.outage) and w.outage[w.scalar[OUTAGES], 0] == w.scalar[NOW]:
        machine, fails = w.outage[w.scalar[OUTAGES], 1], w.outage[w.scalar[OUTAGES], 2]
        w.scalar[OUTAGES] += 1
        _log_machine(w, FAILED if fails else REPAIRED, machine)
        while fails and _first_on(w, machine) != NOBODY:
            lose(w, _first_on(w, machine), CRASHED)
        set_free(w, machine, 0 if fails else w.machine[machine, SIZE])
        w.scalar[DOWN] += 1 if fails else -1


@inner
def _arrive(w):
    """Let jobs wait that are submitted now."""
    while w.scalar[ARRIVED] < len(w.job) and w.job[w.scalar[ARRIVED], SUBMIT] == w.scalar[NOW]:
        w.scalar[ARRIVED] += 1
        w.scalar[ACTIVE] += 1
        w.scalar[CALLS] = NOBODY
        wait(w, w.scalar[ARRIVED] - 1)


@inner
def _delay(w, cause, count):
    """Add the time since the last pass that so many jobs waited for a cause."""
    elapsed = w.scalar[NOW] - w.scalar[SEEN_AT]
    rest = w.delay[cause + 1] + elapsed % US * count
    w.delay[cause], w.delay[cause + 1] = w.delay[cause] + elapsed // US * count + rest // US, rest % US


@inner
def _see_causes(w):
    """Note how many jobs wait at quota, and how many though enough GPUs are free, but not where they may take them."""
    count = 0
    for kind in range(len(w.kind)):
        if w.kind[kind, ASKS] <= w.scalar[FREE] and num_from(w.kind, kind, NUM_AT, 0):
            for group in range(len(w.group)):
                if w.group[group, USED] + w.kind[kind, ASKS] <= w.quota[group]:
                    count += num_from(w.cell, group * len(w.kind) + kind, AT_LEVEL, 0)
    w.scalar[SEEN_AT] = w.scalar[NOW]
    w.scalar[SEEN_FAIR_SHARE], w.scalar[SEEN_FRAGMENTATION] = w.scalar[WAITING_JOBS] - count, count


@inner
def _log_stops(w):
    """Write down whom the pass stopped, in the order of their starts."""
    for nth in range(w.scalar[STOPPED]):
        job, at = w.stopped[nth], nth
        while at > 0 and w.job[w.stopped[at - 1], ORDER] > w.job[job, ORDER]:
            w.stopped[at] = w.stopped[at - 1]
            at -= 1
        w.stopped[at] = job
    for nth in range(w.scalar[STOPPED]):
        stop(w, w.stopped[nth], PREEMPTED)


@inner
def _look(w):
    """Book the time since the last pass, and let those wait that it stopped."""
    _delay(w, SHARE_S, w.scalar[SEEN_FAIR_SHARE])
    _delay(w, FRAGMENT_S, w.scalar[SEEN_FRAGMENTATION])
    for nth in range(w.scalar[STOPPED]):
        wait(w, w.stopped[nth])
    w.scalar[STARTED] = w.scalar[STOPPED] = 0
    relax(w)


@inner
def _next_time(w):
    """Return when something happens next."""
    when = min(_next_end(w), _next_turn(w), w.scalar[AGAIN])
    if w.scalar[ARRIVED] < len(w.job):
        when = min(when, w.job[w.scalar[ARRIVED], SUBMIT])
    if len(w.outage):
        when = min(when, w.outage[w.scalar[OUTAGES], 0])
    return when


@inner
def _give_up(w):
    """Stop whoever runs, in the order of their starts: nobody gets done any more."""
    w.scalar[STOPPED] = 0
    job = w.scalar[LAST_RUNNING]
    while job != NOBODY:
        w.stopped[w.scalar[STOPPED]] = job
        w.scalar[STOPPED] += 1
        job = w.job[job, BEFORE]
    _log_stops(w)
    w.scalar[IS_OVER] = 1


@compiled
def advance(w, steps, margin):
    """Play until all is over, `steps` instants are done, known outages are, or the log has room for fewer than `margin` events.

    It is long, as each function between it and the loops that it calls would have them optimised once more.
    """
    w.scalar[EVENTS] = w.scalar[PLACES] = 0
    for _ in range(steps):
        if w.scalar[EVENTS] + margin > len(w.event) or w.scalar[PLACES] + margin > len(w.place):
            return
        if len(w.outage) and w.scalar[OUTAGES] == len(w.outage):
            return
        is_through = w.scalar[ARRIVED] == len(w.job)
        when = NEVER if is_through and w.scalar[ACTIVE] == 0 else _next_time(w)
        if when == NEVER or w.scalar[IDLE_CALLS] > MOST_IDLE_CALLS or w.scalar[CALLS] > MOST_CALLS:
            _give_up(w)
            return
        w.scalar[NOW] = when
        _end_jobs(w)
        _take_turns(w)
        _break(w)
        _arrive(w)
        w.scalar[CALLS] += 1  # from -1 where a job ended or was submitted
        _look(w)
        fill(w)
        take_back(w)
        _see_causes(w)
        w.scalar[AGAIN] = next_relaxation(w)
        _log_stops(w)
        for nth in range(w.scalar[STARTED]):
            begin(w, w.started[nth])
        is_idle = w.scalar[RUNNING_JOBS] == 0 and w.scalar[ARRIVED] == len(w.job)
        w.scalar[IDLE_CALLS] = w.scalar[IDLE_CALLS] + (w.scalar[DOWN] == 0) if is_idle else 0
