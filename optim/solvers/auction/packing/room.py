"""Whether bundles can be placed together at all: depth-first search over all placements, within a budget."""

import numpy as np

from optim.models.auction.instance import AuctionInstance, Cluster, Locality

MOST_LOOKED = 3_000
"""Partial placements that are looked at before the question is left open, on small clusters."""

WORK = 200_000
"""Placements times slots to the power 1.5: what naming a state and telling places apart costs on large ones."""

Items = tuple[tuple[int, int, int], ...]
"""(locality, size, machine or -1), sorted."""


def placing_order(items: Items) -> list[tuple[int, int, int]]:
    """Return the items in the order in which they are placed: the largest first, without those that may spread."""
    return sorted((item for item in items if item[0] != Locality.CLUSTER), key=lambda item: (-item[1], item))


class Room:
    """Answers for one cluster, each set of bundles once.

    Parameters
    ----------
    instance
        The auction.
    """

    def __init__(self, instance: AuctionInstance) -> None:
        self._cluster = instance.cluster
        self._known: dict[Items, tuple[bool | None, tuple[int, ...]]] = {}

    def fits(self, items: Items) -> bool | None:
        """Return whether items can be placed, None if that isn't found out within the budget."""
        return self._answer(items)[0]

    def places(self, items: Items) -> tuple[int, ...] | None:
        """Return the slot, machine or rack of each item in `placing_order`, None if none are found."""
        is_possible, places = self._answer(items)
        return places if is_possible else None

    def _answer(self, items: Items) -> tuple[bool | None, tuple[int, ...]]:
        if items not in self._known:
            search = _Search(self._cluster, items)
            self._known[items] = search.place(0), tuple(search.places)
        return self._known[items]


Target = tuple[int, int, int]
"""Rack, machine and slot of the machine that an item may go to, -1 below its own level."""


class _Search:
    """One search: what is left on slots, machines and racks, and where items lie."""

    def __init__(self, cluster: Cluster, items: Items) -> None:
        self._order = placing_order(items)
        first = np.searchsorted(cluster.slot_machine, np.arange(cluster.num_machines))
        self._slots, self._first_slot = (
            [free.tolist() for free in np.split(cluster.slot_free, first[1:])],
            first.tolist(),
        )
        self._rack_of = cluster.machine_rack.tolist()
        self._room, self._rack = [sum(free) for free in self._slots], cluster.rack_free.tolist()
        self._named = {machine for _, _, machine in items if machine >= 0}
        self._budget = min(MOST_LOOKED, int(WORK / len(cluster.slot_free) ** 1.5))
        self._failed: set[bytes] = set()
        self.places = [-1] * len(self._order)

    def place(self, position: int) -> bool | None:
        """Place the items from a position on; return whether that can be done, None where the budget ends first."""
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
            is_full = self._rack[rack] < size or (m >= 0 and self._room[m] < size)
            alike = self._likeness(target)
            if is_full or (s >= 0 and self._slots[m][s] < size) or alike in tried:
                continue
            tried.add(alike)
            self.places[position] = rack if m < 0 else m if s < 0 else self._first_slot[m] + s
            self._add(target, -size)
            found = self.place(position + 1)
            self._add(target, size)
            if found is not False:
                return found
        self._failed.add(state)
        return False

    def _add(self, target: Target, size: int) -> None:
        rack, m, s = target
        self._rack[rack] += size
        if m >= 0:
            self._room[m] += size
        if s >= 0:
            self._slots[m][s] += size

    def _name(self, position: int) -> bytes:
        """Name a state up to the order of equal places."""
        racks: list[list[tuple[int, ...]]] = [[(free,)] for free in self._rack]
        for m, free in enumerate(self._slots):
            racks[self._rack_of[m]].append((*self._title(m), *sorted(free)))
        flat = [position]
        for entry in sorted((group[0], *sorted(group[1:])) for group in racks):
            for part in entry:
                flat += [-9, *part]
        return np.array(flat, dtype=np.int64).tobytes()

    def _likeness(self, target: Target) -> tuple[object, ...]:
        """Return what tells a place from others: places alike in themselves may lie in racks that differ inside.

        A machine that items name is like no other.
        """
        rack, m, s = target
        own = (self._title(m), *sorted(self._slots[m]), self._slots[m][s] if s >= 0 else -1) if m >= 0 else ()
        inside = sorted((*self._title(q), *free) for q, free in enumerate(self._slots) if self._rack_of[q] == rack)
        return self._rack[rack], own, tuple(inside)

    def _title(self, m: int) -> tuple[int, int]:
        """Return a machine's number if it is named, -1 otherwise, and what is left on it."""
        return m if m in self._named else -1, self._room[m]

    def _targets(self, level: int, machine: int) -> list[Target]:
        """Return where an item may go."""
        if level == Locality.RACK:
            return [(rack, -1, -1) for rack in range(len(self._rack))]
        machines = [machine] if level == Locality.NAMED else range(len(self._slots))
        if level != Locality.SLOT:
            return [(self._rack_of[m], m, -1) for m in machines]
        return [(self._rack_of[m], m, s) for m in machines for s in range(len(self._slots[m]))]
