"""Capacity rows of the packing LP over server classes, and their use by schedules."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import MICRO
from optim.models.admission.decision import COUNT, JOB, SERVER, SLOT, AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.classes import JobTables, PricedSchedules, Prices, add_use


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityRows:
    """All rows (class, slot, resource), numbered in C order, those of the workers' servers first.

    Parameters
    ----------
    worker_shape
        Numbers of classes, slots and resources of the workers' servers.
    ps_shape
        Numbers of classes, slots and resources of the PSs' servers; 0 classes if workers and PSs share servers.
    capacity
        Shape (rows,): capacity of all servers of the class, in units of the resource.
    """

    worker_shape: tuple[int, int, int]
    ps_shape: tuple[int, int, int]
    capacity: FloatArray

    @classmethod
    def of(cls, tables: JobTables) -> "CapacityRows":
        """Build the rows of an instance."""
        instance = tables.instance
        sides = (
            [instance.worker_servers] if instance.has_shared_servers else [instance.worker_servers, instance.ps_servers]
        )
        totals = [side.capacity * side.count[:, None, None] / MICRO for side in sides]
        shape = (instance.horizon, instance.num_resources)
        return cls(
            worker_shape=(instance.worker_servers.num_classes, *shape),
            ps_shape=(0 if instance.has_shared_servers else instance.ps_servers.num_classes, *shape),
            capacity=np.concatenate([total.ravel() for total in totals]),
        )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.capacity)

    @property
    def num_worker_rows(self) -> int:
        """Number of rows of workers' servers, which come before the rows of PSs' servers."""
        classes, slots, resources = self.worker_shape
        return classes * slots * resources

    @property
    def slot_of_row(self) -> IntArray:
        """Slot of each row, shape (rows,)."""
        slots = [
            np.broadcast_to(np.arange(slots)[None, :, None], (classes, slots, resources)).ravel()
            for classes, slots, resources in (self.worker_shape, self.ps_shape)
        ]
        return np.concatenate(slots)

    def prices(self, flat: FloatArray) -> Prices:
        """Return row prices, shape (rows,), as separate arrays of the workers' and of the PSs' servers."""
        return Prices(
            worker=flat[: self.num_worker_rows].reshape(self.worker_shape),
            ps=flat[self.num_worker_rows :].reshape(self.ps_shape),
        )

    def flat(self, prices: Prices) -> FloatArray:
        """Return prices as one flat vector of rows."""
        return np.concatenate([prices.worker.ravel(), prices.ps.ravel()])


def dominated_rows(tables: JobTables, rows: CapacityRows) -> NDArray[np.bool_]:
    """Return whether each row is implied by the row of another resource in the same class and slot, shape (rows,).

    A row is implied if no worker or PS takes a larger share of its resource than of the other resource. Of rows that imply
    each other, one is not marked. Shares are compared in floats: an LP without such rows is a relaxation up to rounding.
    """
    instance, jobs = tables.instance, tables.instance.jobs
    present = (jobs.arrival[:, None] <= np.arange(instance.horizon)) & (
        np.arange(instance.horizon) <= instance.deadline[:, None]
    )
    present = present[instance.segment_job][:, None, :]
    sides = [
        (jobs.worker_demand, (instance.workers_per_server > 0) & present, instance.worker_servers),
        (jobs.ps_demand, (instance.ps_per_server > 0) & present, instance.ps_servers),
    ]
    if instance.has_shared_servers:
        (demand, holds, servers), (ps_demand, ps_holds, _) = sides
        sides = [(np.concatenate([demand, ps_demand]), np.concatenate([holds, ps_holds]), servers)]
    found = []
    for demand, holds, servers in sides:
        capacity = servers.capacity
        share = demand[:, None, None, :] / np.maximum(capacity, 1)
        share[~holds] = 0.0
        is_dominated = np.zeros(capacity.shape, dtype=np.bool_)
        for r, other in np.ndindex(capacity.shape[2], capacity.shape[2]):
            if r != other:
                is_below = (share[..., r] <= share[..., other]).all(axis=0) & (capacity[..., other] > 0)
                is_dominated[..., r] |= is_below & ~is_dominated[..., other]
        found.append(is_dominated.ravel())
    return np.concatenate(found)


def usage_matrix(tables: JobTables, rows: CapacityRows, schedules: PricedSchedules) -> csc_array:
    """Return the use of each row by each schedule, shape (rows, schedules), in units.

    Schedules without a completion slot use nothing.
    """
    live = np.flatnonzero(schedules.completion >= 0)
    segment = segments_of(tables, schedules)
    is_shared = rows.ps_shape[0] == 0
    shape, offset = (rows.worker_shape, 0) if is_shared else (rows.ps_shape, rows.num_worker_rows)
    parts = (
        _side_entries(schedules.workers, segment, tables.worker_demand, rows.worker_shape, 0, live),
        _side_entries(schedules.ps, segment, tables.ps_demand, shape, offset, live),
    )
    row, column, amount = (np.concatenate([part[k] for part in parts]) for k in range(3))
    # Workers' and PSs' entries are each sorted by column and row: merging them is much faster than SciPy's sort.
    order = np.argsort(column, kind="stable")
    first = np.zeros(len(schedules.jobs) + 1, dtype=np.int64)
    np.cumsum(np.bincount(column, minlength=len(schedules.jobs)), out=first[1:])
    matrix = csc_array((amount[order], row[order], first), shape=(rows.num_rows, len(schedules.jobs)))
    if is_shared:  # workers and PSs use the same rows
        matrix.sum_duplicates()
    return matrix


def total_use(tables: JobTables, rows: CapacityRows, schedules: PricedSchedules) -> FloatArray:
    """Return the summed use of each row, shape (rows,): the sum of `usage_matrix` over the schedules."""
    use = np.zeros(rows.num_rows)
    add_use(
        use, schedules.completion, segments_of(tables, schedules), schedules.workers, tables.worker_demand, schedules.ps, tables.ps_demand,
        rows.ps_shape[0] == 0,
    )  # fmt: skip
    return use


def plan_schedules(tables: JobTables, plan: AdmissionPlan) -> PricedSchedules:
    """Return a plan's schedules over server classes; payoffs are set to 0."""
    instance = tables.instance
    shape = (len(plan.admitted), instance.horizon)
    position = np.zeros(tables.num_jobs, dtype=np.int64)
    position[plan.admitted] = np.arange(len(plan.admitted))
    counts = []
    for table, servers in ((plan.workers, instance.worker_servers), (plan.ps, instance.ps_servers)):
        by_class = np.zeros((shape[0], servers.num_classes, shape[1]), dtype=np.int32)
        np.add.at(
            by_class,
            (position[table[:, JOB]], servers.class_of_server[table[:, SERVER]], table[:, SLOT]),
            table[:, COUNT],
        )
        counts.append(by_class)
    return PricedSchedules(
        jobs=plan.admitted,
        payoff=np.zeros(shape[0]),
        completion=plan.completion,
        workers=counts[0],
        ps=counts[1],
    )


