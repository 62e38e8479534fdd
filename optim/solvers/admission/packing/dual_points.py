"""Upper bounds from any prices, Polyak's subgradient steps, and the LP's solution as tables with names.

Source: Polyak, "Minimization of unsmooth functionals", 1969, DOI 10.1016/0041-5553(69)90061-5.

A step prices every job and moves the prices of all rows. On small instances, calling compiled pricing from Python costs
more than pricing itself, so one compiled call takes all steps.

For every p >= 0 the Lagrangian value

    UB(p) = sum_i max(0, max over schedules of job i of value - cost at p) + sum over rows of p c

is at least the optimum of the packing LP, and so of every plan: the bound is valid at any prices.
A line search over a common scale of the prices, followed by subgradient steps, lowers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled, copy_first
from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import Outcome, PhaseClock
from optim.core.solution import Relaxation
from optim.models.admission.decision import AdmissionPlan, CountCut, Cut, PriceProof, ServerCut, SlotCut
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.capacity_rows import CapacityRows, plan_usage
from optim.solvers.admission.packing.column_pool import Schedule
from optim.solvers.admission.pricing.classes import (
    JobTables,
    Prices,
    add_use,
    class_source,
    payoffs_along,
    price,
    price_classes,
    price_shared_classes,
)

MIN_PROGRESS = 1e-6
"""A step makes progress if it lowers the best bound by more than this share."""


class PolyakSteps:
    """Steps towards a target bound, with a decreasing length while the bound stalls.

    Rows differ in unit and size. Steps are measured in prices of full rows (p times capacity), so they don't depend
    on units.

    Parameters
    ----------
    limit
        Shape (rows,): right-hand sides; prices of rows without capacity are constant.
    patience
        Steps without progress after which the step length is halved.
    """

    def __init__(self, limit: FloatArray, patience: int) -> None:
        self._limit, self._patience = limit, patience
        self._scale = np.divide(1.0, limit, out=np.zeros_like(limit), where=limit > 0)
        self._damping, self._stalled = 1.0, 0

    def watch(self, bound: float, best: float) -> None:
        """Halve the step length after `patience` consecutive points whose `bound` isn't below `best`, the best bound before."""
        self._stalled = 0 if bound < best * (1 - MIN_PROGRESS) else self._stalled + 1
        if self._stalled >= self._patience:
            self._damping, self._stalled = self._damping / 2, 0

    def next(self, point: FloatArray, bound: float, use: FloatArray, goal: float) -> FloatArray | None:
        """Return the point after `point`, given the best schedules' use of the rows.

        Return None if the bound of `point` is at most the goal, or no change of prices can lower it.
        """
        gradient = (self._limit - use) * self._scale
        free = (point > 0) | (gradient < 0)
        norm = float(np.sum(gradient[free] ** 2))
        if norm == 0 or bound <= goal:
            return None
        length = self._damping * (bound - goal) / norm
        moved: FloatArray = np.maximum(0.0, point - length * gradient * self._scale)
        return moved


MIN_TARGET = 0.95
"""Lower limit of the target, as a share of the best bound."""

PATIENCE = 5
"""Steps without progress after which the step length is halved."""


@by_reference
class Descent(NamedTuple):
    """Inputs and state of the steps; each step overwrites `payoff` and the fields after it.

    Parameters
    ----------
    capacity, scale
        Shape (rows,): capacity of each row, and its inverse, 0 for a capacity of 0.
    worker_demand, ps_demand
        Shape (segments, resources): demand of one worker, and of one PS.
    which, floor
        Shape (jobs,): indices of all jobs, and the payoff that a schedule of each job must exceed.
    payoff, completion, workers, ps
        Best schedule of each job, as in `PricedSchedules`.
    segment
        Shape (jobs, slots): demand segment in which each slot of the best schedule starts.
    point, use
        Shape (rows,): the prices, and the best schedules' total use.
    pace
        Shape (2,): factor of the step length, and number of steps without progress.
    """

    capacity: FloatArray
    scale: FloatArray
    worker_demand: FloatArray
    ps_demand: FloatArray
    which: IntArray
    floor: FloatArray
    payoff: FloatArray
    completion: IntArray
    workers: NDArray[np.int32]
    ps: NDArray[np.int32]
    segment: IntArray
    point: FloatArray
    use: FloatArray
    pace: FloatArray


