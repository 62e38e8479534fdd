"""Insertions on real servers, compiled: a job's best schedule in the residual capacity.

On servers that workers and PSs share, all feasible pairs (workers, PSs) of several servers are too expensive to compute
in every slot of every move. So units are placed one after the other: workers from one end of the list of servers, the
PSs that they need from the other end, preferring servers where no worker fits. Each number of workers extends the
placement of one worker less, so one pass gives a slot's full table.

Demands and residuals are integers in units of 1e-6, stored as floats below 2^53. Their sums are exact, and the floor
of a quotient is the floor of the rounded quotient.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import ServerClasses, share_of
from optim.models.admission.decision import ServerCut
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.cuts.cut_table import charged
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.packing.dual_points import DualPoint
from optim.solvers.admission.pricing.best_schedule import (
    INFINITE,
    NONE,
    ZERO,
    JobArrays,
    Space,
    make_space,
    min_plus_step,
    reachable_work,
    sort_by_key,
    trace_by,
)
from optim.solvers.admission.pricing.classes import JobTables, slot_table, unit_costs


@by_reference
class SharedServers(NamedTuple):
    """Servers that workers and PSs share, and work space; all arrays have size 0 if servers are separate.

    Parameters
    ----------
    share
        Shape (classes, slots, resources): maximal use of one server by one job.
    unit_capacity
        Shape (servers,): number of the job's workers that fit on each server while it has no unit there.
    order, ps_order
        Shape (servers,): servers in the order in which workers, and PSs, try them.
    class_of
        Shape (servers,): class of each server.
    workers, ps
        Shape (servers,): numbers of workers, and of PSs, placed on each server so far.
    """

    share: FloatArray
    class_of: IntArray
    unit_capacity: IntArray
    order: IntArray
    ps_order: IntArray
    workers: IntArray
    ps: IntArray


@compiled
def _takes(h, y, z, s, t, residual, workers, ps, shared):
    """Return whether y workers and z PSs of the job fit on server h."""
    c = shared.class_of[h]
    if y > workers.unit_capacity[s, c, t] or z > ps.unit_capacity[s, c, t]:
        return False
    for r in range(residual.shape[1]):
        use = y * workers.demand[s, r] + z * ps.demand[s, r]
        if use > residual[h, r] or (y + z > 1 and use > shared.share[c, t, r]):
            return False
    return True


@compiled
def _order_servers(s, t, residual, workers, shared, class_order, ps_class_order, is_tight):
    """Write the orders in which workers and PSs try the servers, class by class; return the number of servers.

    Within a class, PSs first try servers where no worker fits, then the remaining servers in the workers' reverse order.
    """
    number = ZERO
    for turn in range(len(class_order)):
        c = class_order[turn]
        low, size = workers.first[c], workers.first[c + 1] - workers.first[c]
        for h in range(low, low + size):
            num_units = float(workers.unit_capacity[s, c, t])
            for r in range(residual.shape[1]):
                if workers.demand[s, r] > 0.0:
                    num_units = min(num_units, residual[h, r] / workers.demand[s, r])
            shared.unit_capacity[h] = int(num_units)
            shared.workers[h] = shared.ps[h] = 0
        class_servers = shared.order[number : number + size]
        sort_by_key(shared.unit_capacity[low : low + size], size, class_servers)
        for k in range(size):
            class_servers[k] += low
        if not is_tight:
            for k in range(size // 2):
                class_servers[k], class_servers[size - 1 - k] = class_servers[size - 1 - k], class_servers[k]
        number += size
    count = ZERO
    for turn in range(len(ps_class_order)):
        c = ps_class_order[turn]
        for is_spare in (True, False):
            for position in range(number):
                h = shared.order[position] if is_spare else shared.order[number - 1 - position]
                if shared.class_of[h] == c and (shared.unit_capacity[h] == 0) == is_spare:
                    shared.ps_order[count] = h
                    count += 1
    return number


@compiled
def fill_shared(s, t, most, needed, scale, residual, workers, ps, shared, class_order, ps_class_order, is_tight, unit, ps_unit, table):  # fmt: skip
    """Place up to `most` workers and the ``needed[Y]`` PSs on servers; return how many workers were placed with their PSs.

    Parameters
    ----------
    s, t
        Segment and slot.
    residual
        Shape (servers, resources): residual capacity of the slot.
    most
        Largest number of workers.
    needed
        Shape (most + 1,): number of PSs that 0, 1, ... workers need.
    scale
        Factor of the unit costs.
    workers, ps
        Demands and servers of the workers, and of the PSs, as in `Side`.
    class_order, ps_class_order
        Classes in ascending order of the cost of one worker, and of one PS.
    unit, ps_unit
        Shape (classes,): cost of one worker, and of one PS, at scale 1.
    table
        Receives the costs of Y = 0, 1, ... workers with their PSs. `shared` then has the units placed for the last Y.
    """
    number = _order_servers(s, t, residual, workers, shared, class_order, ps_class_order, is_tight)
    at, ps_at, placed, total = ZERO, ZERO, ZERO, 0.0
    for y in range(most + 1):
        if y > 0:
            while at < number and not _takes(
                shared.order[at], shared.workers[shared.order[at]] + 1, shared.ps[shared.order[at]], s, t, residual,
                workers, ps, shared,
            ):  # fmt: skip
                at += 1
            if at == number:
                return y - 1
            h = shared.order[at]
            shared.workers[h] += 1
            total += scale * unit[shared.class_of[h]]
        while placed < needed[y]:
            while ps_at < number and not _takes(
                shared.ps_order[ps_at], shared.workers[shared.ps_order[ps_at]], shared.ps[shared.ps_order[ps_at]] + 1,
                s, t, residual, workers, ps, shared,
            ):  # fmt: skip
                ps_at += 1
            if ps_at == number:
                return y - 1 if y > 0 else NONE
            h = shared.ps_order[ps_at]
            shared.ps[h] += 1
            placed += 1
            total += scale * ps_unit[shared.class_of[h]]
        table[y] = total
    return most


@compiled
def write_shared(i, s, t, units, row_offset, side, state):
    """Append a job's workers or PSs on shared servers to its rows of the plan, and subtract their demand from the capacity.

    `units` has the number on each server; `side` and `state` are those of the workers or of the PSs.
    """
    first_row = row_offset[i]
    for h in range(len(units)):
        if units[h] > 0:
            row = first_row + state.used[i]
            state.rows[row, 0], state.rows[row, 1], state.rows[row, 2], state.rows[row, 3] = t, h, units[h], s
            state.used[i] += 1
            for r in range(state.residual.shape[2]):
                state.residual[t, h, r] -= units[h] * side.demand[s, r]


@by_reference
class Side(NamedTuple):
    """Demands, servers and prices of one side, the workers or the PSs.

    Parameters
    ----------
    demand
        Shape (segments, resources): demand of one unit.
    unit_capacity
        Shape (segments, classes, slots): largest number of units on one empty server.
    first
        Shape (classes + 1,): index of each class' first server.
    cost
        Shape (segments, classes, slots): cost of one worker or PS in utility, at the prices that guide insertions.
    """

    demand: FloatArray
    unit_capacity: IntArray
    first: IntArray
    cost: FloatArray


@by_reference
class SearchData(NamedTuple):
    """Jobs (deadline -1 if no schedule is possible), data of workers and PSs, and data that guide the choice of jobs.

    Parameters
    ----------
    row_offset
        Shape (jobs + 1,): index of each job's first row in a plan.
    payoff
        Shape (jobs,): payoff of each job in the LP.
    candidates
        Jobs that may be inserted; likely ones appear several times.
    is_shared
        Whether workers and PSs are on the same servers.
    """

    jobs: JobArrays
    workers: Side
    ps: Side
    row_offset: IntArray
    payoff: FloatArray
    candidates: IntArray
    is_shared: bool


@by_reference
class SideState(NamedTuple):
    """The workers or the PSs of a plan, and the residual capacity of their servers.

    Parameters
    ----------
    residual
        Shape (slots, servers, resources): residual capacity; the same array for both if workers and PSs share servers.
    rows
        Shape (rows, 4): slot, server, count and segment, grouped by job as `SearchData.row_offset` says.
    used
        Shape (jobs,): number of rows that each job uses.
    """

    residual: FloatArray
    rows: IntArray
    used: IntArray


@by_reference
class State(NamedTuple):
    """A plan: its workers, its PSs, and each job's completion slot, -1 if the job is rejected."""

    workers: SideState
    ps: SideState
    completion: IntArray


