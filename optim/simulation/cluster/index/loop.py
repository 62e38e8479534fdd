"""The compiled loop of index policies: queues, timed events, and the order of events at one instant.

The rules are told at `optim.simulation.cluster.index.policy.IndexPolicy` and in docs/cluster.md.
"""

from optim.compiled import compiled, inner
from optim.models.cluster.log import NO_JOB, Event
from optim.simulation.cluster.index.policy import Preempts
from optim.simulation.cluster.index.preemption import (
    choose_victims,
    key_of_waiting,
    list_victims,
    next_demotion,
    time_for,
    work_in,
)
from optim.simulation.cluster.index.state import (
    ARRIVED,
    BACKOFF,
    DEMOTIONS,
    ENDS,
    EVENTS,
    FAILURES,
    IS_OVER,
    NEVER,
    NONE,
    NOW,
    OUTAGES,
    OVER,
    PLACES,
    RANKED,
    RUNNING,
    RUNNING_JOBS,
    TURNS,
    VICTIMS,
    WAITING,
    give_back,
    gpus_on,
    has_room,
    place,
    set_free,
    slowdown,
)
from optim.simulation.cluster.options import MAX_FAILURES


@inner
def is_before(key_1, key_2, a, b):
    """Tell whether waiting job a comes before b: by its key, then by submission (rows are sorted by it)."""
    if key_1[a] != key_1[b]:
        return key_1[a] < key_1[b]
    if key_2[a] != key_2[b]:
        return key_2[a] < key_2[b]
    return a < b


@inner
def _raise(heap, key_1, key_2, at, job):
    """Put a job into the heap from the position `at` upwards."""
    while at > 0:
        above = (at - 1) // 2
        if not is_before(key_1, key_2, job, heap[above]):
            break
        heap[at] = heap[above]
        at = above
    heap[at] = job


