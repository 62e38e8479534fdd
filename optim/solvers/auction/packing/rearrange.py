"""Find room for bundles by exchange between racks where best fit finds none, compiled."""

import numpy as np

from optim.core.compile_cache import compiled, inner
from optim.solvers.auction.packing.best_fit import FAR, MACHINE, NAMED, RACK, SLOT, below, best_fit
from optim.solvers.auction.packing.racks import fill_racks


@compiled
def rearrange(level, size, target, slot_machine, machine_rack, slot_free, machine_free, rack_free, place, seed, moves):
    """Search for room by exchange; fill in `place` and return whether all found room.

    Bundles of one slot or machine are packed by best fit, whatever the racks hold then. Where machines are all
    alike, their loads and the bundles within a rack then fill rack by rack (`fill_racks`); elsewhere bundles go
    where most room is left. Last, overfull racks give loads of machines in exchange for smaller ones, or pass on
    bundles, as long as the overflow doesn't grow.
    """
    random = np.array([seed], dtype=np.uint64)
    num_machines = len(machine_rack)
    machine, endless = machine_free.copy(), np.full(len(rack_free), FAR)
    if not best_fit(level, size, target, slot_machine, machine_rack, slot_free.copy(), machine, endless, random, place):
        return False
    used = machine_free - machine
    inner = np.flatnonzero(level == RACK)
    place[inner] = -1
    is_fixed = np.zeros(num_machines, dtype=np.bool_)
    for k in range(len(level)):
        if level[k] == NAMED:
            is_fixed[target[k]] = True
    kind, num_slots = _kinds(slot_machine, slot_free, num_machines)
    where = np.arange(num_machines)  # machine whose load lies on machine m now
    if not is_fixed.any() and kind.min() == kind.max():
        where = fill_racks(used, level, size, machine_rack, rack_free, random, place)
        used = used[where]
    load = _loads(used, machine_rack, inner, size, place, rack_free)
    # Loads trade places between machines with equal slots, or of one slot each.
    alike = kind.copy()
    for m in range(num_machines):
        if num_slots[m] == 1:
            alike[m] = -1
    _exchange(
        load, used, where, inner, size, place, alike, is_fixed, machine_free, machine_rack, rack_free, random, moves
    )
    if (load > rack_free).any():
        return False
    lies, first = np.empty(num_machines, dtype=np.int64), np.searchsorted(slot_machine, np.arange(num_machines))
    for m in range(num_machines):
        lies[where[m]] = m
    for k in range(len(level)):
        if level[k] == MACHINE:
            place[k] = lies[place[k]]
        elif level[k] == SLOT:
            m = slot_machine[place[k]]
            place[k] = first[lies[m]] + place[k] - first[m]
    return True


@inner
def _kinds(slot_machine, slot_free, num_machines):
    """Return the kind of each machine, told by its first one, and how many slots it has.

    Machines are of one kind where they have as many slots, and slot by slot as much is free: a bundle of a slot lies
    on the same one wherever its load goes. So slots that are fully held tell machines apart, too.
    """
    kind, count = np.zeros(num_machines, dtype=np.int64), np.zeros(num_machines, dtype=np.int64)
    for s in range(len(slot_machine)):
        count[slot_machine[s]] += 1
    first = np.searchsorted(slot_machine, np.arange(num_machines))
    known, num_known = np.empty(num_machines, dtype=np.int64), 0
    for m in range(num_machines):
        kind[m] = m
        for q in known[:num_known]:
            s = 0
            while s < count[m] == count[q] and slot_free[first[q] + s] == slot_free[first[m] + s]:
                s += 1
            if s == count[m] == count[q]:
                kind[m] = q
                break
        if kind[m] == m:
            known[num_known] = m
            num_known += 1
    return kind, count


@inner
def _loads(used, machine_rack, inner, size, place, rack_free):
    """Return the load of each rack; bundles within a rack that have none yet go where most room is left."""
    load = np.zeros(len(rack_free), dtype=np.int64)
    for m in range(len(used)):
        load[machine_rack[m]] += used[m]
    for k in inner:
        if place[k] >= 0:
            load[place[k]] += size[k]
    for k in inner:
        if place[k] < 0:
            chosen, most = 0, -FAR
            for r in range(len(load)):
                if rack_free[r] - load[r] > most and size[k] <= rack_free[r]:
                    chosen, most = r, rack_free[r] - load[r]
            load[chosen] += size[k]
            place[k] = chosen
    return load


@inner
def _exchange(
    load, used, where, inner, size, place, alike, is_fixed, machine_free, machine_rack, rack_free, random, moves
):
    """Let the rack with the largest overflow trade loads of machines, or any rack bundles, until none overflows."""
    num_machines, num_racks = len(machine_rack), len(rack_free)
    by_rack = np.argsort(machine_rack)
    first_of = np.searchsorted(machine_rack[by_rack], np.arange(num_racks + 1))
    for _ in range(moves):
        worst = (load - rack_free).argmax()
        if load[worst] <= rack_free[worst]:
            return
        if len(inner) and below(random, 4) == 0:
            k = inner[below(random, len(inner))]
            r, other = place[k], below(random, num_racks)
            if r == other or (load[r] <= rack_free[r] and below(random, 8)):
                continue
            j = inner[below(random, len(inner))] if below(random, 2) else -1
            back = size[j] if j >= 0 and place[j] == other else 0
            if _has_shifted(load, rack_free, r, other, size[k] - back):
                place[k] = other
                if back:
                    place[j] = r
            continue
        m = by_rack[first_of[worst] + below(random, first_of[worst + 1] - first_of[worst])]
        other = below(random, num_machines)
        r, q = machine_rack[m], machine_rack[other]
        if r == q or is_fixed[m] or is_fixed[other] or used[m] == used[other]:
            continue
        if alike[m] != alike[other] or used[m] > machine_free[other] or used[other] > machine_free[m]:
            continue
        if _has_shifted(load, rack_free, r, q, used[m] - used[other]):
            used[m], used[other] = used[other], used[m]
            where[m], where[other] = where[other], where[m]


@inner
def _has_shifted(load, rack_free, source, target, shift):
    """Shift load from one rack to another unless their overflow grows; return whether it was done."""
    before = max(0, load[source] - rack_free[source]) + max(0, load[target] - rack_free[target])
    after = max(0, load[source] - shift - rack_free[source]) + max(0, load[target] + shift - rack_free[target])
    if after > before:
        return False
    load[source] -= shift
    load[target] += shift
    return True