@by_reference
class SideScratch(NamedTuple):
    """Work space for the workers or the PSs.

    Parameters
    ----------
    cost, order
        Shape (classes,): cost of one unit in one slot, and the classes in ascending order of this cost.
    noise
        Shape (slots, classes): random factors of the costs.
    limit
        Shape (slots, segments, classes): number of units that fit.
    """

    cost: FloatArray
    order: IntArray
    noise: FloatArray
    limit: IntArray


@by_reference
class Scratch(NamedTuple):
    """Work space of one insertion, and the random state; `costs` has one entry per number of workers."""

    space: Space
    workers: SideScratch
    ps: SideScratch
    unit_capacity: IntArray
    server_order: IntArray
    shared: SharedServers
    costs: FloatArray
    random: NDArray[np.uint64]


def make_search_data(tables: JobTables, rows: CapacityRows, point: DualPoint) -> SearchData:
    """Prepare an instance at a dual point's prices, including its cuts' charges.

    Without these charges units are too cheap where cuts replace rows; plans then lose up to 7 % of their value (`small-2`).
    """
    instance = tables.instance
    server_cuts = [cut for cut in point.priced_cuts() if isinstance(cut, ServerCut)]
    prices = charged(instance, rows.prices(point.row_prices), server_cuts)
    worker_cost, ps_cost = unit_costs(tables, prices)
    span = np.maximum(tables.deadline - tables.arrival + 1, 0)
    max_rows = span * tables.most
    if not instance.has_steps:
        max_rows = np.minimum(max_rows, np.maximum(tables.target, span))
    is_reachable = tables.target <= span * tables.progress[tables.table_offset[1:] - 1]

    def side(demand: IntArray, unit_capacity: IntArray, servers: ServerClasses, cost: FloatArray) -> Side:
        first = np.concatenate([[0], np.cumsum(servers.count)]).astype(np.int64)
        return Side(demand.astype(np.float64), np.ascontiguousarray(unit_capacity), first, cost)

    return SearchData(
        jobs=tables.arrays._replace(deadline=np.where(is_reachable, tables.deadline, -1)),
        workers=side(instance.jobs.worker_demand, instance.workers_per_server, instance.worker_servers, worker_cost),
        ps=side(instance.jobs.ps_demand, instance.ps_per_server, instance.ps_servers, ps_cost),
        row_offset=np.concatenate([[0], np.cumsum(np.where(is_reachable, max_rows, 0))]).astype(np.int64),
        payoff=point.payoff.copy(),
        candidates=np.flatnonzero(is_reachable & (tables.deadline >= 0)),
        is_shared=instance.has_shared_servers,
    )


