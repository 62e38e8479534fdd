"""Find room for bundles by largest-first best fit on the tree of GPUs, compiled.

Room is counted on slots, machines, racks and in all; a bundle takes room on its own level and above. Bundles
that name machines come first, then those within a rack (into the fullest rack that holds them), then those of
one slot or one machine, largest first, into the fullest that holds them; those that may spread anywhere take
what is left. Counts are turned into GPUs from the narrowest level to the widest, which always succeeds.
"""

import numpy as np

from optim.core.compile_cache import compiled, inner

SLOT, MACHINE, RACK, CLUSTER, NAMED = range(5)
FAR = 1 << 60
TIES = 4096
"""Among equal rooms shaken ties are broken by a number below this."""


@compiled
def reserve(level, size, target, slot_machine, machine_rack, slot_free, machine_free, rack_free, place):
    """Fill in the slot, machine or rack of each item; return whether all found room.

    Items come in the order in which they are placed. `target` is the machine of a named item.
    """
    if size.sum() > slot_free.sum():
        return False
    room = slot_free.copy(), machine_free.copy(), rack_free.copy()
    return best_fit(level, size, target, slot_machine, machine_rack, *room, np.empty(0, dtype=np.uint64), place)


@inner
def best_fit(level, size, target, slot_machine, machine_rack, slot, machine, rack, random, place):
    """Put each item where least room is left, as `reserve` does, and take the room; ties at random if it is given."""
    is_shaken = len(random) > 0
    for k in range(len(level)):
        need, chosen, least = size[k], -1, FAR
        if level[k] == NAMED:
            m = target[k]
            if machine[m] >= need and rack[machine_rack[m]] >= need:
                chosen = m
        elif level[k] == RACK:
            for r in range(len(rack)):
                if need <= rack[r] < least:
                    chosen, least = r, rack[r]
        elif level[k] == MACHINE:
            for m in range(len(machine)):
                key = machine[m] * TIES + (below(random, TIES) if is_shaken else 0)
                if machine[m] >= need and key < least and rack[machine_rack[m]] >= need:
                    chosen, least = m, key
        elif level[k] == SLOT:
            for s in range(len(slot)):
                m = slot_machine[s]
                key = (machine[m] * 1000 + slot[s]) * TIES + (below(random, TIES) if is_shaken else 0)
                if slot[s] >= need and machine[m] >= need and key < least and rack[machine_rack[m]] >= need:
                    chosen, least = s, key
        else:
            continue
        if chosen < 0:
            return False
        place[k] = chosen
        if level[k] == RACK:
            rack[chosen] -= need
            continue
        m = chosen
        if level[k] == SLOT:
            slot[chosen] -= need
            m = slot_machine[chosen]
        machine[m] -= need
        rack[machine_rack[m]] -= need
    return True


@compiled
def concretise(level, size, place, slot_machine, machine_rack, slot_free):
    """Return (item, slot, count) entries; narrow items first, so that wide ones take what is left in their place.

    Within a rack or the whole cluster the machine with most room left gives first. There are no entries at all where
    some item finds less room in its place than it needs.
    """
    room = slot_free.copy()
    num_slots = len(room)
    entries = np.empty((np.minimum(size, num_slots).sum(), 3), dtype=np.int64)
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
                    m = slot_machine[s]
                    inside = place[k]
                    if level[k] == SLOT:
                        inside = s
                    elif level[k] == MACHINE or level[k] == NAMED:
                        inside = m
                    elif level[k] == RACK:
                        inside = machine_rack[m]
                    have = room[s] if turn < 3 else machine_room[m] * 1000 + room[s]
                    if room[s] > 0 and inside == place[k] and have > most:
                        chosen, most = s, have
                if chosen < 0:
                    return entries[:0]
                taken = min(left, room[chosen])
                room[chosen] -= taken
                left -= taken
                if turn >= 3:
                    machine_room[slot_machine[chosen]] -= taken
                entries[count, 0], entries[count, 1], entries[count, 2] = k, chosen, taken
                count += 1
    return entries[:count]


@inner
def below(random, limit):
    """Return the next number below `limit` of a splitmix64 sequence; `random` holds its state."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(2)) % limit
