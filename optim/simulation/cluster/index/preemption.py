"""Compiled keys of index policies, and which running jobs make way for a more urgent one."""

from optim.compiled import inner
from optim.models.cluster.workload import PPM
from optim.simulation.cluster.index.policy import Key, Tie
from optim.simulation.cluster.index.state import FREE_GPUS, NEVER, NONE, RANKED, RUNNING, RUNNING_JOBS, VICTIMS

_, DRAWN, REMAINING_TIME, REMAINING_SERVICE, ATTAINED_TIME, ATTAINED_SERVICE, TABLE = map(int, Key)

BY_FIRST_START = int(Tie.FIRST_START)


@inner
def work_in(elapsed, factor):
    """Return the work done in a time at a slowdown in parts per million, rounded down, without leaving 64 bits."""
    if factor == PPM:  # divisions cost more than all the rest of a pass
        return elapsed
    return elapsed // factor * PPM + elapsed % factor * PPM // factor


@inner
def time_for(work, factor):
    """Return the time that work takes at a slowdown, rounded up."""
    return work // PPM * factor + (work % PPM * factor + PPM - 1) // PPM


@inner
def table_rank(threshold, threshold_rank, service):
    """Return the rank of an attained service: that behind the last threshold reached."""
    low, high = 0, len(threshold)
    while low < high:
        middle = (low + high) // 2
        if threshold[middle] <= service:
            low = middle + 1
        else:
            high = middle
    return threshold_rank[low]


@inner
def first_key(key, drawn, duration, width, executed, served, threshold, threshold_rank):
    """Return what orders a job that has run for `executed` and done `served`.

    It takes numbers, not the state: handing that over would cost more than the pass.
    """
    if key == DRAWN:
        return drawn
    if key == REMAINING_TIME:
        return duration - served
    if key == REMAINING_SERVICE:
        return (duration - served) * width
    if key == ATTAINED_TIME:
        return executed
    if key == ATTAINED_SERVICE:
        return executed * width
    if key == TABLE:
        return table_rank(threshold, threshold_rank, executed * width)
    return 0


@inner
def key_of_waiting(u, s, job):
    """Return the key and tie of a job that doesn't run."""
    tie = s.first_start[job] if u.tie == BY_FIRST_START else 0
    first = first_key(
        u.key,
        u.rank[job],
        u.duration[job],
        u.width[job],
        s.executed[job],
        s.served[job],
        u.threshold,
        u.threshold_rank,
    )
    return first, tie


@inner
def next_demotion(u, s, job):
    """Return when a job that just started reaches its next threshold, `NEVER` if there is none."""
    service = s.executed[job] * u.width[job]
    for at in range(len(u.demotion_threshold)):
        if u.demotion_threshold[at] > service:
            return s.run_since[job] + (u.demotion_threshold[at] - service + u.width[job] - 1) // u.width[job]
    return NEVER


UNORDERED = -1


@inner
def _is_less_urgent(key_1, key_2, job, a, b):
    """Tell whether victim entry a is less urgent than b."""
    if key_1[a] != key_1[b]:
        return key_1[a] > key_1[b]
    if key_2[a] != key_2[b]:
        return key_2[a] > key_2[b]
    return job[a] > job[b]


@inner
def _swap(key_1, key_2, job, a, b):
    key_1[a], key_1[b] = key_1[b], key_1[a]
    key_2[a], key_2[b] = key_2[b], key_2[a]
    job[a], job[b] = job[b], job[a]


@inner
def _sift(key_1, key_2, job, at, size):
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _is_less_urgent(key_1, key_2, job, below + 1, below):
            below += 1
        if not _is_less_urgent(key_1, key_2, job, below, at):
            break
        _swap(key_1, key_2, job, at, below)
        at = below


@inner
def list_victims(u, s, now):
    """List the running jobs with their keys; the least urgent stands first."""
    count = s.scalar[RUNNING_JOBS]
    s.scalar[VICTIMS] = count
    s.scalar[RANKED] = UNORDERED
    key, is_by_first_start = u.key, u.tie == BY_FIRST_START
    threshold, threshold_rank = u.threshold, u.threshold_rank
    running, victim, victim_1, victim_2 = s.running, s.victim, s.victim_1, s.victim_2
    run_since, executed, served, factor, first_start = s.run_since, s.executed, s.served, s.factor, s.first_start
    duration, width, rank = u.duration, u.width, u.rank
    worst = 0
    for at in range(count):
        job = running[at]
        elapsed = max(0, now - run_since[job])
        done = served[job] + work_in(elapsed, factor[job])
        first = first_key(
            key, rank[job], duration[job], width[job], executed[job] + elapsed, done, threshold, threshold_rank
        )
        victim[at], victim_1[at], victim_2[at] = job, first, first_start[job] if is_by_first_start else 0
        if _is_less_urgent(victim_1, victim_2, victim, at, worst):
            worst = at
    if count:
        _swap(victim_1, victim_2, victim, 0, worst)


