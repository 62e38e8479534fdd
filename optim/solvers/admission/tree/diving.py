"""Diving for plans: fix one job's schedule after the other, and price the rest anew in between."""

from collections.abc import Callable
from functools import partial

import numpy as np

from optim.models.admission.instance import FloatArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.pricing.class_pricing import PricedSchedules
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.tree.node_bound import Effort, NodeBounder, NodeResult
from optim.solvers.admission.tree.node_pricing import NodeLimits
from optim.solvers.admission.tree.splitting import Crowded, split

WHOLE_TOL = 1e-6
"""Weights closer to 1 than this are whole."""

DIVE_EFFORT = Effort(most_rounds=8, most_cut_rounds=1, most_count_rounds=0, least_gain=0.0)
"""Rounds of pricing after each fixing: the bound doesn't matter, good schedules do."""


def is_whole(weight: FloatArray) -> bool:
    """Tell whether every schedule is either used or not."""
    return bool((np.minimum(weight, np.abs(weight - 1.0)) <= WHOLE_TOL).all())


def chosen(schedules: PricedSchedules, weight: FloatArray) -> PricedSchedules:
    """Return the schedules that a whole point uses."""
    return schedules.select(np.flatnonzero(weight > 0.5))


def dive(
    tables: JobTables,
    bounder: NodeBounder,
    limits: NodeLimits,
    result: NodeResult,
    *,
    cutoff: float,
    should_stop: Callable[[float], bool],
) -> AdmissionPlan | None:
    """Look for a plan of more than `cutoff` among a node's.

    The schedules that the master's point uses in full are fixed, and the one of the largest weight among
    the others; then the master is solved again with freshly priced schedules, until all are fixed.
    """
    while result.master is not None:
        schedules, weight = bounder.master.schedules, result.master.weight
        if is_whole(weight):
            plan = split(tables, chosen(schedules, weight), partial(should_stop, result.point.bound))
            return None if isinstance(plan, Crowded) else plan
        if should_stop(result.point.bound):
            return None
        free = np.where(weight < 1.0 - WHOLE_TOL, weight, 0.0)
        for k in [*np.flatnonzero(weight >= 1.0 - WHOLE_TOL).tolist(), int(np.argmax(free))]:
            limits = fixed(tables, limits, schedules, k)
        result = bounder.bound(
            limits, result.point, cutoff=cutoff, effort=DIVE_EFFORT, should_stop=should_stop, basis=result.basis
        )
    return None


def fixed(tables: JobTables, limits: NodeLimits, schedules: PricedSchedules, k: int) -> NodeLimits:
    """Return a node's limits with one schedule fixed for its job."""
    i, completion = int(schedules.jobs[k]), int(schedules.completion[k])
    own = slice(int(tables.segment_offset[i]), int(tables.segment_offset[i + 1]))
    copy = NodeLimits(*(array.copy() for array in limits))
    copy.is_admitted[i] = 1
    copy.first[i] = copy.last[i] = completion
    copy.worker_low[i] = schedules.workers[k]
    copy.ps_low[i] = schedules.ps[k]
    copy.worker_high[own] = schedules.workers[k]
    copy.ps_high[own] = schedules.ps[k]
    return copy
