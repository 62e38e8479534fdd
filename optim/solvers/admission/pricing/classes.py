"""Best schedules of jobs over classes of empty servers, compiled, and their tables.

Classes are added one by one: `layers[c]` holds the least costs on the first c classes. The cost in a class is the sum
of its unit costs and a curve, whose entry n is the extra cost of n units; the last entry also holds for more units.

The cheapest way to run Y workers and their PSs is greedy over classes sorted by price. The greedy choice is exact if
workers and PSs use different servers. For shared servers, `shared` computes the table.

Finding best schedules is the pricing problem of column generation, and a subroutine of every bound that holds for any prices.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import MICRO
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.best_schedule import JobArrays, best_by, make_space, sort_by_key, trace_by
from optim.solvers.admission.pricing.shared import (
    ClassFrontiers,
    SharedClasses,
    class_frontiers,
    class_pair_table,
    shared_classes,
    split_class_pair,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTables:
    """Job data for pricing over server classes; a class' limit is its number of servers times the limit of one server.

    Parameters
    ----------
    arrival, deadline
        Shape (jobs,): first slot, and last slot in which completion has a value, -1 if there is none.
    target, most
        Shape (jobs,): required progress, and largest number of workers per slot.
    value
        Shape (jobs, slots): utility of completing in a slot.
    segment_offset, segment_start
        Demand segments of each job, as in the instance.
    table_offset
        Shape (jobs + 1,): index of each job's first entry in `progress` and `ps_needed`.
    progress, ps_needed
        Progress in a slot, and number of PSs needed, with 0, 1, ... workers; concatenated over jobs.
    worker_limit, ps_limit
        Shape (segments, classes, slots): largest number of workers (PSs) of the job in all servers of the class.
    worker_demand, ps_demand
        Shape (segments, resources): demands in units (floats: for costs, not for feasibility).
    """

    instance: AdmissionInstance
    arrival: IntArray
    deadline: IntArray
    target: IntArray
    most: IntArray
    value: FloatArray
    segment_offset: IntArray
    segment_start: IntArray
    table_offset: IntArray
    progress: IntArray
    ps_needed: IntArray
    worker_limit: IntArray
    ps_limit: IntArray
    worker_demand: FloatArray
    ps_demand: FloatArray

    @classmethod
    def build(cls, instance: AdmissionInstance) -> "JobTables":
        """Build the tables of an instance. Every array is a writable copy, so that compiled loops see one array type."""
        jobs = instance.jobs
        sizes = np.array([len(table) for table in instance.progress], dtype=np.int64)
        worker_count = instance.worker_servers.count[None, :, None]
        ps_count = instance.ps_servers.count[None, :, None]
        return cls(
            instance=instance,
            arrival=jobs.arrival.copy(),
            deadline=instance.deadline.copy(),
            target=instance.target.copy(),
            most=instance.max_workers.copy(),
            value=instance.value.copy(),
            segment_offset=jobs.segment_offset.copy(),
            segment_start=jobs.segment_start.copy(),
            table_offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            progress=_flat(instance.progress),
            ps_needed=_flat(instance.ps_needed),
            worker_limit=instance.workers_per_server * worker_count,
            ps_limit=instance.ps_per_server * ps_count,
            worker_demand=jobs.worker_demand / MICRO,
            ps_demand=jobs.ps_demand / MICRO,
        )

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return len(self.arrival)

    @cached_property
    def arrays(self) -> JobArrays:
        """The jobs in the form that compiled loops take."""
        return JobArrays(**{name: getattr(self, name) for name in JobArrays._fields})

    @cached_property
    def class_frontiers(self) -> ClassFrontiers:
        """Feasible pairs of workers and PSs of each job in empty classes of shared servers."""
        return class_frontiers(self.instance)

    @cached_property
    def max_at_once(self) -> tuple[int, int]:
        """Largest numbers of workers and of PSs of any job in any slot, limited by demand and by all servers."""
        max_ps = self.ps_needed[self.table_offset[1:] - 1]
        max_units = (
            np.minimum(self.worker_limit.sum(axis=1), self.most[self.segment_job][:, None]),
            np.minimum(self.ps_limit.sum(axis=1), max_ps[self.segment_job][:, None]),
        )
        return int(max_units[0].max(initial=0)), int(max_units[1].max(initial=0))

    @cached_property
    def segment_job(self) -> IntArray:
        """Job of each demand segment."""
        return self.instance.segment_job


def _flat(tables: tuple[IntArray, ...]) -> IntArray:
    return np.concatenate(tables) if tables else np.zeros(0, dtype=np.int64)


INFINITE = np.inf

ZERO = np.int64(0)


@compiled
def units_cost(units, cost, curve):
    """Return the cost of `units` units in one class."""
    return units * cost + curve[min(units, len(curve) - 1)]


@compiled
def fill_layers(most, cost, low, high, curve, layers):
    """Fill ``layers[c, n]`` with the least cost of n units on the first c classes.

    Parameters
    ----------
    most
        Maximal number of units in total.
    cost, low, high
        Unit cost, and smallest and largest number of units, by class.
    curve
        Shape (classes, counts): extra cost of 0, 1, ... units; the last entry also holds for more units.
    layers
        At least ``classes + 1`` by ``most + 1``.

    Returns
    -------
    tuple
        The minimal and the maximal feasible total; minimal > maximal if there is none.
    """
    layers[0, : most + 1] = INFINITE
    layers[0, 0] = 0.0
    min_units, reached = ZERO, ZERO
    for c in range(len(cost)):
        layers[c + 1, : most + 1] = INFINITE
        if low[c] > high[c]:
            return ZERO + 1, ZERO
        for units in range(low[c], min(high[c], most - min_units) + 1):
            pays = units_cost(units, cost[c], curve[c])
            for n in range(min_units + units, min(most, reached + units) + 1):
                layers[c + 1, n] = min(layers[c + 1, n], layers[c, n - units] + pays)
        min_units += low[c]
        reached = min(most, reached + high[c])
    return min_units, reached


@compiled
def take_layers(units, cost, low, curve, layers, out):
    """Add to `out` the units of each class in a least-cost solution for `units` units, the last class first."""
    n = units
    for c in range(len(cost) - 1, -1, -1):
        class_units = low[c]
        while layers[c, n - class_units] + units_cost(class_units, cost[c], curve[c]) != layers[c + 1, n]:
            class_units += 1
        out[c] += class_units
        n -= class_units


@compiled
def fill_pair_layers(most, max_ps, costs, lows, highs, curves, fronts, layers):
    """Fill ``layers[c, Z, Y]`` with the least cost of Y workers and Z PSs on the first c classes of shared servers.

    Parameters
    ----------
    most, max_ps
        Largest numbers of workers and of PSs in total.
    costs, lows, highs, curves
        For workers and for PSs, each as in `fill_layers`.
    fronts
        Start of each class' frontier, and the concatenated frontiers: the largest number of PSs that fit in addition
        to 0, 1, ... workers, negative where the workers don't fit.
    layers
        At least ``classes + 1`` by ``max_ps + 1`` by ``most + 1``.
    """
    start, front = fronts
    layers[0, : max_ps + 1, : most + 1] = INFINITE
    layers[0, 0, 0] = 0.0
    for c in range(len(start)):
        layers[c + 1, : max_ps + 1, : most + 1] = INFINITE
        for y in range(lows[0][c], min(most, highs[0][c]) + 1):
            beside = front[start[c] + y]
            pays = units_cost(y, costs[0][c], curves[0][c])
            for z in range(lows[1][c], min(max_ps, highs[1][c], beside) + 1):
                cost = pays + units_cost(z, costs[1][c], curves[1][c])
                for ps in range(z, max_ps + 1):
                    before, after = layers[c, ps - z], layers[c + 1, ps]
                    for workers in range(y, most + 1):
                        candidate = before[workers - y] + cost
                        after[workers] = candidate if candidate < after[workers] else after[workers]


@compiled
def take_pair_layers(workers, ps, costs, lows, highs, curves, fronts, layers, out_workers, out_ps):
    """Write the workers and PSs of each class in a least-cost solution for the given totals, the last class first.

    `layers` must cover these totals; nothing is written if they are infeasible.
    """
    start, front = fronts
    if layers[len(start), ps, workers] == INFINITE:
        return
    for c in range(len(start) - 1, -1, -1):
        is_found = False
        for y in range(lows[0][c], min(workers, highs[0][c]) + 1):
            beside = front[start[c] + y]
            pays = units_cost(y, costs[0][c], curves[0][c])
            for z in range(lows[1][c], min(ps, highs[1][c], beside) + 1):
                cost = pays + units_cost(z, costs[1][c], curves[1][c])
                if layers[c, ps - z, workers - y] + cost == layers[c + 1, ps, workers]:
                    out_workers[c], out_ps[c] = y, z
                    workers -= y
                    ps -= z
                    is_found = True
                    break
            if is_found:
                break


@by_reference
class ClassSource(NamedTuple):
    """Server classes as input of the recursion.

    Parameters
    ----------
    worker_cost, ps_cost
        Shape (segments, classes, slots): cost of one worker, and of one PS.
    worker_limit, ps_limit
        Shape (segments, classes, slots): largest number of workers, and of PSs.
    order, ps_order
        Shape (classes,): work space.
    """

    worker_cost: FloatArray
    worker_limit: IntArray
    ps_cost: FloatArray
    ps_limit: IntArray
    order: IntArray
    ps_order: IntArray


@by_reference
class CurvedSource(NamedTuple):
    """A `ClassSource` in which some jobs' costs aren't proportional to their number of units.

    Parameters
    ----------
    worker_place, worker_curve, ps_place, ps_curve
        `place` and `extra` of the `CountCharges` of workers, and of PSs.
    worker_layers, ps_layers
        Shape (classes + 1, counts): work space of `fill_layers`.
    """

    worker_cost: FloatArray
    worker_limit: IntArray
    ps_cost: FloatArray
    ps_limit: IntArray
    order: IntArray
    ps_order: IntArray
    worker_place: IntArray
    worker_curve: FloatArray
    worker_layers: FloatArray
    ps_place: IntArray
    ps_curve: FloatArray
    ps_layers: FloatArray


@by_reference
class SharedClassSource(NamedTuple):
    """A `ClassSource` for servers that workers and PSs share."""

    worker_cost: FloatArray
    ps_cost: FloatArray
    shared: SharedClasses


@by_reference
class SharedCurvedSource(NamedTuple):
    """A `SharedClassSource` with curves, as in `CurvedSource`; `layers` is work space of `fill_pair_layers`."""

    worker_cost: FloatArray
    ps_cost: FloatArray
    shared: SharedClasses
    worker_limit: IntArray
    ps_limit: IntArray
    worker_place: IntArray
    worker_curve: FloatArray
    ps_place: IntArray
    ps_curve: FloatArray
    layers: FloatArray


class Counts(NamedTuple):
    """Units of one schedule by class and slot."""

    workers: IntArray
    ps: IntArray


@compiled
def slot_table(worker_cost, worker_limit, ps_cost, ps_limit, ps_needed, most, order, ps_order, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs in one slot; return the largest Y possible.

    Parameters
    ----------
    worker_cost, worker_limit
        Cost per worker and largest number of workers, by class.
    ps_cost, ps_limit
        Cost per PS and largest number of PSs, by class.
    ps_needed
        Number of PSs needed for 0, 1, ... workers.
    most
        Largest number of workers per slot.
    order, ps_order
        Work space, one entry per class.
    table
        At least ``most + 1`` entries.
    """
    sort_by_key(worker_cost, len(order), order)
    table[0] = 0.0
    workers = 0
    total = 0.0
    for place in range(len(order)):
        c = order[place]
        num_units = min(worker_limit[c], most - workers)
        unit = worker_cost[c]
        for _ in range(num_units):
            workers += 1
            total += unit
            table[workers] = total
        if workers == most:
            break
    sort_by_key(ps_cost, len(ps_order), ps_order)
    place = 0
    remaining = ps_limit[ps_order[0]] if len(ps_order) > 0 else 0
    placed = 0
    total = 0.0
    for y in range(1, workers + 1):
        num_ps = ps_needed[y]
        if num_ps > y:
            return y - 1
        while placed < num_ps:
            while remaining == 0:
                place += 1
                if place >= len(ps_order):
                    return y - 1
                remaining = ps_limit[ps_order[place]]
            remaining -= 1
            placed += 1
            total += ps_cost[ps_order[place]]
        table[y] += total
    return workers