@inner
def _rank_to(scalar, key_1, key_2, job, nth):
    """Sort the list so far that its nth least urgent entry is known.

    Entries asked for stand sorted at the end, the others are a heap.
    """
    count = scalar[VICTIMS]
    if scalar[RANKED] == UNORDERED:
        for at in range(count // 2 - 1, -1, -1):
            _sift(key_1, key_2, job, at, count)
        scalar[RANKED] = 0
    while scalar[RANKED] <= nth:
        size = count - scalar[RANKED] - 1
        _swap(key_1, key_2, job, 0, size)
        _sift(key_1, key_2, job, 0, size)
        scalar[RANKED] += 1


@inner
def _yields(s, at, job):
    """Tell whether the victim of an entry still runs and is less urgent than a waiting job."""
    other = s.victim[at]
    if s.status[other] != RUNNING:
        return False
    if s.victim_1[at] != s.key_1[job]:
        return s.victim_1[at] > s.key_1[job]
    if s.victim_2[at] != s.key_2[job]:
        return s.victim_2[at] > s.key_2[job]
    return other > job


@inner
def _is_barred(s, at, job):
    """Tell whether an entry, and with it all further ones, is at least as urgent as the waiting job."""
    if s.victim_1[at] != s.key_1[job]:
        return s.victim_1[at] < s.key_1[job]
    if s.victim_2[at] != s.key_2[job]:
        return s.victim_2[at] < s.key_2[job]
    return s.victim[at] < job


@inner
def choose_victims(u, s, job):
    """Mark (1) the running jobs that make room for a waiting one; return whether there are such.

    The least urgent go first, one after the other, until some place could hold the gang: one machine, or for wider
    gangs enough wholly free machines (with spreading: enough GPUs anywhere). Of those passed, only the ones on that
    place are needed, and of these the most urgent are spared first where room suffices without.
    """
    count = s.scalar[VICTIMS]
    if count == 0 or (s.scalar[RANKED] == UNORDERED and _is_barred(s, 0, job)):
        return False
    width = u.width[job]
    largest = len(s.num_with_free) - 1
    for machine in range(len(u.size)):
        s.available[machine] = s.free[machine]
    total = s.scalar[FREE_GPUS]
    whole = 0
    for machine in range(len(u.size)):
        if s.free[machine] == u.size[machine]:
            whole += u.size[machine]
    target = NONE
    found = False
    last = 0
    for nth in range(count):
        if s.scalar[RANKED] <= nth:
            _rank_to(s.scalar, s.victim_1, s.victim_2, s.victim, nth)
        at = count - 1 - nth
        if _is_barred(s, at, job):
            return False
        if not _yields(s, at, job):
            continue
        place = s.head[s.victim[at]]
        while place != NONE:
            machine = s.place_machine[place]
            s.available[machine] += s.place_gpus[place]
            total += s.place_gpus[place]
            if s.available[machine] == u.size[machine]:
                whole += u.size[machine]
            if s.available[machine] >= width and (target == NONE or machine < target):
                target = machine
            place = s.next_place[place]
        last = nth
        found = target != NONE if width <= largest else whole >= width
        if u.may_spread:
            found = total >= width
        if found:
            break
    if not found:
        return False
    if u.may_spread:
        _mark_on(s, job, last, NONE, total - width)
    elif width <= largest:
        _mark_on(s, job, last, target, s.available[target] - width)
    else:
        _mark_on_whole(u, s, job, last, whole - width)
    return True


@inner
def _mark_on(s, job, last, target, spare):
    """Spare the most urgent first where enough GPUs of a machine, of all machines for `NONE`, are free without them."""
    for nth in range(last, -1, -1):
        at = s.scalar[VICTIMS] - 1 - nth
        if _yields(s, at, job):
            gpus = 0
            place = s.head[s.victim[at]]
            while place != NONE:
                if target == NONE or s.place_machine[place] == target:
                    gpus += s.place_gpus[place]
                place = s.next_place[place]
            if gpus <= spare:
                spare -= gpus
            else:
                s.marked[s.victim[at]] = 1


@inner
def _mark_on_whole(u, s, job, last, spare):
    """Spare the most urgent first where enough machines are or become wholly free without them."""
    for nth in range(last, -1, -1):
        at = s.scalar[VICTIMS] - 1 - nth
        if _yields(s, at, job):
            lost = 0
            place = s.head[s.victim[at]]
            while place != NONE:
                machine = s.place_machine[place]
                if s.available[machine] == u.size[machine]:
                    lost += u.size[machine]
                s.available[machine] -= s.place_gpus[place]
                place = s.next_place[place]
            if lost <= spare:
                spare -= lost
                continue
            s.marked[s.victim[at]] = 1
            place = s.head[s.victim[at]]
            while place != NONE:
                s.available[s.place_machine[place]] += s.place_gpus[place]
                place = s.next_place[place]
