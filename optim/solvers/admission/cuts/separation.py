"""Separation of cuts: facets of the packings of one server, or a full class, in a slot, lifted to all jobs.

The packing LP lets the jobs share a server fractionally. The integer packings of a server in a slot have a smaller hull. If
the average load of a class' servers lies outside the hull, a separating facet is a valid inequality that the LP violates (a
Fenchel cut). With all such cuts, the LP's bound equals the bound of the Dantzig-Wolfe decomposition by jobs and by servers
at once. The cuts' duals only add to the cost of a job's worker or PS in a class and slot, so pricing needs no extra work.

A server cut depends on a job's average number of units in a class. The packing LP's solution also has the share of a job's
schedules with each number of units. If half of a job's schedules have four units and half none, two units may fit with the
other jobs' units although four do not. A facet of the hull of integral counts separates such mixtures, over variables "job
i has at least n units here". Such a facet sums functions of each job's count. Rank-1 Chvatal-Gomory cuts from a capacity
row and jobs' rows are a special case, subset-row cuts among them. A schedule's coefficient depends on one slot and one
class, so the dynamic programme needs no further state: the slot's cost table accepts any function of a class' count. Count
cuts treat a class' servers as one large server.

A job's workers or its PSs are an *item*. On shared servers both are items of the same servers. A cap on a job's share of a
server then bounds each item alone instead of their sum, and the cuts stay valid.

Sources: Boyd, "Fenchel cutting planes for integer programs", 1994, DOI 10.1287/opre.42.1.53; Jepsen, Petersen, Spoorendonk,
Pisinger, "Subset-row inequalities applied to the vehicle-routing problem with time windows", 2008, DOI
10.1287/opre.1070.0449 (cuts over the master's variables, charged in pricing).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import ServerClasses, units_per_server
from optim.models.admission.decision import CountCut, ServerCut, Side, SlotCut
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.cuts.packings import PackingSpace, best_packing, lift, separate_fenchel, to_integers

LOAD_TOL = 1e-6
"""Smaller average numbers of units, and smaller shares, count as 0."""

MAX_DENOMINATOR = 200

FALLBACK_DENOMINATOR = 5000
"""Denominator for the rare facets whose gains have no small common denominator; their gains are rounded down."""


MAX_DIVISORS = 200
"""Largest number of pairs of a resource and a divisor in a slot cut. The checker accepts five times as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparationOptions:
    """Limits of the separation.

    Parameters
    ----------
    min_violation
        Minimal relative violation of a cut.
    node_limit
        Maximal number of nodes of each search for a best packing; a cut that needs more is skipped.
    max_pivots
        Maximal number of pivots of each facet's search.
    """

    min_violation: float = 1e-4
    node_limit: int = 5_000
    max_pivots: int = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class _Items:
    """The items of the workers' servers, of the PSs' servers, or of shared servers.

    Parameters
    ----------
    side, servers
        Worker or PS (worker on shared servers), and the servers.
    job, is_ps
        Shape (items,): job of each item, and 1 for its PSs, 0 for its workers.
    demand
        Shape (items, resources): demand of one unit, the minimum over a job's segments, so that a cut is valid in each.
    limit
        Shape (items,): maximal number of units on all servers in a slot.
    per_server
        Shape (items, classes, slots): maximal number of units on one server, 0 if the job can't run there.
    """

    side: Side
    servers: ServerClasses
    job: IntArray
    is_ps: IntArray
    demand: IntArray
    limit: IntArray
    per_server: IntArray

    def select(self, order: IntArray) -> "_Items":
        """Return the items in another order."""
        arrays = (self.job, self.is_ps, self.demand, self.limit, self.per_server)
        job, is_ps, demand, limit, per_server = (array[order] for array in arrays)
        return _Items(
            side=self.side,
            servers=self.servers,
            job=job,
            is_ps=is_ps,
            demand=demand,
            limit=limit,
            per_server=per_server,
        )