def empty_state(instance: AdmissionInstance, data: SearchData) -> State:
    """Return the plan that rejects every job."""
    num_rows = int(data.row_offset[-1])

    def full_capacity(servers: ServerClasses) -> FloatArray:
        full = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
        return np.ascontiguousarray(full, dtype=np.float64)

    def side(residual: FloatArray) -> SideState:
        return SideState(
            residual=residual,
            rows=np.zeros((num_rows, 4), dtype=np.int64),
            used=np.zeros(instance.num_jobs, dtype=np.int64),
        )

    none = np.full(instance.num_jobs, -1, dtype=np.int64)
    residual = full_capacity(instance.worker_servers)
    ps_residual = residual if data.is_shared else full_capacity(instance.ps_servers)
    return State(workers=side(residual), ps=side(ps_residual), completion=none)


def make_scratch(instance: AdmissionInstance, data: SearchData, seed: int | np.random.SeedSequence) -> Scratch:
    """Return work space with a random state from the seed."""
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    space = make_space(np.arange(len(data.payoff)), data.jobs)
    max_servers = int(max(np.diff(side.first).max(initial=1) for side in (data.workers, data.ps)))

    def side(side_data: Side) -> SideScratch:
        _, num, num_slots = side_data.cost.shape
        limit = np.zeros((*space.largest.shape, num), dtype=np.int64)
        noise = np.ones((num_slots, num))
        return SideScratch(cost=np.empty(num), order=np.empty(num, dtype=np.int64), noise=noise, limit=limit)

    return Scratch(
        space=space,
        workers=side(data.workers),
        ps=side(data.ps),
        unit_capacity=np.zeros(max_servers, dtype=np.int64),
        server_order=np.zeros(max_servers, dtype=np.int64),
        shared=_shared_servers(instance.worker_servers if data.is_shared else None, instance),
        costs=np.empty(space.tables.shape[2]),
        random=np.array([sequence.generate_state(1, dtype=np.uint64)[0]], dtype=np.uint64),
    )


