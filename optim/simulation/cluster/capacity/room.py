"""Compiled room of the capacity scheduler: which GPUs are free, by machine and rack, taking them, and giving them back."""

from optim.core.compile_cache import inner
from optim.simulation.cluster.capacity.state import (
    ASKS,
    BY_RACK,
    CHOSEN,
    FEWEST,
    FIRST,
    FIRST_GPU,
    FREE,
    FREE_GPUS,
    GROUP,
    HELD,
    HOLDER,
    IS_PASSED,
    LARGEST,
    MACHINE_OF,
    NEXT_GPU,
    NO_LEVEL,
    NOBODY,
    RACK,
    RACK_FIRST,
    RACK_FREE,
    USED,
    WIDTH,
)


@inner
def set_free(w, machine, free):
    """Let a machine have so many free GPUs."""
    before, rack = w.machine[machine, FREE_GPUS], w.machine[machine, RACK]
    w.machine[machine, FREE_GPUS] = free
    for row in (rack, len(w.shelf) - 1):
        w.shelf[row, before] -= 1
        w.shelf[row, free] += 1
    w.rack[rack, RACK_FREE] += free - before
    w.scalar[FREE] += free - before


@inner
def _take_of(w, job, machine, count, last):
    """Give a job the first free GPUs of a machine, behind the GPU `last` that it has; return the last one."""
    set_free(w, machine, w.machine[machine, FREE_GPUS] - count)
    gpu = w.machine[machine, FIRST]
    while count > 0:
        if w.gpu[gpu, HOLDER] == NOBODY:
            w.gpu[gpu, HOLDER] = job
            w.gpu[gpu, NEXT_GPU] = NOBODY
            if last == NOBODY:
                w.job[job, FIRST_GPU] = gpu
            else:
                w.gpu[last, NEXT_GPU] = gpu
            last = gpu
            count -= 1
        gpu += 1
    return last


@inner
def take_chosen(w, job):
    """Give a job the GPUs that were chosen: lowest numbers first, so that they are told in their order."""
    last = NOBODY
    for nth in range(w.scalar[CHOSEN]):
        machine, count = w.choice[nth, 0], w.choice[nth, 1]
        at = nth
        while at > 0 and w.choice[at - 1, 0] > machine:
            w.choice[at, 0], w.choice[at, 1] = w.choice[at - 1, 0], w.choice[at - 1, 1]
            at -= 1
        w.choice[at, 0], w.choice[at, 1] = machine, count
    for nth in range(w.scalar[CHOSEN]):
        last = _take_of(w, job, w.choice[nth, 0], w.choice[nth, 1], last)
    w.scalar[HELD] += w.job[job, WIDTH]
    w.group[w.job[job, GROUP], USED] += w.job[job, WIDTH]


@inner
def give_back(w, job):
    """Take all GPUs of a job back."""
    gpu = w.job[job, FIRST_GPU]
    while gpu != NOBODY:
        w.gpu[gpu, HOLDER] = NOBODY
        machine = w.gpu[gpu, MACHINE_OF]
        set_free(w, machine, w.machine[machine, FREE_GPUS] + 1)
        gpu = w.gpu[gpu, NEXT_GPU]
    w.job[job, FIRST_GPU] = NOBODY
    w.scalar[HELD] -= w.job[job, WIDTH]
    w.group[w.job[job, GROUP], USED] -= w.job[job, WIDTH]


@inner
def _machines_for(w, rack, width):
    """Return on how many machines of a rack a gang is put that takes those with most free GPUs first; it must have room."""
    count = 0
    for free in range(w.scalar[LARGEST], 0, -1):
        here = min(w.shelf[rack, free], (width + free - 1) // free)
        count += here
        width -= here * free
        if width <= 0:
            break
    return count


@inner
def _best_rack(w, width, fewest):
    """Return the rack with most free GPUs that holds a gang on so few machines (on any with `fewest` 0), `NOBODY` without one."""
    best = NOBODY
    for rack in range(len(w.rack) - 1):
        free = w.rack[rack, RACK_FREE]
        is_better = free >= width and (best == NOBODY or free > w.rack[best, RACK_FREE])
        if is_better and (fewest == 0 or _machines_for(w, rack, width) <= fewest):
            best = rack
    return best


@inner
def least_level(w, kind):
    """Return the least level of locality at which a width finds a place: 0, 1, 2, or `NO_LEVEL` where there is none."""
    width = w.kind[kind, ASKS]
    if width > w.scalar[FREE]:
        return NO_LEVEL
    if width <= w.scalar[LARGEST]:
        for free in range(width, w.scalar[LARGEST] + 1):
            if w.shelf[len(w.shelf) - 1, free] > 0:
                return 0
    elif _best_rack(w, width, w.kind[kind, FEWEST]) != NOBODY:
        return 0
    return 1 if _best_rack(w, width, 0) != NOBODY else 2


@inner
def _choose_in(w, rack, left):
    """Choose GPUs of a rack, machines with most free ones first; return how many are still wanted."""
    first, behind = w.rack[rack, RACK_FIRST], w.rack[rack + 1, RACK_FIRST]
    for free in range(w.scalar[LARGEST], 0, -1):
        if left > 0 and w.shelf[rack, free] > 0:
            for at in range(first, behind):
                machine = w.machine[at, BY_RACK]
                if left > 0 and w.machine[machine, FREE_GPUS] == free:
                    chosen = w.scalar[CHOSEN]
                    w.choice[chosen, 0], w.choice[chosen, 1] = machine, min(free, left)
                    w.scalar[CHOSEN] = chosen + 1
                    left -= min(free, left)
    return left


@inner
def choose(w, kind, level):
    """Choose GPUs for a width at a level of locality that has room for it: racks with most free ones first."""
    width = w.kind[kind, ASKS]
    w.scalar[CHOSEN] = 0
    if level < 2:
        _choose_in(w, _best_rack(w, width, w.kind[kind, FEWEST] if level == 0 else 0), width)
        return
    for rack in range(len(w.rack)):
        w.rack[rack, IS_PASSED] = 0
    while width > 0:
        most = NOBODY
        for rack in range(len(w.rack) - 1):
            if not w.rack[rack, IS_PASSED] and (most == NOBODY or w.rack[rack, RACK_FREE] > w.rack[most, RACK_FREE]):
                most = rack
        w.rack[most, IS_PASSED] = 1
        width = _choose_in(w, most, width)
