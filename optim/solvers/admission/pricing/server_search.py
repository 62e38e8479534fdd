"""Best schedules on single servers with residual capacities: the compiled loop, ready to be called."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.posted_prices.server_state import ClusterState, ServerSide, Use
from optim.solvers.admission.pricing.best_schedule import make_space
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.pricing.server_arrays import (
    COUNT,
    SEGMENT,
    SERVER,
    SLOT,
    ServerSource,
    SharedServerSource,
    SideArrays,
    make_scratch,
    make_shared,
)
from optim.solvers.admission.pricing.server_tables import find_on_servers, find_on_shared_servers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundSchedule:
    """A schedule of one job on single servers.

    Parameters
    ----------
    job
        Whose it is.
    payoff
        Value less cost at the prices of the search.
    value
        Utility at its completion slot.
    completion
        Its completion slot.
    workers, ps
        Shape (rows, 4): slot, server, count, demand segment; each (slot, server) once.
    """

    job: int
    payoff: float
    value: float
    completion: int
    workers: IntArray
    ps: IntArray

    @property
    def cost(self) -> float:
        """What its resources cost."""
        return self.value - self.payoff


class ScheduleFinder(Protocol):
    """Find a job's best schedule in the present state of the cluster."""

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return the schedule of the largest payoff above `floor`, None if there is none."""
        ...


class ResidualSearch:
    """The exact best schedule within what is left of the servers.

    Parameters
    ----------
    instance
        Whose jobs are scheduled.
    tables
        Its jobs as pricing reads them, where they are laid out already.
    is_residual_checked
        If False every server counts as empty, though at its present prices: schedules may then not fit.

    Notes
    -----
    Per slot O(servers x resources + N log servers) for the table of costs and O(W N) for the recursion.
    """

    def __init__(
        self, instance: AdmissionInstance, *, tables: JobTables | None = None, is_residual_checked: bool = True
    ) -> None:
        self._instance = instance
        self._is_residual_checked = is_residual_checked
        tables = JobTables.build(instance) if tables is None else tables
        self._jobs, self._space = tables.arrays, make_space(np.arange(tables.num_jobs), tables.arrays)
        self._worker_demand = instance.jobs.worker_demand.astype(np.float64)
        self._ps_demand = instance.jobs.ps_demand.astype(np.float64)
        self._worker_limit = np.ascontiguousarray(instance.workers_per_server)
        self._ps_limit = np.ascontiguousarray(instance.ps_per_server)
        self._worker_class = instance.worker_servers.class_of_server
        self._ps_class = instance.ps_servers.class_of_server
        self._scratch = make_scratch(tables, self._space)
        self._shared = make_shared(tables) if instance.has_shared_servers else None

    def find(self, job: int, state: ClusterState, floor: float) -> FoundSchedule | None:
        """Return the job's best schedule, ties as `cheapest_servers` and `best_schedule` say."""
        return self.find_at(job, state, floor, state.worker.price, state.ps.price)

    def find_at(
        self, job: int, state: ClusterState, floor: float, worker_price: FloatArray, ps_price: FloatArray
    ) -> FoundSchedule | None:
        """Return the job's best schedule at other prices than the state's, each shape (slots, resources, servers)."""
        worker, ps, scratch = state.worker, state.ps, self._scratch
        workers = SideArrays(
            self._worker_demand, self._worker_limit, self._worker_class, worker.rank, self._room(worker), worker_price
        )
        hosts = SideArrays(self._ps_demand, self._ps_limit, self._ps_class, ps.rank, self._room(ps), ps_price)
        used = np.zeros(2, dtype=np.int64)
        if self._shared is None:
            source = ServerSource(workers, hosts, scratch)
            payoff, completion = find_on_servers(job, floor, self._jobs, self._space, source, used)
        else:
            shared = SharedServerSource(workers, hosts, scratch, self._shared)
            payoff, completion = find_on_shared_servers(job, floor, self._jobs, self._space, shared, used)
        if completion < 0:
            return None
        return FoundSchedule(
            job=job,
            payoff=payoff,
            value=float(self._jobs.value[job, completion]),
            completion=completion,
            workers=scratch.worker_rows[: used[0]].copy(),
            ps=scratch.ps_rows[: used[1]].copy(),
        )

    def _room(self, side: ServerSide) -> FloatArray:
        return side.residual if self._is_residual_checked else side.capacity


def uses(instance: AdmissionInstance, schedule: FoundSchedule) -> tuple[Use, ...]:
    """Return what a schedule takes of each side: workers' hosts and PS hosts, or one of both together."""
    worker = _use(schedule.workers, instance.jobs.worker_demand)
    ps = _use(schedule.ps, instance.jobs.ps_demand)
    if not instance.has_shared_servers:
        return worker, ps
    num = instance.worker_servers.num_servers
    keys = np.concatenate([worker.slot * num + worker.server, ps.slot * num + ps.server])
    cells, place = np.unique(keys, return_inverse=True)
    amount = np.zeros((len(cells), instance.num_resources))
    np.add.at(amount, place.ravel(), np.concatenate([worker.amount, ps.amount]))
    return (Use(slot=cells // num, server=cells % num, amount=amount),)


def plan_of(schedules: list[FoundSchedule]) -> AdmissionPlan:
    """Return the plan that runs all these schedules."""

    def rows(parts: list[tuple[int, IntArray]]) -> list[list[int]]:
        return [[job, *row[:SEGMENT]] for job, part in parts for row in part.tolist()]

    return AdmissionPlan.from_rows(
        rows([(found.job, found.workers) for found in schedules]),
        rows([(found.job, found.ps) for found in schedules]),
    )


def _use(rows: IntArray, demand: IntArray) -> Use:
    amount = rows[:, COUNT, None] * demand[rows[:, SEGMENT]]
    return Use(slot=rows[:, SLOT], server=rows[:, SERVER], amount=amount.astype(np.float64))
