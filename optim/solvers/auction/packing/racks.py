"""Fill racks one after the other with loads of machines and bundles within a rack, compiled."""

import numpy as np

from optim.core.compile_cache import inner
from optim.solvers.auction.packing.best_fit import FAR, RACK, below

SIZE, IS_LOAD, LEFT, GIVEN = range(4)
"""Columns of a table of types; from `GIVEN` on one column a rack: how many it was given."""


@inner
def fill_racks(used, level, size, machine_rack, rack_free, random, place):
    """Fill one rack after the other as full as possible.

    For each rack a dynamic programme over (GPUs, machines) tells which totals can still be reached; among fillings
    that leave the least room the numbers stay near an equal share of what is left, so that no rack runs out of
    machines or of bundles. Returns which machine's load lies on each machine, and fills in the racks of bundles.
    """
    num_racks = len(rack_free)
    types = _types(used, level, size, num_racks)
    for r in range(num_racks):
        for t in range(len(types) - 1, 0, -1):
            j = below(random, t + 1)
            for c in range(types.shape[1]):
                types[t, c], types[j, c] = types[j, c], types[t, c]
        room, machines = rack_free[r], 0
        for m in range(len(machine_rack)):
            machines += machine_rack[m] == r
        best = _fullest(types, room, machines)
        for t in range(len(types)):
            u, is_load = types[t, SIZE], types[t, IS_LOAD]
            share = (types[t, LEFT] + below(random, num_racks - r)) // (num_racks - r)
            chosen, nearest = 0, FAR
            for n in range(_most(types[t], room, machines) + 1):
                is_fullest = n * u + best[t + 1, room - n * u, machines - n * is_load] == best[t, room, machines]
                if is_fullest and abs(n - share) < nearest:
                    chosen, nearest = n, abs(n - share)
            types[t, GIVEN + r] = chosen
            types[t, LEFT] -= chosen
            room -= chosen * u
            machines -= chosen * is_load
    return _laid_out(types, used, level, size, machine_rack, place)


@inner
def _types(used, level, size, num_racks):
    """Return the sizes of loads, then of bundles, with how many there are of each."""
    num_loads = used.max() + 1
    count = np.zeros(num_loads + size.max() + 1, dtype=np.int64)
    for m in range(len(used)):
        count[used[m]] += 1
    for k in range(len(level)):
        if level[k] == RACK:
            count[num_loads + size[k]] += 1
    count[0] = 0  # machines without a load go anywhere
    num_types = 0
    for number in count:
        num_types += number > 0
    types, t = np.zeros((num_types, GIVEN + num_racks), dtype=np.int64), 0
    for which in range(len(count)):  # one by one: whole columns and a choice between arrays take seconds to compile
        if count[which] > 0:
            types[t, IS_LOAD] = which < num_loads
            types[t, SIZE] = which if which < num_loads else which - num_loads
            types[t, LEFT] = count[which]
            t += 1
    return types


@inner
def _most(kind, room, machines):
    """Return how many of a type there are and have room."""
    most = min(kind[LEFT], room // kind[SIZE])
    return min(most, machines) if kind[IS_LOAD] else most


@inner
def _fullest(types, room, machines):
    """Return by (type, GPUs, machines) the most GPUs that this type and the later ones fill."""
    best = np.zeros((len(types) + 1, room + 1, machines + 1), dtype=np.int64)
    for t in range(len(types) - 1, -1, -1):
        u, is_load = types[t, SIZE], types[t, IS_LOAD]
        for left in range(room + 1):
            for free in range(machines + 1):
                top = 0
                for n in range(_most(types[t], left, free) + 1):
                    top = max(top, n * u + best[t + 1, left - n * u, free - n * is_load])
                best[t, left, free] = top
    return best


@inner
def _laid_out(types, used, level, size, machine_rack, place):
    """Give loads their machines and bundles their racks; what no rack was given goes anywhere."""
    num_machines = len(machine_rack)
    where = np.full(num_machines, -1, dtype=np.int64)
    is_used = np.zeros(num_machines, dtype=np.bool_)
    for t in range(len(types)):
        for r in range(types.shape[1] - GIVEN):
            for _ in range(types[t, GIVEN + r]):
                if types[t, IS_LOAD]:
                    spot, source = -1, -1
                    for m in range(num_machines):
                        if spot < 0 and where[m] < 0 and machine_rack[m] == r:
                            spot = m
                        if source < 0 and not is_used[m] and used[m] == types[t, SIZE]:
                            source = m
                    where[spot], is_used[source] = source, True
                else:
                    for k in range(len(level)):
                        if level[k] == RACK and size[k] == types[t, SIZE] and place[k] < 0:
                            place[k] = r
                            break
    where[where < 0] = np.flatnonzero(~is_used)
    return where
