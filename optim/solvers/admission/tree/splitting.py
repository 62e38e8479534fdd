"""From counts over server classes to counts on single servers: each class and slot is a packing problem."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optim.models.admission.instance import AdmissionInstance, IntArray, ServerClasses
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import Side
from optim.solvers.admission.pricing.capacity_rows import segments_of
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.shared_room import share_limit

NODE_LIMIT = 20_000
"""Nodes of one search, after which it is given up: then the counts may or may not split."""

Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Units of one sort: a schedule's workers or PSs in a class and slot.

    Parameters
    ----------
    owner
        Number of the schedule; on shared servers a schedule's workers and PSs are two kinds of one owner.
    side
        Workers or PSs.
    units
        How many there are in all.
    demand
        What one takes of each resource.
    most
        How many of them one server may hold.
    """

    owner: int
    side: Side
    units: int
    demand: Vector
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """A class and slot whose servers don't hold what schedules put there together.

    Parameters
    ----------
    hosts, server_class, slot
        Where; on shared servers `hosts` is the workers' side.
    kinds
        A set of kinds that the servers don't hold; without any one of them they might.
    is_proven
        Whether the search came to its end.
    """

    hosts: Side
    server_class: int
    slot: int
    kinds: tuple[Kind, ...]
    is_proven: bool


def split(tables: JobTables, schedules: PricedSchedules) -> AdmissionPlan | Crowded:
    """Place schedules of different jobs over server classes on single servers, exactly.

    Returns
    -------
    AdmissionPlan or Crowded
        The plan; or the first class and slot where no way was found to split the counts.
    """
    instance, segments = tables.instance, segments_of(tables, schedules)
    rows: dict[Side, list[tuple[int, int, int, int]]] = {Side.WORKER: [], Side.PS: []}
    hosts = ((Side.WORKER, instance.worker_servers), (Side.PS, instance.ps_servers))
    for side, servers in hosts[:1] if instance.has_shared_servers else hosts:
        sides = (Side.WORKER, Side.PS) if instance.has_shared_servers else (side,)
        shared_room = share_limit(instance, servers.capacity) if len(sides) == 2 else None
        for c, t in np.ndindex(servers.num_classes, instance.horizon):
            kinds = [kind for own in sides for kind in _kinds(instance, schedules, segments, own, c, t)]
            first = int(servers.count[:c].sum())
            room = Room(servers, c, t, None if shared_room is None else tuple(shared_room[c, t].tolist()))
            placed, is_proven = spread(kinds, room)
            if placed is None:
                few = tuple(_fewest(kinds, room)) if is_proven else tuple(kinds)
                return Crowded(hosts=side, server_class=c, slot=t, kinds=few, is_proven=is_proven)
            for kind, by_server in zip(kinds, placed, strict=True):
                job = int(schedules.jobs[kind.owner])
                rows[kind.side] += [(job, t, first + h, units) for h, units in enumerate(by_server) if units]
    return AdmissionPlan.from_rows(rows[Side.WORKER], rows[Side.PS])


def _kinds(
    instance: AdmissionInstance, schedules: PricedSchedules, segments: IntArray, side: Side, c: int, t: int
) -> Iterator[Kind]:
    """Yield what schedules put in a class and slot."""
    is_worker = side is Side.WORKER
    counts = schedules.workers if is_worker else schedules.ps
    demand = instance.jobs.worker_demand if is_worker else instance.jobs.ps_demand
    most = instance.workers_per_server if is_worker else instance.ps_per_server
    for k in np.flatnonzero(counts[:, c, t]).tolist():
        s = segments[k, t]
        yield Kind(
            owner=k,
            side=side,
            units=int(counts[k, c, t]),
            demand=tuple(demand[s].tolist()),
            most=int(most[s, c, t]),
        )


class Room:
    """Equal servers of a class in a slot.

    Parameters
    ----------
    servers, c, t
        The class and slot.
    share
        What one owner's kinds may take together of one server, a single unit excepted; None for no limit.
    """

    def __init__(self, servers: ServerClasses, c: int, t: int, share: Vector | None) -> None:
        self.one: Vector = tuple(servers.capacity[c, t].tolist())
        self.number = int(servers.count[c])
        self.share = share


