"""Allocations on concrete GPUs: built greedily, improved by exchange, or repaired from a choice that doesn't pack."""

from dataclasses import dataclass, replace

import numpy as np

from optim.models.auction.instance import IntArray
from optim.models.auction.plan import sorted_entries
from optim.solvers.auction.allocation.upgrades import exchange, fill_up, insert, take_back
from optim.solvers.auction.tables import Tables

NOBODY = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """Who holds which kept row, and where.

    Parameters
    ----------
    choice
        Shape (apps,): kept row of each app, -1 for none.
    held
        Shape (apps, slots).
    free
        Shape (slots,).
    """

    choice: IntArray
    held: IntArray
    free: IntArray

    @property
    def placement(self) -> IntArray:
        """(app, slot, count) entries."""
        app, slot = np.divmod(np.flatnonzero(self.held), self.held.shape[1])
        return sorted_entries(np.column_stack([app, slot, self.held[app, slot]]))


class Allocator:
    """Builds allocations for one auction."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        cluster = tables.instance.cluster
        self._tree = (cluster.slot_machine, cluster.machine_rack)
        self._rows = (tables.offset, tables.level, tables.size, tables.weight, _named_entries(tables))

    def empty(self) -> Allocation:
        """Return the allocation of nothing."""
        cluster = self._tables.instance.cluster
        n = self._tables.num_apps
        return Allocation(
            choice=np.full(n, -1, dtype=np.int64),
            held=np.zeros((n, len(cluster.slot_free)), dtype=np.int64),
            free=cluster.slot_free.copy(),
        )

    def from_placement(self, row: IntArray, placement: IntArray) -> Allocation:
        """Return the allocation of instance rows that are placed already."""
        allocation = self.empty()
        allocation.choice[:] = np.where(row >= 0, np.searchsorted(self._tables.row, row), NOBODY)
        np.add.at(allocation.held, (placement[:, 0], placement[:, 1]), placement[:, 2])
        np.subtract.at(allocation.free, placement[:, 1], placement[:, 2])
        return allocation

    def repaired(self, wanted: IntArray, absent: int = NOBODY) -> Allocation:
        """Return an allocation near a choice of kept rows: what finds no room is replaced by what does."""
        allocation = self.empty()
        size = np.append(self._tables.size, 0)[wanted]
        order = np.lexsort((np.arange(len(wanted)), -size))
        parts = (allocation.choice, allocation.held, allocation.free)
        _, level, row_size, _, named = self._rows
        insert(order, wanted, level, row_size, named, *parts, *self._tree)
        return self.filled(allocation, absent)

    def without(self, allocation: Allocation, app: int) -> Allocation:
        """Return the allocation with an app's bundle taken back and given to the others."""
        copy = _copy(allocation)
        take_back(app, copy.held, copy.free)
        copy.choice[app] = -1
        self._fill(copy, app)
        return copy

    def filled(self, allocation: Allocation, absent: int = NOBODY) -> Allocation:
        """Return the allocation with greedy upgrades until nothing fits."""
        copy = _copy(allocation)
        self._fill(copy, absent)
        return copy

    def _fill(self, allocation: Allocation, absent: int) -> None:
        fill_up(*self._rows, allocation.choice, allocation.held, allocation.free, *self._tree, absent)

    def improved(self, allocation: Allocation, *, seed: int, moves: int, absent: int = NOBODY) -> Allocation:
        """Return the allocation after so many moves of exchange."""
        copy = _copy(allocation)
        exchange(*self._rows, copy.choice, copy.held, copy.free, *self._tree, absent, seed % 2**31, moves)
        return copy


def _copy(allocation: Allocation) -> Allocation:
    return replace(
        allocation, choice=allocation.choice.copy(), held=allocation.held.copy(), free=allocation.free.copy()
    )


def _named_entries(tables: Tables) -> tuple[IntArray, IntArray, IntArray]:
    """Return the machines that kept rows name, by position among the kept rows."""
    bids, first = tables.instance.bids, tables.instance.named_offset
    count = np.diff(first)[tables.row] if len(tables.row) else np.zeros(0, dtype=np.int64)
    offset = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    picked = [np.arange(first[b], first[b + 1]) for b in tables.row[count > 0].tolist()]
    entries = np.concatenate(picked) if picked else np.zeros(0, dtype=np.int64)
    return offset, bids.named_machine[entries].astype(np.int64), bids.named_gpus[entries].astype(np.int64)