def _items(instance: AdmissionInstance) -> list[_Items]:
    """Return the items of each side; on shared servers all items, workers first."""
    jobs, slots, sides = instance.jobs, np.arange(instance.horizon), []
    present = (jobs.arrival[:, None] <= slots) & (slots <= instance.deadline[:, None])
    max_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
    for side, demand, servers, limit in (
        (Side.WORKER, jobs.worker_demand, instance.worker_servers, instance.max_workers),
        (Side.PS, jobs.ps_demand, instance.ps_servers, max_ps),
    ):
        least = np.minimum.reduceat(demand, jobs.segment_offset[:-1], axis=0) if len(jobs) else demand
        per_server = units_per_server(least, servers.capacity, limit, instance.max_share_per_server)
        sides.append(
            _Items(
                side=side,
                servers=servers,
                job=np.arange(len(jobs)),
                is_ps=np.full(len(jobs), int(side is Side.PS)),
                demand=least,
                limit=limit,
                per_server=per_server * present[:, None, :],
            )
        )
    if not instance.has_shared_servers:
        return sides
    names = ("job", "is_ps", "demand", "limit", "per_server")
    both = {name: np.concatenate([getattr(side, name) for side in sides]) for name in names}
    return [_Items(side=Side.WORKER, servers=instance.worker_servers, **both)]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Point:
    """A point of the LP in a class and slot: each item's average number of units, or its shares with at least n units.

    Parameters
    ----------
    items
        Shape (present,): indices of the items that are present, ascending.
    first, units
        Kinds of these items, as in `PackingSpace`.
    variable
        Shape (kinds,): variable of each kind, as in `separate_fenchel`.
    load, most
        Shape (variables,): the point, and the largest value of each variable.
    """

    items: IntArray
    first: IntArray
    units: IntArray
    variable: IntArray
    load: FloatArray
    most: IntArray


class _Separator:
    """The common part of both separators: a facet that a point violates, lifted to all items.

    Parameters
    ----------
    instance
        Any admission instance.
    options
        Limits of the separation.
    """

    def __init__(self, instance: AdmissionInstance, options: SeparationOptions | None = None) -> None:
        self._instance = instance
        self._options = options if options is not None else SeparationOptions()
        self._sides = _items(instance)

    def _facet(
        self, use: "_Use", most: IntArray, capacity: IntArray, point: _Point, *, is_linear: bool
    ) -> tuple[IntArray, IntArray, IntArray, int] | None:
        """Find the most violated facet of the packings in `capacity`, if the point is outside their hull, and lift it.

        Parameters
        ----------
        use
            Function from items and their numbers of units, shape (kinds,) each, to their use, shape (kinds, resources).
        most
            Shape (items,): largest number of units of each item.
        capacity
            Shape (resources,): the shared capacity.
        point
            The point.
        is_linear
            Whether each unit of an item gains the same.

        Returns
        -------
        tuple
            Items in the order of lifting; index of each item's first kind (its kinds are 1, ..., most units); the kinds'
            gains; the right-hand side. None if no violated facet is found.
        """
        options, limit = self._options, self._options.node_limit
        kind_item = np.repeat(point.items, np.diff(point.first))
        space = PackingSpace(point.first, point.units, use(kind_item, point.units), capacity, limit)
        # If all items fit together at their largest numbers, no facet is violated.
        if (space.use[point.first[1:] - 1].sum(axis=0) <= capacity).all():
            return None
        fractional, integer_gain = np.empty(len(point.load)), np.empty(len(point.load), dtype=np.int64)
        if separate_fenchel(point.load, point.most, point.variable, space, options.max_pivots, fractional) == 0.0:
            return None
        to_integers(fractional, MAX_DENOMINATOR, FALLBACK_DENOMINATOR, integer_gain)
        gain, packing = integer_gain[point.variable], np.empty_like(point.variable)
        right_hand_side = int(best_packing(gain, space, packing))
        if right_hand_side < 0 or integer_gain @ point.load <= right_hand_side * (1.0 + options.min_violation):
            return None
        # Lifting the present items first raises the violation. If all units gain the same, only items without gain rise.
        head = point.items[integer_gain > 0] if is_linear else point.items
        others = np.setdiff1d(np.flatnonzero(most > 0), head)
        share = (use(others, np.ones_like(others)) / np.maximum(capacity, 1)).max(axis=1, initial=0.0)
        order = np.concatenate([head, others[np.lexsort((others, -share))]])
        first = np.concatenate([[0], np.cumsum(most[order])]).astype(np.int64)
        units = np.arange(1, first[-1] + 1) - np.repeat(first[:-1], most[order])
        spread = np.zeros(len(units), dtype=np.int64)
        if is_linear:
            spread[: first[len(head)]] = np.repeat(integer_gain[integer_gain > 0], most[head])
        else:
            spread[first[np.repeat(np.arange(len(head)), np.diff(point.first))] + point.units - 1] = gain
        whole_use = use(np.repeat(order, most[order]), units)
        lift(spread, PackingSpace(first, units, whole_use, capacity, limit), right_hand_side, is_linear)
        return order, first, spread, right_hand_side