@compiled
def take_cheapest(units, cost, limit, order, out):
    """Add a total of `units` units in the cheapest classes to `out`."""
    sort_by_key(cost, len(order), order)
    for place in range(len(order)):
        c = order[place]
        count = min(units, limit[c])
        out[c] += count
        units -= count


@compiled
def _class_table(i, s, t, k, ceiling, needed, jobs, source, table):
    return slot_table(
        source.worker_cost[s, :, t], source.worker_limit[s, :, t], source.ps_cost[s, :, t], source.ps_limit[s, :, t],
        needed, jobs.most[i], source.order, source.ps_order, table,
    )  # fmt: skip


@compiled
def _write_classes(i, s, t, k, workers, ps, jobs, source, out):
    take_cheapest(workers, source.worker_cost[s, :, t], source.worker_limit[s, :, t], source.order, out.workers[:, t])
    take_cheapest(ps, source.ps_cost[s, :, t], source.ps_limit[s, :, t], source.ps_order, out.ps[:, t])


@compiled
def _curved_table(i, s, t, k, ceiling, needed, jobs, source, table):
    worker_curve, ps_curve = source.worker_curve[source.worker_place[i, t]], source.ps_curve[source.ps_place[i, t]]
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        return _class_table(i, s, t, k, ceiling, needed, jobs, source, table)
    none, no_ps = np.zeros_like(source.order), np.zeros_like(source.ps_order)
    _, most = fill_layers(
        jobs.most[i], source.worker_cost[s, :, t], none, source.worker_limit[s, :, t], worker_curve,
        source.worker_layers,
    )  # fmt: skip
    _, max_ps = fill_layers(
        needed[most], source.ps_cost[s, :, t], no_ps, source.ps_limit[s, :, t], ps_curve, source.ps_layers
    )
    for y in range(most + 1):
        if needed[y] > min(y, max_ps):
            return y - 1
        table[y] = source.worker_layers[-1, y] + source.ps_layers[-1, needed[y]]
    return most


