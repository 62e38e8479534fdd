"""Whether bundles can be placed together at all: depth-first search over all placements, within a budget."""

import numpy as np

from optim.models.auction.instance import AuctionInstance, Locality

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
        cluster = instance.cluster
        self._slots = [cluster.slot_free[cluster.slot_machine == m].tolist() for m in range(cluster.num_machines)]
        self._first_slot = np.searchsorted(cluster.slot_machine, np.arange(cluster.num_machines)).tolist()
        self._rack = cluster.machine_rack.tolist()
        self._rack_free = cluster.rack_free.tolist()
        self._most_looked = min(MOST_LOOKED, int(WORK / len(cluster.slot_free) ** 1.5))
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
            self._known[items] = self._search(items)
        return self._known[items]

    def _search(self, items: Items) -> tuple[bool | None, tuple[int, ...]]:
        order = placing_order(items)
        slots = [list(free) for free in self._slots]
        room, rack = [sum(free) for free in slots], list(self._rack_free)
        named = {machine for _, _, machine in items if machine >= 0}
        failed: set[bytes] = set()
        looked = 0
        places = [-1] * len(order)

        def key(position: int) -> bytes:
            """Name a state up to the order of equal places."""
            racks: list[list[tuple[int, ...]]] = [[(free,)] for free in rack]
            for m, free in enumerate(slots):
                racks[self._rack[m]].append((m if m in named else -1, room[m], *sorted(free)))
            flat = [position]
            for entry in sorted((group[0], *sorted(group[1:])) for group in racks):
                for part in entry:
                    flat += [-9, *part]
            return np.array(flat, dtype=np.int64).tobytes()

        def place(position: int) -> bool | None:
            nonlocal looked
            if position == len(order):
                return True
            looked += 1
            if looked > self._most_looked:
                return None
            here = key(position)
            if here in failed:
                return False
            level, size, machine = order[position]
            tried: set[tuple[object, ...]] = set()
            for target in self._targets(level, machine):
                m, s = target if isinstance(target, tuple) else (target, -1)
                r = m if level == Locality.RACK else self._rack[m]
                alike = (
                    rack[r],
                    *((room[m], *sorted(slots[m]), slots[m][s] if s >= 0 else -1) if level != Locality.RACK else ()),
                )
                enough = (
                    rack[r] >= size and (level == Locality.RACK or room[m] >= size) and (s < 0 or slots[m][s] >= size)
                )
                # Places alike in themselves may lie in racks that differ inside.
                inside = tuple(sorted((room[q], *slots[q]) for q in range(len(slots)) if self._rack[q] == r))
                if not enough or (alike, inside) in tried:
                    continue
                tried.add((alike, inside))
                places[position] = r if level == Locality.RACK else m if s < 0 else self._first_slot[m] + s
                rack[r] -= size
                if level != Locality.RACK:
                    room[m] -= size
                if s >= 0:
                    slots[m][s] -= size
                found = place(position + 1)
                rack[r] += size
                if level != Locality.RACK:
                    room[m] += size
                if s >= 0:
                    slots[m][s] += size
                if found is not False:
                    return found
            failed.add(here)
            return False

        return place(0), tuple(places)

    def _targets(self, level: int, machine: int) -> list[int] | list[tuple[int, int]]:
        """Return racks, machines or (machine, slot) that an item may go to."""
        if level == Locality.RACK:
            return list(range(len(self._rack_free)))
        if level == Locality.NAMED:
            return [machine]
        if level == Locality.MACHINE:
            return list(range(len(self._slots)))
        return [(m, s) for m, slots in enumerate(self._slots) for s in range(len(slots))]
