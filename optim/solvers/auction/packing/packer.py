"""Find room for a choice of bundles: best fit, then searches by exchange; equal seeds, equal answers."""

import numpy as np

from optim.models.auction.instance import AuctionInstance, IntArray, Locality
from optim.models.auction.plan import Witness, sorted_entries
from optim.solvers.auction.packing.best_fit import concretise, reserve
from optim.solvers.auction.packing.rearrange import rearrange
from optim.solvers.auction.packing.room import Room, placing_order
from optim.solvers.auction.tables import Tables

SEARCHES = 4
"""Searches by exchange after best fit has failed."""

FAR = 1 << 20
"""Larger than any size or machine: packs them into one number."""

MOST_SEARCHED = 40
"""More bundles than this aren't placed by a search through all placements."""

MOVES = 20_000
"""Moves of one search."""


class Packer:
    """Place bundles on one cluster; sets of bundles that found no room once aren't tried again.

    Parameters
    ----------
    instance
        The auction.
    seed
        Of the searches.
    """

    def __init__(self, instance: AuctionInstance, seed: int = 0) -> None:
        self._bids, self._seed = instance.bids, seed
        self._named_offset = instance.named_offset
        cluster = instance.cluster
        self._tree = (cluster.slot_machine, cluster.machine_rack)
        self._failed: set[tuple[bytes, bool]] = set()
        self.room = Room(instance)
        self._free = (cluster.slot_free, cluster.machine_free, cluster.rack_free)

    def fits_first(self, rows: IntArray) -> bool:
        """Tell whether the first order, largest first, finds room for instance rows."""
        owner, level, size, target = self._items(rows)
        order = _largest_first(level, size)
        place = np.full(len(owner), -1, dtype=np.int64)
        return bool(reserve(level[order], size[order], target[order], *self._tree, *self._free, place))

    def place(self, row: IntArray, *, is_thorough: bool = False) -> IntArray | None:
        """Return (app, slot, count) entries of a choice of instance rows by app, None if no room is found.

        If asked to be thorough, few bundles are placed by a search through all placements where all else fails.
        """
        owner, level, size, target = self._items(row[row >= 0])
        key = np.sort((level * FAR + size) * FAR + target + 1).tobytes()
        if int(size.sum()) > int(self._free[0].sum()) or (key, is_thorough) in self._failed:
            return None
        place = np.full(len(owner), -1, dtype=np.int64)
        order = _largest_first(level, size)
        found = None
        if reserve(level[order], size[order], target[order], *self._tree, *self._free, place):
            found = self._entries(row, order, place)
        if found is None:
            found = self.search(row)
        if found is None and is_thorough:
            found = self._by_room(row)
        if found is None:
            self._failed.add((key, is_thorough))
        return found

    def witness(self, tables: Tables, choice: IntArray, *, is_thorough: bool = False) -> Witness | None:
        """Return a choice of kept rows as a witness, None if no room is found for it."""
        row = tables.chosen_rows(choice)
        if not tables.has_named and self.fits_first(row[row >= 0]):
            return Witness(row=row)
        placement = self.place(row, is_thorough=is_thorough)
        return None if placement is None else Witness(row=row, placement=placement)

    def search(self, row: IntArray) -> IntArray | None:
        """Return entries by exchange alone, as `place` does where best fit finds no room."""
        owner, level, size, target = self._items(row[row >= 0])
        place = np.full(len(owner), -1, dtype=np.int64)
        for turn in range(SEARCHES):
            # Named and narrow bundles first, largest first; from the second search on with sizes shaken.
            rng = np.random.default_rng([self._seed, turn])
            shake = rng.uniform(0.8, 1.0, len(size)) if turn else 1.0
            order = np.lexsort((np.arange(len(size)), -size * shake, level == Locality.RACK, level != Locality.NAMED))
            items = (level[order], size[order], target[order])
            if rearrange(*items, *self._tree, *self._free, place, self._seed + turn, MOVES):
                found = self._entries(row, order, place)
                if found is not None:
                    return found
        return None

    def _by_room(self, row: IntArray) -> IntArray | None:
        """Return entries by a search through all placements, where the bundles are few."""
        _, level, size, target = self._items(row[row >= 0])
        if len(level) > MOST_SEARCHED:
            return None
        items = tuple(sorted(zip(level.tolist(), size.tolist(), target.tolist(), strict=True)))
        places = self.room.places(items)
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
        """Turn places of items, in an order of theirs, into entries; None where the places hold less than the items."""
        apps = np.flatnonzero(row >= 0)
        owner, level, size, _ = self._items(row[apps])
        entries = concretise(level[order], size[order], place, *self._tree, self._free[0])
        if entries[:, 2].sum() < size.sum():
            return None
        entries[:, 0] = apps[owner[order[entries[:, 0]]]]
        return sorted_entries(_merged(entries))

    def _items(self, rows: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return position, level, size and target machine of each item; a named row is one item a machine."""
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
"""Named bundles first, then those within a rack, those of one slot or machine, those anywhere."""


def _largest_first(level: IntArray, size: np.ndarray) -> IntArray:
    return np.lexsort((np.arange(len(level)), level, -size, _TURN[level]))


def _merged(entries: IntArray) -> IntArray:
    """Add up entries of one app on one slot."""
    if not len(entries):
        return entries
    key, inverse = np.unique(entries[:, :2], axis=0, return_inverse=True)
    return np.column_stack([key, np.bincount(inverse.ravel(), entries[:, 2]).astype(np.int64)])
