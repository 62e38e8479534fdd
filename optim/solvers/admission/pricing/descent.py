"""Polyak's steps with the pricing of all jobs between them, in one compiled loop.

A step prices every job and moves the prices of all rows. On small instances calling the loop that prices takes longer than
pricing: 25 steps on six jobs of five slots take 0.2 ms here and 0.9 where each is called from Python (`polyak`).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.by_reference import by_reference
from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.class_tables import add_use, price_classes, price_shared_classes
from optim.solvers.admission.pricing.polyak import LEAST_PROGRESS

LEAST_TARGET = 0.95
"""The bound aimed at is no lower than this share of the best one."""

PATIENCE = 5
"""Steps without progress after which they are halved."""


@by_reference
class Descent(NamedTuple):
    """What the steps read, and write over at each.

    Rows' capacities and their inverses (0 for none), shape (rows,); demands, shape (segments, resources); all jobs, and
    payoffs that are of no interest, shape (jobs,); the best schedules as in `PricedSchedules`; the segment in which each of
    their slots starts, shape (jobs, slots); the point, and what the schedules use of the rows, shape (rows,); damping and the
    number of steps without progress.
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


@inner
def fill_costs(cost, demand, price):
    """Write what a unit of each segment costs, shape (segments, classes, slots), at prices of (class, slot, resource) in a row."""
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


@inner
def fill_segments(segment, completion, workers, jobs):
    """Write the demand segment in which each slot of each schedule starts: the last that its work done has reached."""
    for i in range(len(completion)):
        now, last = jobs.segment_offset[i], jobs.segment_offset[i + 1] - 1
        done = 0
        for t in range(segment.shape[1]):
            while now < last and jobs.segment_start[now + 1] <= done:
                now += 1
            segment[i, t] = now
            if last > jobs.segment_offset[i] and completion[i] >= 0:
                together = 0
                for c in range(workers.shape[1]):
                    together += workers[i, c, t]
                done += jobs.progress[jobs.table_offset[i] + together]


def _steps_by(price_jobs, is_shared):
    """Return the steps over one kind of classes."""

    @compiled
    def descend(num_steps, target, bound, jobs, source, descent, best, best_payoff):
        """Take steps towards a known lower bound; see `optim.solvers.admission.pricing.dual_points.improve`.

        Parameters
        ----------
        num_steps, target
            Most steps, and the lower bound.
        bound
            What `best` and `best_payoff` prove, which are written over where a step proves less.
        jobs, source, descent
            The jobs, the classes and their unit costs, which are written over; and the rest, which says where to go on.

        Returns
        -------
        bound, goes_on
            What they prove then, and whether there is a further step.
        """
        d = descent
        split = 0 if is_shared else source.worker_cost.shape[1] * source.worker_cost.shape[2] * d.worker_demand.shape[1]
        for _ in range(num_steps):
            fill_costs(source.worker_cost, d.worker_demand, d.point)
            fill_costs(source.ps_cost, d.ps_demand, d.point[split:])
            d.workers[:], d.ps[:] = 0, 0
            price_jobs(d.which, d.floor, jobs, source, True, d.payoff, d.completion, d.workers, d.ps)
            here = d.payoff.sum() + np.sum(d.point * d.capacity)
            d.pace[1] = 0.0 if here < bound * (1 - LEAST_PROGRESS) else d.pace[1] + 1.0
            if d.pace[1] >= PATIENCE:
                d.pace[0], d.pace[1] = d.pace[0] / 2, 0.0
            if here < bound:
                bound = here
                best[:], best_payoff[:] = d.point, d.payoff
            goal = max(target, LEAST_TARGET * bound)
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
