"""Placement of bundles on the tree of GPUs: best fit, exchange between racks, full search.

Capacity is counted on slots, machines, racks and in total; a bundle uses capacity on its level and above. The order of
placement is: bundles that name machines; bundles within a rack; bundles of one slot or machine, largest first; bundles that
may spread anywhere. The bundles of a rack, machine or slot go to the fullest one where they fit. GPUs are then assigned
from the narrowest level to the widest, so that wide bundles take the remaining GPUs.

An *item* is a bundle, or the part of a named bundle on one machine. Its *place* is the slot, machine or rack that it uses.
"""

import numpy as np

from optim.compiled import compiled, largest, total
from optim.core.arrays import IntArray
from optim.models.auction.data import Cluster, Locality
from optim.models.auction.decision import Witness, sorted_entries
from optim.models.auction.instance import AuctionInstance
from optim.solvers.auction.tables import Tables

SLOT, MACHINE, RACK, CLUSTER, NAMED = range(5)

FAR = 1 << 60

TIES = 4096
"""Upper limit of the random numbers that break ties among equal capacities."""


@compiled
def reserve(level, size, target, slot_machine, machine_rack, slot_free, machine_free, rack_free, place):
    """Write the slot, machine or rack of each item to `place`; return whether all items fit.

    Items come in the order in which they are placed. `target` is the machine of a named item.
    """
    if total(size) > total(slot_free):
        return False
    free = slot_free.copy(), machine_free.copy(), rack_free.copy()
    return best_fit(level, size, target, slot_machine, machine_rack, *free, np.empty(0, dtype=np.uint64), place)


@compiled
def best_fit(level, size, target, slot_machine, machine_rack, slot, machine, rack, random, place):
    """Do the same as `reserve`, but place each item where the least capacity remains, and take this capacity.

    Ties are random if `random`, the state of `below`, is given.
    """
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


NARROW_FIRST = np.array([SLOT, MACHINE, NAMED, RACK, CLUSTER])


@compiled
def materialise(level, size, place, slot_machine, machine_rack, slot_free):
    """Return (item, slot, count) entries; narrow items first, so that wide items take the remaining capacity.

    Within a rack or the cluster, the machine with the most free GPUs is used first. There are no entries if some
    item doesn't fit in its place.
    """
    free = slot_free.copy()
    num_slots = len(free)
    most_entries = 0
    for gpus in size:
        most_entries += min(gpus, num_slots)
    entries = np.empty((most_entries, 3), dtype=np.int64)
    count = 0
    machine_free = np.zeros(len(machine_rack), dtype=np.int64)
    for turn in range(5):
        if turn == 3:
            for s in range(num_slots):
                machine_free[slot_machine[s]] += free[s]
        for k in range(len(level)):
            if level[k] != NARROW_FIRST[turn]:
                continue
            unplaced = size[k]
            while unplaced > 0:
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
                    have = free[s] if turn < 3 else machine_free[m] * 1000 + free[s]
                    if free[s] > 0 and inside == place[k] and have > most:
                        chosen, most = s, have
                if chosen < 0:
                    return entries[:0]
                count_taken = min(unplaced, free[chosen])
                free[chosen] -= count_taken
                unplaced -= count_taken
                if turn >= 3:
                    machine_free[slot_machine[chosen]] -= count_taken
                entries[count, 0], entries[count, 1], entries[count, 2] = k, chosen, count_taken
                count += 1
    return entries[:count]


