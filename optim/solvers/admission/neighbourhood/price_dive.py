"""Diving with re-pricing: fix the jobs that the LP is surest of on real servers, price the rest anew, and so on.

Each stage inserts the best of the waiting jobs, by payoff at the present prices, each by its best schedule on what
is left of the single servers. Then a few subgradient steps price what is left of the classes for the jobs that
still wait. Prices so follow what the fixed jobs have made of the servers, which the first LP can't know.
"""

from dataclasses import replace

import numpy as np

from optim.core.driver import Monitor
from optim.models.admission.instance import FloatArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.neighbourhood.plan_moves import Neighbourhood
from optim.solvers.admission.packing.cut_table import CutTable
from optim.solvers.admission.packing.price_search import PriceSearch, Walk
from optim.solvers.admission.pricing.capacity_rows import CapacityRows, plan_usage
from optim.solvers.admission.pricing.column_pool import ColumnPool
from optim.solvers.admission.pricing.dual_points import PricePoint
from optim.solvers.admission.pricing.job_tables import JobTables

STAGE_SHARE = 0.1
"""Share of the jobs that the LP admits which is fixed between two re-pricings."""

STEPS = 30
"""Subgradient steps of one re-pricing."""

LAST_SCALES = (0.7, 0.4, 0.1)
"""Price scales at which what is left at the end is filled up."""


def dive(
    tables: JobTables,
    rows: CapacityRows,
    point: PricePoint,
    weight: FloatArray,
    monitor: Monitor,
) -> AdmissionPlan:
    """Return a plan found by fixing jobs in stages.

    Parameters
    ----------
    tables, rows
        The instance.
    point
        Prices and payoffs of the packing LP.
    weight
        Shape (jobs,): how much of each job the LP admits.
    monitor
        Asked before each stage; what is left is then filled up without re-pricing.
    """
    plan = Neighbourhood(tables, rows, point, 0)
    size = max(1, round(STAGE_SHARE * float(weight.sum())))
    prices, payoff = point.row_prices, point.payoff
    while not monitor.is_over():
        waiting = np.flatnonzero((plan.state.completion < 0) & (payoff > 0))
        # The surest first: those that the LP admits in full, among them the most profitable.
        chosen = waiting[np.lexsort((-payoff[waiting], weight[waiting] < 0.5))][:size]
        before = plan.value
        plan.price_anew(tables, rows, prices)
        plan.construct(chosen, 1.0)
        if len(chosen) == 0:
            break
        if plan.value == before:
            # Priced as if they could still run, but no server has room: they wait for the end.
            weight = np.where(np.isin(np.arange(tables.num_jobs), chosen), 0.0, weight)
            payoff = np.where(weight > 0, payoff, 0.0)
            continue
        prices, payoff = _price_the_rest(tables, rows, plan, prices, monitor)
    plan.fill_up(point.payoff, LAST_SCALES)
    return plan.best_plan()


def _price_the_rest(
    tables: JobTables, rows: CapacityRows, plan: Neighbourhood, prices: FloatArray, monitor: Monitor
) -> tuple[FloatArray, FloatArray]:
    """Return prices of what is left, and the payoffs of the jobs that wait (0 for others)."""
    is_waiting = plan.state.completion < 0
    rest = replace(tables, value=np.where(is_waiting[:, None], tables.value, 0.0))
    left = np.maximum(rows.capacity - plan_usage(tables, rows, plan.best_plan()), 0.0)
    remaining = replace(rows, capacity=left)
    search = PriceSearch(rest, remaining, ColumnPool(rest, remaining), CutTable(tables.instance), monitor)
    # Rows without anything left keep their price: the walk moves only prices of rows with capacity.
    search.walk(prices, Walk(num_steps=STEPS, add_every=STEPS), None)
    best = search.best
    return best.prices, np.where(is_waiting, best.proven.payoff, 0.0)
