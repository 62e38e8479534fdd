"""What the moves on real servers work on: jobs and servers, a plan, and work space.

Demands and residuals are whole numbers of 1e-6 units held as floats below 2^53, where sums are exact and the floor
of a quotient is the floor of the rounded quotient.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray, ServerClasses
from optim.solvers.admission.pricing.best_schedule import JobArrays, Space, make_space
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import unit_costs
from optim.solvers.admission.pricing.dual_points import PricePoint
from optim.solvers.admission.pricing.job_tables import JobTables


class Side(NamedTuple):
    """One side's servers, which never change.

    Parameters
    ----------
    demand
        Shape (segments, resources): of one unit.
    room
        Shape (segments, classes, slots): most units on one empty server.
    first
        Shape (classes + 1,): number of each class' first server.
    cost
        Shape (segments, classes, slots): utils a unit, at the prices that guide insertions.
    """

    demand: FloatArray
    room: IntArray
    first: IntArray
    cost: FloatArray


class Ground(NamedTuple):
    """Jobs (deadline -1 where no schedule is possible), both sides, and what guides the choice of jobs.

    Parameters
    ----------
    row_offset
        Shape (jobs + 1,): where a job's rows begin in a plan.
    payoff
        Shape (jobs,): of the LP.
    candidates
        Jobs that may be inserted, likely ones several times.
    """

    jobs: JobArrays
    workers: Side
    ps: Side
    row_offset: IntArray
    payoff: FloatArray
    candidates: IntArray


class SideState(NamedTuple):
    """What is left, shape (slots, servers, resources); each job's rows (slot, server, count, segment), and how many."""

    left: FloatArray
    rows: IntArray
    used: IntArray


class State(NamedTuple):
    """A plan."""

    workers: SideState
    ps: SideState
    completion: IntArray


class SideScratch(NamedTuple):
    """Costs and order of the classes in one slot, noise by slot and class, and what classes hold in a job's slots."""

    cost: FloatArray
    order: IntArray
    noise: FloatArray
    limit: IntArray


class Scratch(NamedTuple):
    """Work space of one insertion, and the random state."""

    space: Space
    workers: SideScratch
    ps: SideScratch
    room: IntArray
    server_order: IntArray
    noise: FloatArray
    random: NDArray[np.uint64]


def make_ground(tables: JobTables, rows: CapacityRows, point: PricePoint) -> Ground:
    """Lay out an instance at a dual point's prices."""
    instance = tables.instance
    worker_cost, ps_cost = unit_costs(tables, rows.prices(point.row_prices))
    span = np.maximum(tables.deadline - tables.arrival + 1, 0)
    most_rows = span * tables.most
    if not instance.chunk_integral:
        most_rows = np.minimum(most_rows, np.maximum(tables.target, span))
    is_reachable = tables.target <= span * tables.progress[tables.table_offset[1:] - 1]

    def side(demand: IntArray, room: IntArray, servers: ServerClasses, cost: FloatArray) -> Side:
        first = np.concatenate([[0], np.cumsum(servers.count)]).astype(np.int64)
        return Side(demand.astype(np.float64), np.ascontiguousarray(room), first, cost)

    return Ground(
        jobs=tables.arrays._replace(deadline=np.where(is_reachable, tables.deadline, -1)),
        workers=side(instance.jobs.worker_demand, instance.workers_per_server, instance.worker_servers, worker_cost),
        ps=side(instance.jobs.ps_demand, instance.ps_per_server, instance.ps_servers, ps_cost),
        row_offset=np.concatenate([[0], np.cumsum(np.where(is_reachable, most_rows, 0))]).astype(np.int64),
        payoff=point.payoff.copy(),
        candidates=np.flatnonzero(is_reachable & (tables.deadline >= 0)),
    )


def empty_state(instance: AdmissionInstance, ground: Ground) -> State:
    """Return the plan that refuses everybody."""
    num_rows = int(ground.row_offset[-1])

    def side(servers: ServerClasses) -> SideState:
        full = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
        return SideState(
            left=np.ascontiguousarray(full, dtype=np.float64),
            rows=np.zeros((num_rows, 4), dtype=np.int64),
            used=np.zeros(instance.num_jobs, dtype=np.int64),
        )

    none = np.full(instance.num_jobs, -1, dtype=np.int64)
    return State(workers=side(instance.worker_servers), ps=side(instance.ps_servers), completion=none)


def make_scratch(ground: Ground, seed: int | np.random.SeedSequence) -> Scratch:
    """Return work space, the random state from a seed."""
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    space = make_space(np.arange(len(ground.payoff)), ground.jobs)
    classes = [side.cost.shape[1] for side in (ground.workers, ground.ps)]
    noise = np.ones((ground.jobs.value.shape[1], sum(classes)))
    most_servers = int(max(np.diff(side.first).max(initial=1) for side in (ground.workers, ground.ps)))

    def side(columns: FloatArray) -> SideScratch:
        num = columns.shape[1]
        limit = np.zeros((*space.largest.shape, num), dtype=np.int64)
        return SideScratch(cost=np.empty(num), order=np.empty(num, dtype=np.int64), noise=columns, limit=limit)

    return Scratch(
        space=space,
        workers=side(noise[:, : classes[0]]),
        ps=side(noise[:, classes[0] :]),
        room=np.zeros(most_servers, dtype=np.int64),
        server_order=np.zeros(most_servers, dtype=np.int64),
        noise=noise,
        random=np.array([sequence.generate_state(1, dtype=np.uint64)[0]], dtype=np.uint64),
    )
