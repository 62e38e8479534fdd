"""From counts over server classes to counts on single servers, and splits of a node if they don't fit.

If counts of several jobs don't fit on the servers of a class in a slot, the node is split on one of these counts: the low
child allows fewer units than now, the high child requires at least the present units. Once a node requires the
present units of all these jobs, none of its plans fits on the servers. The checker proves this from the restrictions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import IntArray
from optim.core.stopping import never
from optim.models.admission.data import ServerClasses, share_of
from optim.models.admission.decision import AdmissionPlan, Branch, BranchKind, Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.branching.node_pricing import BranchRestrictions
from optim.solvers.admission.packing.capacity_rows import segments_of
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules

NODE_LIMIT = 20_000
"""Maximal number of placements of single items that one search tries. Beyond it the search gives up without a result."""

NODES_A_CHECK = 64
"""Number of tried placements between two calls of `should_stop`."""

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A schedule's workers, or its PSs, in one class and slot.

    Parameters
    ----------
    owner
        Index of the schedule; on shared servers a schedule's workers and PSs are two items of one owner.
    side
        Workers or PSs.
    units
        Number of units to place.
    demand
        Demand of one unit for each resource, in 1e-6 units.
    most
        Maximal number of these units on one server.
    """

    owner: int
    side: Side
    units: int
    demand: Vector
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackableSet:
    """A class and slot in which the counts of schedules were not split onto the servers.

    Parameters
    ----------
    hosts, server_class, slot
        Whether the servers are for workers or for PSs (shared servers: workers), their class, and the slot.
    items
        Items that don't fit together. If that is proven, items without which the rest provably doesn't fit are left out.
    is_proven
        Whether it is proven that they don't fit; False if the search gave up.
    """

    hosts: Side
    server_class: int
    slot: int
    items: tuple[Item, ...]
    is_proven: bool


def split(
    tables: JobTables, schedules: PricedSchedules, should_stop: Callable[[], bool] = never
) -> AdmissionPlan | UnpackableSet:
    """Split the counts of schedules over server classes onto single servers.

    Parameters
    ----------
    tables, schedules
        The instance, and schedules of different jobs.
    should_stop
        Called during long searches; True ends the search without a result.

    Returns
    -------
    AdmissionPlan or UnpackableSet
        The plan, or the first class and slot in which no split of the counts was found.
    """
    instance, segments = tables.instance, segments_of(tables, schedules)
    rows: dict[Side, list[tuple[int, int, int, int]]] = {Side.WORKER: [], Side.PS: []}
    hosts = ((Side.WORKER, instance.worker_servers), (Side.PS, instance.ps_servers))
    for side, servers in hosts[:1] if instance.has_shared_servers else hosts:
        sides = (Side.WORKER, Side.PS) if instance.has_shared_servers else (side,)
        shared_room = share_of(servers.capacity, instance.max_share_per_server) if len(sides) == 2 else None
        for c, t in np.ndindex(servers.num_classes, instance.horizon):
            items = [item for side_items in sides for item in _items(instance, schedules, segments, side_items, c, t)]
            first = int(servers.count[:c].sum())
            space = ServerSpace(servers, c, t, None if shared_room is None else tuple(shared_room[c, t].tolist()))
            placed, is_proven = pack(items, space, should_stop)
            if placed is None:
                few = tuple(_fewest(items, space, should_stop)) if is_proven else tuple(items)
                return UnpackableSet(hosts=side, server_class=c, slot=t, items=few, is_proven=is_proven)
            for item, by_server in zip(items, placed, strict=True):
                job = int(schedules.jobs[item.owner])
                rows[item.side] += [(job, t, first + h, units) for h, units in enumerate(by_server) if units]
    return AdmissionPlan.from_rows(rows[Side.WORKER], rows[Side.PS])


def _items(
    instance: AdmissionInstance, schedules: PricedSchedules, segments: IntArray, side: Side, c: int, t: int
) -> Iterator[Item]:
    """Yield the items of one side in a class and slot, one per schedule with units there."""
    is_worker = side is Side.WORKER
    counts = schedules.workers if is_worker else schedules.ps
    demand = instance.jobs.worker_demand if is_worker else instance.jobs.ps_demand
    most = instance.workers_per_server if is_worker else instance.ps_per_server
    for k in np.flatnonzero(counts[:, c, t]).tolist():
        s = segments[k, t]
        yield Item(
            owner=k,
            side=side,
            units=int(counts[k, c, t]),
            demand=tuple(demand[s].tolist()),
            most=int(most[s, c, t]),
        )


