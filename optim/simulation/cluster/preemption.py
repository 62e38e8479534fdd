"""Compiled preemption: which running jobs make room for a more urgent one."""

from optim.core.compile_cache import inner
from optim.simulation.cluster.keys import BY_FIRST_START, first_key, work_in
from optim.simulation.cluster.places import gpus_on
from optim.simulation.cluster.state import FREE_GPUS, NOWHERE, RANKED, RUNNING, RUNNING_JOBS, VICTIMS

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
    target = NOWHERE
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
        while place != NOWHERE:
            machine = s.place_machine[place]
            s.available[machine] += s.place_gpus[place]
            total += s.place_gpus[place]
            if s.available[machine] == u.size[machine]:
                whole += u.size[machine]
            if s.available[machine] >= width and (target == NOWHERE or machine < target):
                target = machine
            place = s.next_place[place]
        last = nth
        found = target != NOWHERE if width <= largest else whole >= width
        if u.may_spread:
            found = total >= width
        if found:
            break
    if not found:
        return False
    if u.may_spread:
        _mark_anywhere(s, job, last, total - width)
    elif width <= largest:
        _mark_on_machine(s, job, last, target, s.available[target] - width)
    else:
        _mark_on_whole(u, s, job, last, whole - width)
    return True


@inner
def _mark_anywhere(s, job, last, spare):
    for nth in range(last, -1, -1):
        at = s.scalar[VICTIMS] - 1 - nth
        if _yields(s, at, job):
            gpus = 0
            place = s.head[s.victim[at]]
            while place != NOWHERE:
                gpus += s.place_gpus[place]
                place = s.next_place[place]
            if gpus <= spare:
                spare -= gpus
            else:
                s.marked[s.victim[at]] = 1


@inner
def _mark_on_machine(s, job, last, target, spare):
    for nth in range(last, -1, -1):
        at = s.scalar[VICTIMS] - 1 - nth
        if _yields(s, at, job):
            gpus = gpus_on(s, s.victim[at], target)
            if gpus > 0:
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
            while place != NOWHERE:
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
            while place != NOWHERE:
                s.available[s.place_machine[place]] += s.place_gpus[place]
                place = s.next_place[place]
