"""Compiled: what jobs wait for, summed up from one change to the next. The checker's own."""

import numpy as np

from optim.core.compile_cache import compiled, inner


@inner
def _why(gang, part, asks, can_run, size, is_down, left, host, may_spread):
    """Return 1 where enough GPUs are free and the gang finds no place, 2 where too few are, 3 where it finds one."""
    free, beside, whole, best, largest = 0, 0, 0, 0, 0
    gpu = 0
    for machine in range(len(size)):
        here = 0
        if can_run[machine]:
            largest = max(largest, size[machine])
            if not is_down[machine]:
                for each in range(gpu, gpu + size[machine]):
                    here += left[each] >= part
                free += here
                for what in range(2):
                    if asks[what] > 0:
                        here = min(here, host[what, machine] // asks[what])
                beside += here
                best = max(best, here)
                whole += here if here == size[machine] else 0
        gpu += size[machine]
    if free < gang:
        return 2
    room = beside if may_spread else best if gang <= largest else whole
    return 3 if room >= gang else 1


@compiled
def sweep(time, what, more, group, needs, can_run, quota, size, host, may_spread):
    """Return the time that jobs wait over their quota, fragmented, for want of GPUs, and behind others; in microseconds.

    Parameters
    ----------
    time, what, more
        Changes in order: of how many jobs of a class wait; after the classes of how many GPUs a group holds; then of what of
        each GPU is taken; then of which machines are down; last of the vCPU, and the memory, of each machine that are taken.
    group, needs, can_run
        Of each class: whose, what it asks for (gang, part of a GPU, vCPU, memory), and the machines it may be on.
    quota, size, host
        GPUs of each group and machine, and vCPU and memory of each machine.
    may_spread
        Whether a gang may take GPUs anywhere.
    """
    classes, groups, machines = len(group), len(quota), len(size)
    waits, holds, is_down = np.zeros(classes, np.int64), np.zeros(groups, np.int64), np.zeros(machines, np.int64)
    left, beside = np.full(size.sum(), 1000), host.copy()
    why = np.zeros(classes, np.int64)
    is_known = False
    total = np.zeros(4)
    for step in range(len(time)):
        if step and time[step] > time[step - 1]:
            if not is_known:
                why[:] = -1
                is_known = True
            for each in range(classes):
                if waits[each] > 0:
                    if holds[group[each]] >= quota[group[each]]:
                        total[0] += float(waits[each] * (time[step] - time[step - 1]))
                        continue
                    if why[each] < 0:
                        why[each] = _why(
                            needs[each, 0], needs[each, 1], needs[each, 2:], can_run[each], size, is_down, left, beside,
                            may_spread,
                        )  # fmt: skip
                    total[why[each]] += float(waits[each] * (time[step] - time[step - 1]))
        at = what[step]
        if at < classes:
            waits[at] += more[step]
            continue
        if at < classes + groups:
            holds[at - classes] += more[step]
            continue
        is_known = False
        at -= classes + groups
        if at < len(left):
            left[at] -= more[step]
        elif at < len(left) + machines:
            is_down[at - len(left)] += more[step]
        else:
            at -= len(left) + machines
            beside[at // machines, at % machines] -= more[step]
    return total