@compiled
def _write_curved(i, s, t, k, workers, ps, jobs, source, out):
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        _write_classes(i, s, t, k, workers, ps, jobs, source, out)
        return
    worker_curve, ps_curve = source.worker_curve[source.worker_place[i, t]], source.ps_curve[source.ps_place[i, t]]
    costs, limits = (
        (source.worker_cost[s, :, t], source.ps_cost[s, :, t]),
        (source.worker_limit[s, :, t], source.ps_limit[s, :, t]),
    )
    none, no_ps = np.zeros_like(source.order), np.zeros_like(source.ps_order)
    fill_layers(workers, costs[0], none, limits[0], worker_curve, source.worker_layers)
    take_layers(workers, costs[0], none, worker_curve, source.worker_layers, out.workers[:, t])
    fill_layers(ps, costs[1], no_ps, limits[1], ps_curve, source.ps_layers)
    take_layers(ps, costs[1], no_ps, ps_curve, source.ps_layers, out.ps[:, t])


@compiled
def _shared_class_table(i, s, t, k, ceiling, needed, jobs, source, table):
    return class_pair_table(
        s, t, jobs.most[i], ceiling, needed, source.worker_cost, source.ps_cost, source.shared, table
    )


@compiled
def _write_shared_classes(i, s, t, k, workers, ps, jobs, source, out):
    split_class_pair(
        s, t, workers, jobs.ps_needed[jobs.table_offset[i] :], source.worker_cost, source.ps_cost, source.shared,
        out.workers[:, t], out.ps[:, t],
    )  # fmt: skip