def plan_usage(tables: JobTables, rows: CapacityRows, plan: AdmissionPlan) -> FloatArray:
    """Return the use of each class row by a plan on real servers, shape (rows,)."""
    return total_use(tables, rows, plan_schedules(tables, plan))


def segments_of(tables: JobTables, schedules: PricedSchedules) -> IntArray:
    """Return the demand segment in which each slot of each schedule starts, shape (schedules, slots)."""
    segment = np.repeat(tables.segment_offset[schedules.jobs, None], tables.value.shape[1], axis=1)
    if len(tables.segment_start) > tables.num_jobs:
        for k, i in enumerate(schedules.jobs.tolist()):
            segment[k] = segments_by_slot(tables.instance, i, schedules.workers[k].sum(axis=0))
    return segment


def segments_by_slot(instance: AdmissionInstance, job: int, total: IntArray) -> IntArray:
    """Return the demand segment in which each slot starts, given a job's workers in each slot, shape (slots,)."""
    first, last = instance.jobs.segment_offset[job : job + 2].tolist()
    done = np.concatenate([[0], np.cumsum(instance.progress[job][total])[:-1]])
    segment: IntArray = first + np.searchsorted(instance.jobs.segment_start[first:last], done, side="right") - 1
    return segment


def _side_entries(
    counts: NDArray[np.signedinteger[Any]],
    segment: IntArray,
    demand: FloatArray,
    shape: tuple[int, int, int],
    offset: int,
    live: IntArray,
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return row, schedule and amount of each nonzero use by the workers of schedules, or by their PSs."""
    k, c, t = np.nonzero(counts[live])
    k = live[k]
    units = counts[k, c, t]
    amounts = units[:, None] * demand[segment[k, t]]
    entry, r = np.nonzero(amounts)
    row = offset + (c[entry] * shape[1] + t[entry]) * shape[2] + r
    return row, k[entry], amounts[entry, r]
