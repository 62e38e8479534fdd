"""Pricing under a node's restrictions: the best schedule of each job that meets them, compiled.

As in `best_schedule`, a min-plus recursion over the work done. But a node may force units into a class and slot, limit
the slots in which a job completes, and admit a job at a loss.

Only schedules without superfluous units count. They run the fewest workers with a slot's progress and the PSs that
these need, and end when the work is done.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.decision import Branch, BranchKind
from optim.solvers.admission.packing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.best_schedule import INFINITE, NONE, JobArrays, sort_by_key
from optim.solvers.admission.pricing.classes import (
    CountCharges,
    JobTables,
    PricedSchedules,
    Prices,
    curves_or_none,
    fill_layers,
    fill_pair_layers,
    take_cheapest,
    take_layers,
    take_pair_layers,
    unit_costs,
)
from optim.solvers.admission.pricing.shared import ClassFrontiers


@by_reference
class SeparateSource(NamedTuple):
    """Classes of separate servers for workers and PSs.

    Unit costs, shape (segments, classes, slots), and charges by class and by slot; then work space: costs by number of
    units, orders of the classes, and costs by class and number of units.
    """

    worker_cost: FloatArray
    ps_cost: FloatArray
    worker_curves: CountCharges
    ps_curves: CountCharges
    slot_charges: CountCharges
    workers: FloatArray
    ps: FloatArray
    order: IntArray
    ps_order: IntArray
    worker_layers: FloatArray
    ps_layers: FloatArray


@by_reference
class SharedSource(NamedTuple):
    """Classes of shared servers.

    Unit costs and charges as in `SeparateSource`, the feasible pairs of workers and PSs, and work space: costs by class,
    PSs and workers.
    """

    worker_cost: FloatArray
    ps_cost: FloatArray
    worker_curves: CountCharges
    ps_curves: CountCharges
    slot_charges: CountCharges
    frontiers: ClassFrontiers
    layers: FloatArray


@compiled
def _fill_greedily(cost, low, high, most, order, table):
    """Fill `table[n]` with the least cost of n units; return the minimal and the maximal n, (1, 0) if none is feasible."""
    total = 0.0
    units = 0
    for c in range(len(cost)):
        if low[c] > high[c]:
            return 1, 0
        units += low[c]
        total += low[c] * cost[c]
    if units > most:
        return 1, 0
    min_units = units
    table[units] = total
    sort_by_key(cost, len(order), order)
    for place in range(len(order)):
        c = order[place]
        for _ in range(min(high[c] - low[c], most - units)):
            units += 1
            total += cost[c]
            table[units] = total
    return min_units, units


@compiled
def _fill_side(row, cost, low, high, curves, most, order, layers, table):
    """As `_fill_greedily`, with the extra costs of a row of curves; row 0 has none."""
    if row == 0:
        return _fill_greedily(cost, low, high, most, order, table)
    min_units, max_units = fill_layers(most, cost, low, high, curves.extra[row], layers)
    table[: most + 1] = layers[len(cost), : most + 1]
    return min_units, max_units


@compiled
def _fill_slot(i, s, t, ps_needed, limits, source, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs in a slot, infinite if infeasible."""
    most = len(ps_needed) - 1
    table[: most + 1] = INFINITE
    min_units, max_units = _fill_side(
        source.worker_curves.place[i, t], source.worker_cost[s, :, t], limits.worker_low[i, :, t],
        limits.worker_high[s, :, t], source.worker_curves, most, source.order, source.worker_layers, source.workers,
    )  # fmt: skip
    fewest_ps, max_ps = _fill_side(
        source.ps_curves.place[i, t], source.ps_cost[s, :, t], limits.ps_low[i, :, t], limits.ps_high[s, :, t],
        source.ps_curves, ps_needed[most], source.ps_order, source.ps_layers, source.ps,
    )  # fmt: skip
    for y in range(min_units, max_units + 1):
        num_ps = ps_needed[y]
        if num_ps <= y and fewest_ps <= num_ps <= max_ps:
            table[y] = source.workers[y] + source.ps[num_ps]


@compiled
def _take(row, units, cost, low, high, curves, order, layers, out):
    """Write the cheapest counts by class whose sum is `units`, each at least its lower limit."""
    if row == 0:
        spare = high - low
        out[:] = low
        take_cheapest(units - low.sum(), cost, spare, order, out)
    else:
        fill_layers(units, cost, low, high, curves.extra[row], layers)
        out[:] = 0
        take_layers(units, cost, low, curves.extra[row], layers, out)