def _shared_servers(servers: ServerClasses | None, instance: AdmissionInstance) -> SharedServers:
    """Return work space for shared servers, or arrays of size 0 if servers are separate."""
    if servers is None:
        none = np.zeros(0, dtype=np.int64)
        return SharedServers(np.zeros((0, 0, 0)), none, none, none, none, none, none)
    number = len(servers.class_of_server)
    share = share_of(servers.capacity, instance.max_share_per_server).astype(np.float64)
    unit_capacity, order, ps_order, workers, ps = (np.zeros(number, dtype=np.int64) for _ in range(5))
    return SharedServers(share, servers.class_of_server.astype(np.int64), unit_capacity, order, ps_order, workers, ps)


class SidePlacement(NamedTuple):
    """Data for placing workers, or PSs; only the needed arrays, since each array that is passed to a call costs time."""

    side: Side
    state: SideState
    scratch: SideScratch


class Placement(NamedTuple):
    """Arguments of a placement; units go to the fullest servers with capacity if ``is_tight``, else to the emptiest."""

    workers: SidePlacement
    ps: SidePlacement
    row_offset: IntArray
    unit_capacity: IntArray
    server_order: IntArray
    shared: SharedServers
    costs: FloatArray
    is_shared: bool
    is_tight: bool


@compiled
def class_limits(residual, demand, unit_capacity, s, t, first, limit):
    """Fill ``limit`` with the number of units of segment s's demand that still fit in each class in slot t."""
    for c in range(len(limit)):
        total = 0
        most = unit_capacity[s, c, t]
        if most > 0:
            for h in range(first[c], first[c + 1]):
                num_units = float(most)
                for r in range(len(demand)):
                    if demand[r] > 0.0:
                        num_units = min(num_units, residual[h, r] / demand[r])
                total += int(num_units)
        limit[c] = total


@compiled
def _order_classes(s, t, side, scratch):
    """Compute the cost of one unit in each class at scale 1, and sort the classes by it."""
    for c in range(len(scratch.cost)):
        scratch.cost[c] = side.cost[s, c, t] * scratch.noise[t, c]
    sort_by_key(scratch.cost, len(scratch.cost), scratch.order)


