"""Find room for bundles by largest-first best fit on the tree of GPUs, compiled.

Room is counted on slots, machines, racks and in all; a bundle takes room on its own level and above. Bundles
that name machines come first, then those within a rack (into the fullest rack that holds them), then those of
one slot or one machine, largest first, into the fullest that holds them; those that may spread anywhere take
what is left. Counts are turned into GPUs from the narrowest level to the widest, which always succeeds.
"""

import numpy as np

from optim.core.compile_cache import compiled

SLOT, MACHINE, RACK, CLUSTER, NAMED = range(5)
FAR = 1 << 60


@compiled
def reserve(level, size, target, slot_machine, machine_rack, slot_free, machine_free, rack_free, place):
    """Fill in the slot, machine or rack of each item; return whether all found room.

    Items come in the order in which they are placed. `target` is the machine of a named item.
    """
    slot, machine, rack = slot_free.copy(), machine_free.copy(), rack_free.copy()
    total = 0
    for s in range(len(slot)):
        total += slot[s]
    for k in range(len(level)):
        total -= size[k]
        if total < 0:
            return False
    for k in range(len(level)):
        need, chosen, least = size[k], -1, FAR
        if level[k] == NAMED:
            m = target[k]
            if machine[m] < need or rack[machine_rack[m]] < need:
                return False
            machine[m] -= need
            rack[machine_rack[m]] -= need
            chosen = m
        elif level[k] == RACK:
            for r in range(len(rack)):
                if need <= rack[r] < least:
                    chosen, least = r, rack[r]
            if chosen < 0:
                return False
            rack[chosen] -= need
        elif level[k] == MACHINE:
            for m in range(len(machine)):
                if need <= machine[m] < least and rack[machine_rack[m]] >= need:
                    chosen, least = m, machine[m]
            if chosen < 0:
                return False
            machine[chosen] -= need
            rack[machine_rack[chosen]] -= need
        elif level[k] == SLOT:
            for s in range(len(slot)):
                m = slot_machine[s]
                room = machine[m] * 1000 + slot[s]
                if slot[s] >= need and machine[m] >= need and room < least and rack[machine_rack[m]] >= need:
                    chosen, least = s, room
            if chosen < 0:
                return False
            slot[chosen] -= need
            m = slot_machine[chosen]
            machine[m] -= need
            rack[machine_rack[m]] -= need
        place[k] = chosen
    return True


@compiled
def concretise(level, size, place, slot_machine, machine_rack, slot_free):
    """Return (item, slot, count) entries; narrow items first, so that wide ones take what is left in their place.

    Within a rack or the whole cluster the machine with most room left gives first.
    """
    room = slot_free.copy()
    num_slots = len(room)
    used = np.zeros(num_slots, dtype=np.int64)
    total = 0
    for k in range(len(size)):
        total += min(size[k], num_slots)
    entries = np.empty((total, 3), dtype=np.int64)
    count = 0
    order = np.array([SLOT, MACHINE, NAMED, RACK, CLUSTER])
    machine_room = np.zeros(len(machine_rack), dtype=np.int64)
    for turn in range(5):
        if turn == 3:
            for s in range(num_slots):
                machine_room[slot_machine[s]] += room[s]
        for k in range(len(level)):
            if level[k] != order[turn]:
                continue
            left = size[k]
            while left > 0:
                chosen, most = -1, 0
                for s in range(num_slots):
                    if room[s] == 0:
                        continue
                    m = slot_machine[s]
                    if level[k] == SLOT and s != place[k]:
                        continue
                    if (level[k] == MACHINE or level[k] == NAMED) and m != place[k]:
                        continue
                    if level[k] == RACK and machine_rack[m] != place[k]:
                        continue
                    have = room[s] if turn < 3 else machine_room[m] * 1000 + room[s]
                    if have > most:
                        chosen, most = s, have
                if chosen < 0:
                    return entries[:0]
                taken = min(left, room[chosen])
                room[chosen] -= taken
                used[chosen] += taken
                left -= taken
                if turn >= 3:
                    machine_room[slot_machine[chosen]] -= taken
                entries[count, 0], entries[count, 1], entries[count, 2] = k, chosen, taken
                count += 1
    return entries[:count]