@compiled
def fill_costs(cost, demand, price):
    """Write the costs of one unit, shape (segments, classes, slots), at a flat array of prices by class, slot and resource."""
    segments, classes, slots = cost.shape
    resources = demand.shape[1]
    for s in range(segments):
        k = 0
        for c in range(classes):
            for t in range(slots):
                total = 0.0
                for r in range(resources):
                    total += demand[s, r] * price[k]
                    k += 1
                cost[s, c, t] = total


@compiled
def fill_segments(segment, completion, workers, jobs):
    """Write the demand segment in which each slot of each schedule starts: the last one reached by its completed work."""
    for i in range(len(completion)):
        now, last = jobs.segment_offset[i], jobs.segment_offset[i + 1] - 1
        done = 0
        for t in range(segment.shape[1]):
            while now < last and jobs.segment_start[now + 1] <= done:
                now += 1
            segment[i, t] = now
            if last > jobs.segment_offset[i] and completion[i] >= 0:
                num_workers = 0
                for c in range(workers.shape[1]):
                    num_workers += workers[i, c, t]
                done += jobs.progress[jobs.table_offset[i] + num_workers]


def _steps_by(price_jobs, is_shared):
    """Return the function that takes Polyak's steps, for shared or separate servers of workers and PSs."""

    @compiled
    def descend(num_steps, target, bound, jobs, source, descent, best, best_payoff):
        """Take steps towards a known lower bound; see `optim.solvers.admission.packing.dual_points.improve`.

        Parameters
        ----------
        num_steps, target
            Maximal number of steps, and the lower bound.
        bound
            Upper bound at the prices `best` with the payoffs `best_payoff`; a step with a lower bound overwrites both.
        jobs
            The jobs' pricing tables.
        source
            Server classes and their unit costs; each step overwrites the costs.
        descent
            State of the steps.

        Returns
        -------
        bound, goes_on
            The resulting bound, and whether there is a further step.
        """
        d = descent
        split = 0 if is_shared else source.worker_cost.shape[1] * source.worker_cost.shape[2] * d.worker_demand.shape[1]
        for _ in range(num_steps):
            fill_costs(source.worker_cost, d.worker_demand, d.point)
            fill_costs(source.ps_cost, d.ps_demand, d.point[split:])
            d.workers[:], d.ps[:] = 0, 0
            price_jobs(d.which, d.floor, jobs, source, True, d.payoff, d.completion, d.workers, d.ps)
            here, capacity_value = 0.0, 0.0
            for i in range(len(d.payoff)):
                here += d.payoff[i]
            for k in range(len(d.point)):
                capacity_value += d.point[k] * d.capacity[k]
            here += capacity_value
            d.pace[1] = 0.0 if here < bound * (1 - MIN_PROGRESS) else d.pace[1] + 1.0
            if d.pace[1] >= PATIENCE:
                d.pace[0], d.pace[1] = d.pace[0] / 2, 0.0
            if here < bound:
                bound = here
                copy_first(len(best), d.point, best)
                copy_first(len(best_payoff), d.payoff, best_payoff)
            goal = max(target, MIN_TARGET * bound)
            fill_segments(d.segment, d.completion, d.workers, jobs)
            d.use[:] = 0.0
            add_use(d.use, d.completion, d.segment, d.workers, d.worker_demand, d.ps, d.ps_demand, is_shared)
            norm = 0.0
            for k in range(len(d.use)):
                gradient = (d.capacity[k] - d.use[k]) * d.scale[k]
                if d.point[k] > 0 or gradient < 0:
                    norm += gradient * gradient
            if norm == 0 or here <= goal:
                return bound, False
            length = d.pace[0] * (here - goal) / norm
            for k in range(len(d.use)):
                d.point[k] = max(0.0, d.point[k] - length * ((d.capacity[k] - d.use[k]) * d.scale[k]) * d.scale[k])
        return bound, True

    return descend