@compiled
def _write_slot(i, s, t, workers, ps, limits, source, out_workers, out_ps):
    """Write the cheapest counts by class of `workers` workers and `ps` PSs in a slot."""
    _take(
        source.worker_curves.place[i, t], workers, source.worker_cost[s, :, t], limits.worker_low[i, :, t],
        limits.worker_high[s, :, t], source.worker_curves, source.order, source.worker_layers, out_workers[:, t],
    )  # fmt: skip
    _take(
        source.ps_curves.place[i, t], ps, source.ps_cost[s, :, t], limits.ps_low[i, :, t], limits.ps_high[s, :, t],
        source.ps_curves, source.ps_order, source.ps_layers, out_ps[:, t],
    )  # fmt: skip


@compiled
def _shared_sides(i, s, t, limits, source):
    """Return costs, lower and upper limits, and curves of workers and PSs on shared servers, and the frontiers."""
    frontiers = source.frontiers
    start = np.empty(len(frontiers.pattern), dtype=np.int64)
    for c in range(len(start)):
        start[c] = frontiers.start[s, frontiers.pattern[c, t]]
    return (
        (source.worker_cost[s, :, t], source.ps_cost[s, :, t]),
        (limits.worker_low[i, :, t], limits.ps_low[i, :, t]),
        (limits.worker_high[s, :, t], limits.ps_high[s, :, t]),
        (
            source.worker_curves.extra[source.worker_curves.place[i, t]],
            source.ps_curves.extra[source.ps_curves.place[i, t]],
        ),
        (start, frontiers.front),
    )


@compiled
def _fill_shared_slot(i, s, t, ps_needed, limits, source, table):
    """As `_fill_slot`, for servers that workers and PSs share."""
    most = len(ps_needed) - 1
    costs, lows, highs, curves, fronts = _shared_sides(i, s, t, limits, source)
    fill_pair_layers(most, ps_needed[most], costs, lows, highs, curves, fronts, source.layers)
    for y in range(most + 1):
        table[y] = source.layers[len(source.frontiers.pattern), ps_needed[y], y] if ps_needed[y] <= y else INFINITE


@compiled
def _write_shared_slot(i, s, t, workers, ps, limits, source, out_workers, out_ps):
    """As `_write_slot`, for servers that workers and PSs share."""
    costs, lows, highs, curves, fronts = _shared_sides(i, s, t, limits, source)
    fill_pair_layers(workers, ps, costs, lows, highs, curves, fronts, source.layers)
    take_pair_layers(workers, ps, costs, lows, highs, curves, fronts, source.layers, out_workers[:, t], out_ps[:, t])


@compiled
def _add_charges(charges, i, t, number, table):
    """Add a job's slot charges to the costs of 0, 1, ..., `number` - 1 workers."""
    row = charges.place[i, t]
    if row > 0:
        extra = charges.extra[row, 0]
        for y in range(number):
            table[y] += extra[min(y, len(extra) - 1)]


@compiled
def _forced_slots(i, worker_low, ps_low):
    """Return the first and the last slot in which a job must have units; the horizon and -1 without such a slot."""
    first, last = worker_low.shape[2], NONE
    for t in range(worker_low.shape[2]):
        if worker_low[i, :, t].any() or ps_low[i, :, t].any():
            first, last = min(first, t), t
    return first, last


def _trace_by(write_slot):
    """Return the function that traces the best cost back and passes each slot's units to `write_slot`."""

    @compiled
    def trace_back(i, completion, last_slot, jobs, limits, source, scratch, out_workers, out_ps):
        """Recompute the choices that led to the best cost and write counts by class and slot."""
        begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
        steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
        target, first_slot = jobs.target[i], jobs.arrival[i]
        segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
        goal, state = scratch.finish_cost[completion - first_slot], target
        for t in range(completion, first_slot - 1, -1):
            k = t - first_slot
            least = max(0, target - steps[-1] * (last_slot - t + 1))
            is_traced = False
            for s in range(segment, segment_end):
                # For other states, the tables may be those of another job.
                low = max(least, jobs.segment_start[s])
                high = jobs.segment_start[s + 1] if s + 1 < segment_end else target
                for y in range(len(steps)):
                    if y > 0 and steps[y] == steps[y - 1]:
                        continue
                    # In the completion slot, y workers complete the work from several states; before, `state` has one origin.
                    from_state = state - steps[y]
                    to_state = from_state + 1
                    if t == completion:
                        to_state = target - steps[y - 1] if y > 0 else 0
                    for d in range(max(from_state, low), min(to_state, high)):
                        if (
                            scratch.states[k, d] < INFINITE
                            and scratch.states[k, d] + scratch.tables[k, s - segment, y] == goal
                        ):
                            is_traced = True
                            state, goal = d, scratch.states[k, d]
                            write_slot(i, s, t, y, needed[y], limits, source, out_workers, out_ps)
                            break
                    if is_traced:
                        break
                if is_traced:
                    break

    return trace_back


