"""From counts over server classes to counts on single servers: each class and slot is a packing problem."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import Side
from optim.solvers.admission.pricing.capacity_rows import segments_of
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables

NODE_LIMIT = 20_000
"""Nodes of one search, after which the counts are taken for impossible to split."""

Row = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowded:
    """A class and slot whose servers don't hold what schedules put there together."""

    side: Side
    server_class: int
    slot: int


def split(tables: JobTables, schedules: PricedSchedules) -> AdmissionPlan | Crowded:
    """Place schedules of different jobs over server classes on single servers, exactly.

    Returns
    -------
    AdmissionPlan or Crowded
        The plan; or the first class and slot where no way was found to split the counts, which proves that
        there is none unless `NODE_LIMIT` was reached.
    """
    instance, segments = tables.instance, segments_of(tables, schedules)
    rows: dict[Side, list[Row]] = {Side.WORKER: [], Side.PS: []}
    sides = (
        (
            Side.WORKER,
            schedules.workers,
            instance.worker_servers,
            instance.jobs.worker_demand,
            instance.workers_per_server,
        ),
        (Side.PS, schedules.ps, instance.ps_servers, instance.jobs.ps_demand, instance.ps_per_server),
    )
    for side, counts, servers, demand, most in sides:
        first = 0
        for c, number in enumerate(servers.count.tolist()):
            for t in range(instance.horizon):
                on = np.flatnonzero(counts[:, c, t])
                own = segments[on, t].tolist()
                placed = spread(
                    counts[on, c, t].tolist(),
                    [tuple(demand[s].tolist()) for s in own],
                    [int(most[s, c, t]) for s in own],
                    tuple(servers.capacity[c, t].tolist()),
                    number,
                )
                if placed is None:
                    return Crowded(side=side, server_class=c, slot=t)
                rows[side] += [
                    (job, t, first + h, units)
                    for job, by_server in zip(schedules.jobs[on].tolist(), placed, strict=True)
                    for h, units in enumerate(by_server)
                    if units
                ]
            first += number
    return AdmissionPlan.from_rows(rows[Side.WORKER], rows[Side.PS])


Vector = tuple[int, ...]


def spread(
    units: Sequence[int], demand: Sequence[Vector], most: Sequence[int], room: Vector, number: int
) -> list[list[int]] | None:
    """Spread units of several jobs over equal servers.

    Parameters
    ----------
    units, demand, most
        For each job how many units there are, what one takes, and how many one server may hold.
    room, number
        A server's capacity, and how many servers there are.

    Returns
    -------
    list or None
        For each job its units by server; None if no way was found.
    """
    search = _Spread(demand, most, room, number)
    # Large units first: they leave the fewest ways.
    order = sorted(
        range(len(units)),
        key=lambda k: (-max((d / c if c else 0.0) for d, c in zip(demand[k], room, strict=True)), k),
    )
    if sum(units) and any(
        sum(n * d[r] for n, d in zip(units, demand, strict=True)) > number * limit for r, limit in enumerate(room)
    ):
        return None
    return search.place(order, list(units))


class _Spread:
    """Depth-first over jobs; servers that hold the same are tried once."""

    def __init__(self, demand: Sequence[Vector], most: Sequence[int], room: Vector, number: int) -> None:
        self._demand, self._most = demand, most
        self._left = [list(room) for _ in range(number)]
        self._placed = [[0] * number for _ in demand]
        self._nodes = 0

    def place(self, order: Sequence[int], units: Sequence[int]) -> list[list[int]] | None:
        """Return all jobs' units by server."""
        return self._placed if self._extend(order, units, 0) else None

    def _extend(self, order: Sequence[int], units: Sequence[int], depth: int) -> bool:
        if depth == len(order):
            return True
        k = order[depth]
        for counts in self._ways(k, units[k], 0):
            self._nodes += 1
            if self._nodes > NODE_LIMIT:
                return False
            self._take(k, counts, 1)
            if self._extend(order, units, depth + 1):
                return True
            self._take(k, counts, -1)
        return False

    def _ways(self, k: int, units: int, first: int) -> Iterator[tuple[int, ...]]:
        """Yield the ways to place units of one job on the servers from `first` on, fullest first.

        Of servers with equal rest an earlier one never gets fewer than a later one.
        """
        if first == len(self._left):
            if units == 0:
                yield ()
            return
        for count in range(min(units, self._fits(k, first)), -1, -1):
            for rest in self._ways(k, units - count, first + 1):
                if rest and self._left[first] == self._left[first + 1] and rest[0] > count:
                    continue
                yield count, *rest

    def _fits(self, k: int, server: int) -> int:
        result = self._most[k]
        for need, left in zip(self._demand[k], self._left[server], strict=True):
            if need:
                result = min(result, left // need)
        return result

    def _take(self, k: int, counts: Sequence[int], sign: int) -> None:
        for h, count in enumerate(counts):
            if count:
                self._placed[k][h] = count if sign > 0 else 0
                for r, need in enumerate(self._demand[k]):
                    self._left[h][r] -= sign * need * count
