"""The compiled loop of index policies. At one instant: ends, submissions, thresholds and ticks, then one pass.

The rules are told at `optim.simulation.cluster.index_policy.IndexPolicy` and in docs/cluster.md.
"""

from optim.core.compile_cache import compiled, inner
from optim.models.cluster.log import Event
from optim.simulation.cluster.index_policy import Preempts
from optim.simulation.cluster.keys import key_of_waiting, next_crossing, time_for, work_in
from optim.simulation.cluster.places import give_back, has_room, place, slowdown
from optim.simulation.cluster.preemption import choose_victims, list_victims
from optim.simulation.cluster.queues import is_before, next_event, pop_event, pop_waiting, push_event, push_waiting
from optim.simulation.cluster.state import (
    ARRIVED,
    CROSSINGS,
    ENDS,
    EVENTS,
    IS_OVER,
    NEVER,
    NOW,
    NOWHERE,
    OVER,
    PLACES,
    RANKED,
    RUNNING,
    RUNNING_JOBS,
    VICTIMS,
    WAITING,
)

START, PREEMPT, END = int(Event.START), int(Event.PREEMPT), int(Event.END)
_, AT_EVENTS, AT_TICKS = map(int, Preempts)


@inner
def _log(s, b, kind, job):
    event, entry = s.scalar[EVENTS], s.scalar[PLACES]
    b.time[event], b.kind[event], b.job[event] = s.scalar[NOW], kind, job
    if kind == START:
        at = s.head[job]
        while at != NOWHERE:  # linked last to first; told in the order in which they were taken
            entry += 1
            at = s.next_place[at]
        last = entry
        at = s.head[job]
        while at != NOWHERE:
            last -= 1
            b.machine[last], b.gpus[last] = s.place_machine[at], s.place_gpus[at]
            at = s.next_place[at]
    s.scalar[EVENTS], s.scalar[PLACES] = event + 1, entry
    b.first[event + 1] = entry


@inner
def _wait(u, s, job):
    s.status[job] = WAITING
    s.key_1[job], s.key_2[job] = key_of_waiting(u, s, job)
    push_waiting(s, u.width_class[job], job)


@inner
def _start(u, s, b, job):
    now = s.scalar[NOW]
    place(u, s, job)
    is_first = s.first_start[job] == NEVER
    if is_first:
        s.first_start[job] = now
    s.status[job] = RUNNING
    s.version[job] += 1
    s.factor[job] = slowdown(u, s, job)
    s.run_since[job] = now if is_first else now + u.overhead
    s.slot[job] = s.scalar[RUNNING_JOBS]
    s.running[s.slot[job]] = job
    s.scalar[RUNNING_JOBS] += 1
    ends = s.run_since[job] + time_for(u.duration[job] - s.served[job], s.factor[job])
    push_event(s.scalar, s.version, s.end_time, s.end_job, s.end_version, ENDS, ends, job)
    if len(u.crossing):
        crosses = next_crossing(u, s, job)
        if crosses < ends:
            push_event(
                s.scalar, s.version, s.crossing_time, s.crossing_job, s.crossing_version, CROSSINGS, crosses, job
            )
    _log(s, b, START, job)


@inner
def _stop(u, s, b, job, is_over):
    now = s.scalar[NOW]
    elapsed = max(0, now - s.run_since[job])
    started = s.run_since[job] - u.overhead if s.version[job] > 1 else s.run_since[job]
    s.executed[job] += elapsed
    s.overhead[job] += now - started - elapsed
    s.served[job] = u.duration[job] if is_over else s.served[job] + work_in(elapsed, s.factor[job])
    s.version[job] += 1
    give_back(s, job)
    last = s.running[s.scalar[RUNNING_JOBS] - 1]
    s.running[s.slot[job]] = last
    s.slot[last] = s.slot[job]
    s.scalar[RUNNING_JOBS] -= 1
    s.status[job] = OVER
    if is_over:
        _log(s, b, END, job)
    else:
        _log(s, b, PREEMPT, job)
        _wait(u, s, job)


@inner
def _first_waiting(s, is_held):
    best = NOWHERE
    for width_class in range(len(s.heap_size)):
        if s.heap_size[width_class] and not is_held[width_class]:
            job = s.heap[s.heap_first[width_class]]
            if best == NOWHERE or is_before(s.key_1, s.key_2, job, best):
                best = job
    return best