def _best_by(fill_slot):
    """Return the function that prices one job, by a recursion over the slot tables of `fill_slot`."""

    @compiled
    def price_one(i, jobs, limits, has_all, source, scratch):
        """Return (payoff, completion slot) of a job's best restricted schedule; (0 or -infinity, -1) without one.

        `scratch.finish_cost` receives the least cost of completing in each slot from the arrival on: in all slots, or up to the
        first one whose value is too small for a better schedule.
        """
        scratch.finish_cost[:] = INFINITE
        best = -INFINITE if limits.is_admitted[i] else 0.0
        completion = NONE
        begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
        steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
        target, fastest = jobs.target[i], steps[-1]
        first_slot = jobs.arrival[i]
        last_slot = min(jobs.deadline[i], limits.last[i])
        first_forced, last_forced = _forced_slots(i, limits.worker_low, limits.ps_low)
        if (
            limits.is_refused[i]
            or last_slot < first_slot
            or target > fastest * (last_slot - first_slot + 1)
            or first_forced < first_slot
        ):
            return best, completion
        first_end = max(first_slot, limits.first[i], last_forced)
        segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
        states, tables = scratch.states, scratch.tables
        states[0, :target] = INFINITE
        states[0, 0] = 0.0
        reached = 0
        for t in range(first_slot, last_slot + 1):
            if not has_all and jobs.value[i, t] <= best:
                break  # values never increase with the slot, and costs are at least 0
            k = t - first_slot
            before, after = states[k], states[k + 1]
            after[:target] = INFINITE
            least = max(0, target - fastest * (last_slot - t + 1))
            now_reached = reached
            cheapest = INFINITE
            for s in range(segment, segment_end):
                low = max(least, jobs.segment_start[s])
                high = min(reached + 1, jobs.segment_start[s + 1] if s + 1 < segment_end else target, target)
                table = tables[k, s - segment]
                if low >= high:
                    continue
                fill_slot(i, s, t, needed, limits, source, table)
                _add_charges(source.slot_charges, i, t, len(steps), table)
                for y in range(len(steps)):
                    cost = table[y]
                    if cost == INFINITE or (y > 0 and steps[y] == steps[y - 1]):
                        continue
                    step = steps[y]
                    # From these states y workers complete the work, and y - 1 would not.
                    from_state = max(low, target - step)
                    to_state = min(high, target - steps[y - 1]) if y > 0 else low
                    for d in range(from_state, to_state):
                        cheapest = min(cheapest, before[d] + cost)
                    for d in range(low, min(high, target - step)):
                        candidate = before[d] + cost
                        if candidate < after[d + step]:
                            after[d + step] = candidate
                            now_reached = max(now_reached, d + step)
            reached = now_reached
            if t >= first_end:
                scratch.finish_cost[k] = cheapest
                if jobs.value[i, t] - cheapest > best:
                    best, completion = jobs.value[i, t] - cheapest, t
        return best, completion

    return price_one


def _pricing_by(fill_slot, write_slot):
    """Return the functions that price many jobs over one type of classes: their best schedules, and each completion slot."""
    price_one, trace_back = _best_by(fill_slot), _trace_by(write_slot)

    @compiled
    def price_restricted(which, jobs, limits, source, scratch, payoff, completion, out_workers, out_ps):
        """Price every job of `which`; see `optim.solvers.admission.branching.node_pricing.NodePricer.price`."""
        for position in range(len(which)):
            i = which[position]
            payoff[position], completion[position] = price_one(i, jobs, limits, False, source, scratch)
            if completion[position] >= 0:
                last_slot = min(jobs.deadline[i], limits.last[i])
                trace_back(
                    i, completion[position], last_slot, jobs, limits, source, scratch, out_workers[position],
                    out_ps[position],
                )  # fmt: skip

    @compiled
    def price_slots(jobs, limits, source, scratch, payoff):
        """Price every completion slot of every job; see `optim.solvers.admission.branching.node_pricing.NodePricer.by_slot`."""
        for i in range(len(payoff)):
            price_one(i, jobs, limits, True, source, scratch)
            for t in range(jobs.arrival[i], payoff.shape[1]):
                k = t - jobs.arrival[i]
                if k < len(scratch.finish_cost) and scratch.finish_cost[k] < INFINITE:
                    payoff[i, t] = jobs.value[i, t] - scratch.finish_cost[k]

    return price_restricted, price_slots


