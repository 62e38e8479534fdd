"""The most that a cluster can supply at given prices, machine by machine and rack by rack.

Every packable set of bundles splits into what each rack supplies, and there into what each machine and each
slot supplies. Tables by the number of GPUs used are joined from the slots upward. Bundles that may spread
over racks are priced by the GPU, at the largest price a GPU of any of them.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from optim.models.auction.check.facts import Facts
from optim.models.auction.instance import FloatArray, Locality


class Supply:
    """A cluster's supply; equal machines and equal racks are computed once a price vector."""

    def __init__(self, facts: Facts) -> None:
        self.num_free = facts.num_free
        cluster = facts.instance.cluster
        named = sorted(set(facts.instance.bids.named_machine.tolist()))
        slots: dict[int, list[int]] = {m: [] for m in range(len(cluster.machine_rack))}
        for machine, free in zip(facts.slot_machine.tolist(), facts.slot_free.tolist(), strict=True):
            if free:
                slots[machine].append(free)
        # Machines that rows name are told apart, the others by their free slots alone.
        racks: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for machine, rack in enumerate(cluster.machine_rack.tolist()):
            if slots[machine]:
                key = (machine if machine in named else -1, tuple(sorted(slots[machine])))
                racks.setdefault(rack, []).append(key)
        self.racks: dict[tuple[tuple[int, tuple[int, ...]], ...], int] = {}
        for machines in racks.values():
            group = tuple(sorted(machines))
            self.racks[group] = self.racks.get(group, 0) + 1

    def most(self, prices: Mapping[tuple[int, int, int], float]) -> float:
        """Return an upper bound on the worth of all bundles supplied, each at the price of its kind.

        Parameters
        ----------
        prices
            By (locality, size, machine); negative prices count as 0.
        """
        by_level: dict[int, list[tuple[int, float]]] = {level: [] for level in range(4)}
        named: dict[int, float] = {}
        for (level, size, machine), price in prices.items():
            if price > 0 and level == Locality.NAMED:
                named[machine] = price
            elif price > 0:
                by_level[level].append((size, price))
        loose = max((price / size for size, price in by_level[Locality.CLUSTER]), default=0.0)
        machine_tables: dict[tuple[int, tuple[int, ...]], FloatArray] = {}
        total = 0.0
        for machines, count in self.racks.items():
            table = np.zeros(1)
            for key in machines:
                if key not in machine_tables:
                    machine_tables[key] = _machine_table(key[1], by_level, named.get(key[0], 0.0))
                table = _join(table, machine_tables[key])
            table = _join(table, _knapsack(len(table) - 1, by_level[Locality.RACK]), len(table))
            total += count * float((table + loose * np.arange(len(table))[::-1]).max())
        return total


def _machine_table(slots: Sequence[int], by_level: Mapping[int, list[tuple[int, float]]], named: float) -> FloatArray:
    """Return the most worth that a machine supplies with u = 0, 1, ... GPUs at most."""
    table = np.zeros(1)
    for free in slots:
        table = _join(table, _knapsack(free, by_level[Locality.SLOT]))
    items = by_level[Locality.MACHINE] + ([(1, named)] if named > 0 else [])
    return _join(table, _knapsack(len(table) - 1, items), len(table))


def _knapsack(room: int, items: Sequence[tuple[int, float]]) -> FloatArray:
    """Return the most worth of any number of items within 0, ..., room."""
    table = [0.0] * (room + 1)
    for u in range(1, room + 1):
        table[u] = max([table[u - 1], *(table[u - size] + price for size, price in items if size <= u)])
    return np.array(table)


def _join(first: FloatArray, second: FloatArray, length: int | None = None) -> FloatArray:
    """Return the best split of u GPUs over two tables, for u up to both lengths or `length` - 1."""
    length = len(first) + len(second) - 1 if length is None else length
    table = np.zeros(length)
    for v, worth in enumerate(second.tolist()):
        stop = min(length, v + len(first))
        if v < stop:
            np.maximum(table[v:stop], first[: stop - v] + worth, out=table[v:stop])
    return np.maximum.accumulate(table)