@compiled
def below(random, limit):
    """Return the next number below `limit` of a splitmix64 sequence; `random` holds its state."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(2)) % limit


SIZE, IS_LOAD, LEFT, GIVEN = range(4)
"""Columns of a table of types of machine loads and rack bundles: size, whether the type is a load, number without a rack,
and from `GIVEN` on one column per rack with the number assigned to the rack."""


@compiled
def fill_racks(used, level, size, machine_rack, rack_free, random, place):
    """Fill one rack after the other as full as possible with loads of machines and with rack bundles.

    A machine's load is the number of its GPUs in use. For each rack, a dynamic programme over (GPUs, machines) finds the
    largest total. Among the fillings with this total, numbers near an equal share of the remaining loads and bundles win,
    so that no rack runs out of machines or of bundles. Writes the racks of bundles to `place`. Returns for each machine
    the machine whose load it takes over.
    """
    num_racks = len(rack_free)
    types = _types(used, level, size, num_racks)
    for r in range(num_racks):
        for t in range(len(types) - 1, 0, -1):
            j = below(random, t + 1)
            for c in range(types.shape[1]):
                types[t, c], types[j, c] = types[j, c], types[t, c]
        num_free, machines = rack_free[r], 0
        for m in range(len(machine_rack)):
            machines += machine_rack[m] == r
        best = _fullest(types, num_free, machines)
        for t in range(len(types)):
            u, is_load = types[t, SIZE], types[t, IS_LOAD]
            share = (types[t, LEFT] + below(random, num_racks - r)) // (num_racks - r)
            chosen, nearest = 0, FAR
            for n in range(_most(types[t], num_free, machines) + 1):
                is_fullest = (
                    n * u + best[t + 1, num_free - n * u, machines - n * is_load] == best[t, num_free, machines]
                )
                if is_fullest and abs(n - share) < nearest:
                    chosen, nearest = n, abs(n - share)
            types[t, GIVEN + r] = chosen
            types[t, LEFT] -= chosen
            num_free -= chosen * u
            machines -= chosen * is_load
    return _laid_out(types, used, level, size, machine_rack, place)


@compiled
def _types(used, level, size, num_racks):
    """Return the table of types: sizes of loads, then of rack bundles, with their numbers."""
    num_loads = largest(used) + 1
    count = np.zeros(num_loads + largest(size) + 1, dtype=np.int64)
    for m in range(len(used)):
        count[used[m]] += 1
    for k in range(len(level)):
        if level[k] == RACK:
            count[num_loads + size[k]] += 1
    count[0] = 0  # machines without a load may go anywhere
    num_types = 0
    for number in count:
        num_types += number > 0
    types, t = np.zeros((num_types, GIVEN + num_racks), dtype=np.int64), 0
    for which in range(len(count)):  # operations on columns and on a choice of arrays take seconds to compile
        if count[which] > 0:
            types[t, IS_LOAD] = which < num_loads
            types[t, SIZE] = which if which < num_loads else which - num_loads
            types[t, LEFT] = count[which]
            t += 1
    return types


@compiled
def _most(kind, num_free, machines):
    """Return the largest number of a type that is without a rack and fits."""
    most = min(kind[LEFT], num_free // kind[SIZE])
    return min(most, machines) if kind[IS_LOAD] else most


@compiled
def _fullest(types, num_free, machines):
    """Return, by (type, free GPUs, free machines), the most GPUs that this type and the later ones can fill."""
    best = np.zeros((len(types) + 1, num_free + 1, machines + 1), dtype=np.int64)
    for t in range(len(types) - 1, -1, -1):
        u, is_load = types[t, SIZE], types[t, IS_LOAD]
        for gpus in range(num_free + 1):
            for free in range(machines + 1):
                top = 0
                for n in range(_most(types[t], gpus, free) + 1):
                    top = max(top, n * u + best[t + 1, gpus - n * u, free - n * is_load])
                best[t, gpus, free] = top
    return best


@compiled
def _laid_out(types, used, level, size, machine_rack, place):
    """Assign loads to machines and bundles to racks; loads without a rack go to the machines that remain."""
    num_machines = len(machine_rack)
    where = np.zeros(num_machines, dtype=np.int64)
    for m in range(num_machines):
        where[m] = -1
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
    source = 0
    for m in range(num_machines):
        if where[m] < 0:
            while is_used[source]:
                source += 1
            where[m] = source
            source += 1
    return where


@compiled
def rearrange(level, size, target, slot_machine, machine_rack, slot_free, machine_free, rack_free, place, seed, moves):
    """Search for a placement by exchange; write it to `place` and return whether all items fit.

    Bundles of one slot or machine are packed by best fit, regardless of the racks. If all machines are alike, their
    loads and the bundles within a rack then fill rack by rack (`fill_racks`). Otherwise each bundle within a rack goes
    to the rack with the most capacity. Finally, overfull racks exchange loads of machines for smaller ones, or give
    bundles to other racks, as long as the overflow doesn't grow.
    """
    random = np.array([seed], dtype=np.uint64)
    num_machines = len(machine_rack)
    machine, endless = machine_free.copy(), np.zeros(len(rack_free), dtype=np.int64)
    for r in range(len(rack_free)):
        endless[r] = FAR
    if not best_fit(level, size, target, slot_machine, machine_rack, slot_free.copy(), machine, endless, random, place):
        return False
    used = np.zeros(num_machines, dtype=np.int64)
    where = np.zeros(num_machines, dtype=np.int64)  # machine whose load is on machine m now
    for m in range(num_machines):
        used[m], where[m] = machine_free[m] - machine[m], m
    inner, num_inner = np.zeros(len(level), dtype=np.int64), 0
    is_fixed, is_any_fixed = np.zeros(num_machines, dtype=np.bool_), False
    for k in range(len(level)):
        if level[k] == RACK:
            inner[num_inner], place[k] = k, -1
            num_inner += 1
        if level[k] == NAMED:
            is_fixed[target[k]] = is_any_fixed = True
    inner = inner[:num_inner]
    kind, first = _kinds(slot_machine, slot_free, num_machines)
    if not is_any_fixed and largest(kind) == 0:
        where = fill_racks(used, level, size, machine_rack, rack_free, random, place)
        for m in range(num_machines):
            machine[m] = used[where[m]]
        used = machine
    load = _loads(used, machine_rack, inner, size, place, rack_free)
    # Loads are exchanged between machines with equal slots, or of one slot each.
    alike = kind.copy()
    for m in range(num_machines):
        if first[m + 1] - first[m] == 1:
            alike[m] = -1
    _exchange(
        load, used, where, inner, size, place, alike, is_fixed, machine_free, machine_rack, rack_free, random, moves
    )
    for r in range(len(load)):
        if load[r] > rack_free[r]:
            return False
    lies = np.empty(num_machines, dtype=np.int64)
    for m in range(num_machines):
        lies[where[m]] = m
    for k in range(len(level)):
        if level[k] == MACHINE:
            place[k] = lies[place[k]]
        elif level[k] == SLOT:
            m = slot_machine[place[k]]
            place[k] = first[lies[m]] + place[k] - first[m]
    return True


@compiled
def _kinds(slot_machine, slot_free, num_machines):
    """Return the type of each machine, as the first machine of that type, and the offsets of the machines' slots.

    Machines have the same type if they have the same number of slots with the same free GPUs, slot by slot. A bundle of one
    slot then stays on that slot when its load moves to another machine. So full slots also distinguish machines.
    """
    kind, first = np.zeros(num_machines, dtype=np.int64), np.zeros(num_machines + 1, dtype=np.int64)
    for s in range(len(slot_machine)):
        first[slot_machine[s] + 1] += 1
    for m in range(num_machines):
        first[m + 1] += first[m]
    known, num_known = np.empty(num_machines, dtype=np.int64), 0
    for m in range(num_machines):
        kind[m] = m
        for q in known[:num_known]:
            s, count, other = 0, first[m + 1] - first[m], first[q + 1] - first[q]
            while s < count == other and slot_free[first[q] + s] == slot_free[first[m] + s]:
                s += 1
            if s == count == other:
                kind[m] = q
                break
        if kind[m] == m:
            known[num_known] = m
            num_known += 1
    return kind, first


@compiled
def _loads(used, machine_rack, inner, size, place, rack_free):
    """Return the load of each rack; unassigned bundles within a rack go to the rack with the most capacity."""
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


@compiled
def _exchange(
    load, used, where, inner, size, place, alike, is_fixed, machine_free, machine_rack, rack_free, random, moves
):
    """Exchange loads of machines of the rack with the largest overflow, or bundles of any rack, until none overflows."""
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


@compiled
def _has_shifted(load, rack_free, source, target, shift):
    """Shift load from one rack to another unless their overflow grows; return whether it was shifted."""
    before = max(0, load[source] - rack_free[source]) + max(0, load[target] - rack_free[target])
    after = max(0, load[source] - shift - rack_free[source]) + max(0, load[target] + shift - rack_free[target])
    if after > before:
        return False
    load[source] -= shift
    load[target] += shift
    return True


MOST_LOOKED = 3_000
"""Maximum number of partial placements to examine on small clusters before the search gives no answer."""

WORK = 200_000
"""Limit of placements times slots^1.5 on large clusters, where keys of states and comparisons of places take most time."""

Items = tuple[tuple[int, int, int], ...]
"""(locality, size, machine or -1), sorted."""


def placing_order(items: Items) -> list[tuple[int, int, int]]:
    """Return the items in placement order, largest first, without items that may spread."""
    return sorted((item for item in items if item[0] != Locality.CLUSTER), key=lambda item: (-item[1], item))


class PlacementSearch:
    """A search through all placements on one cluster, made once for each set of bundles.

    Parameters
    ----------
    instance
        The auction.
    """

    def __init__(self, instance: AuctionInstance) -> None:
        self._cluster = instance.cluster
        self._known: dict[Items, tuple[bool | None, tuple[int, ...]]] = {}

    def fits(self, items: Items) -> bool | None:
        """Return whether items can be placed; None if the search exceeds its budget."""
        return self._answer(items)[0]

    def places(self, items: Items) -> tuple[int, ...] | None:
        """Return the slot, machine or rack of each item in `placing_order`, None if no placement is found."""
        is_possible, places = self._answer(items)
        return places if is_possible else None

    def _answer(self, items: Items) -> tuple[bool | None, tuple[int, ...]]:
        if items not in self._known:
            search = _Search(self._cluster, items)
            self._known[items] = search.place(0), tuple(search.places)
        return self._known[items]


Target = tuple[int, int, int]
"""Rack, machine, and slot within the machine, to which an item may go; -1 below the item's level."""


