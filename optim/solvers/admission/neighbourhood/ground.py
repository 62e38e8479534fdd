"""What the moves on real servers work on: jobs and servers, a plan, and work space.

Demands and residuals are whole numbers of 1e-6 units held as floats below 2^53, where sums are exact and the floor
of a quotient is the floor of the rounded quotient.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.by_reference import by_reference
from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray, ServerClasses
from optim.solvers.admission.neighbourhood.shared_insertion import SharedServers
from optim.solvers.admission.packing.cut_table import charged
from optim.solvers.admission.pricing.best_schedule import JobArrays, Space, make_space
from optim.solvers.admission.pricing.capacity_rows import CapacityRows
from optim.solvers.admission.pricing.class_pricing import unit_costs
from optim.solvers.admission.pricing.dual_points import PricePoint
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.shared_room import share_limit


@by_reference
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


@by_reference
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
    """What is left, shape (slots, servers, resources); each job's rows (slot, server, count, segment), and how many.

    Both sides of shared servers have one and the same array of what is left.
    """

    left: FloatArray
    rows: IntArray
    used: IntArray


@by_reference
class State(NamedTuple):
    """A plan."""

    workers: SideState
    ps: SideState
    completion: IntArray


@by_reference
class SideScratch(NamedTuple):
    """Costs and order of the classes in one slot, noise by slot and class, and what classes hold in a job's slots."""

    cost: FloatArray
    order: IntArray
    noise: FloatArray
    limit: IntArray


@by_reference
class Scratch(NamedTuple):
    """Work space of one insertion (`costs` by number of workers), and the random state."""

    space: Space
    workers: SideScratch
    ps: SideScratch
    room: IntArray
    server_order: IntArray
    shared: SharedServers
    costs: FloatArray
    random: NDArray[np.uint64]


def make_ground(tables: JobTables, rows: CapacityRows, point: PricePoint) -> Ground:
    """Lay out an instance at a dual point's prices, with what its cuts charge.

    Without the cuts' charges units are too cheap where cuts took over from rows, and plans worse: on small-1 by 4 % after
    10,000 moves, on small-2 by 4 to 7, on heavy-0 by 1 after 40,000.
    """
    instance = tables.instance
    prices = charged(instance, rows.prices(point.row_prices), point.cuts)
    worker_cost, ps_cost = unit_costs(tables, prices)
    span = np.maximum(tables.deadline - tables.arrival + 1, 0)
    most_rows = span * tables.most
    if not instance.has_steps:
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
        is_shared=instance.has_shared_servers,
    )


def empty_state(instance: AdmissionInstance, ground: Ground) -> State:
    """Return the plan that refuses everybody."""
    num_rows = int(ground.row_offset[-1])

    def room(servers: ServerClasses) -> FloatArray:
        full = servers.capacity[servers.class_of_server].transpose(1, 0, 2)
        return np.ascontiguousarray(full, dtype=np.float64)

    def side(left: FloatArray) -> SideState:
        return SideState(
            left=left,
            rows=np.zeros((num_rows, 4), dtype=np.int64),
            used=np.zeros(instance.num_jobs, dtype=np.int64),
        )

    none = np.full(instance.num_jobs, -1, dtype=np.int64)
    left = room(instance.worker_servers)
    ps_left = left if ground.is_shared else room(instance.ps_servers)
    return State(workers=side(left), ps=side(ps_left), completion=none)


def make_scratch(instance: AdmissionInstance, ground: Ground, seed: int | np.random.SeedSequence) -> Scratch:
    """Return work space, the random state from a seed."""
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    space = make_space(np.arange(len(ground.payoff)), ground.jobs)
    most_servers = int(max(np.diff(side.first).max(initial=1) for side in (ground.workers, ground.ps)))

    def side(own: Side) -> SideScratch:
        _, num, num_slots = own.cost.shape
        limit = np.zeros((*space.largest.shape, num), dtype=np.int64)
        noise = np.ones((num_slots, num))
        return SideScratch(cost=np.empty(num), order=np.empty(num, dtype=np.int64), noise=noise, limit=limit)

    return Scratch(
        space=space,
        workers=side(ground.workers),
        ps=side(ground.ps),
        room=np.zeros(most_servers, dtype=np.int64),
        server_order=np.zeros(most_servers, dtype=np.int64),
        shared=_shared_servers(instance.worker_servers if ground.is_shared else None, instance),
        costs=np.empty(space.tables.shape[2]),
        random=np.array([sequence.generate_state(1, dtype=np.uint64)[0]], dtype=np.uint64),
    )


def _shared_servers(servers: ServerClasses | None, instance: AdmissionInstance) -> SharedServers:
    """Return work space for shared servers, or of no size."""
    if servers is None:
        none = np.zeros(0, dtype=np.int64)
        return SharedServers(np.zeros((0, 0, 0)), none, none, none, none, none, none)
    number = len(servers.class_of_server)
    share = share_limit(instance, servers.capacity).astype(np.float64)
    room, order, ps_order, workers, ps = (np.zeros(number, dtype=np.int64) for _ in range(5))
    return SharedServers(share, servers.class_of_server.astype(np.int64), room, order, ps_order, workers, ps)
