"""Compiled preemption of the capacity scheduler: virtual clusters under quota take back what others hold beyond theirs."""

from optim.core.compile_cache import inner
from optim.simulation.cluster.capacity.filling import start
from optim.simulation.cluster.capacity.room import give_back
from optim.simulation.cluster.capacity.state import (
    AFTER,
    ASKS,
    BEFORE,
    BY_SIZE,
    CHOSEN,
    ENOUGH,
    FIRST,
    FIRST_GPU,
    FREE,
    FREE_GPUS,
    GROUP,
    GROUP_WAITING,
    HEAD,
    HELD,
    HOLDER,
    IS_HOPELESS,
    IS_PASSED_OVER,
    KIND,
    LARGEST,
    LAST_RUNNING,
    MACHINE_OF,
    MAY_SPREAD,
    NEVER,
    NEXT_GPU,
    NOBODY,
    REACHED,
    RUNNING,
    SIZE,
    SPARE,
    STARTED,
    STATUS,
    STOPPED,
    STOPPING,
    TAKES_FIRST,
    TRIAL,
    USED,
    VISITED,
    WIDTH,
)


@inner
def _forget_hopeless(w):
    for kind in range(len(w.kind)):
        w.kind[kind, IS_HOPELESS] = 0


@inner
def _num_above(w):
    """Return how many virtual clusters hold more than their quota by a GPU, nobody being stopped on trial."""
    count = 0
    for group in range(len(w.group)):
        w.group[group, SPARE] = w.group[group, USED]
        count += w.group[group, SPARE] - 1 >= w.quota[group]
    return count


@inner
def _begin_trial(w):
    """Begin a trial: nobody is stopped. Return free GPUs, those of wholly free machines, and the most of a machine."""
    whole = most = 0
    for machine in range(len(w.machine)):
        free = w.machine[machine, FREE_GPUS]
        w.machine[machine, TRIAL] = free
        whole += free if free == w.machine[machine, SIZE] else 0
        most = max(most, free)
    return w.scalar[FREE], whole, most


@inner
def _free_on_trial(w, victim, whole, most):
    """Give a victim's GPUs back on trial; return GPUs of wholly free machines, and the most of a machine, after it."""
    gpu = w.job[victim, FIRST_GPU]
    while gpu != NOBODY:
        machine = w.gpu[gpu, MACHINE_OF]
        free = w.machine[machine, TRIAL] + 1
        w.machine[machine, TRIAL] = free
        whole += free if free == w.machine[machine, SIZE] else 0
        most = max(most, free)
        gpu = w.gpu[gpu, NEXT_GPU]
    return whole, most


@inner
def _choose_one(w, width):
    """Return the machine that the engine's rule gives a gang which one machine holds on trial."""
    if w.scalar[TAKES_FIRST]:
        for machine in range(len(w.machine)):
            if w.machine[machine, TRIAL] >= width:
                return machine
    for nth in range(w.levels.shape[1]):
        for machine in range(len(w.machine)):
            if w.machine[machine, TRIAL] == w.levels[width, nth]:
                return machine
    return NOBODY


@inner
def _add_choice(w, machine, count):
    chosen = w.scalar[CHOSEN]
    w.choice[chosen, 0], w.choice[chosen, 1] = machine, count
    w.scalar[CHOSEN] = chosen + 1
    return count


@inner
def _choose_on_trial(w, width, whole, most):
    """Choose GPUs by the engine's rule: of one machine, of wholly free ones, or of those with most free ones; there is room."""
    w.scalar[CHOSEN] = 0
    if width <= w.scalar[LARGEST] and most >= width:
        _add_choice(w, _choose_one(w, width), width)
        return
    if width > w.scalar[LARGEST] and whole >= width:
        for at in range(len(w.machine)):
            machine = w.machine[at, BY_SIZE]
            if width > 0 and w.machine[machine, TRIAL] == w.machine[machine, SIZE]:
                width -= _add_choice(w, machine, min(width, w.machine[machine, SIZE]))
        return
    for free in range(w.scalar[LARGEST], 0, -1):
        for machine in range(len(w.machine)):
            if width > 0 and w.machine[machine, TRIAL] == free:
                width -= _add_choice(w, machine, min(width, free))


