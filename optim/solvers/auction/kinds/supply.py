"""What a cluster can supply, as rows of a linear programme: patterns of machines, room of racks.

Racks with equal machines form one class. A pattern is a maximal set of bundles that one machine holds at once;
machines of a class are covered by patterns, so that equal machines are never told apart.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from optim.models.auction.instance import Locality
from optim.solvers.auction.tables import Tables

Pattern = tuple[int, ...]
"""Number of bundles of each kind that a machine holds, by position in the kinds asked for."""


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines of a rack class with equal free slots; `machine` is the one that rows name, -1 for the others."""

    machine: int
    slots: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class RackClass:
    """Equal racks: how many, and the machines of ONE of them."""

    machines: tuple[MachineClass, ...]
    count: int

    @property
    def free(self) -> int:
        """GPUs on offer in one rack."""
        return sum(machine.count * sum(machine.slots) for machine in self.machines)


def rack_classes(tables: Tables) -> tuple[RackClass, ...]:
    """Return the classes of racks that offer anything, sorted."""
    cluster = tables.instance.cluster
    named = set(tables.instance.bids.named_machine.tolist()) if tables.has_named else set()
    slots: dict[int, list[int]] = {}
    for machine, free in zip(cluster.slot_machine.tolist(), cluster.slot_free.tolist(), strict=True):
        if free:
            slots.setdefault(machine, []).append(free)
    racks: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for machine, free_slots in slots.items():
        key = (machine if machine in named else -1, tuple(sorted(free_slots, reverse=True)))
        racks.setdefault(int(cluster.machine_rack[machine]), []).append(key)
    groups: dict[tuple[MachineClass, ...], int] = {}
    for machines in racks.values():
        ordered = sorted(machines)
        classes = tuple(MachineClass(m, s, ordered.count((m, s))) for m, s in sorted(set(ordered)))
        groups[classes] = groups.get(classes, 0) + 1
    return tuple(RackClass(machines, count) for machines, count in sorted(groups.items(), key=str))


def patterns(
    slots: tuple[int, ...], slot_sizes: tuple[int, ...], machine_sizes: tuple[int, ...]
) -> tuple[Pattern, ...]:
    """Return the maximal sets of bundles that a machine holds, numbers by slot size, then by machine size.

    Sets that another one contains are left out.

    Examples
    --------
    >>> len(patterns((8,), (1, 2, 3, 4, 5, 6, 7, 8), ()))
    22
    """
    found: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    in_slots = _slot_patterns(slots, slot_sizes)
    total = sum(slots)
    for inner in in_slots:
        left = total - sum(n * k for n, k in zip(inner, slot_sizes, strict=True))
        for outer in _fillings(left, machine_sizes):
            found.add((inner, outer))
    flat = [inner + outer for inner, outer in found]
    sizes = np.array([*slot_sizes, *machine_sizes])
    table = np.array(flat, dtype=np.int64).reshape(len(flat), len(sizes))
    is_kept = np.ones(len(table), dtype=bool)
    for p in range(len(table)):
        contains = (table >= table[p]).all(axis=1) & (table > table[p]).any(axis=1)
        is_kept[p] = not contains.any()
    return tuple(sorted(map(tuple, table[is_kept].tolist()), reverse=True))


def _slot_patterns(slots: tuple[int, ...], sizes: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return the numbers of each size that fit into the slots together."""
    sums = {(0,) * len(sizes)}
    for room in slots:
        options = set(_all_fillings(room, sizes))
        sums = {tuple(a + b for a, b in zip(one, two, strict=True)) for one in sums for two in options}
    return sums


@cache
def _all_fillings(room: int, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return every number of each size within a room."""
    if not sizes:
        return ((),)
    first, rest = sizes[0], sizes[1:]
    return tuple((n, *tail) for n in range(room // first + 1) for tail in _all_fillings(room - n * first, rest))


@cache
def _fillings(room: int, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the numbers of each size within a room to which nothing can be added."""
    least = min(sizes, default=room + 1)
    return tuple(
        counts
        for counts in _all_fillings(room, sizes)
        if room - sum(n * k for n, k in zip(counts, sizes, strict=True)) < least
    )


def kind_sizes(tables: Tables, level: Locality, most: int) -> tuple[int, ...]:
    """Return the sizes of a locality's kinds up to a limit, ascending."""
    mine = tables.kinds[tables.kinds[:, 0] == level, 1]
    return tuple(int(size) for size in mine if size <= most)