descend_own = _steps_by(price_classes, False)

descend_shared = _steps_by(price_shared_classes, True)

SCALE_RATIO = 4.0
"""Ratio of consecutive scales that the line search tries first; it then refines the best scale."""

SMALL = 1_000_000
"""Largest number of worker and PS counts (by job, class and slot) for which one compiled call takes all steps."""

STEEPNESS = 5.0
"""Rate at which the start prices rise with utilisation if a plan comes without prices."""

NO_BOUND = "the plan is feasible; no bound is claimed"

OPTIMALITY_TOL = 1e-6
"""Relative gap at which a plan counts as proven optimal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DualPoint:
    """A point of the packing LP's dual, at a node or for all plans, and its bound.

    Parameters
    ----------
    row_prices
        Shape (rows,): utility per unit of the resource, >= 0.
    payoff
        Shape (jobs,): largest value minus cost of an allowed schedule.
    bound
        Upper bound on the value of every allowed plan.
    cuts, multiplier
        Cuts, and the multiplier of each, >= 0, shape (cuts,).
    """

    row_prices: FloatArray
    payoff: FloatArray
    bound: float
    cuts: tuple[Cut, ...] = ()
    multiplier: FloatArray = field(default_factory=lambda: np.zeros(0))

    @property
    def prices(self) -> FloatArray:
        """Prices of the rows, then of the cuts."""
        return np.concatenate([self.row_prices, self.multiplier])

    def priced_cuts(self) -> tuple[Cut, ...]:
        """Return the cuts with a positive price, each with its price as multiplier."""
        return tuple(
            replace(cut, multiplier=value)
            for cut, value in zip(self.cuts, self.multiplier.tolist(), strict=True)
            if value > 0
        )

    def proof(self, rows: CapacityRows) -> PriceProof:
        """Return the proof that a checker recomputes."""
        prices, cuts = rows.prices(self.row_prices), self.priced_cuts()
        return PriceProof(
            worker_price=prices.worker,
            ps_price=prices.ps,
            payoff=self.payoff,
            cuts=tuple(cut for cut in cuts if isinstance(cut, ServerCut)),
            count_cuts=tuple(cut for cut in cuts if isinstance(cut, CountCut)),
            slot_cuts=tuple(cut for cut in cuts if isinstance(cut, SlotCut)),
        )


def evaluate(tables: JobTables, rows: CapacityRows, row_prices: FloatArray) -> DualPoint:
    """Return UB(p) and the payoffs at row prices p >= 0, shape (rows,)."""
    priced = price(tables, rows.prices(row_prices), with_schedules=False)
    bound = float(priced.payoff.sum() + row_prices @ rows.capacity)
    return DualPoint(row_prices=row_prices, payoff=priced.payoff, bound=bound)


def search_scale(tables: JobTables, rows: CapacityRows, row_prices: FloatArray) -> DualPoint:
    """Return the best point on the ray of scaled prices: UB is convex along it, so a bracket suffices."""
    best = evaluate(tables, rows, np.zeros_like(row_prices))
    if not row_prices.any():
        return best
    payoffs, capacity_value = payoffs_along(tables, rows.prices(row_prices)), float(row_prices @ rows.capacity)
    bounds: dict[float, float] = {}

    def at(exponent: float) -> float:
        if exponent not in bounds:
            scale = SCALE_RATIO**exponent
            bounds[exponent] = float(payoffs(scale).sum()) + capacity_value * scale
        return bounds[exponent]

    centre, step = 0.0, 1.0
    for direction in (1.0, -1.0):
        while at(centre + direction) < at(centre):
            centre += direction
    while step > 0.05:
        step /= 2
        for candidate in (centre - step, centre + step):
            if at(candidate) < at(centre):
                centre = candidate
                break
    least = min(bounds, key=bounds.__getitem__)
    return min(best, evaluate(tables, rows, row_prices * SCALE_RATIO**least), key=lambda point: point.bound)


def improve(tables: JobTables, rows: CapacityRows, start: DualPoint, *, target: float, num_steps: int) -> DualPoint:
    """Take Polyak's steps towards a known lower bound `target`; return the best point."""
    capacity, num_jobs = rows.capacity, tables.num_jobs
    classes = rows.worker_shape[:2]
    ps_classes = classes if tables.instance.has_shared_servers else rows.ps_shape[:2]
    descent = Descent(
        capacity=capacity,
        scale=np.divide(1.0, capacity, out=np.zeros_like(capacity), where=capacity > 0),
        worker_demand=tables.worker_demand,
        ps_demand=tables.ps_demand,
        which=np.arange(num_jobs),
        floor=np.zeros(num_jobs),
        payoff=np.empty(num_jobs),
        completion=np.empty(num_jobs, dtype=np.int64),
        workers=np.empty((num_jobs, *classes), dtype=np.int32),
        ps=np.empty((num_jobs, *ps_classes), dtype=np.int32),
        segment=np.empty(tables.value.shape, dtype=np.int64),
        point=start.row_prices.copy(),
        use=np.empty_like(capacity),
        pace=np.array([1.0, 0.0]),
    )
    best, payoff = start.row_prices.copy(), start.payoff.copy()
    descend = descend_shared if tables.instance.has_shared_servers else descend_own
    num_segments = len(tables.worker_demand)
    source = class_source(tables, np.zeros((num_segments, *classes)), np.zeros((num_segments, *ps_classes)))
    bound, remaining_steps = start.bound, num_steps
    # The compiled loop handles no signals: if a step takes long, call one at a time.
    at_once = num_steps if descent.workers.size + descent.ps.size <= SMALL else 1
    while remaining_steps > 0:
        bound, goes_on = descend(
            min(at_once, remaining_steps), target, bound, tables.arrays, source, descent, best, payoff
        )
        remaining_steps = remaining_steps - at_once if goes_on else 0
    return DualPoint(row_prices=best, payoff=payoff, bound=bound)