@inner
def _stop_on_choice(w, passed):
    """Stop those of the victims passed that have GPUs among the first ones chosen of each machine."""
    for nth in range(passed):
        w.job[w.passed[nth], STATUS] = STOPPING  # who has GPUs that may be taken
    before = w.scalar[STOPPED]
    for nth in range(w.scalar[CHOSEN]):
        gpu, left = w.machine[w.choice[nth, 0], FIRST], w.choice[nth, 1]
        while left > 0:
            holder = w.gpu[gpu, HOLDER]
            if holder == NOBODY:
                left -= 1
            elif w.job[holder, STATUS] == STOPPING:
                left -= 1
                is_new = True
                for at in range(before, w.scalar[STOPPED]):
                    is_new = is_new and w.stopped[at] != holder
                if is_new:
                    w.stopped[w.scalar[STOPPED]] = holder
                    w.scalar[STOPPED] += 1
            gpu += 1
    for nth in range(passed):
        w.job[w.passed[nth], STATUS] = RUNNING
    for at in range(before, w.scalar[STOPPED]):
        w.job[w.stopped[at], STATUS] = STOPPING
        give_back(w, w.stopped[at])


@inner
def _make_room(w, job):
    """Stop the newest jobs of virtual clusters that stay at their quota without them until a job finds a place; tell whether it did."""
    width, passed = w.job[job, WIDTH], 0
    free, whole, most = _begin_trial(w)
    above, victim = _num_above(w), w.scalar[LAST_RUNNING]
    while victim != NOBODY and above:
        group, held = w.job[victim, GROUP], w.job[victim, WIDTH]
        if w.job[victim, STATUS] == RUNNING and w.group[group, SPARE] - held >= w.quota[group]:
            w.group[group, SPARE] -= held
            above -= w.group[group, SPARE] - 1 < w.quota[group]
            w.passed[passed] = victim
            passed += 1
            free += held
            whole, most = _free_on_trial(w, victim, whole, most)
            is_held = most >= width if width <= w.scalar[LARGEST] else whole >= width
            if is_held or (w.scalar[MAY_SPREAD] and free >= width):
                _choose_on_trial(w, width, whole, most)
                _stop_on_choice(w, passed)
                start(w, job)
                return True
        victim = w.job[victim, BEFORE]
    return False


@inner
def _next_stuck(w, group, before):
    """Return the next job of a virtual cluster that fits into its quota and may find room, `before` some job; `NOBODY` without one."""
    first = NOBODY
    for kind in range(len(w.kind)):
        if not w.kind[kind, IS_HOPELESS] and w.kind[kind, ASKS] <= w.quota[group] - w.group[group, USED]:
            job = w.cell[group * len(w.kind) + kind, HEAD]
            while job != NOBODY and job <= w.group[group, REACHED]:
                job = w.job[job, AFTER]
            if job != NOBODY and job < before and (first == NOBODY or job < first):
                first = job
    return first


@inner
def _may_help(w):
    """Tell whether somebody waits who fits into its quota, and somebody holds more than that."""
    if w.scalar[HELD] <= w.scalar[ENOUGH] or not _num_above(w):
        return False
    _forget_hopeless(w)
    for group in range(len(w.group)):
        w.group[group, REACHED] = NOBODY
    for group in range(len(w.group)):
        if w.group[group, GROUP_WAITING] and _next_stuck(w, group, NEVER) != NOBODY:
            return True
    return False


@inner
def _least_visited(w):
    """Return the virtual cluster that the pass visits next, `NOBODY` when it is through with all."""
    best, least = NOBODY, 0.0
    for group in range(len(w.group)):
        share = w.group[group, VISITED] / w.quota[group]
        if not w.group[group, IS_PASSED_OVER] and (best == NOBODY or share < least):
            best, least = group, share
    return best


@inner
def take_back(w):
    """Make room for jobs that found none, in the order in which the pass came past them.

    The pass visits the virtual cluster that uses least of its quota: it goes past jobs without a place up to one that it
    starts, and past all that are left where there is none, which ends its visits. `fill` skips what finds no place; from the
    jobs that it started the visits are told again here, where their order matters.
    """
    if not _may_help(w):
        return
    for group in range(len(w.group)):
        w.group[group, IS_PASSED_OVER], w.group[group, VISITED] = 0, w.group[group, USED]
    filled = w.scalar[STARTED]
    for nth in range(filled):
        w.group[w.job[w.started[nth], GROUP], VISITED] -= w.job[w.started[nth], WIDTH]
    nth = 0
    while True:
        group = _least_visited(w)
        if group == NOBODY:
            return
        before = NEVER
        if nth < filled and w.job[w.started[nth], GROUP] == group:
            before = w.started[nth]
            w.group[group, VISITED] += w.job[before, WIDTH]
            nth += 1
        else:
            w.group[group, IS_PASSED_OVER] = 1
        job = _next_stuck(w, group, before)
        while job != NOBODY:
            if w.scalar[HELD] <= w.scalar[ENOUGH]:
                return
            w.group[group, REACHED] = job
            if _make_room(w, job):
                _forget_hopeless(w)
            else:
                w.kind[w.job[job, KIND], IS_HOPELESS] = 1
            job = _next_stuck(w, group, before)
