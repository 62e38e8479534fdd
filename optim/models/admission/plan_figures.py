"""How loaded an instance is under a plan: what the plan uses of it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.instance import AdmissionInstance, IntArray, ServerClasses
from optim.models.admission.plan import COUNT, JOB, SERVER, SLOT, AdmissionPlan
from optim.models.admission.reach import earliest_completion


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLoad:
    """How loaded an instance is under a plan.

    Parameters
    ----------
    tight_rows
        Share of the rows (server class, slot, resource) that are tight: on no server of the class is
        there room left for the smallest demand for that resource among the jobs that can run in that
        slot (arrived, not yet worthless, able to finish at all). Rows on which that demand doesn't fit
        even while the server is empty are no rows, since nothing could ever make them tight.
    refused_jobs
        Share of all jobs that the plan leaves out, 0 where there are no jobs.
    worker_utilisation, ps_utilisation
        For each resource what is used over what there is, summed over servers and slots; resources
        that no server has are left out. On shared servers both say the same.
    """

    tight_rows: float
    refused_jobs: float
    worker_utilisation: Mapping[str, float]
    ps_utilisation: Mapping[str, float]


def plan_load(instance: AdmissionInstance, plan: AdmissionPlan) -> PlanLoad:
    """Return how loaded an instance is under a plan.

    Parameters
    ----------
    instance
        The instance.
    plan
        A plan of it; it need not be feasible.

    Returns
    -------
    PlanLoad
        Shares between 0 and 1 where the plan is feasible.
    """
    worker_used, ps_used = _used(instance, plan)
    sides = [(instance.worker_servers, worker_used, [instance.jobs.worker_demand])]
    if instance.has_shared_servers:
        worker_used += ps_used
        sides[0][2].append(instance.jobs.ps_demand)
    else:
        sides.append((instance.ps_servers, ps_used, [instance.jobs.ps_demand]))
    is_live = _live(instance)
    tight = rows = 0
    for servers, used, demands in sides:
        of_side = _tight_rows(instance, servers, used, _smallest_demand(instance, demands, is_live))
        tight, rows = tight + of_side[0], rows + of_side[1]
    utilisation = [_utilisation(instance, servers, used) for servers, used, _ in sides]
    return PlanLoad(
        tight_rows=tight / rows if rows else 0.0,
        refused_jobs=1.0 - len(plan.admitted) / instance.num_jobs if instance.num_jobs else 0.0,
        worker_utilisation=utilisation[0],
        ps_utilisation=utilisation[-1],
    )


def _used(instance: AdmissionInstance, plan: AdmissionPlan) -> tuple[IntArray, IntArray]:
    """Return what the plan uses of each single server, shapes (servers, slots, resources)."""
    jobs = instance.jobs
    running = np.zeros((instance.num_jobs, instance.horizon), dtype=np.int64)
    np.add.at(running, (plan.workers[:, JOB], plan.workers[:, SLOT]), plan.workers[:, COUNT])
    segment = np.repeat(jobs.segment_offset[:-1, None], instance.horizon, axis=1)
    for i in np.flatnonzero(np.diff(jobs.segment_offset) > 1).tolist():
        table = instance.progress[i]
        done = np.cumsum(table[np.minimum(running[i], len(table) - 1)])[:-1]
        starts = jobs.segment_start[jobs.segment_offset[i] : jobs.segment_offset[i + 1]]
        segment[i, 1:] += np.searchsorted(starts, done, side="right") - 1
    result = []
    for rows, servers, demand in (
        (plan.workers, instance.worker_servers, jobs.worker_demand),
        (plan.ps, instance.ps_servers, jobs.ps_demand),
    ):
        used = np.zeros((servers.num_servers, instance.horizon, instance.num_resources), dtype=np.int64)
        amount = rows[:, COUNT, None] * demand[segment[rows[:, JOB], rows[:, SLOT]]]
        np.add.at(used, (rows[:, SERVER], rows[:, SLOT]), amount)
        result.append(used)
    return result[0], result[1]


def _live(instance: AdmissionInstance) -> NDArray[np.bool_]:
    """Tell which segments' jobs can run in which slots, shape (segments, slots)."""
    owner = instance.segment_job
    can_finish = earliest_completion(instance) >= 0
    slots = np.arange(instance.horizon)
    in_time = (slots >= instance.jobs.arrival[:, None]) & (slots <= instance.deadline[:, None])
    live: NDArray[np.bool_] = (in_time & can_finish[:, None])[owner]
    return live


def _smallest_demand(instance: AdmissionInstance, demands: list[IntArray], is_live: NDArray[np.bool_]) -> IntArray:
    """Return the smallest positive demand for each resource in each slot, shape (slots, resources)."""
    nobody = np.iinfo(np.int64).max
    smallest = np.full((instance.horizon, instance.num_resources), nobody)
    for demand in demands:
        for r in range(instance.num_resources):
            asked = np.where(is_live & (demand[:, r] > 0)[:, None], demand[:, r][:, None], nobody)
            smallest[:, r] = np.minimum(smallest[:, r], asked.min(axis=0, initial=nobody))
    return smallest


def _tight_rows(
    instance: AdmissionInstance, servers: ServerClasses, used: IntArray, smallest: IntArray
) -> tuple[int, int]:
    """Return how many rows are tight, and how many could be."""
    could_be = servers.capacity >= smallest
    room = servers.capacity[servers.class_of_server] - used
    largest_room = np.full(servers.capacity.shape, np.iinfo(np.int64).min)
    np.maximum.at(largest_room, servers.class_of_server, room)
    return int((could_be & (largest_room < smallest)).sum()), int(could_be.sum())


def _utilisation(instance: AdmissionInstance, servers: ServerClasses, used: IntArray) -> Mapping[str, float]:
    available = np.einsum("ctr,c->r", servers.capacity, servers.count)
    taken = used.sum(axis=(0, 1))
    return {name: float(taken[r] / available[r]) for r, name in enumerate(instance.resources) if available[r] > 0}