@inner
def _lower(heap, key_1, key_2, size, job):
    """Put a job into the heap from the top downwards."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and is_before(key_1, key_2, heap[child + 1], heap[child]):
            child += 1
        if not is_before(key_1, key_2, heap[child], job):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = job


@inner
def push_waiting(s, width_class, job):
    """Let a job wait among those of its width."""
    size = s.heap_size[width_class]
    s.heap_size[width_class] += 1
    _raise(s.heap[s.heap_first[width_class] :], s.key_1, s.key_2, size, job)


@inner
def pop_waiting(s, width_class):
    """Take the first waiting job of a width away."""
    base = s.heap_first[width_class]
    s.heap_size[width_class] -= 1
    size = s.heap_size[width_class]
    if size:
        _lower(s.heap[base:], s.key_1, s.key_2, size, s.heap[base + size])


@inner
def _is_earlier(time, job, a, b):
    if time[a] != time[b]:
        return time[a] < time[b]
    return job[a] < job[b]


@inner
def _move(time, job, version, source, target):
    time[target] = time[source]
    job[target] = job[source]
    version[target] = version[source]


@inner
def _sift_up(time, job, version, at):
    when, who, which = time[at], job[at], version[at]
    while at > 0:
        above = (at - 1) // 2
        if time[above] < when or (time[above] == when and job[above] <= who):
            break
        _move(time, job, version, above, at)
        at = above
    time[at], job[at], version[at] = when, who, which


@inner
def _sift_down(time, job, version, at, size):
    when, who, which = time[at], job[at], version[at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _is_earlier(time, job, below + 1, below):
            below += 1
        if when < time[below] or (when == time[below] and who <= job[below]):
            break
        _move(time, job, version, below, at)
        at = below
    time[at], job[at], version[at] = when, who, which


@inner
def push_event(scalar, runs, time, job, version, counter, when, who):
    """Add an event of a job's present run; void entries are cleared when the heap is full."""
    size = scalar[counter]
    if size == len(time):
        kept = 0
        for at in range(size):
            if version[at] == runs[job[at]]:
                _move(time, job, version, at, kept)
                kept += 1
        for at in range(kept // 2, -1, -1):
            if at < kept:
                _sift_down(time, job, version, at, kept)
        size = kept
    time[size], job[size], version[size] = when, who, runs[who]
    scalar[counter] = size + 1
    _sift_up(time, job, version, size)


@inner
def pop_event(scalar, time, job, version, counter):
    """Take the first event away."""
    size = scalar[counter] - 1
    scalar[counter] = size
    if size > 0:
        _move(time, job, version, size, 0)
        _sift_down(time, job, version, 0, size)


@inner
def next_event(scalar, runs, time, job, version, counter):
    """Return when the first event of a run that still goes on happens, `NEVER` if there is none."""
    while scalar[counter] > 0:
        if version[0] == runs[job[0]]:
            return time[0]
        pop_event(scalar, time, job, version, counter)
    return NEVER


START, PREEMPT, END, KILLED_BY_OUTAGE = int(Event.START), int(Event.PREEMPT), int(Event.END), int(Event.CRASH)

MACHINE_DOWN, REPAIR = int(Event.FAIL), int(Event.REPAIR)

ATTEMPT_FAILED, JOB_FAILED = int(Event.FAULT), int(Event.GIVE_UP)

_, AT_EVENTS, AT_TICKS = map(int, Preempts)


@inner
def _log(s, b, kind, job):
    event, entry = s.scalar[EVENTS], s.scalar[PLACES]
    b.time[event], b.kind[event], b.job[event] = s.scalar[NOW], kind, job
    if kind == START:
        at = s.head[job]
        while at != NONE:  # linked last to first; told in the order in which they were taken
            entry += 1
            at = s.next_place[at]
        last = entry
        at = s.head[job]
        while at != NONE:
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
def _schedule_timer(s, when, job):
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
        _schedule_timer(s, ends, job)
    else:
        ends = s.run_since[job] + time_for(u.duration[job] - s.served[job], s.factor[job])
        push_event(s.scalar, s.version, s.end_time, s.end_job, s.end_version, ENDS, ends, job)
    if len(u.demotion_threshold):
        demoted = next_demotion(u, s, job)
        if demoted < ends:
            push_event(
                s.scalar, s.version, s.demotion_time, s.demotion_job, s.demotion_version, DEMOTIONS, demoted, job
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
    step = u.checkpoint if kind == KILLED_BY_OUTAGE else u.preempt_checkpoint if kind == PREEMPT else 0
    if step > 0:
        s.scalar[FAILURES] += kind == PREEMPT
        kept = max(s.served[job], done // step * step)
        s.lost[job] += done - kept
        done = kept
    if kind in (ATTEMPT_FAILED, JOB_FAILED):
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
    if kind == ATTEMPT_FAILED and u.retry_wait > 0:
        s.status[job] = BACKOFF
        _schedule_timer(s, now + u.retry_wait, job)
    elif kind not in (END, JOB_FAILED):
        _wait(u, s, job)


@inner
def _take_turns(u, s, b):
    """Let tries fail whose time has come, and those wait again that were held back long enough."""
    while _next_turn(s) <= s.scalar[NOW]:
        job = s.turn_job[0]
        pop_event(s.scalar, s.turn_time, s.turn_job, s.turn_version, TURNS)
        if s.status[job] == BACKOFF:
            _wait(u, s, job)
        else:
            _stop(u, s, b, job, JOB_FAILED if s.tried[job] + 1 >= u.last_try[job] else ATTEMPT_FAILED)
        s.scalar[FAILURES] = 0


@inner
def _first_waiting(s, is_held):
    best = NONE
    for width_class in range(len(s.heap_size)):
        if s.heap_size[width_class] and not is_held[width_class]:
            job = s.heap[s.heap_first[width_class]]
            if best == NONE or is_before(s.key_1, s.key_2, job, best):
                best = job
    return best


@inner
def _pass(u, s, b, can_preempt, is_held):
    """Go through the jobs in the policy's order once."""
    is_held[:] = False
    is_listed = False
    while True:
        job = _first_waiting(s, is_held)
        if job == NONE:
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
            when, next_event(s.scalar, s.version, s.demotion_time, s.demotion_job, s.demotion_version, DEMOTIONS)
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
        first = NONE
        for at in range(s.scalar[RUNNING_JOBS]):
            job = s.running[at]
            if (first == NONE or job < first) and gpus_on(s, job, machine) > 0:
                first = job
        if first == NONE:
            return
        _stop(u, s, b, first, KILLED_BY_OUTAGE)


@inner
def _apply_outages(u, s, b):
    """Let the machines whose time has come fail, or be repaired."""
    while s.scalar[OUTAGES] < len(u.outage_time) and u.outage_time[s.scalar[OUTAGES]] == s.scalar[NOW]:
        at = s.scalar[OUTAGES]
        machine = u.outage_machine[at]
        s.scalar[OUTAGES] = at + 1
        if u.outage_fails[at]:
            s.scalar[FAILURES] += 1
            _log_machine(s, b, MACHINE_DOWN, machine)
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
def _demote_queue(u, s):
    """Take the thresholds reached by now away, and note each job's next."""
    while (
        next_event(s.scalar, s.version, s.demotion_time, s.demotion_job, s.demotion_version, DEMOTIONS) <= s.scalar[NOW]
    ):
        job = s.demotion_job[0]
        pop_event(s.scalar, s.demotion_time, s.demotion_job, s.demotion_version, DEMOTIONS)
        service = (s.executed[job] + s.scalar[NOW] - s.run_since[job]) * u.width[job]
        for at in range(len(u.demotion_threshold)):
            if u.demotion_threshold[at] > service:
                ahead = (u.demotion_threshold[at] - service + u.width[job] - 1) // u.width[job]
                push_event(
                    s.scalar,
                    s.version,
                    s.demotion_time,
                    s.demotion_job,
                    s.demotion_version,
                    DEMOTIONS,
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
        if s.scalar[FAILURES] > MAX_FAILURES:
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
        _apply_outages(u, s, b)
        while s.scalar[ARRIVED] < len(u.submit) and u.submit[s.scalar[ARRIVED]] == when:
            _wait(u, s, s.scalar[ARRIVED])
            s.scalar[ARRIVED] += 1
            s.scalar[FAILURES] = 0
        _demote_queue(u, s)
        can_preempt = u.preempts == AT_EVENTS or (u.preempts == AT_TICKS and when % u.quantum == 0)
        _pass(u, s, b, can_preempt, is_held)