price_restricted, price_slots = _pricing_by(_fill_slot, _write_slot)

price_restricted_shared, price_slots_shared = _pricing_by(_fill_shared_slot, _write_shared_slot)


@by_reference
class BranchRestrictions(NamedTuple):
    """Restrictions of a node on each job's schedule.

    Parameters
    ----------
    is_refused, is_admitted
        Shape (jobs,), 0 or 1: the job must not have a schedule, or must have one.
    first, last
        Shape (jobs,): first and last slot in which the job may complete.
    worker_low, ps_low
        Shape (jobs, classes, slots): smallest number of units.
    worker_high, ps_high
        Shape (segments, classes, slots): largest number of units.
    """

    is_refused: IntArray
    is_admitted: IntArray
    first: IntArray
    last: IntArray
    worker_low: IntArray
    ps_low: IntArray
    worker_high: IntArray
    ps_high: IntArray

    @classmethod
    def free(cls, tables: JobTables) -> "BranchRestrictions":
        """Return the limits of the root, which are those of the instance."""
        horizon = tables.value.shape[1]
        none = np.zeros(tables.num_jobs, dtype=np.int64)
        return cls(
            is_refused=none,
            is_admitted=none.copy(),
            first=none.copy(),
            last=np.full(tables.num_jobs, horizon - 1, dtype=np.int64),
            worker_low=np.zeros((tables.num_jobs, *tables.worker_limit.shape[1:]), dtype=np.int64),
            ps_low=np.zeros((tables.num_jobs, *tables.ps_limit.shape[1:]), dtype=np.int64),
            worker_high=tables.worker_limit.copy(),
            ps_high=tables.ps_limit.copy(),
        )

    def narrowed(self, tables: JobTables, branch: Branch, *, is_high: bool) -> "BranchRestrictions":
        """Return the limits of the low or high child of a split by `branch`."""
        i, v = branch.job, branch.value
        match branch.kind:
            case BranchKind.ADMITTED if is_high:
                return self._replace(is_admitted=_with(self.is_admitted, i, 1))
            case BranchKind.ADMITTED:
                return self._replace(is_refused=_with(self.is_refused, i, 1))
            case BranchKind.COMPLETION if is_high:
                return self._replace(first=_with(self.first, i, max(int(self.first[i]), v + 1)))
            case BranchKind.COMPLETION:
                return self._replace(last=_with(self.last, i, min(int(self.last[i]), v)))
        is_worker = branch.kind is BranchKind.WORKERS
        place = (branch.server_class, branch.slot)
        if is_high:
            low = self.worker_low if is_worker else self.ps_low
            low = _with(low, (i, *place), max(int(low[i, *place]), v + 1))
            admitted = _with(self.is_admitted, i, 1)
            return self._replace(is_admitted=admitted, **{"worker_low" if is_worker else "ps_low": low})
        high = (self.worker_high if is_worker else self.ps_high).copy()
        segments = slice(int(tables.segment_offset[i]), int(tables.segment_offset[i + 1]))
        high[segments, *place] = np.minimum(high[segments, *place], v)
        return self._replace(**{"worker_high" if is_worker else "ps_high": high})

    def allows(self, tables: JobTables, schedules: PricedSchedules) -> NDArray[np.bool_]:
        """Return whether each schedule meets the node's restrictions, shape (schedules,)."""
        job, completion = schedules.jobs, schedules.completion
        result: NDArray[np.bool_] = (self.is_refused[job] == 0) & (completion >= self.first[job])
        result &= completion <= self.last[job]
        sides = (
            (schedules.workers, self.worker_low, self.worker_high, tables.worker_limit),
            (schedules.ps, self.ps_low, self.ps_high, tables.ps_limit),
        )
        for counts, low, high, most in sides:
            for i, c, t in np.argwhere(low > 0).tolist():
                result &= (job != i) | (counts[:, c, t] >= low[i, c, t])
            for s, c, t in np.argwhere(high < most).tolist():
                result &= (job != tables.segment_job[s]) | (counts[:, c, t] <= high[s, c, t])
        return result