class ServerSpace:
    """The identical servers of a class in a slot.

    Parameters
    ----------
    servers, c, t
        All classes, and the index of the class and the slot.
    share
        Maximal use of each resource of one server by an owner's workers and PSs together; None: no limit.
    """

    def __init__(self, servers: ServerClasses, c: int, t: int, share: Vector | None) -> None:
        self.one: Vector = tuple(servers.capacity[c, t].tolist())
        self.number = int(servers.count[c])
        self.share = share


def pack(
    items: Sequence[Item], space: ServerSpace, should_stop: Callable[[], bool] = never
) -> tuple[list[list[int]] | None, bool]:
    """Distribute the units of items over identical servers.

    Returns
    -------
    tuple
        Each item's units by server, or None if no distribution was found; and whether the search was complete, so that
        None proves that there is none.
    """
    for r, limit in enumerate(space.one):
        if sum(item.units * item.demand[r] for item in items) > space.number * limit:
            return None, True
    search = _Packing(items, space, should_stop)
    placed = search.place()
    return placed, not search.is_given_up


def _fewest(items: Sequence[Item], space: ServerSpace, should_stop: Callable[[], bool]) -> list[Item]:
    """Remove items one after the other if the rest provably still doesn't fit; return the remaining items."""
    core = list(items)
    for item in sorted(items, key=lambda item: (item.units * max(item.demand), item.owner)):
        rest = [other for other in core if other is not item]
        placed, is_proven = pack(rest, space, should_stop)
        if placed is None and is_proven:
            core = rest
    return core