def spread(kinds: Sequence[Kind], room: Room) -> tuple[list[list[int]] | None, bool]:
    """Spread units over equal servers.

    Returns
    -------
    tuple
        For each kind its units by server, None if no way was found; and whether that is proven.
    """
    for r, limit in enumerate(room.one):
        if sum(kind.units * kind.demand[r] for kind in kinds) > room.number * limit:
            return None, True
    search = _Spread(kinds, room)
    placed = search.place()
    return placed, not search.is_given_up


def _fewest(kinds: Sequence[Kind], room: Room) -> list[Kind]:
    """Leave out kinds one after the other as long as the servers certainly don't hold the rest."""
    left = list(kinds)
    for kind in sorted(kinds, key=lambda kind: (kind.units * max(kind.demand), kind.owner)):
        rest = [other for other in left if other is not kind]
        placed, is_proven = spread(rest, room)
        if placed is None and is_proven:
            left = rest
    return left


class _Spread:
    """Depth-first over kinds; servers that hold the same are tried once."""

    def __init__(self, kinds: Sequence[Kind], room: Room) -> None:
        self._kinds, self._room = kinds, room
        self._left = [list(room.one) for _ in range(room.number)]
        self._placed = [[0] * room.number for _ in kinds]
        self._nodes = 0
        owners = [kind.owner for kind in kinds]
        self._partner = [
            next((j for j, owner in enumerate(owners) if owner == own and j != k), None) for k, own in enumerate(owners)
        ]
        # Large units first: they leave the fewest ways.
        self._order = sorted(range(len(kinds)), key=lambda k: (-self._share_of_room(kinds[k].demand), k))

    @property
    def is_given_up(self) -> bool:
        """Whether the search ended before its end."""
        return self._nodes > NODE_LIMIT

    def place(self) -> list[list[int]] | None:
        """Return all kinds' units by server."""
        return self._placed if self._extend(0) else None

    def _share_of_room(self, demand: Vector) -> float:
        return max((d / c if c else 0.0 for d, c in zip(demand, self._room.one, strict=True)), default=0.0)

    def _extend(self, depth: int) -> bool:
        if depth == len(self._order):
            return True
        k = self._order[depth]
        for counts in self._ways(k, self._kinds[k].units, 0):
            self._nodes += 1
            if self.is_given_up:
                return False
            self._take(k, counts, 1)
            if self._extend(depth + 1):
                return True
            self._take(k, counts, -1)
        return False

    def _ways(self, k: int, units: int, first: int) -> Iterator[tuple[int, ...]]:
        """Yield the ways to place units of one kind on the servers from `first` on, fullest first.

        Of neighbouring servers that hold the same an earlier one never gets fewer than a later one.
        """
        if first == len(self._left):
            if units == 0:
                yield ()
            return
        for count in range(min(units, self._fits(k, first)), -1, -1):
            for rest in self._ways(k, units - count, first + 1):
                if rest and rest[0] > count and self._are_equal(k, first, first + 1):
                    continue
                yield count, *rest

    def _are_equal(self, k: int, a: int, b: int) -> bool:
        """Tell whether two servers are alike for a kind and all that come after it."""
        if self._left[a] != self._left[b]:
            return False
        return self._room.share is None or all(placed[a] == placed[b] for placed in self._placed)

    def _fits(self, k: int, server: int) -> int:
        kind = self._kinds[k]
        result = kind.most
        for need, left in zip(kind.demand, self._left[server], strict=True):
            if need:
                result = min(result, left // need)
        while result and not self._is_within_share(k, server, result):
            result -= 1
        return result

    def _is_within_share(self, k: int, server: int, count: int) -> bool:
        """Tell whether an owner's two kinds stay within its share of a server; a single unit always does."""
        partner, share = self._partner[k], self._room.share
        beside = 0 if partner is None else self._placed[partner][server]
        if share is None or partner is None or beside == 0:
            return True
        demand, other = self._kinds[k].demand, self._kinds[partner].demand
        return all(count * d + beside * o <= limit for d, o, limit in zip(demand, other, share, strict=True))

    def _take(self, k: int, counts: Sequence[int], sign: int) -> None:
        for h, count in enumerate(counts):
            if count:
                self._placed[k][h] = count if sign > 0 else 0
                for r, need in enumerate(self._kinds[k].demand):
                    self._left[h][r] -= sign * need * count