@compiled
def rearrange(level, size, target, slot_machine, machine_rack, slot_free, machine_free, rack_free, place, seed, moves):
    """Search for room by exchange where best fit finds none; fill in `place` and return whether all found room.

    Bundles of one slot or machine are packed by best fit, whatever the racks hold then. Where machines are all
    alike, their loads and the bundles within a rack then fill rack by rack (`fill_racks`); elsewhere bundles go
    where most room is left. Last, overfull racks give loads of machines in exchange for smaller ones, or pass on
    bundles, as long as the overflow doesn't grow.
    """
    random = np.array([seed], dtype=np.uint64)
    num_machines, num_racks, num_items = len(machine_rack), len(rack_free), len(level)
    slot, machine = slot_free.copy(), machine_free.copy()
    kind = np.zeros(num_machines, dtype=np.int64)  # machines with equal slots have equal kinds
    count = np.zeros(num_machines, dtype=np.int64)
    for s in range(len(slot)):
        kind[slot_machine[s]] = kind[slot_machine[s]] * 1009 + slot_free[s]
        count[slot_machine[s]] += 1
    load = np.zeros(num_racks, dtype=np.int64)
    for k in range(num_items):
        need, chosen, least = size[k], -1, FAR
        if level[k] == NAMED:
            chosen = target[k]
            if machine[chosen] < need:
                return False
            machine[chosen] -= need
            load[machine_rack[chosen]] += need
        elif level[k] == MACHINE:
            for m in range(num_machines):
                key = machine[m] * 4096 + below(random, 4096)
                if need <= machine[m] and key < least:
                    chosen, least = m, key
            if chosen < 0:
                return False
            machine[chosen] -= need
            load[machine_rack[chosen]] += need
        elif level[k] == SLOT:
            for s in range(len(slot)):
                m = slot_machine[s]
                key = (machine[m] * 1000 + slot[s]) * 4096 + below(random, 4096)
                if slot[s] >= need and machine[m] >= need and key < least:
                    chosen, least = s, key
            if chosen < 0:
                return False
            slot[chosen] -= need
            m = slot_machine[chosen]
            machine[m] -= need
            load[machine_rack[m]] += need
        place[k] = chosen
    used = machine_free - machine
    is_fixed = np.zeros(num_machines, dtype=np.bool_)
    for k in range(num_items):
        if level[k] == NAMED:
            is_fixed[target[k]] = True
    where = np.arange(num_machines)  # machine whose load lies on machine m now
    if not is_fixed.any() and kind.min() == kind.max():
        where, place_inner = fill_racks(used, level, size, machine_rack, rack_free, random)
        used = used[where]
        load[:] = 0
        for m in range(num_machines):
            load[machine_rack[m]] += used[m]
        for k in range(num_items):
            if level[k] == RACK:
                place[k] = place_inner[k]
                if place[k] >= 0:
                    load[place[k]] += size[k]
    else:
        for k in range(num_items):
            if level[k] == RACK:
                place[k] = -1
    for k in range(num_items):
        if level[k] == RACK and place[k] < 0:
            chosen, most = 0, -FAR
            for r in range(num_racks):
                if rack_free[r] - load[r] > most and size[k] <= rack_free[r]:
                    chosen, most = r, rack_free[r] - load[r]
            load[chosen] += size[k]
            place[k] = chosen
    inner = np.flatnonzero(level == RACK)
    by_rack = np.argsort(machine_rack)
    first_of = np.searchsorted(machine_rack[by_rack], np.arange(num_racks + 1))
    for _ in range(moves):
        worst, over = -1, 0
        for r in range(num_racks):
            if load[r] - rack_free[r] > over:
                worst, over = r, load[r] - rack_free[r]
        if worst < 0:
            break
        if len(inner) and below(random, 4) == 0:
            k = inner[below(random, len(inner))]
            r, other = place[k], below(random, num_racks)
            if r == other or (load[r] <= rack_free[r] and below(random, 8)):
                continue
            j = inner[below(random, len(inner))] if below(random, 2) else -1
            back = size[j] if j >= 0 and place[j] == other else 0
            before = max(0, load[r] - rack_free[r]) + max(0, load[other] - rack_free[other])
            shift = size[k] - back
            after = max(0, load[r] - shift - rack_free[r]) + max(0, load[other] + shift - rack_free[other])
            if after <= before:
                load[r] -= shift
                load[other] += shift
                place[k] = other
                if back:
                    place[j] = r
            continue
        m = by_rack[first_of[worst] + below(random, first_of[worst + 1] - first_of[worst])]
        other = below(random, num_machines)
        r, q = machine_rack[m], machine_rack[other]
        if r == q or is_fixed[m] or is_fixed[other] or used[m] == used[other]:
            continue
        is_alike = kind[m] == kind[other]
        is_single = count[m] == 1 and count[other] == 1
        if not is_alike and not (is_single and used[m] <= machine_free[other] and used[other] <= machine_free[m]):
            continue
        shift = used[m] - used[other]
        before = max(0, load[r] - rack_free[r]) + max(0, load[q] - rack_free[q])
        after = max(0, load[r] - shift - rack_free[r]) + max(0, load[q] + shift - rack_free[q])
        if after <= before:
            load[r] -= shift
            load[q] += shift
            used[m], used[other] = used[other], used[m]
            where[m], where[other] = where[other], where[m]
    for r in range(num_racks):
        if load[r] > rack_free[r]:
            return False
    lies = np.empty(num_machines, dtype=np.int64)
    for m in range(num_machines):
        lies[where[m]] = m
    first = np.zeros(num_machines, dtype=np.int64)
    for s in range(len(slot) - 1, -1, -1):
        first[slot_machine[s]] = s
    for k in range(num_items):
        if level[k] == MACHINE:
            place[k] = lies[place[k]]
        elif level[k] == SLOT:
            m = slot_machine[place[k]]
            place[k] = first[lies[m]] + place[k] - first[m]
    return True