_Use = Callable[[IntArray, IntArray], IntArray]


def _proportional(demand: IntArray) -> _Use:
    """Return the use of items and numbers of units at a demand by unit, shape (items, resources)."""
    return lambda items, units: np.ascontiguousarray(demand[items] * units[:, None])


class CutSeparator(_Separator):
    """Finds violated cuts of single servers."""

    def __init__(self, instance: AdmissionInstance, options: SeparationOptions | None = None) -> None:
        super().__init__(instance, options)
        self._sides = [side.select(np.lexsort((side.is_ps, side.job))) for side in self._sides]

    def separate(self, worker_load: FloatArray, ps_load: FloatArray) -> list[ServerCut]:
        """Find cuts that a point of the LP violates, at most one per class and slot.

        Parameters
        ----------
        worker_load, ps_load
            Shape (jobs, classes, slots): workers (PSs) of a job in a class, over all its servers.

        Returns
        -------
        list of ServerCut
            Multipliers are 0. Sorted by side, class and slot.
        """
        cuts = []
        for on in self._sides:
            load = np.zeros(on.per_server.shape)
            for is_ps, of_side in enumerate((worker_load, ps_load)):
                side_items = np.flatnonzero(on.is_ps == is_ps)
                if len(side_items):
                    load[side_items] = of_side[on.job[side_items]]
            for c, t in np.argwhere((load > LOAD_TOL).any(axis=0)).tolist():
                cut = self._separate_one(on, c, t, load[:, c, t])
                if cut is not None:
                    cuts.append(cut)
        return cuts

    def _separate_one(self, on: _Items, c: int, t: int, load: FloatArray) -> ServerCut | None:
        most, average = on.per_server[:, c, t], load / on.servers.count[c]
        items = np.flatnonzero((average > LOAD_TOL) & (most > 0))
        if not len(items):
            return None
        first = np.concatenate([[0], np.cumsum(most[items])]).astype(np.int64)
        variable = np.repeat(np.arange(len(items)), most[items])
        point = _Point(
            items=items,
            first=first,
            units=np.arange(1, first[-1] + 1) - first[variable],
            variable=variable,
            load=np.minimum(average[items], most[items]),
            most=most[items],
        )
        facet = self._facet(_proportional(on.demand), most, on.servers.capacity[c, t].copy(), point, is_linear=True)
        if facet is None:
            return None
        order, begin, spread, right_hand_side = facet
        coefficient = np.zeros((2, self._instance.num_jobs), dtype=np.int64)
        coefficient[on.is_ps[order], on.job[order]] = spread[begin[:-1]]
        jobs = np.flatnonzero(coefficient.any(axis=0))
        return ServerCut(
            side=on.side,
            server_class=c,
            slot=t,
            jobs=jobs,
            worker_coefficient=coefficient[0, jobs],
            ps_coefficient=coefficient[1, jobs],
            right_hand_side=right_hand_side,
            multiplier=0.0,
        )


