"""What a cluster can supply, as rows of a linear programme: patterns of machines, room of racks.

Racks with equal machines form one class. A pattern is a maximal set of bundles that one machine holds at once;
machines of a class are covered by patterns, so that equal machines are never told apart. Of machines with too many
patterns only the GPUs count.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import add

from optim.models.auction.instance import Locality
from optim.solvers.auction.tables import Tables

Pattern = tuple[int, ...]
"""Number of bundles of each kind that a machine holds, by position in the kinds asked for."""

Counts = tuple[tuple[int, int], ...]
"""Positions and numbers of the kinds of which there are any."""

MOST_PATTERNS = 10_000
"""Most sets of bundles that are looked at for one machine.

Their number grows as that of partitions does: an island of 32 GPUs that is bid for in all sizes has 8,349 of them, one
of 40 has 37,338, one of 64 over a million. Each is a column of the programme, and so many take a third of a second.
"""

MOST_NUMBERS = 1_000_000
"""Most numbers of bundles in a table of patterns by kinds: few sets of thousands of kinds are large, too."""


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
) -> tuple[Pattern, ...] | None:
    """Return the maximal sets of bundles that a machine holds, numbers by slot size, then by machine size.

    Sets that another one contains are left out. Sizes of slots are ascending. None where more sets have to be looked
    at than `MOST_PATTERNS` or `MOST_NUMBERS` allow: then the programme lets a machine hold parts of bundles, as many
    as it has GPUs for, and bounds what it supplies by the number of its GPUs, as the count relaxation does. Any bound
    proven so holds, and awards are placed as ever; what is lost is that bundles leave GPUs which nobody can use.

    Examples
    --------
    >>> len(patterns((8,), (1, 2, 3, 4, 5, 6, 7, 8), ()))
    22
    """
    most = min(MOST_PATTERNS, MOST_NUMBERS // max(1, len(slot_sizes) + len(machine_sizes)))
    in_slots = _in_slots(slots, slot_sizes, most)
    if in_slots is None:
        return None
    outer: dict[int, list[tuple[int, Pattern]] | None] = {}
    found: list[Pattern] = []
    looked = 0
    for inner, left in in_slots.items():
        if left not in outer:
            outer[left] = _full(left, machine_sizes, most)
        beside = outer[left]
        if beside is None or looked + len(beside) > most:
            return None
        looked += len(beside)
        least = _least_added(inner, slot_sizes, in_slots)
        found += [(*inner, *more) for unused, more in beside if unused < least]
    return tuple(sorted(found, reverse=True))


def _least_added(inner: Pattern, sizes: tuple[int, ...], in_slots: Mapping[Pattern, int]) -> float:
    """Return the size of the smallest bundle of one slot for which the slots still have room, infinity without one."""
    for k, size in enumerate(sizes):
        if (*inner[:k], inner[k] + 1, *inner[k + 1 :]) in in_slots:
            return size
    return math.inf


def _in_slots(slots: tuple[int, ...], sizes: tuple[int, ...], most: int) -> dict[Pattern, int] | None:
    """Return the numbers of each size that fit into the slots together, with the GPUs that they leave.

    None where more than `most` have to be looked at, here and below.
    """
    sums: dict[Pattern, int] = {(0,) * len(sizes): sum(slots)}
    for room in slots:
        options = _fillings(room, sizes, most)
        if options is None or len(sums) * len(options) > most:
            return None
        dense = [(room - left, _dense(counts, len(sizes))) for left, counts in options]
        sums = {tuple(map(add, one, two)): left - taken for one, left in sums.items() for taken, two in dense}
    return sums


def _full(room: int, sizes: tuple[int, ...], most: int) -> list[tuple[int, Pattern]] | None:
    """Return the numbers of each size within a room to which nothing can be added, with the GPUs that they leave.

    The smallest size takes all that the others leave.
    """
    if not sizes:
        return [(room, ())]
    least, *others = sorted(range(len(sizes)), key=lambda k: sizes[k])
    options = _fillings(room, tuple(sizes[k] for k in others), most)
    if options is None:
        return None
    return [
        (left % sizes[least], _dense(((least, left // sizes[least]), *((others[k], n) for k, n in counts)), len(sizes)))
        for left, counts in options
    ]


def _fillings(room: int, sizes: tuple[int, ...], most: int) -> list[tuple[int, Counts]] | None:
    """Return every number of each size, ascending, within a room, with what it leaves."""
    found: list[tuple[int, Counts]] = []
    waiting: list[tuple[int, int, Counts]] = [(0, room, ())]
    while waiting:
        first, left, counts = waiting.pop()
        found.append((left, counts))
        for k in range(first, len(sizes)):
            if sizes[k] > left:
                break
            for n in range(1, left // sizes[k] + 1):
                waiting.append((k + 1, left - n * sizes[k], (*counts, (k, n))))
                if len(found) + len(waiting) > most:
                    return None
    return found


def _dense(counts: Counts, length: int) -> Pattern:
    """Return numbers at their positions, 0 elsewhere."""
    numbers = [0] * length
    for k, n in counts:
        numbers[k] = n
    return tuple(numbers)


def kind_sizes(tables: Tables, level: Locality, most: int) -> tuple[int, ...]:
    """Return the sizes of a locality's kinds up to a limit, ascending."""
    mine = tables.kinds[tables.kinds[:, 0] == level, 1]
    return tuple(int(size) for size in mine if size <= most)