def bounded(rows: CapacityRows, point: DualPoint) -> Outcome:
    """Return a dual point's bound as an outcome; a plan that attains the bound is optimal."""
    return Outcome(
        bound=point.bound,
        proof=point.proof(rows),
        statement="no plan is worth more than {bound}: a feasible point of the packing LP's dual",
        optimal_statement=f"the plan attains the bound {{bound}} of the packing LP's dual to {OPTIMALITY_TOL:g}",
    )


def certified(
    tables: JobTables,
    plan: AdmissionPlan,
    clock: PhaseClock,
    start_prices: Prices | None = None,
    *,
    is_cut_short: bool = False,
) -> Outcome:
    """Return a plan with a bound computed for it, or without a bound if the run was cut short."""
    outcome = Outcome(statement=NO_BOUND)
    if not is_cut_short:
        with clock.phase("bound"):
            outcome = bounded(CapacityRows.of(tables), certified_point(tables, plan, start_prices))
    return replace(outcome, decision=plan, objective=plan.objective(tables.instance))


def certified_point(
    tables: JobTables, plan: AdmissionPlan, start_prices: Prices | None = None, *, num_steps: int = 25
) -> DualPoint:
    """Compute an upper bound on the optimum for a plan without a bound.

    Parameters
    ----------
    tables
        The instance's pricing tables.
    plan
        Its value only steers the steps; any plan gives a valid bound.
    start_prices
        Prices by server class to start from, such as the final prices of an online run. Default: prices that rise with the
        plan's utilisation.
    num_steps
        Subgradient steps after the line search over the price scale.
    """
    rows = CapacityRows.of(tables)
    if tables.num_jobs == 0:
        return DualPoint(row_prices=np.zeros(rows.num_rows), payoff=np.zeros(0), bound=0.0)
    start = rows.flat(start_prices) if start_prices is not None else _prices_from_use(tables, rows, plan)
    point = search_scale(tables, rows, start)
    return improve(tables, rows, point, target=plan.objective(tables.instance), num_steps=num_steps)


