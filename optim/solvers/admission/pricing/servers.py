"""Best schedules of jobs on single servers with residual capacity, compiled, and their tables.

The number of units that fit is ``min_r floor(residual_r / demand_r)``, exactly. Residuals and demands are integers a, b in
units of 1e-6, stored as floats. For integers a, b with a + b <= 2^53 the rounded quotient a / b can't reach the next
integer k: it lies at least 1 / b below k, more than half the distance between floats there (at most k / 2^53, and
k b <= a + b).

Servers are ordered by price; ties by capacity, then residual capacity (vectors in lexicographic order), then number, so that
renaming servers changes no decision.

Each server has its own price and residual capacity, and a schedule names servers. A slot's cost table needs only the
cheapest servers that together fit the job's largest number of workers per slot (`cheapest`).

On shared servers, a slot's problem is that of `shared`, with one place per server. Servers that no optimum needs are
omitted: a worker can move to any cheaper server where it still fits, and so can a PS. Let b be a number of units, workers
or PSs, that certainly fit on a server. With N workers and Z PSs in total, a server is never needed if the b of cheaper
servers sum to N + Z.

The cost of the cheapest units over all slots, with fractional PSs, would be a bound that rejects some jobs before the
recursion. It would gain little: a table ends at the highest cost that a better schedule can have, so the recursion rejects a
job in 0.05 ms on 50 + 50 servers.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from optim.compiled import by_reference, compiled, copy_first
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import ServerClasses, share_of
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.posted_prices.price_functions import PriceFunction, PriceRanges, SideRanges, prices_of
from optim.solvers.admission.pricing.best_schedule import Space, best_by, make_space, trace_by
from optim.solvers.admission.pricing.classes import JobTables, Prices
from optim.solvers.admission.pricing.shared import (
    INFINITE,
    PairScratch,
    Places,
    fill_frontier,
    fold_frontier,
    pair_scratch,
    pair_table,
    split_pair,
)

MICRO = 1e6

ZERO, NONE = np.int64(0), np.int64(-1)

YES, NO = np.bool_(True), np.bool_(False)
"""Typed constants: a literal as an argument would make the compiler compile a separate function."""


@compiled
def measure_servers(s, t, side, scratch):
    """Compute the cost of a unit of segment s on each server in slot t, and how many units fit."""
    unit, unit_capacity = scratch.unit, scratch.unit_capacity
    limit = side.limit[s, :, t]
    for h in range(len(unit)):
        unit[h] = 0.0
        unit_capacity[h] = limit[side.class_of_server[h]]
    for r in range(side.demand.shape[1]):
        need = side.demand[s, r]
        if need <= 0.0:
            continue
        amount = need / MICRO
        cost, residual = side.price[t, r], side.residual[t, r]
        for h in range(len(unit)):
            unit[h] += cost[h] * amount
            num_units = np.floor(residual[h] / need)
            unit_capacity[h] = num_units if num_units < unit_capacity[h] else unit_capacity[h]


@compiled
def _is_before(a, b, has_order, unit, rank, residual):
    """Return whether server a comes before server b: by price and, with `has_order`, by the tie-breaks."""
    if unit[a] != unit[b] or not has_order:
        return unit[a] < unit[b]
    if rank[a] != rank[b]:
        return rank[a] < rank[b]
    for r in range(residual.shape[0]):
        if residual[r, a] != residual[r, b]:
            return residual[r, a] < residual[r, b]
    return a < b


@compiled
def _push(server, size, heap, has_order, unit, rank, residual):
    """Add a server to a heap of `size` servers whose top is the last one in the order."""
    position = size
    while position > 0:
        parent = (position - 1) // 2
        if not _is_before(heap[parent], server, has_order, unit, rank, residual):
            break
        heap[position] = heap[parent]
        position = parent
    heap[position] = server


@compiled
def _replace_top(server, size, heap, has_order, unit, rank, residual):
    """Replace the heap's top by a server and restore the heap."""
    position = 0
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(heap[child], heap[child + 1], has_order, unit, rank, residual):
            child += 1
        if not _is_before(server, heap[child], has_order, unit, rank, residual):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = server