@compiled
def best_fit(i, scale, is_tight, data, state, scratch):
    """Find job i's best schedule in the classes' residual capacity at scaled prices; return (payoff, completion slot).

    On shared servers it is the best schedule whose units `fill_shared` places. A completion slot of -1 means that no
    payoff is positive. The recursion is that of `best_by` with the slot's table inlined. Passing the table as a
    function would make searches slower, since each array that is passed to a call costs time.
    """
    jobs, workers, ps = data.jobs, data.workers, data.ps
    first_slot, last_slot, target = jobs.arrival[i], jobs.deadline[i], jobs.target[i]
    begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
    steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
    segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
    states, tables, largest = scratch.space.states, scratch.space.tables, scratch.space.largest
    unit, noise, ps_unit, ps_noise = scratch.workers.cost, scratch.workers.noise, scratch.ps.cost, scratch.ps.noise
    best, completion, reached = 0.0, NONE, ZERO
    states[0, : target + 1] = INFINITE
    states[0, 0] = 0.0
    for t in range(first_slot, last_slot + 1):
        if jobs.value[i, t] <= best:
            break
        k = t - first_slot
        before, after = states[k], states[k + 1]
        after[: target + 1] = INFINITE
        least = max(0, target - steps[-1] * (last_slot - t + 1))
        furthest = reached
        for s in range(segment, segment_end):
            row = s - segment
            low, high = reachable_work(i, s, jobs, least, reached)
            largest[k, row] = NONE
            if low >= high:
                continue
            if data.is_shared:
                _order_classes(s, t, workers, scratch.workers)
                _order_classes(s, t, ps, scratch.ps)
                largest[k, row] = fill_shared(
                    s, t, jobs.most[i], needed, scale, state.workers.residual[t], workers, ps, scratch.shared,
                    scratch.workers.order, scratch.ps.order, is_tight, unit, ps_unit, tables[k, row],
                )  # fmt: skip
            else:
                for c in range(len(unit)):
                    unit[c] = scale * workers.cost[s, c, t] * noise[t, c]
                for c in range(len(ps_unit)):
                    ps_unit[c] = scale * ps.cost[s, c, t] * ps_noise[t, c]
                limit, ps_limit = scratch.workers.limit[k, row], scratch.ps.limit[k, row]
                class_limits(
                    state.workers.residual[t], workers.demand[s], workers.unit_capacity, s, t, workers.first, limit
                )
                class_limits(state.ps.residual[t], ps.demand[s], ps.unit_capacity, s, t, ps.first, ps_limit)
                largest[k, row] = slot_table(
                    unit, limit, ps_unit, ps_limit, needed, jobs.most[i], scratch.workers.order, scratch.ps.order,
                    tables[k, row],
                )  # fmt: skip
            min_plus_step(before, after, tables[k, row], largest[k, row], steps, low, high, target)
            furthest = max(furthest, high - 1 + steps[largest[k, row]])
        after[target] = min(after[target], before[target])
        reached = min(target, furthest)
        payoff = jobs.value[i, t] - after[target]
        if payoff > best:
            best, completion = payoff, t
    return best, completion


@compiled
def place(units, c, t, s, residual, demand, unit_capacity, first, rows, count, tight, free, order):
    """Place units of one demand on single servers of a class, fullest servers first if ``tight``; append rows.

    The units must fit in the class. Returns the number of rows used so far.
    """
    low, high = first[c], first[c + 1]
    for h in range(low, high):
        num_units = float(unit_capacity[s, c, t])
        for r in range(len(demand)):
            if demand[r] > 0.0:
                num_units = min(num_units, residual[h, r] / demand[r])
        free[h - low] = int(num_units)
    size = high - low
    sort_by_key(free, size, order)
    for turn in range(size):
        h = order[turn] if tight else order[size - 1 - turn]
        put = min(units, free[h])
        if put == 0:
            continue
        for r in range(len(demand)):
            residual[low + h, r] -= put * demand[r]
        rows[count, 0], rows[count, 1], rows[count, 2], rows[count, 3] = t, low + h, put, s
        count += 1
        units -= put
        if units == 0:
            break
    return count


@compiled
def _write_side(i, s, t, row, k, units, place_on, first_row, is_tight, unit_capacity, server_order):
    """Distribute a slot's workers, or its PSs, over the classes by cost, and in each class over the servers by fullness."""
    side, state, scratch = place_on.side, place_on.state, place_on.scratch
    limit, order = scratch.limit[k, row], scratch.order
    _order_classes(s, t, side, scratch)
    for turn in range(len(limit)):
        c = order[turn]
        put = min(units, limit[c])
        if put > 0:
            state.used[i] = place(
                put, c, t, s, state.residual[t], side.demand[s], side.unit_capacity, side.first, state.rows[first_row:], state.used[i],
                is_tight, unit_capacity, server_order,
            )  # fmt: skip
            units -= put