@compiled
def fill_racks(used, level, size, machine_rack, rack_free, random):
    """Fill one rack after the other as full as possible, with loads of machines and bundles within a rack.

    For each rack a dynamic programme over (GPUs, machines) tells which totals can still be reached; among fillings
    that leave the least room the numbers stay near an equal share of what is left, so that no rack runs out of
    machines or of bundles. Returns which machine's load lies on each machine, and the rack of each bundle
    (-1 where it found none).
    """
    num_machines, num_racks = len(machine_rack), len(rack_free)
    most_load, most_size = used.max(), 0
    for k in range(len(level)):
        if level[k] == RACK and size[k] > most_size:
            most_size = size[k]
    loads, bundles = np.zeros(most_load + 1, dtype=np.int64), np.zeros(most_size + 1, dtype=np.int64)
    for m in range(num_machines):
        loads[used[m]] += 1
    for k in range(len(level)):
        if level[k] == RACK:
            bundles[size[k]] += 1
    machines = np.zeros(num_racks, dtype=np.int64)
    for m in range(num_machines):
        machines[machine_rack[m]] += 1
    types = np.empty((most_load + most_size, 2), dtype=np.int64)  # (size, 1 for loads), loads and bundles mixed
    num_types = 0
    for u in range(1, most_load + 1):
        if loads[u]:
            types[num_types, 0], types[num_types, 1] = u, 1
            num_types += 1
    for u in range(1, most_size + 1):
        if bundles[u]:
            types[num_types, 0], types[num_types, 1] = u, 0
            num_types += 1
    given = np.zeros((num_racks, num_types), dtype=np.int64)
    for r in range(num_racks):
        for t in range(num_types - 1, 0, -1):
            j = below(random, t + 1)
            for c in range(2):
                types[t, c], types[j, c] = types[j, c], types[t, c]
            for q in range(r):
                given[q, t], given[q, j] = given[q, j], given[q, t]
        room, slots = rack_free[r], machines[r]
        best = np.zeros((num_types + 1, room + 1, slots + 1), dtype=np.int64)
        for t in range(num_types - 1, -1, -1):
            u, is_load = types[t, 0], types[t, 1]
            have = loads[u] if is_load else bundles[u]
            for left in range(room + 1):
                for free in range(slots + 1):
                    top = 0
                    for n in range(min(have, left // u, free if is_load else have) + 1):
                        value = n * u + best[t + 1, left - n * u, free - n * is_load]
                        if value > top:
                            top = value
                    best[t, left, free] = top
        left, free = room, slots
        racks_left = num_racks - r
        for t in range(num_types):
            u, is_load = types[t, 0], types[t, 1]
            have = loads[u] if is_load else bundles[u]
            share = (have + below(random, racks_left)) // racks_left
            chosen, nearest = 0, FAR
            for n in range(min(have, left // u, free if is_load else have) + 1):
                is_fullest = n * u + best[t + 1, left - n * u, free - n * is_load] == best[t, left, free]
                if is_fullest and abs(n - share) < nearest:
                    chosen, nearest = n, abs(n - share)
            given[r, t] = chosen
            left -= chosen * u
            if is_load:
                free -= chosen
                loads[u] -= chosen
            else:
                bundles[u] -= chosen
    where = np.full(num_machines, -1, dtype=np.int64)
    is_used = np.zeros(num_machines, dtype=np.bool_)
    place = np.full(len(level), -1, dtype=np.int64)
    for t in range(num_types):
        u = types[t, 0]
        for r in range(num_racks):
            for _ in range(given[r, t]):
                if types[t, 1]:
                    spot, source = -1, -1
                    for m in range(num_machines):
                        if spot < 0 and where[m] < 0 and machine_rack[m] == r:
                            spot = m
                        if source < 0 and not is_used[m] and used[m] == u:
                            source = m
                    where[spot], is_used[source] = source, True
                else:
                    for k in range(len(level)):
                        if level[k] == RACK and size[k] == u and place[k] < 0:
                            place[k] = r
                            break
    source = 0
    for m in range(num_machines):  # loads that found no rack, and empty machines, go anywhere
        if where[m] < 0:
            while is_used[source]:
                source += 1
            where[m], is_used[source] = source, True
    return where, place


@compiled
def below(random, limit):
    """Return the next number below `limit` of a splitmix64 sequence; `random` holds its state."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(2)) % limit