@compiled
def cheapest(count, ceiling, has_order, scratch, rank, residual):
    """Write the first servers in the order that together hold `count` units (or all servers) into the heap's array.

    The heap contains the best servers of the pass so far, the last of them at the top, so most servers are
    compared once. Without `has_order`, servers of equal price come in any order, which suffices for costs.

    Returns
    -------
    int
        Number of servers written.
    """
    unit, unit_capacity, heap = scratch.unit, scratch.unit_capacity, scratch.heap
    size = ZERO
    total = 0.0
    for h in range(len(unit)):
        if unit_capacity[h] < 1.0 or unit[h] >= ceiling:
            continue
        if total >= count and not _is_before(h, heap[0], has_order, unit, rank, residual):
            continue
        _push(h, size, heap, has_order, unit, rank, residual)
        size += 1
        total += unit_capacity[h]
        while total - unit_capacity[heap[0]] >= count:
            total -= unit_capacity[heap[0]]
            size -= 1
            _replace_top(heap[size], size, heap, has_order, unit, rank, residual)
    for end in range(size - 1, 0, -1):
        last = heap[end]
        first = heap[0]
        _replace_top(last, end, heap, has_order, unit, rank, residual)
        heap[end] = first
    return size


SLOT, SERVER, COUNT, SEGMENT = range(4)
"""Columns of the placements that the compiled loop writes."""


@by_reference
class SideArrays(NamedTuple):
    """The servers of workers, or of PSs, as input of a job's search.

    Parameters
    ----------
    demand
        Shape (segments, resources): demand of one worker, or PS, in 1e-6 units.
    limit
        Shape (segments, classes, slots): largest number of units on one empty server.
    class_of_server
        Shape (servers,): class of each server.
    rank
        Shape (slots, servers): rank of each server's capacity vector; equal vectors have the same rank.
    residual
        Shape (slots, resources, servers): residual capacity in 1e-6 units.
    price
        Shape (slots, resources, servers): price in utility per unit of the resource.
    """

    demand: FloatArray
    limit: IntArray
    class_of_server: IntArray
    rank: IntArray
    residual: FloatArray
    price: FloatArray


@by_reference
class ServerScratch(NamedTuple):
    """Work space with one entry per server: cost of one unit, number of units that fit, and a heap of servers."""

    unit: FloatArray
    unit_capacity: FloatArray
    heap: IntArray


@by_reference
class SharedArrays(NamedTuple):
    """Additional data of shared servers, and work space.

    Parameters
    ----------
    share_limit
        Shape (slots, resources, classes): capacity of a server that one job may use, 1e-6 units.
    blocking
        Shape (servers,): number of units that certainly fit on each server, at least 1.
    mark
        Shape (servers,): bits `FOR_WORKERS` and `FOR_PS`, set if workers, or PSs, may need the server.
    server, out_workers, out_ps
        Shape (servers,): server of each place, and the numbers of workers and PSs there in the result.
    residual, capacity
        Shape (resources,): residual capacity of one server, and the part of it that the job may use.
    one, power, work
        Frontiers with entries for 0, 1, ... workers; `power` and `work` are work space.
    places, pairs
        Work space: one place per server, and the tables of `shared`.
    """

    share_limit: FloatArray
    blocking: FloatArray
    mark: IntArray
    server: IntArray
    out_workers: IntArray
    out_ps: IntArray
    residual: FloatArray
    capacity: FloatArray
    one: IntArray
    power: IntArray
    work: IntArray
    places: Places
    pairs: PairScratch


@by_reference
class Scratch(NamedTuple):
    """Work space for workers and PSs, and results as rows (slot, server, count, segment)."""

    workers: ServerScratch
    ps: ServerScratch
    worker_rows: IntArray
    ps_rows: IntArray


