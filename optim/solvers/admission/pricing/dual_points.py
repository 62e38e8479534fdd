"""An upper bound from any prices, and an outcome with a bound for any plan.

For every p >= 0 the Lagrangian value

    UB(p) = sum_i max(0, max over schedules of job i of value - cost at p) + sum over rows of p c

is at least the optimum of the packing LP, hence of every plan: prices need not be good to be valid.
A line search over their scale, then subgradient steps, make them better.
"""

from dataclasses import dataclass, replace

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.driver import Outcome
from optim.models.admission.instance import FloatArray
from optim.models.admission.plan import AdmissionPlan
from optim.models.admission.proof import CountCut, PriceProof, ServerCut
from optim.solvers.admission.pricing.capacity_rows import CapacityRows, plan_usage
from optim.solvers.admission.pricing.class_pricing import (
    Prices,
    class_source,
    payoffs_along,
    price,
)
from optim.solvers.admission.pricing.descent import Descent, descend_own, descend_shared
from optim.solvers.admission.pricing.job_tables import JobTables

SCALE_RATIO = 4.0
"""Scales tried first are powers of this ratio; the best is then refined."""

SMALL = 1_000_000
"""Counts of workers and PSs, over jobs, classes and slots, up to which steps are taken all at once."""

STEEPNESS = 5.0
"""How fast the start prices rise with utilisation when a plan comes without prices."""

NO_BOUND = "the plan is feasible; no bound is claimed"

OPTIMALITY_TOL = 1e-6
"""Relative gap at which a plan counts as proven optimal."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PricePoint:
    """A point of the packing LP's dual: flat row prices, payoffs, cuts with multipliers, and the bound they prove."""

    row_prices: FloatArray
    payoff: FloatArray
    bound: float
    cuts: tuple[ServerCut, ...] = ()
    count_cuts: tuple[CountCut, ...] = ()

    def proof(self, rows: CapacityRows) -> PriceProof:
        """Return the proof that a checker recomputes."""
        prices = rows.prices(self.row_prices)
        return PriceProof(
            worker_price=prices.worker,
            ps_price=prices.ps,
            payoff=self.payoff,
            cuts=self.cuts,
            count_cuts=self.count_cuts,
        )


def evaluate(tables: JobTables, rows: CapacityRows, row_prices: FloatArray) -> PricePoint:
    """Return UB(p) and the payoffs at row prices p >= 0, shape (rows,)."""
    priced = price(tables, rows.prices(row_prices), with_schedules=False)
    bound = float(priced.payoff.sum() + row_prices @ rows.capacity)
    return PricePoint(row_prices=row_prices, payoff=priced.payoff, bound=bound)


def search_scale(tables: JobTables, rows: CapacityRows, row_prices: FloatArray) -> PricePoint:
    """Return the best point on the ray of scaled prices: UB is convex along it, so a bracket suffices."""
    best = evaluate(tables, rows, np.zeros_like(row_prices))
    if not row_prices.any():
        return best
    payoffs, worth = payoffs_along(tables, rows.prices(row_prices)), float(row_prices @ rows.capacity)
    found: dict[float, float] = {}

    def at(exponent: float) -> float:
        if exponent not in found:
            scale = SCALE_RATIO**exponent
            found[exponent] = float(payoffs(scale).sum()) + worth * scale
        return found[exponent]

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
    least = min(found, key=found.__getitem__)
    return min(best, evaluate(tables, rows, row_prices * SCALE_RATIO**least), key=lambda point: point.bound)


def improve(tables: JobTables, rows: CapacityRows, start: PricePoint, *, target: float, num_steps: int) -> PricePoint:
    """Take Polyak's steps towards a known lower bound `target` and return the best point seen."""
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
    bound, left = start.bound, num_steps
    # No signal is heard within the loop: where a step takes long, one at a time.
    at_once = num_steps if descent.workers.size + descent.ps.size <= SMALL else 1
    while left > 0:
        bound, goes_on = descend(min(at_once, left), target, bound, tables.arrays, source, descent, best, payoff)
        left = left - at_once if goes_on else 0
    return PricePoint(row_prices=best, payoff=payoff, bound=bound)


def bounded(rows: CapacityRows, point: PricePoint) -> Outcome:
    """Return what a dual point proves: no plan is worth more than its bound, and one that attains it is optimal."""
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
    """Return a plan that came without a bound with one; a run that was cut short claims none."""
    outcome = Outcome(statement=NO_BOUND)
    if not is_cut_short:
        with clock.phase("bound"):
            outcome = bounded(CapacityRows.of(tables), certified_point(tables, plan, start_prices))
    return replace(outcome, decision=plan, objective=plan.objective(tables.instance))


def certified_point(
    tables: JobTables, plan: AdmissionPlan, start_prices: Prices | None = None, *, num_steps: int = 25
) -> PricePoint:
    """Bound the optimum for a plan that came without a bound.

    Parameters
    ----------
    tables, plan
        The plan's value only steers the steps; any plan gives a valid bound.
    start_prices
        Prices by server class to start from, such as the final ones of an online run; made from the
        plan's utilisation if absent.
    num_steps
        Subgradient steps after the line search over the price scale.
    """
    rows = CapacityRows.of(tables)
    if tables.num_jobs == 0:
        return PricePoint(row_prices=np.zeros(rows.num_rows), payoff=np.zeros(0), bound=0.0)
    start = rows.flat(start_prices) if start_prices is not None else _prices_from_use(tables, rows, plan)
    point = search_scale(tables, rows, start)
    return improve(tables, rows, point, target=plan.objective(tables.instance), num_steps=num_steps)


def _prices_from_use(tables: JobTables, rows: CapacityRows, plan: AdmissionPlan) -> FloatArray:
    """Return prices that rise exponentially with the plan's utilisation of each row."""
    used = plan_usage(tables, rows, plan)
    share = np.divide(used, rows.capacity, out=np.zeros_like(used), where=rows.capacity > 0)
    worth = float(tables.value.max(axis=1, initial=0.0).sum())
    rise = np.expm1(STEEPNESS * share) / np.expm1(STEEPNESS)
    weight = float(np.sum(rise))
    if weight == 0.0:
        return np.zeros(rows.num_rows)
    prices: FloatArray = np.divide(
        rise * worth / weight, rows.capacity, out=np.zeros(rows.num_rows), where=rows.capacity > 0
    )
    return prices