@compiled
def _write_pairs(i, s, t, units, needed, out):
    """Place a slot's workers and PSs on shared servers, in the same way as when the table was computed."""
    workers, ps, shared = out.workers, out.ps, out.shared
    _order_classes(s, t, workers.side, workers.scratch)
    _order_classes(s, t, ps.side, ps.scratch)
    fill_shared(
        s, t, units, needed, 1.0, workers.state.residual[t], workers.side, ps.side, shared, workers.scratch.order,
        ps.scratch.order, out.is_tight, workers.scratch.cost, ps.scratch.cost, out.costs,
    )  # fmt: skip
    write_shared(i, s, t, shared.workers, out.row_offset, workers.side, workers.state)
    write_shared(i, s, t, shared.ps, out.row_offset, ps.side, ps.state)


@compiled
def _write_slot(i, s, t, k, workers, ps, jobs, source, out):
    row, first_row = s - jobs.segment_offset[i], out.row_offset[i]
    if out.is_shared:
        begin = jobs.table_offset[i]
        _write_pairs(i, s, t, workers, jobs.ps_needed[begin : begin + workers + 1], out)
        return
    _write_side(i, s, t, row, k, workers, out.workers, first_row, out.is_tight, out.unit_capacity, out.server_order)
    _write_side(i, s, t, row, k, ps, out.ps, first_row, out.is_tight, out.unit_capacity, out.server_order)


_trace = trace_by(_write_slot)


@compiled
def insert_all(data, state, waiting, scale, is_tight, scratch):
    """Insert jobs in order, each if its payoff at scaled prices is positive; return the value gained."""
    gained = 0.0
    out = Placement(
        SidePlacement(data.workers, state.workers, scratch.workers),
        SidePlacement(data.ps, state.ps, scratch.ps),
        data.row_offset,
        scratch.unit_capacity,
        scratch.server_order,
        scratch.shared,
        scratch.costs,
        data.is_shared,
        is_tight,
    )
    for i in waiting:
        _, completion = best_fit(i, scale, is_tight, data, state, scratch)
        if completion >= 0:
            state.workers.used[i] = state.ps.used[i] = ZERO
            _trace(i, completion, data.jobs, scratch.space, None, out)
            state.completion[i] = completion
            gained += data.jobs.value[i, completion]
    return gained


@compiled
def _shift_side(i, sign, offset, side, state):
    for a in range(offset, offset + state.used[i]):
        t, h, n, s = state.rows[a]
        for r in range(state.residual.shape[2]):
            state.residual[t, h, r] += sign * n * side.demand[s, r]


@compiled
def shift(i, sign, data, state):
    """Release job i's resources (sign +1) or take them again (sign -1)."""
    _shift_side(i, sign, data.row_offset[i], data.workers, state.workers)
    _shift_side(i, sign, data.row_offset[i], data.ps, state.ps)


@compiled
def take_out(i, data, state):
    """Remove an admitted job."""
    shift(i, 1.0, data, state)
    state.completion[i] = -1


@compiled
def _copy_rows(first, source, goal, i):
    """Copy a job's rows; a loop, because slice assignment takes seconds to compile."""
    goal.used[i] = source.used[i]
    for a in range(first, first + source.used[i]):
        for column in range(source.rows.shape[1]):
            goal.rows[a, column] = source.rows[a, column]


@compiled
def copy_job(i, source, goal, data):
    """Copy a job's completion slot and rows, but not the residual capacities."""
    goal.completion[i] = source.completion[i]
    if source.completion[i] >= 0:
        _copy_rows(data.row_offset[i], source.workers, goal.workers, i)
        _copy_rows(data.row_offset[i], source.ps, goal.ps, i)


@compiled
def copy_plan(source, goal, data):
    """Copy the completion slots and rows of all jobs, but not the residual capacities."""
    for i in range(len(source.completion)):
        copy_job(i, source, goal, data)