@by_reference
class ServerSource(NamedTuple):
    """Single servers as input of a search."""

    workers: SideArrays
    ps: SideArrays
    scratch: Scratch


@by_reference
class SharedServerSource(NamedTuple):
    """Single servers that workers and PSs share."""

    workers: SideArrays
    ps: SideArrays
    scratch: Scratch
    shared: SharedArrays


@compiled
def write_row(rows, number, slot, server, count, segment):
    """Write the placement of a slot's units on one server."""
    rows[number, SLOT] = slot
    rows[number, SERVER] = server
    rows[number, COUNT] = count
    rows[number, SEGMENT] = segment


def make_scratch(tables: JobTables, space: Space) -> Scratch:
    """Return work space that is large enough for every job of an instance."""
    longest, most = len(space.largest), space.tables.shape[2] - 1

    def of_servers(number: int) -> ServerScratch:
        return ServerScratch(np.zeros(number), np.zeros(number), np.zeros(number, dtype=np.int64))

    def rows(number: int) -> IntArray:
        return np.empty((longest * min(most, number), 4), dtype=np.int64)

    workers, ps = tables.instance.worker_servers.num_servers, tables.instance.ps_servers.num_servers
    return Scratch(of_servers(workers), of_servers(ps), rows(workers), rows(ps))


def make_shared(tables: JobTables) -> SharedArrays:
    """Return the additional data for the shared servers of an instance."""
    instance = tables.instance
    servers = instance.worker_servers
    num = servers.num_servers
    limit = share_of(servers.capacity, instance.max_share_per_server).transpose(1, 2, 0).astype(np.float64)
    most, max_ps = tables.max_at_once

    def ints(size: int) -> IntArray:
        return np.zeros(size, dtype=np.int64)

    return SharedArrays(
        share_limit=np.ascontiguousarray(limit),
        blocking=np.zeros(num),
        mark=ints(num),
        server=ints(num),
        out_workers=ints(num),
        out_ps=ints(num),
        residual=np.zeros(instance.num_resources),
        capacity=np.zeros(instance.num_resources),
        one=ints(most + 1),
        power=ints(most + 1),
        work=ints(most + 1),
        places=Places(np.zeros(num), np.zeros(num), ints(num), ints(num * (most + 1))),
        pairs=pair_scratch(most, max_ps),
    )


FOR_WORKERS, FOR_PS = 1, 2
"""Bits of a server's mark: the types of units that may need it."""

MIN_GROUP = 4
"""Minimal length of runs of equal servers that are merged into one place."""


@compiled
def shared_server_table(i, s, t, k, ceiling, needed, jobs, source, table):
    """Do the same as `server_table` on shared servers."""
    shared = source.shared
    most = min(jobs.most[i], len(shared.one) - 1)
    while needed[most] > min(most, shared.pairs.tables.shape[1] - 1):
        most -= 1
    num_places = gather_places(s, t, most, needed[most], ceiling, source)
    num_places = group_places(num_places, most, needed[most], shared)
    return pair_table(shared.places, num_places, most, needed, ceiling, shared.pairs, table)


@compiled
def place_pairs(s, t, num_workers, num_ps, source, worker_rows, ps_rows):
    """Append the rows of a least-cost placement of the workers and PSs; return the new numbers of rows."""
    shared, scratch = source.shared, source.scratch
    num_places = gather_places(s, t, num_workers, num_ps, INFINITE, source)
    split_pair(shared.places, num_places, num_workers, num_ps, shared.pairs.windows, shared.out_workers, shared.out_ps)
    for k in range(num_places):
        if shared.out_workers[k] > 0:
            write_row(scratch.worker_rows, worker_rows, t, shared.server[k], shared.out_workers[k], s)
            worker_rows += 1
        if shared.out_ps[k] > 0:
            write_row(scratch.ps_rows, ps_rows, t, shared.server[k], shared.out_ps[k], s)
            ps_rows += 1
    return worker_rows, ps_rows