@compiled
def _curved_sides(i, s, t, source):
    """Return (costs, lower limits, upper limits, curves), each for workers and PSs, and the classes' frontiers in slot t."""
    frontiers = source.shared.frontiers
    start = np.empty(len(frontiers.pattern), dtype=np.int64)
    for c in range(len(start)):
        start[c] = frontiers.start[s, frontiers.pattern[c, t]]
    none = np.zeros_like(start)
    return (
        (source.worker_cost[s, :, t], source.ps_cost[s, :, t]),
        (none, none),
        (source.worker_limit[s, :, t], source.ps_limit[s, :, t]),
        (source.worker_curve[source.worker_place[i, t]], source.ps_curve[source.ps_place[i, t]]),
        (start, frontiers.front),
    )


@compiled
def _curved_shared_table(i, s, t, k, ceiling, needed, jobs, source, table):
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        return _shared_class_table(i, s, t, k, ceiling, needed, jobs, source, table)
    layers, last = source.layers, source.layers.shape[0] - 1
    most = min(jobs.most[i], layers.shape[2] - 1)
    max_ps = min(needed[most], layers.shape[1] - 1)
    costs, lows, highs, curves, fronts = _curved_sides(i, s, t, source)
    fill_pair_layers(most, max_ps, costs, lows, highs, curves, fronts, layers)
    table[0] = 0.0
    for y in range(1, most + 1):
        if needed[y] > min(y, max_ps) or layers[last, needed[y], y] >= ceiling:
            return y - 1
        table[y] = layers[last, needed[y], y]
    return most