def _with(array: IntArray, place: int | tuple[int, ...], value: int) -> IntArray:
    changed = array.copy()
    changed[place] = value
    return changed


@by_reference
class PricingScratch(NamedTuple):
    """Work space of the compiled loop."""

    states: FloatArray
    tables: FloatArray
    finish_cost: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePricer:
    """Prices jobs under restrictions, over server classes with full capacity."""

    tables: JobTables
    jobs: JobArrays
    scratch: PricingScratch
    most: tuple[int, int]

    @classmethod
    def of(cls, tables: JobTables) -> "NodePricer":
        """Allocate arrays and work space for an instance."""
        window = np.maximum(tables.deadline - tables.arrival + 1, 0)
        fastest = tables.progress[tables.table_offset[1:] - 1]
        # Other jobs have no schedule; tables as long as their targets might not fit into memory.
        live = (window > 0) & (tables.target <= fastest * window)
        longest = int(window[live].max(initial=1))
        widest = int(tables.target[live].max(initial=1))
        most = int(tables.most.max(initial=0))
        segments = int(np.diff(tables.segment_offset).max(initial=1))
        return cls(
            tables=tables,
            jobs=tables.arrays,
            scratch=PricingScratch(
                states=np.empty((longest + 1, widest + 1)),
                tables=np.empty((longest, segments, most + 1)),
                finish_cost=np.empty(longest),
            ),
            most=(most, int(tables.ps_needed.max(initial=0))),
        )

    def price(self, prices: Prices, limits: BranchRestrictions, *, jobs: IntArray | None = None) -> PricedSchedules:
        """Find each job's best schedule under a node's restrictions, exactly.

        Returns
        -------
        PricedSchedules
            The payoff of a job that may be rejected is at least 0. The payoff of a job that must be admitted may be negative;
            it is -infinity without a schedule.
        """
        tables = self.tables
        which = np.arange(tables.num_jobs) if jobs is None else jobs
        priced = PricedSchedules.blank(tables, which)
        out = (self.scratch, priced.payoff, priced.completion, priced.workers, priced.ps)
        fill = price_restricted_shared if tables.instance.has_shared_servers else price_restricted
        fill(which, self.jobs, limits, self._source(prices), *out)
        return priced

    def by_slot(self, prices: Prices, limits: BranchRestrictions) -> FloatArray:
        """Return each job's largest payoff by completion slot under a node's restrictions, exactly.

        Returns
        -------
        Shape (jobs, slots): value less cost, which may be negative; -infinity where no schedule completes.
        """
        tables = self.tables
        payoff = np.full(tables.value.shape, -np.inf)
        fill = price_slots_shared if tables.instance.has_shared_servers else price_slots
        fill(self.jobs, limits, self._source(prices), self.scratch, payoff)
        return payoff

    def _source(self, prices: Prices) -> SeparateSource | SharedSource:
        """Return unit costs and charges at prices, with work space."""
        tables, costs = self.tables, unit_costs(self.tables, prices)
        sizes, (classes, ps_classes) = [most + 1 for most in self.most], (cost.shape[1] for cost in costs)
        curves = (
            curves_or_none(tables, prices.worker_curves, classes),
            curves_or_none(tables, prices.ps_curves, ps_classes),
            curves_or_none(tables, prices.slot_charges, 1),
        )
        if tables.instance.has_shared_servers:
            pairs = np.empty((classes + 1, sizes[1], sizes[0]))
            return SharedSource(*costs, *curves, tables.class_frontiers, pairs)
        orders = np.empty(classes, dtype=np.int64), np.empty(ps_classes, dtype=np.int64)
        rows = np.empty(sizes[0]), np.empty(sizes[1])
        layers = np.empty((classes + 1, sizes[0])), np.empty((ps_classes + 1, sizes[1]))
        return SeparateSource(*costs, *curves, *rows, *orders, *layers)

    def has_schedule(self, job: int, limits: BranchRestrictions) -> bool:
        """Return whether any schedule of a job meets a node's restrictions."""
        rows = CapacityRows.of(self.tables)
        free = rows.prices(np.zeros(rows.num_rows))
        return bool(self.price(free, limits, jobs=np.array([job])).completion[0] >= 0)