class _Search:
    """One search: free capacity of slots, machines and racks, and the items' places."""

    def __init__(self, cluster: Cluster, items: Items) -> None:
        self._order = placing_order(items)
        first = np.searchsorted(cluster.slot_machine, np.arange(cluster.num_machines))
        self._slots, self._first_slot = (
            [free.tolist() for free in np.split(cluster.slot_free, first[1:])],
            first.tolist(),
        )
        self._rack_of = cluster.machine_rack.tolist()
        self._machine_gpus, self._rack = [sum(free) for free in self._slots], cluster.rack_free.tolist()
        self._named = {machine for _, _, machine in items if machine >= 0}
        self._budget = min(MOST_LOOKED, int(WORK / len(cluster.slot_free) ** 1.5))
        self._failed: set[bytes] = set()
        self.places = [-1] * len(self._order)

    def place(self, position: int) -> bool | None:
        """Place the items from a position on; return whether that is possible, None if the budget ends first."""
        if position == len(self._order):
            return True
        self._budget -= 1
        if self._budget < 0:
            return None
        state = self._name(position)
        if state in self._failed:
            return False
        level, size, machine = self._order[position]
        tried: set[tuple[object, ...]] = set()
        for target in self._targets(level, machine):
            rack, m, s = target
            is_full = self._rack[rack] < size or (m >= 0 and self._machine_gpus[m] < size)
            alike = self._likeness(target)
            if is_full or (s >= 0 and self._slots[m][s] < size) or alike in tried:
                continue
            tried.add(alike)
            self.places[position] = rack if m < 0 else m if s < 0 else self._first_slot[m] + s
            self._add(target, -size)
            can_place = self.place(position + 1)
            self._add(target, size)
            if can_place is not False:
                return can_place
        self._failed.add(state)
        return False

    def _add(self, target: Target, size: int) -> None:
        rack, m, s = target
        self._rack[rack] += size
        if m >= 0:
            self._machine_gpus[m] += size
        if s >= 0:
            self._slots[m][s] += size

    def _name(self, position: int) -> bytes:
        """Return a key of the state that doesn't depend on the order of equal places."""
        racks: list[list[tuple[int, ...]]] = [[(free,)] for free in self._rack]
        for m, free in enumerate(self._slots):
            racks[self._rack_of[m]].append((*self._title(m), *sorted(free)))
        flat = [position]
        for entry in sorted((group[0], *sorted(group[1:])) for group in racks):
            for part in entry:
                flat += [-9, *part]
        return np.array(flat, dtype=np.int64).tobytes()

    def _likeness(self, target: Target) -> tuple[object, ...]:
        """Return a key of a place; of places with equal keys only one is tried.

        A machine that items name has a unique key.
        """
        rack, m, s = target
        machine_state = (self._title(m), *sorted(self._slots[m]), self._slots[m][s] if s >= 0 else -1) if m >= 0 else ()
        inside = sorted((*self._title(q), *free) for q, free in enumerate(self._slots) if self._rack_of[q] == rack)
        return self._rack[rack], machine_state, tuple(inside)

    def _title(self, m: int) -> tuple[int, int]:
        """Return a machine's number, -1 unless an item names it, and its free capacity."""
        return m if m in self._named else -1, self._machine_gpus[m]

    def _targets(self, level: int, machine: int) -> list[Target]:
        """Return the possible places of an item."""
        if level == Locality.RACK:
            return [(rack, -1, -1) for rack in range(len(self._rack))]
        machines = [machine] if level == Locality.NAMED else range(len(self._slots))
        if level != Locality.SLOT:
            return [(self._rack_of[m], m, -1) for m in machines]
        return [(self._rack_of[m], m, s) for m in machines for s in range(len(self._slots[m]))]