@inner
def _pass(u, s, b, can_preempt, is_held):
    """Go through the jobs in the policy's order once."""
    is_held[:] = False
    is_listed = False
    while True:
        job = _first_waiting(s, is_held)
        if job == NOWHERE:
            return
        width_class = u.width_class[job]
        is_placed = has_room(u, s, u.width[job])
        if not is_placed and can_preempt:
            if not is_listed:
                is_listed = True
                list_victims(u, s, s.scalar[NOW])
            if choose_victims(u, s, job):
                pop_waiting(s, width_class)
                for nth in range(s.scalar[RANKED]):
                    other = s.victim[s.scalar[VICTIMS] - 1 - nth]
                    if s.marked[other]:
                        s.marked[other] = 0
                        _stop(u, s, b, other, False)
                _start(u, s, b, job)
                continue
        if is_placed:
            pop_waiting(s, width_class)
            _start(u, s, b, job)
        elif u.has_backfill:
            is_held[width_class] = True
        else:
            return


@inner
def _num_waiting(s):
    count = 0
    for width_class in range(len(s.heap_size)):
        count += s.heap_size[width_class]
    return count


@inner
def _next_time(u, s):
    """Return when something happens next: an end, a submission, a threshold, or a tick that somebody waits for."""
    now = s.scalar[NOW]
    when = next_event(s.scalar, s.version, s.end_time, s.end_job, s.end_version, ENDS)
    if s.scalar[ARRIVED] < len(u.submit):
        when = min(when, u.submit[s.scalar[ARRIVED]])
    if _num_waiting(s) and s.scalar[RUNNING_JOBS]:
        when = min(
            when, next_event(s.scalar, s.version, s.crossing_time, s.crossing_job, s.crossing_version, CROSSINGS)
        )
        if u.preempts == AT_TICKS:
            when = min(when, (now // u.quantum + 1) * u.quantum)
    return when


@inner
def _cross(u, s):
    """Take the thresholds reached by now away, and note each job's next."""
    while (
        next_event(s.scalar, s.version, s.crossing_time, s.crossing_job, s.crossing_version, CROSSINGS) <= s.scalar[NOW]
    ):
        job = s.crossing_job[0]
        pop_event(s.scalar, s.crossing_time, s.crossing_job, s.crossing_version, CROSSINGS)
        service = (s.executed[job] + s.scalar[NOW] - s.run_since[job]) * u.width[job]
        for at in range(len(u.crossing)):
            if u.crossing[at] > service:
                ahead = (u.crossing[at] - service + u.width[job] - 1) // u.width[job]
                push_event(
                    s.scalar,
                    s.version,
                    s.crossing_time,
                    s.crossing_job,
                    s.crossing_version,
                    CROSSINGS,
                    s.scalar[NOW] + ahead,
                    job,
                )
                break


@compiled
def advance(u, s, b, is_held, steps, margin):
    """Play until all is over, `steps` instants are done, or the buffer has room for fewer than `margin` events."""
    s.scalar[EVENTS] = s.scalar[PLACES] = 0
    b.first[0] = 0
    for _ in range(steps):
        if s.scalar[EVENTS] + margin > len(b.time) or s.scalar[PLACES] + margin > len(b.machine):
            return
        when = _next_time(u, s)
        if when == NEVER:
            s.scalar[IS_OVER] = 1
            return
        s.scalar[NOW] = when
        while next_event(s.scalar, s.version, s.end_time, s.end_job, s.end_version, ENDS) <= when:
            job = s.end_job[0]
            pop_event(s.scalar, s.end_time, s.end_job, s.end_version, ENDS)
            _stop(u, s, b, job, True)
        while s.scalar[ARRIVED] < len(u.submit) and u.submit[s.scalar[ARRIVED]] == when:
            _wait(u, s, s.scalar[ARRIVED])
            s.scalar[ARRIVED] += 1
        _cross(u, s)
        can_preempt = u.preempts == AT_EVENTS or (u.preempts == AT_TICKS and when % u.quantum == 0)
        _pass(u, s, b, can_preempt, is_held)
