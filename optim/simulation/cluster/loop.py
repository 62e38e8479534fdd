"""The compiled loop of index policies. At one instant: ends, failures (tries, then machines) and repairs, submissions, thresholds and ticks, then one pass.

The rules are told at `optim.simulation.cluster.index_policy.IndexPolicy` and in docs/cluster.md.
"""

from optim.core.compile_cache import compiled, inner
from optim.models.cluster.log import NO_JOB, Event
from optim.simulation.cluster.index_policy import Preempts
from optim.simulation.cluster.keys import key_of_waiting, next_crossing, time_for, work_in
from optim.simulation.cluster.outages import MOST_FAILURES
from optim.simulation.cluster.places import give_back, gpus_on, has_room, place, set_free, slowdown
from optim.simulation.cluster.preemption import choose_victims, list_victims
from optim.simulation.cluster.queues import is_before, next_event, pop_event, pop_waiting, push_event, push_waiting
from optim.simulation.cluster.state import (
    ARRIVED,
    CROSSINGS,
    ENDS,
    EVENTS,
    FAILURES,
    HELD_BACK,
    IS_OVER,
    NEVER,
    NOW,
    NOWHERE,
    OUTAGES,
    OVER,
    PLACES,
    RANKED,
    RUNNING,
    RUNNING_JOBS,
    TURNS,
    VICTIMS,
    WAITING,
)

START, PREEMPT, END, CRASH = int(Event.START), int(Event.PREEMPT), int(Event.END), int(Event.CRASH)
FAIL, REPAIR = int(Event.FAIL), int(Event.REPAIR)
FAULT, GIVE_UP = int(Event.FAULT), int(Event.GIVE_UP)
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
def _log_machine(s, b, kind, machine):
    entry = s.scalar[PLACES]
    b.machine[entry], b.gpus[entry] = machine, 0
    s.scalar[PLACES] = entry + 1
    _log(s, b, kind, NO_JOB)


@inner
def _wait(u, s, job):
    s.status[job] = WAITING
    s.key_1[job], s.key_2[job] = key_of_waiting(u, s, job)
    push_waiting(s, u.width_class[job], job)


@inner
def _push_turn(s, when, job):
    push_event(s.scalar, s.version, s.turn_time, s.turn_job, s.turn_version, TURNS, when, job)


@inner
def _next_turn(s):
    return next_event(s.scalar, s.version, s.turn_time, s.turn_job, s.turn_version, TURNS)