def _prices_from_use(tables: JobTables, rows: CapacityRows, plan: AdmissionPlan) -> FloatArray:
    """Return prices that rise exponentially with the plan's utilisation of each row."""
    used = plan_usage(tables, rows, plan)
    share = np.divide(used, rows.capacity, out=np.zeros_like(used), where=rows.capacity > 0)
    total_value = float(tables.value.max(axis=1, initial=0.0).sum())
    rise = np.expm1(STEEPNESS * share) / np.expm1(STEEPNESS)
    weight = float(np.sum(rise))
    if weight == 0.0:
        return np.zeros(rows.num_rows)
    prices: FloatArray = np.divide(
        rise * total_value / weight, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0
    )
    return prices


def named_relaxation(
    instance: AdmissionInstance,
    rows: CapacityRows,
    schedules: Sequence[Schedule],
    *,
    objective: float,
    columns: tuple[FloatArray, FloatArray],
    capacity_rows: tuple[FloatArray, FloatArray],
    payoff: FloatArray,
) -> Relaxation:
    """Return a fractional solution and its prices as tables with the names of jobs, servers and resources.

    Parameters
    ----------
    instance, rows
        The instance and the rows of the LP.
    schedules
        The columns of positive weight.
    objective
        Value of the fractional solution.
    columns
        Value and weight of each of `schedules`.
    capacity_rows
        Use of each capacity row in units, and its price per unit.
    payoff
        Shape (jobs,): the price of each job's row, which allows one schedule.

    Returns
    -------
    Relaxation
        Columns: `job`, `completion`, `value`, `weight`, and `workers` and `ps` as (servers, slot, count) entries. Rows: `row`
        ("capacity" or "job"), `side`, `servers`, `slot`, `resource`, `job`, `capacity`, `use`, `price`; None where a field
        does not apply.
    """
    sides = {"worker": instance.worker_servers} | ({} if instance.has_shared_servers else {"ps": instance.ps_servers})
    jobs = [schedule.job for schedule in schedules]
    value, weight = columns
    use, price = capacity_rows
    places = [
        (side, kind, slot, resource)
        for side, servers in sides.items()
        for kind in servers.types
        for slot in range(instance.horizon)
        for resource in instance.resources
    ]
    admitted = np.bincount(np.array(jobs, dtype=np.int64), weight, instance.num_jobs)
    nothing: list[Any] = [None] * instance.num_jobs
    of_places = [list(column) for column in zip(*places, strict=True)] or [[], [], [], []]
    return Relaxation(
        objective=objective,
        columns={
            "job": [instance.jobs.ids[job] for job in jobs],
            "completion": np.array([schedule.completion for schedule in schedules], dtype=np.int64),
            "value": value,
            "weight": weight,
            "workers": [_entries(schedule.workers, instance.worker_servers.types) for schedule in schedules],
            "ps": [_entries(schedule.ps, instance.ps_servers.types) for schedule in schedules],
        },
        rows={
            "row": ["capacity"] * len(places) + ["job"] * instance.num_jobs,
            **{
                name: column + nothing
                for name, column in zip(("side", "servers", "slot", "resource"), of_places, strict=True)
            },
            "job": [None] * len(places) + list(instance.jobs.ids),
            "capacity": np.concatenate([rows.capacity, np.ones(instance.num_jobs)]),
            "use": np.concatenate([use, admitted]),
            "price": np.concatenate([price, payoff]),
        },
    )


def _entries(counts: IntArray, types: Sequence[str]) -> list[tuple[str, int, int]]:
    return [(types[kind], slot, count) for kind, slot, count in counts.tolist()]