class _Packing:
    """Depth-first search over items; among servers with equal contents, only one order of counts is tried."""

    def __init__(self, items: Sequence[Item], space: ServerSpace, should_stop: Callable[[], bool]) -> None:
        self._items, self._space, self._should_stop = items, space, should_stop
        self._residual = [list(space.one) for _ in range(space.number)]
        self._placed = [[0] * space.number for _ in items]
        self._nodes, self._is_stopped = 0, False
        owners = [item.owner for item in items]
        self._partner = [
            next((j for j, owner in enumerate(owners) if owner == this_owner and j != k), None)
            for k, this_owner in enumerate(owners)
        ]
        # Items with large units come first, since they have the fewest placements.
        self._order = sorted(range(len(items)), key=lambda k: (-self._share_of_capacity(items[k].demand), k))

    @property
    def is_given_up(self) -> bool:
        """Whether the search ended early, by `should_stop` or the limit of placements."""
        return self._is_stopped or self._nodes > NODE_LIMIT

    def place(self) -> list[list[int]] | None:
        """Return each item's units by server; None if no placement was found."""
        ways: list[Iterator[list[int]]] = []
        placed_counts: list[list[int]] = []
        while len(placed_counts) < len(self._order):
            k = self._order[len(placed_counts)]
            if len(ways) == len(placed_counts):
                ways.append(self._ways(k))
            counts = next(ways[-1], None)
            if counts is not None:
                self._nodes += 1
                self._is_stopped = self._nodes % NODES_A_CHECK == 0 and self._should_stop()
                if self.is_given_up:
                    return None
                self._take(k, counts, 1)
                placed_counts.append(counts)
            elif placed_counts:
                ways.pop()
                counts = placed_counts.pop()
                self._take(self._order[len(placed_counts)], counts, -1)
            else:
                return None
        return self._placed

    def _share_of_capacity(self, demand: Vector) -> float:
        return max((d / c if c else 0.0 for d, c in zip(demand, self._space.one, strict=True)), default=0.0)

    def _ways(self, k: int) -> Iterator[list[int]]:
        """Yield the distributions of an item's units over the servers, lexicographically largest first.

        Among neighbouring servers with equal contents, an earlier one never gets fewer units than a later one. So a count
        bounds the counts of the equal servers after it. The bounds show whether the remaining units fit, so that every
        partial distribution can be completed.
        """
        most = [self._fits(k, h) for h in range(self._space.number)]
        is_led = [h > 0 and self._are_equal(h - 1, h) for h in range(self._space.number)]
        unplaced, first = self._items[k].units, 0
        if unplaced > sum(most):
            return
        counts = [0] * len(most)
        while True:
            for h in range(first, len(most)):
                counts[h] = min(unplaced, counts[h - 1] if is_led[h] else most[h])
                unplaced -= counts[h]
            yield counts.copy()
            lowered, unplaced = _next_to_lower(counts, most, is_led)
            if lowered < 0:
                return
            counts[lowered] -= 1
            first = lowered + 1

    def _are_equal(self, a: int, b: int) -> bool:
        """Return whether two servers are interchangeable for all items that aren't placed yet."""
        if self._residual[a] != self._residual[b]:
            return False
        return self._space.share is None or all(placed[a] == placed[b] for placed in self._placed)

    def _fits(self, k: int, server: int) -> int:
        item = self._items[k]
        result = item.most
        for need, residual in zip(item.demand, self._residual[server], strict=True):
            if need:
                result = min(result, residual // need)
        while result and not self._is_within_share(k, server, result):
            result -= 1
        return result

    def _is_within_share(self, k: int, server: int, count: int) -> bool:
        """Return whether `count` units and the owner's other item stay within its share of a server.

        If the owner has no other units on the server, the item's own limit suffices.
        """
        partner, share = self._partner[k], self._space.share
        partner_units = 0 if partner is None else self._placed[partner][server]
        if share is None or partner is None or partner_units == 0:
            return True
        demand, other = self._items[k].demand, self._items[partner].demand
        return all(count * d + partner_units * o <= limit for d, o, limit in zip(demand, other, share, strict=True))

    def _take(self, k: int, counts: Sequence[int], sign: int) -> None:
        for h, count in enumerate(counts):
            if count:
                self._placed[k][h] = count if sign > 0 else 0
                for r, need in enumerate(self._items[k].demand):
                    self._residual[h][r] -= sign * need * count


def _next_to_lower(counts: Sequence[int], most: Sequence[int], is_led: Sequence[bool]) -> tuple[int, int]:
    """Return the last server that can give one unit to the servers after it.

    Parameters
    ----------
    counts, most
        Units on each server, and its maximum.
    is_led
        Whether a server may have at most as many units as the server before it.

    Returns
    -------
    tuple
        The server, -1 if there is none; and the total of the servers after it, including that unit.
    """
    after = room_beyond = like_it = 0
    for h in range(len(counts) - 1, -1, -1):
        # The next `like_it` servers get at most as many units as this one; the servers after them at most `room_beyond`.
        if counts[h] and after + 1 <= (counts[h] - 1) * like_it + room_beyond:
            return h, after + 1
        after += counts[h]
        if is_led[h]:
            like_it += 1
        else:
            room_beyond, like_it = room_beyond + most[h] * (like_it + 1), 0
    return -1, 0


def nogood_branch(
    limits: BranchRestrictions, tables: JobTables, schedules: PricedSchedules, unpackable: UnpackableSet
) -> Branch | None:
    """Return a split on the largest of the unpackable counts that the node allows to be lower.

    If there is no such count, a job with several demand segments may still be in another segment in this slot, until its
    counts of workers in earlier slots are fixed. The split is then on one of these counts; None if all are fixed.
    """
    place = (unpackable.server_class, unpackable.slot)
    open_counts = []
    for item in unpackable.items:
        i, low = int(schedules.jobs[item.owner]), limits.worker_low if item.side is Side.WORKER else limits.ps_low
        if low[i, *place] < item.units:
            open_counts.append((item.units, -i, item.side))
    if open_counts:
        units, minus_job, side = max(open_counts)
        return Branch(
            kind=BranchKind.WORKERS if side is Side.WORKER else BranchKind.PS,
            job=-minus_job,
            value=units - 1,
            server_class=unpackable.server_class,
            slot=unpackable.slot,
        )
    for owner in sorted({item.owner for item in unpackable.items}):
        branch = _fixing_segment(limits, tables, schedules, owner, unpackable.slot)
        if branch is not None:
            return branch
    return None


def _fixing_segment(
    limits: BranchRestrictions, tables: JobTables, schedules: PricedSchedules, owner: int, slot: int
) -> Branch | None:
    """Return a split on a count of workers before `slot` that isn't fixed; None without one, or with one segment."""
    i = int(schedules.jobs[owner])
    segments = slice(int(tables.segment_offset[i]), int(tables.segment_offset[i + 1]))
    if segments.stop - segments.start == 1:
        return None
    for t in range(int(tables.arrival[i]), slot):
        for c, units in enumerate(schedules.workers[owner, :, t].tolist()):
            low, high = int(limits.worker_low[i, c, t]), int(limits.worker_high[segments, c, t].max())
            if low < units or high > units:
                value = units - 1 if low < units else units
                return Branch(kind=BranchKind.WORKERS, job=i, value=value, server_class=c, slot=t)
    return None