@compiled
def gather_places(s, t, max_workers, max_ps, ceiling, source):
    """Make a place of each server that the workers or PSs may need; return the number of places."""
    workers, ps, shared, scratch = source.workers, source.ps, source.shared, source.scratch
    measure_servers(s, t, workers, scratch.workers)
    measure_servers(s, t, ps, scratch.ps)
    _count_blocking(s, t, workers, ps, shared)
    shared.mark[:] = 0
    for h in range(len(shared.mark)):
        scratch.workers.unit_capacity[h] = shared.blocking[h] if scratch.workers.unit_capacity[h] >= 1.0 else 0.0
        scratch.ps.unit_capacity[h] = shared.blocking[h] if scratch.ps.unit_capacity[h] >= 1.0 else 0.0
    total = max_workers + max_ps
    rank, residual = workers.rank[t], workers.residual[t]
    for_workers = cheapest(total, ceiling, YES, scratch.workers, rank, residual)
    for_ps = cheapest(total, ceiling, YES, scratch.ps, rank, residual)
    for position in range(for_workers):
        shared.mark[scratch.workers.heap[position]] |= FOR_WORKERS
    for position in range(for_ps):
        shared.mark[scratch.ps.heap[position]] |= FOR_PS
    number = ZERO
    for position in range(for_workers + for_ps):
        is_first = position < for_workers
        h = scratch.workers.heap[position] if is_first else scratch.ps.heap[position - for_workers]
        if is_first or shared.mark[h] == FOR_PS:
            _add_server(h, number, s, t, max_workers, max_ps, workers, ps, shared, scratch)
            number += 1
    return number


@compiled
def _add_server(h, number, s, t, max_workers, max_ps, workers, ps, shared, scratch):
    """Make server h the place with index `number`."""
    places, width = shared.places, max_workers + 1
    shared.server[number] = h
    places.worker_cost[number] = scratch.workers.unit[h]
    places.ps_cost[number] = scratch.ps.unit[h]
    places.start[number] = number * width
    c = workers.class_of_server[h]
    for r in range(len(shared.residual)):
        shared.residual[r] = workers.residual[t, r, h]
        shared.capacity[r] = min(shared.residual[r], shared.share_limit[t, r, c])
    front = places.front[number * width : (number + 1) * width]
    front[:] = -1
    fill_frontier(
        workers.demand[s], ps.demand[s], shared.capacity, shared.residual,
        max_workers if shared.mark[h] & FOR_WORKERS else ZERO, max_ps if shared.mark[h] & FOR_PS else ZERO, front,
    )  # fmt: skip


@compiled
def _count_blocking(s, t, workers, ps, shared):
    """Compute how many units, each with the larger demand of a worker and a PS, fit on each server; at least 1."""
    blocking = shared.blocking
    blocking[:] = INFINITE
    for r in range(workers.demand.shape[1]):
        need = max(workers.demand[s, r], ps.demand[s, r])
        if need <= 0.0:
            continue
        residual, limit = workers.residual[t, r], shared.share_limit[t, r]
        for h in range(len(blocking)):
            capacity = min(residual[h], limit[workers.class_of_server[h]])
            blocking[h] = min(blocking[h], np.floor(capacity / need))
    for h in range(len(blocking)):
        blocking[h] = max(blocking[h], 1.0)


@compiled
def group_places(number, max_workers, max_ps, shared):
    """Merge runs of servers with equal costs and frontiers into one place each; return the number of places."""
    places, width = shared.places, max_workers + 1
    num_groups, first = ZERO, ZERO
    while first < number:
        end = first + 1
        while end < number and _are_equal(first, end, width, places):
            end += 1
        if end - first >= MIN_GROUP:
            copy_first(width, places.front[first * width :], shared.one)
            _move(first, num_groups, width, places)
            total = places.front[num_groups * width : (num_groups + 1) * width]
            fold_frontier(shared.one, end - first, max_workers, max_ps, total, shared.power, shared.work)
            num_groups += 1
        else:
            for k in range(first, end):
                _move(k, num_groups, width, places)
                num_groups += 1
        first = end
    return num_groups