@compiled
def _write_curved_shared(i, s, t, k, workers, ps, jobs, source, out):
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        _write_shared_classes(i, s, t, k, workers, ps, jobs, source, out)
        return
    costs, lows, highs, curves, fronts = _curved_sides(i, s, t, source)
    fill_pair_layers(workers, ps, costs, lows, highs, curves, fronts, source.layers)
    take_pair_layers(workers, ps, costs, lows, highs, curves, fronts, source.layers, out.workers[:, t], out.ps[:, t])


def _pricing_by(slot_table, write_slot):
    """Return the function that prices many jobs with these slot tables."""
    best_schedule, trace = best_by(slot_table), trace_by(write_slot)

    @compiled
    def price_jobs(which, floor, jobs, source, want_schedule, payoff, completion, workers, ps):
        """Price every job of `which`; see `optim.solvers.admission.pricing.classes.price`."""
        space = make_space(which, jobs)
        for position in range(len(which)):
            i = which[position]
            payoff[position], completion[position] = best_schedule(i, floor[position], jobs, space, source)
            if completion[position] >= 0 and want_schedule:
                trace(i, completion[position], jobs, space, source, Counts(workers[position], ps[position]))

    return price_jobs


price_classes = _pricing_by(_class_table, _write_classes)

price_curved_classes = _pricing_by(_curved_table, _write_curved)

price_shared_classes = _pricing_by(_shared_class_table, _write_shared_classes)

price_curved_shared_classes = _pricing_by(_curved_shared_table, _write_curved_shared)


@compiled
def add_use(out, completion, segment, workers, worker_demand, ps, ps_demand, is_shared):
    """Add up the schedules' use of each row.

    Parameters
    ----------
    out
        Shape (rows,): the use is added here. Rows of the workers' servers come first, unless servers are shared.
    completion
        Shape (schedules,): completion slots, -1 for none.
    segment
        Shape (schedules, slots): demand segment in each slot.
    workers, ps
        Shape (schedules, classes, slots): counts.
    worker_demand, ps_demand
        Shape (segments, resources): demands of one unit.
    """
    _, num_classes, num_slots = workers.shape
    num_resources = worker_demand.shape[1]
    for k in range(len(completion)):
        for c in range(num_classes if completion[k] >= 0 else 0):
            for t in range(num_slots):
                # On a shared server the use by a job's workers and PSs is summed.
                y, z = workers[k, c, t], ps[k, c, t] if is_shared else ZERO
                if y + z > 0:
                    row = (c * num_slots + t) * num_resources
                    for r in range(num_resources):
                        out[row + r] += y * worker_demand[segment[k, t], r] + z * ps_demand[segment[k, t], r]
    if not is_shared:
        for k in range(len(completion)):
            for c in range(ps.shape[1] if completion[k] >= 0 else 0):
                for t in range(num_slots):
                    if ps[k, c, t] > 0:
                        row = ((num_classes + c) * num_slots + t) * num_resources
                        for r in range(num_resources):
                            out[row + r] += ps[k, c, t] * ps_demand[segment[k, t], r]