class CountSeparator(_Separator):
    """Finds violated count cuts."""

    def separate(self, rows: IntArray, weight: FloatArray) -> list[CountCut]:
        """Find cuts that a point of the LP violates, at most one per side, class and slot.

        Parameters
        ----------
        rows, weight
            As returned by `ColumnPool.counts`.

        Returns
        -------
        list of CountCut
            Multipliers are 0. Sorted by side, class and slot.
        """
        if not len(rows):
            return []
        if self._instance.has_shared_servers:
            items = rows[:, 3] + rows[:, 0] * self._instance.num_jobs
            rows = np.column_stack([np.zeros_like(items), rows[:, 1:3], items, rows[:, 4]])
            order = np.lexsort(rows.T[::-1])
            rows, weight = rows[order], weight[order]
        cuts = []
        places, starts = np.unique(rows[:, :3], axis=0, return_index=True)
        for (side, c, t), begin, end in zip(places.tolist(), starts, [*starts[1:], len(rows)], strict=True):
            cut = self._separate_one(self._sides[side], c, t, _mixture(rows[begin:end, 3:], weight[begin:end]))
            if cut is not None:
                cuts.append(cut)
        return cuts

    def _separate_one(self, on: _Items, c: int, t: int, mixture: _Point) -> CountCut | None:
        """Find the most violated facet of a class' counts, if the mixture is outside their hull, and lift it."""
        count, num_jobs = int(on.servers.count[c]), self._instance.num_jobs
        most = np.minimum(on.per_server[:, c, t] * count, on.limit)
        facet = self._facet(_proportional(on.demand), most, on.servers.capacity[c, t] * count, mixture, is_linear=False)
        if facet is None:
            return None
        order, begin, spread, right_hand_side = facet
        gains = _gains(len(most), order, begin, spread)
        by_side = gains.reshape(-1, num_jobs, gains.shape[1])
        jobs = np.flatnonzero((by_side[:, :, -1] > 0).any(axis=0))
        return CountCut(
            side=on.side,
            server_class=c,
            slot=t,
            jobs=jobs,
            gain=by_side[0, jobs],
            right_hand_side=right_hand_side,
            multiplier=0.0,
            ps_gain=by_side[1, jobs] if len(by_side) > 1 else None,
        )