@compiled
def _are_equal(a, b, width, places):
    if places.worker_cost[a] != places.worker_cost[b] or places.ps_cost[a] != places.ps_cost[b]:
        return False
    for y in range(width):
        if places.front[a * width + y] != places.front[b * width + y]:
            return False
        if places.front[a * width + y] < 0:
            return True
    return True


@compiled
def _move(source, goal, width, places):
    places.worker_cost[goal] = places.worker_cost[source]
    places.ps_cost[goal] = places.ps_cost[source]
    for y in range(width):
        places.front[goal * width + y] = places.front[source * width + y]


@compiled
def server_table(i, s, t, k, ceiling, needed, jobs, source, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs in slot t; return the largest Y.

    Numbers of workers that cost `ceiling` or more are omitted.
    """
    most, workers, scratch = jobs.most[i], source.workers, source.scratch.workers
    table[0] = 0.0
    measure_servers(s, t, workers, scratch)
    size = cheapest(most, ceiling, NO, scratch, workers.rank[t], workers.residual[t])
    placed = ZERO
    total = 0.0
    for position in range(size):
        h = scratch.heap[position]
        for _ in range(min(int(scratch.unit_capacity[h]), most - placed)):
            placed += 1
            total += scratch.unit[h]
            table[placed] = total
    return _add_ps(s, t, placed, ceiling, needed, source.ps, source.scratch.ps, table) if placed > 0 else placed


@compiled
def _add_ps(s, t, most, ceiling, needed, ps, scratch, table):
    """Add the cost of the cheapest PSs for Y = 1, ..., `most` workers to a table; return the largest feasible Y."""
    measure_servers(s, t, ps, scratch)
    size = cheapest(needed[most], ceiling, NO, scratch, ps.rank[t], ps.residual[t])
    position, remaining, placed = -1, 0, 0
    total = 0.0
    for y in range(1, most + 1):
        num_ps = needed[y]
        if num_ps > y:
            return y - 1
        while placed < num_ps:
            if remaining == 0:
                position += 1
                if position == size:
                    return y - 1
                remaining = int(scratch.unit_capacity[scratch.heap[position]])
            remaining -= 1
            placed += 1
            total += scratch.unit[scratch.heap[position]]
        table[y] += total
        if table[y] >= ceiling:
            return y - 1
    return most


@compiled
def _place(s, t, count, side, scratch, rows, num_rows):
    """Append the rows of the cheapest servers for `count` units; return the new number of rows."""
    measure_servers(s, t, side, scratch)
    size = cheapest(count, INFINITE, YES, scratch, side.rank[t], side.residual[t])
    unplaced = count
    for position in range(size):
        h = scratch.heap[position]
        here = min(unplaced, int(scratch.unit_capacity[h]))
        write_row(rows, num_rows + position, t, h, here, s)
        unplaced -= here
    return num_rows + size


@compiled
def _write_servers(i, s, t, k, workers, ps, jobs, source, used):
    scratch = source.scratch
    used[0] = _place(s, t, workers, source.workers, scratch.workers, scratch.worker_rows, used[0])
    used[1] = _place(s, t, ps, source.ps, scratch.ps, scratch.ps_rows, used[1])


@compiled
def _write_pairs(i, s, t, k, workers, ps, jobs, source, used):
    used[0], used[1] = place_pairs(s, t, workers, ps, source, used[0], used[1])


def _search_by(slot_table, write_slot):
    """Return the function that finds one job's best schedule on one type of servers."""
    best_schedule, trace = best_by(slot_table), trace_by(write_slot)

    @compiled
    def find(i, floor, jobs, space, source, used):
        """Return (payoff, completion slot) as `best_schedule` does; write the rows, and their numbers to `used`."""
        payoff, completion = best_schedule(i, floor, jobs, space, source)
        if completion >= 0:
            trace(i, completion, jobs, space, source, used)
        return payoff, completion

    return find


find_on_servers = _search_by(server_table, _write_servers)

find_on_shared_servers = _search_by(shared_server_table, _write_pairs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Use:
    """A schedule's resource use: distinct (slot, server) cells, and the amount of each resource in each.

    Parameters
    ----------
    slot, server
        Shape (cells,): slot and server of each cell.
    amount
        Shape (cells, resources): use in 1e-6 units.
    """

    slot: IntArray
    server: IntArray
    amount: FloatArray


class ServerSide:
    """The servers of workers, or of PSs; residuals and prices change as jobs are admitted.

    Parameters
    ----------
    servers
        Classes of the servers.
    bounds
        Range of the prices of each row.
    function
        Price as a function of the allocated share of a row's capacity.
    """

    def __init__(self, servers: ServerClasses, bounds: SideRanges, function: PriceFunction) -> None:
        self.servers = servers
        self._bounds = bounds
        self._function = function
        self._class = servers.class_of_server
        by_slot = np.ascontiguousarray(servers.capacity.transpose(1, 2, 0).astype(np.float64))
        self.rank = np.ascontiguousarray(capacity_ranks(servers)[:, self._class])
        self.capacity: FloatArray = np.ascontiguousarray(by_slot[:, :, self._class])
        """Capacity of each server, shape (slots, resources, servers), in 1e-6 units: integers, exact in floats."""
        self.residual: FloatArray = self.capacity.copy()
        """Residual capacity, with the shape and unit of `capacity`."""
        empty = prices_of(function, np.zeros(servers.capacity.shape), bounds.log_lower, bounds.log_upper)
        self.price: FloatArray = np.ascontiguousarray(empty.transpose(1, 2, 0)[:, :, self._class])
        """Price of each row, shape (slots, resources, servers), in utility per unit of the resource."""

    def take(self, use: Use) -> tuple[FloatArray, FloatArray]:
        """Allocate resources and update the prices of the affected rows; return these prices before and after."""
        cell = (use.slot, slice(None), use.server)
        before = self.price[cell]
        self.residual[cell] = self.residual[cell] - use.amount
        self.reprice_cells(use)
        return before, self.price[cell]

    def reprice_cells(self, use: Use) -> None:
        """Update the prices in the cells of `use`."""
        cell, row = (use.slot, slice(None), use.server), (self._class[use.server], use.slot)
        share = _taken_share(self.capacity[cell], self.residual[cell])
        self.price[cell] = prices_of(self._function, share, self._bounds.log_lower[row], self._bounds.log_upper[row])

    def reprice(self, bounds: SideRanges, function: PriceFunction | None = None) -> None:
        """Recompute all prices within new bounds, and with another function if given."""
        self._bounds = bounds
        self._function = self._function if function is None else function
        share = _taken_share(self.capacity, self.residual).transpose(2, 0, 1)
        lower, upper = bounds.log_lower[self._class], bounds.log_upper[self._class]
        self.price[...] = prices_of(self._function, share, lower, upper).transpose(1, 2, 0)

    def capacity_value(self) -> float:
        """Return the capacity's total value at the present prices: the rows' part of the dual objective."""
        return float(np.vdot(self.price, self.capacity)) / MICRO

    def prices_by_server(self) -> FloatArray:
        """Return a copy of the prices, shape (servers, slots, resources)."""
        return np.array(self.price.transpose(2, 0, 1), order="C")

    def mean_prices(self) -> FloatArray:
        """Return the prices averaged over each class' servers, shape (classes, slots, resources)."""
        total = np.zeros((self.servers.num_classes, *self.price.shape[:2]))
        np.add.at(total, self._class, self.price.transpose(2, 0, 1))
        return total / np.maximum(self.servers.count, 1)[:, None, None]


def _taken_share(capacity: FloatArray, residual: FloatArray) -> FloatArray:
    """Return the used share of each capacity, 0 where the capacity is 0."""
    share: FloatArray = np.divide(capacity - residual, capacity, out=np.zeros_like(capacity), where=capacity > 0)
    return share


class ClusterState:
    """The servers of workers (`worker`) and of PSs (`ps`) with their prices; on shared servers both are one object."""

    def __init__(self, instance: AdmissionInstance, bounds: PriceRanges, function: PriceFunction) -> None:
        self.is_shared = instance.has_shared_servers
        self.worker = ServerSide(instance.worker_servers, bounds.worker, function)
        self.ps = self.worker if self.is_shared else ServerSide(instance.ps_servers, bounds.ps, function)

    @property
    def sides(self) -> tuple[ServerSide, ...]:
        """The servers of workers and of PSs, or the shared servers once."""
        return (self.worker,) if self.is_shared else (self.worker, self.ps)

    def reprice(self, bounds: PriceRanges, function: PriceFunction | None = None) -> None:
        """Recompute all prices within new bounds, and with another function if given."""
        for side, ranges in zip(self.sides, (bounds.worker, bounds.ps), strict=False):
            side.reprice(ranges, function)

    def capacity_value(self) -> float:
        """Return the value of all capacity at the present prices."""
        return sum(side.capacity_value() for side in self.sides)

    def mean_prices(self) -> Prices:
        """Return mean prices by server class, the input of class-level bounds."""
        worker = self.worker.mean_prices()
        return Prices(worker=worker, ps=worker[:0] if self.is_shared else self.ps.mean_prices())


def capacity_ranks(servers: ServerClasses) -> IntArray:
    """Return the rank of each class' capacity vector, the same for equal vectors, shape (slots, classes)."""
    changes = 1 + np.flatnonzero((servers.capacity[:, 1:] != servers.capacity[:, :-1]).any(axis=(0, 2)))
    first = np.concatenate([[0], changes, [servers.capacity.shape[1]]])  # first slot of each run with equal capacities
    ranks = np.zeros((len(first) - 1, servers.num_classes), dtype=np.int64)
    for rank, t in zip(ranks, first, strict=False):
        capacity = servers.capacity[:, t]
        order = np.lexsort(capacity.T[::-1])
        rank[order[1:]] = np.cumsum((capacity[order[1:]] != capacity[order[:-1]]).any(axis=1))
    return np.repeat(ranks, np.diff(first), axis=0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundSchedule:
    """A schedule of one job on single servers.

    Parameters
    ----------
    job
        Index of the job.
    payoff
        Value minus cost at the prices of the search.
    value
        Utility of completing the job in slot `completion`.
    completion
        Completion slot.
    workers, ps
        Shape (rows, 4): slot, server, count, demand segment; each (slot, server) once.
    """

    job: int
    payoff: float
    value: float
    completion: int
    workers: IntArray
    ps: IntArray

    @property
    def cost(self) -> float:
        """Cost of its resources."""
        return self.value - self.payoff


class ScheduleFinder(Protocol):
    """Find a job's best schedule in the present state of the cluster."""

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return the schedule with the largest payoff above `floor`, or None."""
        ...


class ResidualSearch:
    """The exact best schedule in the servers' residual capacity.

    Parameters
    ----------
    instance
        The jobs and the cluster.
    tables
        Pricing tables of its jobs, if already built.
    is_residual_checked
        If False, every server counts as empty, at its present prices: schedules may then not fit.

    Notes
    -----
    With at most N workers per slot and W units of work, a slot takes O(servers x resources + N log servers) for the table
    of costs and O(W N) for the recursion.
    """

    def __init__(
        self, instance: AdmissionInstance, *, tables: JobTables | None = None, is_residual_checked: bool = True
    ) -> None:
        self._instance = instance
        self._is_residual_checked = is_residual_checked
        tables = JobTables.build(instance) if tables is None else tables
        self._jobs, self._space = tables.arrays, make_space(np.arange(tables.num_jobs), tables.arrays)
        self._worker_demand = instance.jobs.worker_demand.astype(np.float64)
        self._ps_demand = instance.jobs.ps_demand.astype(np.float64)
        self._worker_limit = np.ascontiguousarray(instance.workers_per_server)
        self._ps_limit = np.ascontiguousarray(instance.ps_per_server)
        self._worker_class = instance.worker_servers.class_of_server
        self._ps_class = instance.ps_servers.class_of_server
        self._scratch = make_scratch(tables, self._space)
        self._shared = make_shared(tables) if instance.has_shared_servers else None

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return the job's best schedule at the state's prices; None if no payoff is above `floor`."""
        return self.find_at(job, state, floor, state.worker.price, state.ps.price)

    def find_at(
        self, job: int, state: ClusterState, floor: float, worker_price: FloatArray, ps_price: FloatArray
    ) -> FoundSchedule | None:
        """Return the job's best schedule at other prices than the state's, each shape (slots, resources, servers)."""
        worker, ps, scratch = state.worker, state.ps, self._scratch
        workers = SideArrays(
            self._worker_demand, self._worker_limit, self._worker_class, worker.rank, self._room(worker), worker_price
        )
        hosts = SideArrays(self._ps_demand, self._ps_limit, self._ps_class, ps.rank, self._room(ps), ps_price)
        used = np.zeros(2, dtype=np.int64)
        if self._shared is None:
            source = ServerSource(workers, hosts, scratch)
            payoff, completion = find_on_servers(job, floor, self._jobs, self._space, source, used)
        else:
            shared = SharedServerSource(workers, hosts, scratch, self._shared)
            payoff, completion = find_on_shared_servers(job, floor, self._jobs, self._space, shared, used)
        if completion < 0:
            return None
        return FoundSchedule(
            job=job,
            payoff=payoff,
            value=float(self._jobs.value[job, completion]),
            completion=completion,
            workers=scratch.worker_rows[: used[0]].copy(),
            ps=scratch.ps_rows[: used[1]].copy(),
        )

    def _room(self, side: ServerSide) -> FloatArray:
        return side.residual if self._is_residual_checked else side.capacity


def uses(instance: AdmissionInstance, schedule: FoundSchedule) -> tuple[Use, ...]:
    """Return a schedule's use of the workers' and of the PSs' servers, or of the shared servers."""
    worker = _use(schedule.workers, instance.jobs.worker_demand)
    ps = _use(schedule.ps, instance.jobs.ps_demand)
    if not instance.has_shared_servers:
        return worker, ps
    num = instance.worker_servers.num_servers
    keys = np.concatenate([worker.slot * num + worker.server, ps.slot * num + ps.server])
    cells, place = np.unique(keys, return_inverse=True)
    amount = np.zeros((len(cells), instance.num_resources))
    np.add.at(amount, place.ravel(), np.concatenate([worker.amount, ps.amount]))
    return (Use(slot=cells // num, server=cells % num, amount=amount),)


def plan_of(schedules: list[FoundSchedule]) -> AdmissionPlan:
    """Return the plan that runs all these schedules."""

    def rows(parts: list[tuple[int, IntArray]]) -> list[list[int]]:
        return [[job, *row[:SEGMENT]] for job, part in parts for row in part.tolist()]

    return AdmissionPlan.from_rows(
        rows([(schedule.job, schedule.workers) for schedule in schedules]),
        rows([(schedule.job, schedule.ps) for schedule in schedules]),
    )


def _use(rows: IntArray, demand: IntArray) -> Use:
    amount = rows[:, COUNT, None] * demand[rows[:, SEGMENT]]
    return Use(slot=rows[:, SLOT], server=rows[:, SERVER], amount=amount.astype(np.float64))