class CountCharges(NamedTuple):
    """Costs of units in a class that aren't proportional to their number.

    Parameters
    ----------
    place
        Shape (jobs, slots): row of `extra`; row 0 has no extra cost.
    extra
        Shape (rows, classes, counts): extra cost of 0, 1, ... units; the last entry also holds for more units.
    """

    place: IntArray
    extra: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """Prices of rows and of job-specific cuts, over server classes.

    Parameters
    ----------
    worker, ps
        Shape (classes, slots, resources): utility per unit of the resource, >= 0. On shared servers all prices
        are worker prices and `ps` has no classes.
    worker_extra, ps_extra
        Shape (segments, classes, slots): cuts' addition to the cost of one worker (PS) of a job, or None.
        On shared servers the classes of both are those of the workers' servers.
    worker_curves, ps_curves
        Cuts' addition to the cost of each number of workers (PSs) of a job in a class, or None.
    slot_charges
        Cuts' addition to the cost of each number of workers of a job in a slot, as if there were one class, or None.
        Only pricing at nodes takes them.
    """

    worker: FloatArray
    ps: FloatArray
    worker_extra: FloatArray | None = None
    ps_extra: FloatArray | None = None
    worker_curves: CountCharges | None = None
    ps_curves: CountCharges | None = None
    slot_charges: CountCharges | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricedSchedules:
    """The best schedule of each priced job.

    Parameters
    ----------
    jobs
        Shape (priced,): indices of the jobs.
    payoff
        Shape (priced,): value minus cost of the best schedule, or the floor if none is better.
    completion
        Shape (priced,): completion slot of this schedule, -1 if no schedule is better than the floor.
    workers, ps
        Shape (priced, classes, slots): numbers of workers, and of PSs.
    """

    jobs: IntArray
    payoff: FloatArray
    completion: IntArray
    workers: NDArray[np.signedinteger[Any]]
    ps: NDArray[np.signedinteger[Any]]

    def __len__(self) -> int:
        return len(self.jobs)

    @classmethod
    def blank(cls, tables: JobTables, jobs: IntArray) -> "PricedSchedules":
        """Return arrays to fill: no job has a schedule, payoffs are 0."""
        horizon = tables.value.shape[1]
        return cls(
            jobs=jobs,
            payoff=np.zeros(len(jobs)),
            completion=np.full(len(jobs), -1, dtype=np.int64),
            workers=np.zeros((len(jobs), tables.worker_limit.shape[1], horizon), dtype=np.int32),
            ps=np.zeros((len(jobs), tables.ps_limit.shape[1], horizon), dtype=np.int32),
        )

    def select(self, which: IntArray) -> "PricedSchedules":
        """Return the schedules at the given positions."""
        return PricedSchedules(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def followed_by(self, others: "PricedSchedules") -> "PricedSchedules":
        """Return these schedules followed by others with the same classes and slots."""
        names = [field.name for field in fields(self)]
        return PricedSchedules(**{name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in names})


def unit_costs(tables: JobTables, prices: Prices, segments: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Return the cost of one worker and of one PS of each job, shape (segments, classes, slots) each.

    If `segments` are given, only their entries are computed, so that each shard of the jobs computes its own part.
    """
    ps_prices = prices.worker if tables.instance.has_shared_servers else prices.ps
    worker = _unit_cost(tables.worker_demand, prices.worker, segments)
    ps = _unit_cost(tables.ps_demand, ps_prices, segments)
    if prices.worker_extra is not None:
        worker += prices.worker_extra
    if prices.ps_extra is not None:
        ps += prices.ps_extra
    return worker, ps


def _unit_cost(demand: FloatArray, price: FloatArray, segments: IntArray | None) -> FloatArray:
    """Return demand times price summed over resources: (segments, resources) and (classes, slots, resources)."""
    if segments is not None:
        cost = np.empty((len(demand), *price.shape[:2]))
        cost[segments] = _unit_cost(demand[segments], price, None)
        return cost
    flat: FloatArray = demand @ price.reshape(-1, price.shape[2]).T
    return flat.reshape(len(demand), *price.shape[:2])


def price(
    tables: JobTables,
    prices: Prices,
    *,
    jobs: IntArray | None = None,
    floor: FloatArray | None = None,
    with_schedules: bool = True,
    segments: IntArray | None = None,
) -> PricedSchedules:
    """Find each job's best schedule at the given prices, exactly.

    Parameters
    ----------
    jobs
        Indices of the jobs to price, all by default.
    floor
        Shape (priced,): payoff that a schedule must exceed, 0 by default; a higher floor shortens the search.
    with_schedules
        Whether to return the counts; without them the counts are empty.
    segments
        Demand segments of the priced jobs; costs of other segments are not computed.

    Notes
    -----
    The time per job is O(slots x (work x workers + classes log classes)). The search stops at the first slot whose value
    doesn't exceed the best payoff. On shared servers a slot costs O(classes x workers x PSs^2) instead of
    O(workers + classes log classes).
    """
    assert prices.slot_charges is None, "only pricing at nodes takes slot charges"
    which = np.arange(tables.num_jobs) if jobs is None else jobs
    floors = np.zeros(len(which)) if floor is None else floor
    worker_cost, ps_cost = unit_costs(tables, prices, segments)
    horizon = tables.value.shape[1]
    num_stored = len(which) if with_schedules else 0
    workers = np.zeros((num_stored, worker_cost.shape[1], horizon), dtype=np.int32)
    ps = np.zeros((num_stored, ps_cost.shape[1], horizon), dtype=np.int32)
    payoff, completion = np.zeros(len(which)), np.full(len(which), -1, dtype=np.int64)
    source = class_source(tables, worker_cost, ps_cost)
    out = (with_schedules, payoff, completion, workers, ps)
    is_curved = prices.worker_curves is not None or prices.ps_curves is not None
    if isinstance(source, SharedClassSource):
        if is_curved:
            price_curved_shared_classes(which, floors, tables.arrays, _curved_shared(tables, source, prices), *out)
        else:
            price_shared_classes(which, floors, tables.arrays, source, *out)
    elif is_curved:
        price_curved_classes(which, floors, tables.arrays, _curved(tables, source, prices), *out)
    else:
        price_classes(which, floors, tables.arrays, source, *out)
    return PricedSchedules(jobs=which, payoff=payoff, completion=completion, workers=workers, ps=ps)


def payoffs_along(tables: JobTables, prices: Prices) -> Callable[[float], FloatArray]:
    """Return a function of a price scale that gives each job's best payoff, shape (jobs,); for prices without curves.

    The payoffs equal those of `price` without schedules. The arrays are allocated once, so every call overwrites the
    result of the call before.
    """
    source = class_source(tables, *unit_costs(tables, prices))
    sides = [
        (demand, price.reshape(-1, price.shape[2]).T, cost.reshape(len(demand), -1))
        for demand, price, cost in (
            (tables.worker_demand, prices.worker, source.worker_cost),
            (tables.ps_demand, prices.worker if tables.instance.has_shared_servers else prices.ps, source.ps_cost),
        )
    ]
    loop = price_shared_classes if tables.instance.has_shared_servers else price_classes
    payoff, completion = np.empty(tables.num_jobs), np.empty(tables.num_jobs, dtype=np.int64)
    none = np.empty((0, 0, 0), dtype=np.int32)
    which, floor = np.arange(tables.num_jobs), np.zeros(tables.num_jobs)

    def at(scale: float) -> FloatArray:
        for demand, price, cost in sides:
            np.matmul(demand, price * scale, out=cost)
        loop(which, floor, tables.arrays, source, False, payoff, completion, none, none)
        return payoff

    return at


def class_source(tables: JobTables, worker_cost: FloatArray, ps_cost: FloatArray) -> ClassSource | SharedClassSource:
    """Return the classes in the form that compiled loops take, at costs without curves."""
    if tables.instance.has_shared_servers:
        return SharedClassSource(worker_cost, ps_cost, shared_classes(tables.class_frontiers, *tables.max_at_once))
    orders = np.zeros(worker_cost.shape[1], dtype=np.int64), np.zeros(ps_cost.shape[1], dtype=np.int64)
    return ClassSource(worker_cost, tables.worker_limit, ps_cost, tables.ps_limit, *orders)


def _curved(tables: JobTables, source: ClassSource, prices: Prices) -> CurvedSource:
    """Return the classes with the cuts' curves, and work space."""
    most = int(tables.most.max(initial=0)), int(tables.ps_needed.max(initial=0))
    sides = []
    for curves, cost, width in zip(
        (prices.worker_curves, prices.ps_curves), (source.worker_cost, source.ps_cost), most, strict=True
    ):
        classes = cost.shape[1]
        sides.append((*curves_or_none(tables, curves, classes), np.empty((classes + 1, width + 1))))
    return CurvedSource(*source, *sides[0], *sides[1])


def _curved_shared(tables: JobTables, source: SharedClassSource, prices: Prices) -> SharedCurvedSource:
    """Return the classes of shared servers with the cuts' curves, and work space."""
    classes, (most, max_ps) = source.worker_cost.shape[1], tables.max_at_once
    return SharedCurvedSource(
        *source,
        tables.worker_limit,
        tables.ps_limit,
        *curves_or_none(tables, prices.worker_curves, classes),
        *curves_or_none(tables, prices.ps_curves, classes),
        np.empty((classes + 1, max_ps + 1, most + 1)),
    )


def curves_or_none(tables: JobTables, curves: CountCharges | None, classes: int) -> CountCharges:
    """Return the curves, or zero curves for None."""
    if curves is not None:
        return curves
    return CountCharges(np.zeros(tables.value.shape, dtype=np.int64), np.zeros((1, classes, 1)))
