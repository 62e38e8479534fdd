"""Compiled placement: which GPUs a gang takes, and giving them back."""

from optim.core.compile_cache import inner
from optim.simulation.cluster.state import FREE_GPUS, FREE_PLACES, NOWHERE


@inner
def _level_with_room(num_with_free, width):
    """Return the least number of free GPUs of a machine that holds a gang, `NOWHERE` if there is no such machine."""
    for free in range(width, len(num_with_free)):
        if num_with_free[free] > 0:
            return free
    return NOWHERE


@inner
def has_room(u, s, width):
    """Tell whether a gang finds a place now."""
    if width > s.scalar[FREE_GPUS]:
        return False
    if u.may_spread:
        return True
    largest = len(s.num_with_free) - 1
    if width <= largest:
        return _level_with_room(s.num_with_free, width) != NOWHERE
    whole = 0
    for machine in range(len(u.size)):
        if s.free[machine] == u.size[machine]:
            whole += u.size[machine]
            if whole >= width:
                return True
    return False


@inner
def set_free(s, machine, free):
    """Let a machine have so many free GPUs."""
    s.num_with_free[s.free[machine]] -= 1
    s.num_with_free[free] += 1
    s.scalar[FREE_GPUS] += free - s.free[machine]
    s.free[machine] = free


@inner
def take(s, job, machine, gpus):
    """Give a job GPUs of a machine."""
    s.scalar[FREE_PLACES] -= 1
    place = s.spare[s.scalar[FREE_PLACES]]
    s.place_machine[place] = machine
    s.place_gpus[place] = gpus
    s.next_place[place] = s.head[job]
    s.head[job] = place
    set_free(s, machine, s.free[machine] - gpus)


@inner
def give_back(s, job):
    """Take all GPUs of a job back."""
    place = s.head[job]
    while place != NOWHERE:
        machine = s.place_machine[place]
        set_free(s, machine, s.free[machine] + s.place_gpus[place])
        s.spare[s.scalar[FREE_PLACES]] = place
        s.scalar[FREE_PLACES] += 1
        place = s.next_place[place]
    s.head[job] = NOWHERE


@inner
def gpus_on(s, job, machine):
    """Return how many GPUs of a machine a running job has."""
    place = s.head[job]
    while place != NOWHERE:
        if s.place_machine[place] == machine:
            return s.place_gpus[place]
        place = s.next_place[place]
    return 0


@inner
def _one_machine(u, s, width):
    """Return the machine that the rule gives a gang which one machine can hold."""
    if u.takes_first:
        for machine in range(len(u.size)):
            if s.free[machine] >= width:
                return machine
        return NOWHERE
    for nth in range(u.level_order.shape[1]):
        level = u.level_order[width, nth]
        if level == NOWHERE:
            return NOWHERE
        if s.num_with_free[level] > 0:
            for machine in range(len(u.size)):
                if s.free[machine] == level:
                    return machine
    return NOWHERE


@inner
def place(u, s, job):
    """Give a gang its GPUs; there must be room. Gangs wider than a machine take wholly free ones, largest first."""
    left = u.width[job]
    if left <= len(s.num_with_free) - 1:
        machine = _one_machine(u, s, left)
        if machine != NOWHERE:
            take(s, job, machine, left)
            return
    else:
        whole = 0
        for machine in range(len(u.size)):
            if s.free[machine] == u.size[machine]:
                whole += u.size[machine]
        if whole >= left:
            for at in range(len(u.by_size)):
                machine = u.by_size[at]
                if s.free[machine] == u.size[machine]:
                    gpus = min(left, u.size[machine])
                    take(s, job, machine, gpus)
                    left -= gpus
                    if left == 0:
                        return
    while left > 0:  # spread: the machine with the most free GPUs next
        most = 0
        for machine in range(1, len(u.size)):
            if s.free[machine] > s.free[most]:
                most = machine
        gpus = min(left, s.free[most])
        take(s, job, most, gpus)
        left -= gpus


@inner
def slowdown(u, s, job):
    """Return the slowdown of a job where it is placed, by the smallest part that holds all of its GPUs."""
    first = s.head[job]
    level = 0
    other = s.next_place[first]
    while other != NOWHERE:
        level = max(level, 1)
        if u.rack[s.place_machine[other]] != u.rack[s.place_machine[first]]:
            level = 2
        other = s.next_place[other]
    return u.slowdown[job, level]