SEARCHES = 4
"""Number of searches by exchange after best fit has failed."""

KEY_BASE = 1 << 20
"""Number larger than any size and any machine's index; it packs a size and a machine into one integer."""

MAX_SEARCHED = 40
"""Maximal number of bundles for which all placements are searched."""

MOVES = 20_000
"""Maximal number of moves of one search by exchange."""


class Packer:
    """Place bundles on one cluster; sets of bundles that failed once aren't tried again.

    Parameters
    ----------
    instance
        The auction.
    seed
        Seed of the searches.
    """

    def __init__(self, instance: AuctionInstance, seed: int = 0) -> None:
        self._bids, self._seed = instance.bids, seed
        self._named_offset = instance.named_offset
        cluster = instance.cluster
        self._tree = (cluster.slot_machine, cluster.machine_rack)
        self._failed: set[tuple[bytes, bool]] = set()
        self.placement_search = PlacementSearch(instance)
        self._free = (cluster.slot_free, cluster.machine_free, cluster.rack_free)

    def fits_first(self, rows: IntArray) -> bool:
        """Return whether best fit, largest first, can place instance rows."""
        owner, level, size, target = self._items(rows)
        order = _largest_first(level, size)
        place = np.full(len(owner), -1, dtype=np.int64)
        return bool(reserve(level[order], size[order], target[order], *self._tree, *self._free, place))

    def place(self, row: IntArray, *, is_thorough: bool = False) -> IntArray | None:
        """Return (app, slot, count) entries of a choice of instance rows by app, None if no placement is found.

        With `is_thorough`, a search through all placements is the last resort for few bundles.
        """
        owner, level, size, target = self._items(row[row >= 0])
        key = np.sort((level * KEY_BASE + size) * KEY_BASE + target + 1).tobytes()
        if int(size.sum()) > int(self._free[0].sum()) or (key, is_thorough) in self._failed:
            return None
        place = np.full(len(owner), -1, dtype=np.int64)
        order = _largest_first(level, size)
        entries = None
        if reserve(level[order], size[order], target[order], *self._tree, *self._free, place):
            entries = self._entries(row, order, place)
        if entries is None:
            entries = self.search(row)
        if entries is None and is_thorough:
            entries = self._by_placement_search(row)
        if entries is None:
            self._failed.add((key, is_thorough))
        return entries

    def witness(self, tables: Tables, choice: IntArray, *, is_thorough: bool = False) -> Witness | None:
        """Return a choice of table rows as a witness, None if no placement is found."""
        row = tables.chosen_rows(choice)
        if not tables.has_named and self.fits_first(row[row >= 0]):
            return Witness(row=row)
        placement = self.place(row, is_thorough=is_thorough)
        return None if placement is None else Witness(row=row, placement=placement)

    def search(self, row: IntArray) -> IntArray | None:
        """Return the entries found by exchange alone, which `place` tries after best fit has failed."""
        owner, level, size, target = self._items(row[row >= 0])
        place = np.full(len(owner), -1, dtype=np.int64)
        for turn in range(SEARCHES):
            # Named and narrow bundles first, largest first; from the second search on with perturbed sizes.
            rng = np.random.default_rng([self._seed, turn])
            shake = rng.uniform(0.8, 1.0, len(size)) if turn else 1.0
            order = np.lexsort((np.arange(len(size)), -size * shake, level == Locality.RACK, level != Locality.NAMED))
            items = (level[order], size[order], target[order])
            if rearrange(*items, *self._tree, *self._free, place, self._seed + turn, MOVES):
                entries = self._entries(row, order, place)
                if entries is not None:
                    return entries
        return None

    def _by_placement_search(self, row: IntArray) -> IntArray | None:
        """Return entries by a search through all placements, if there are few bundles."""
        _, level, size, target = self._items(row[row >= 0])
        if len(level) > MAX_SEARCHED:
            return None
        items = tuple(sorted(zip(level.tolist(), size.tolist(), target.tolist(), strict=True)))
        places = self.placement_search.places(items)
        if places is None:
            return None
        waiting: dict[tuple[int, int, int], list[int]] = {}
        for k, item in enumerate(zip(level.tolist(), size.tolist(), target.tolist(), strict=True)):
            waiting.setdefault(item, []).append(k)
        place = np.full(len(level), -1, dtype=np.int64)
        for item, where in zip(placing_order(items), places, strict=True):
            place[waiting[item].pop()] = where
        return self._entries(row, np.arange(len(level)), place)

    def _entries(self, row: IntArray, order: IntArray, place: IntArray) -> IntArray | None:
        """Convert the places of items, in the given order, to entries; None if the items don't fit in their places."""
        apps = np.flatnonzero(row >= 0)
        owner, level, size, _ = self._items(row[apps])
        entries = materialise(level[order], size[order], place, *self._tree, self._free[0])
        if entries[:, 2].sum() < size.sum():
            return None
        entries[:, 0] = apps[owner[order[entries[:, 0]]]]
        return sorted_entries(_merged(entries))

    def _items(self, rows: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return position, level, size and target machine of each item; a named row is one item per machine."""
        bids = self._bids
        level = bids.locality[rows]
        if not (level == Locality.NAMED).any():
            return np.arange(len(rows)), level, bids.gpus[rows], np.full(len(rows), -1, dtype=np.int64)
        pieces = []
        for k, b in enumerate(rows.tolist()):
            if level[k] == Locality.NAMED:
                part = slice(int(self._named_offset[b]), int(self._named_offset[b + 1]))
                machines = zip(bids.named_machine[part].tolist(), bids.named_gpus[part].tolist(), strict=True)
                pieces += [(k, int(Locality.NAMED), count, m) for m, count in machines]
            else:
                pieces.append((k, int(level[k]), int(bids.gpus[b]), -1))
        table = np.array(pieces, dtype=np.int64).reshape(-1, 4)
        columns = np.ascontiguousarray(table.T)
        return columns[0], columns[1], columns[2], columns[3]


_TURN = np.array([2, 2, 1, 3, 0])
"""Position of each level in the placement order: named bundles, within a rack, of one slot or machine, anywhere."""


def _largest_first(level: IntArray, size: np.ndarray) -> IntArray:
    return np.lexsort((np.arange(len(level)), level, -size, _TURN[level]))


def _merged(entries: IntArray) -> IntArray:
    """Sum the entries of each app on each slot."""
    if not len(entries):
        return entries
    key, inverse = np.unique(entries[:, :2], axis=0, return_inverse=True)
    return np.column_stack([key, np.bincount(inverse.ravel(), entries[:, 2]).astype(np.int64)])