@inner
def _begin_of_try(u, job, number):
    """Return where in a job's run time a try begins."""
    return min(number * u.fails[job], u.good[job]) if number < u.tries[job] else u.good[job]


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
    if s.tried[job] < u.tries[job]:
        ends = s.run_since[job] + u.fails[job] - (s.executed[job] - s.try_base[job])
        _push_turn(s, ends, job)
    else:
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
def _stop(u, s, b, job, kind):
    now = s.scalar[NOW]
    elapsed = max(0, now - s.run_since[job])
    started = s.run_since[job] - u.overhead if s.version[job] > 1 else s.run_since[job]
    s.executed[job] += elapsed
    s.overhead[job] += now - started - elapsed
    done = u.duration[job] if kind == END else s.served[job] + work_in(elapsed, s.factor[job])
    step = u.checkpoint if kind == CRASH else u.preempt_checkpoint if kind == PREEMPT else 0
    if step > 0:
        s.scalar[FAILURES] += kind == PREEMPT
        kept = max(s.served[job], done // step * step)
        s.lost[job] += done - kept
        done = kept
    if kind in (FAULT, GIVE_UP):
        s.lost[job] += done - _begin_of_try(u, job, s.tried[job])
        s.tried[job] += 1
        s.try_base[job] = s.executed[job]
        done = _begin_of_try(u, job, s.tried[job])
    s.served[job] = done
    s.version[job] += 1
    give_back(s, job)
    last = s.running[s.scalar[RUNNING_JOBS] - 1]
    s.running[s.slot[job]] = last
    s.slot[last] = s.slot[job]
    s.scalar[RUNNING_JOBS] -= 1
    s.status[job] = OVER
    _log(s, b, kind, job)
    if kind == FAULT and u.retry_wait > 0:
        s.status[job] = HELD_BACK
        _push_turn(s, now + u.retry_wait, job)
    elif kind not in (END, GIVE_UP):
        _wait(u, s, job)


@inner
def _take_turns(u, s, b):
    """Let tries fail whose time has come, and those wait again that were held back long enough."""
    while _next_turn(s) <= s.scalar[NOW]:
        job = s.turn_job[0]
        pop_event(s.scalar, s.turn_time, s.turn_job, s.turn_version, TURNS)
        if s.status[job] == HELD_BACK:
            _wait(u, s, job)
        else:
            _stop(u, s, b, job, GIVE_UP if s.tried[job] + 1 >= u.last_try[job] else FAULT)
        s.scalar[FAILURES] = 0


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
                        _stop(u, s, b, other, PREEMPT)
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
    """Return when something happens next: an end, a turn, an outage, a submission, a threshold, or a tick that somebody waits for."""
    now = s.scalar[NOW]
    when = min(next_event(s.scalar, s.version, s.end_time, s.end_job, s.end_version, ENDS), _next_turn(s))
    if s.scalar[ARRIVED] < len(u.submit):
        when = min(when, u.submit[s.scalar[ARRIVED]])
    if _num_waiting(s) and s.scalar[RUNNING_JOBS]:
        when = min(
            when, next_event(s.scalar, s.version, s.crossing_time, s.crossing_job, s.crossing_version, CROSSINGS)
        )
        if u.preempts == AT_TICKS:
            when = min(when, (now // u.quantum + 1) * u.quantum)
    is_idle = when == NEVER and not _num_waiting(s)
    if len(u.outage_time) and not is_idle:
        when = min(when, u.outage_time[s.scalar[OUTAGES]])
    return when


@inner
def _crash_on(u, s, b, machine):
    """Let the jobs on a machine crash, in their order."""
    while True:
        first = NOWHERE
        for at in range(s.scalar[RUNNING_JOBS]):
            job = s.running[at]
            if (first == NOWHERE or job < first) and gpus_on(s, job, machine) > 0:
                first = job
        if first == NOWHERE:
            return
        _stop(u, s, b, first, CRASH)


@inner
def _break(u, s, b):
    """Let the machines whose time has come fail, or be repaired."""
    while s.scalar[OUTAGES] < len(u.outage_time) and u.outage_time[s.scalar[OUTAGES]] == s.scalar[NOW]:
        at = s.scalar[OUTAGES]
        machine = u.outage_machine[at]
        s.scalar[OUTAGES] = at + 1
        if u.outage_fails[at]:
            s.scalar[FAILURES] += 1
            _log_machine(s, b, FAIL, machine)
            _crash_on(u, s, b, machine)
            set_free(s, machine, 0)
        else:
            _log_machine(s, b, REPAIR, machine)
            set_free(s, machine, u.size[machine])


@inner
def _give_up(u, s, b):
    """Stop whoever runs: nobody gets done any more between failures."""
    while s.scalar[RUNNING_JOBS]:
        first = s.running[0]
        for at in range(1, s.scalar[RUNNING_JOBS]):
            first = min(first, s.running[at])
        _stop(u, s, b, first, PREEMPT)
    s.scalar[IS_OVER] = 1


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
    """Play until all is over, `steps` instants are done, known outages are, or the buffer has room for fewer than `margin` events."""
    s.scalar[EVENTS] = s.scalar[PLACES] = 0
    b.first[0] = 0
    for _ in range(steps):
        if s.scalar[EVENTS] + margin > len(b.time) or s.scalar[PLACES] + margin > len(b.machine):
            return
        if len(u.outage_time) and s.scalar[OUTAGES] == len(u.outage_time):
            return
        if s.scalar[FAILURES] > MOST_FAILURES:
            _give_up(u, s, b)
            return
        when = _next_time(u, s)
        if when == NEVER:
            s.scalar[IS_OVER] = 1
            return
        s.scalar[NOW] = when
        while next_event(s.scalar, s.version, s.end_time, s.end_job, s.end_version, ENDS) <= when:
            job = s.end_job[0]
            pop_event(s.scalar, s.end_time, s.end_job, s.end_version, ENDS)
            _stop(u, s, b, job, END)
            s.scalar[FAILURES] = 0
        _take_turns(u, s, b)
        _break(u, s, b)
        while s.scalar[ARRIVED] < len(u.submit) and u.submit[s.scalar[ARRIVED]] == when:
            _wait(u, s, s.scalar[ARRIVED])
            s.scalar[ARRIVED] += 1
            s.scalar[FAILURES] = 0
        _cross(u, s)
        can_preempt = u.preempts == AT_EVENTS or (u.preempts == AT_TICKS and when % u.quantum == 0)
        _pass(u, s, b, can_preempt, is_held)