class SlotSeparator(_Separator):
    """Finds violated slot cuts.

    Notes
    -----
    The divisors are the demands of the jobs in the slot, and one micro-unit for the total capacity. At LP points of three
    instances of 16 jobs, rows with these divisors gave most of the violation that the exact hull of a slot's packings gives.
    """

    def __init__(self, instance: AdmissionInstance, options: SeparationOptions | None = None) -> None:
        super().__init__(instance, options)
        number = instance.num_jobs
        # Of both sides, or of shared servers, the items are the jobs' workers, then their PSs.
        self._demand = np.concatenate([side.demand for side in self._sides]).reshape(2, number, instance.num_resources)
        room = [(side.per_server * side.servers.count[None, :, None]).sum(axis=1) for side in self._sides]
        worker_room, ps_room = np.concatenate(room).reshape(2, number, instance.horizon)
        self._needed = np.zeros((number, int(instance.max_workers.max(initial=0)) + 1), dtype=np.int64)
        self._most = np.zeros((number, instance.horizon), dtype=np.int64)
        for i, needed in enumerate(instance.ps_needed):
            most = int(instance.max_workers[i])
            self._needed[i, : most + 1] = needed[: most + 1]
            fits = (np.arange(1, most + 1)[:, None] <= worker_room[i]) & (needed[1 : most + 1, None] <= ps_room[i])
            self._most[i] = np.cumprod(fits, axis=0).sum(axis=0)

    def separate(self, rows: IntArray, weight: FloatArray) -> list[SlotCut]:
        """Find cuts that a point of the LP violates, at most one per slot.

        Parameters
        ----------
        rows, weight
            Shape (entries, 3): slot, job and number of workers in all classes, sorted; and the weight of each entry. Each
            number fits the slot alone.

        Returns
        -------
        list of SlotCut
            Multipliers are 0. Sorted by slot.
        """
        if not len(rows):
            return []
        slots, starts = np.unique(rows[:, 0], return_index=True)
        cuts = (
            self._separate_one(t, _mixture(rows[begin:end, 1:], weight[begin:end]))
            for t, begin, end in zip(slots.tolist(), starts, [*starts[1:], len(rows)], strict=True)
        )
        return [cut for cut in cuts if cut is not None]

    def _separate_one(self, t: int, mixture: _Point) -> SlotCut | None:
        """Find the most violated facet of the numbers of workers in a slot, if the mixture is outside their hull."""
        last = mixture.first[1:] - 1
        if len(mixture.items) < 2:
            return None
        pairs = self._divisors(mixture.items)
        use, capacity = self._knapsacks(t, pairs)
        most_use = use(mixture.items, mixture.units[last]).sum(axis=0)
        pressure = (most_use / np.maximum(capacity, 0.5)).reshape(len(pairs), -1).max(axis=1)
        pairs = pairs[np.sort(np.argsort(-pressure, kind="stable")[: min(MAX_DIVISORS, int((pressure > 1.0).sum()))])]
        if not len(pairs):
            return None
        use, capacity = self._knapsacks(t, pairs)
        most = self._fitting(self._most[:, t], use, capacity)
        facet = self._facet(use, most, capacity, mixture, is_linear=False)
        if facet is None:
            return None
        order, begin, spread, right_hand_side = facet
        gains = _gains(len(most), order, begin, spread)
        jobs = np.flatnonzero(gains[:, -1] > 0)
        return SlotCut(
            slot=t,
            jobs=jobs,
            gain=gains[jobs],
            resource=pairs[:, 0].copy(),
            divisor=pairs[:, 1].copy(),
            right_hand_side=right_hand_side,
            multiplier=0.0,
        )

    @staticmethod
    def _fitting(most: IntArray, use: _Use, capacity: IntArray) -> IntArray:
        """Return the largest number of workers of each job, at most `most`, that meets all rows alone."""
        job = np.repeat(np.arange(len(most)), most)
        units = np.arange(1, len(job) + 1) - np.repeat(np.cumsum(most) - most, most)
        fits = (use(job, units) <= capacity).all(axis=1)
        return np.bincount(job[fits], minlength=len(most))

    def _divisors(self, jobs: IntArray) -> IntArray:
        """Return pairs of a resource and a divisor, shape (pairs, 2)."""
        pairs = []
        for r, demand in enumerate(self._demand[:, jobs].reshape(2 * len(jobs), -1).T):
            divisors = np.union1d([1], demand[demand > 0])
            pairs.append(np.column_stack([np.full_like(divisors, r), divisors]))
        return np.concatenate(pairs)

    def _knapsacks(self, t: int, pairs: IntArray) -> tuple[_Use, IntArray]:
        """Return the use and the capacity of the knapsack rows of pairs: of each side, or of both sides together."""
        resource, divisor = pairs.T
        worker, ps = self._demand[:, :, resource] // divisor
        rooms = [
            ((servers.capacity[:, t, resource] // divisor) * servers.count[:, None]).sum(axis=0)
            for servers in (self._instance.worker_servers, self._instance.ps_servers)
        ]

        def use(items: IntArray, units: IntArray) -> IntArray:
            of_workers = worker[items] * units[:, None]
            of_ps = ps[items] * self._needed[items, units][:, None]
            # On separate servers, both rows of a pair are neighbours.
            total: IntArray = of_workers + of_ps
            if not self._instance.has_shared_servers:
                total = np.stack([of_workers, of_ps], axis=2).reshape(len(items), 2 * len(pairs))
            return total

        if self._instance.has_shared_servers:
            return use, rooms[0]
        return use, np.stack(rooms, axis=1).ravel()


def _gains(num_items: int, order: IntArray, begin: IntArray, spread: IntArray) -> IntArray:
    """Return a facet's gains of 1, 2, ... units, shape (items, widest); the last gain holds for more units."""
    gains = np.zeros((num_items, max(int(np.diff(begin).max(initial=0)), 1)), dtype=np.int64)
    for item, steps in zip(order.tolist(), np.split(spread, begin[1:-1]), strict=True):
        total = np.cumsum(steps)
        gains[item, : len(steps)], gains[item, len(steps) :] = total, total[-1]
    return gains


def _mixture(rows: IntArray, weight: FloatArray) -> _Point:
    """Return, for each item and n, its share with at least n units; `rows` are (item, count), sorted."""
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(place.ravel(), weight)
    for k in range(len(kinds) - 2, -1, -1):
        if kinds[k, 0] == kinds[k + 1, 0]:
            share[k] += share[k + 1]
    is_positive = share > LOAD_TOL
    items, first = np.unique(kinds[is_positive, 0], return_index=True)
    size = int(is_positive.sum())
    return _Point(
        items=items,
        first=np.append(first, size),
        units=np.ascontiguousarray(kinds[is_positive, 1]),
        variable=np.arange(size),
        load=np.minimum(share[is_positive], 1.0),
        most=np.ones(size, dtype=np.int64),
    )
