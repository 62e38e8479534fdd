"""Summary statistics of an admission instance, and of the load that a plan puts on it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import MICRO, ServerClasses, SigmoidUtility, Utility, share_of
from optim.models.admission.decision import COUNT, JOB, SERVER, SLOT, AdmissionPlan
from optim.models.admission.instance import AdmissionInstance, remark

TIME_SENSITIVE_LIMIT = 1.0
"""Largest theta2 of a time-sensitive job in the paper's evaluation; jobs with a larger one are time-critical."""


def describe(instance: AdmissionInstance) -> Mapping[str, Any]:
    """Return statistics of an instance, in display order.

    Parameters
    ----------
    instance
        Any instance.

    Returns
    -------
    Mapping
        Plain values. `worker_demand` and `ps_demand` are the total demand of all schedulable jobs divided by
        the cluster's capacity over all slots, per resource. The demand of a job's workers is its worker-slots
        times the demand of one worker. Its PSs need b / B PS-slots per worker-slot, the average that row (6)
        requires. `max_share_of_server` is the largest share of one server's resource that a schedulable job may
        use in one slot. It is eps in the small-job condition of the competitive ratio. `schedulable_jobs` is the
        number of jobs that can complete alone before the horizon; `never_run` counts the other jobs, and names
        the first of them with the reasons.
    """
    jobs, work = instance.jobs, instance.work
    schedulable = instance.earliest_completion >= 0
    shape = (instance.horizon, instance.num_resources)
    varies = any(
        bool((side.capacity != side.capacity[:, :1]).any()) for side in (instance.worker_servers, instance.ps_servers)
    )
    fastest = np.array([max(1, int(table[-1])) for table in instance.progress], dtype=np.int64)
    slots_needed = -(-instance.target // fastest) if any(jobs.speedup) else -(-work // instance.max_workers)
    return {
        "jobs": instance.num_jobs,
        "slots": instance.horizon,
        "slot_s": instance.slot_micro_s / MICRO,
        "resources": list(instance.resources),
        "worker_servers": instance.worker_servers.num_servers,
        "ps_servers": instance.ps_servers.num_servers,
        "server_classes": instance.worker_servers.num_classes
        + (0 if instance.has_shared_servers else instance.ps_servers.num_classes),
        "capacity_rows": (instance.worker_servers.num_classes + _own_ps_classes(instance)) * shape[0] * shape[1],
        "shared_servers": instance.has_shared_servers,
        "capacity_varies": varies,
        "segments": len(jobs.segment_start),
        "chunk_integral": instance.chunk_integral,
        "speedups": sum(map(bool, jobs.speedup)),
        "max_share_per_server": None if instance.max_share_per_server is None else float(instance.max_share_per_server),
        "min_utility": float(instance.min_utility_share),
        "arrivals": [int(jobs.arrival.min()), int(jobs.arrival.max())] if len(jobs) else None,
        "worker_slots": _spread(work),
        "max_workers": _spread(instance.max_workers),
        "shortest_slots": _spread(slots_needed),
        "schedulable_jobs": int(schedulable.sum()),
        "never_run": remark(instance) or None,
        "best_value": float(instance.value.max(axis=1, initial=0.0)[schedulable].sum()),
        "worker_demand": _demand_over_capacity(instance, instance.worker_servers, jobs.worker_demand, schedulable),
        "ps_demand": _demand_over_capacity(instance, instance.ps_servers, _ps_demand(instance), schedulable),
        "max_share_of_server": float(max_share(instance)),
        "utilities": dict(sorted(Counter(map(_kind, jobs.utilities)).items())),
    }


def _own_ps_classes(instance: AdmissionInstance) -> int:
    return 0 if instance.has_shared_servers else instance.ps_servers.num_classes


def _spread(amounts: IntArray) -> Mapping[str, int] | None:
    """Return the smallest, the (lower) median and the largest amount."""
    if not len(amounts):
        return None
    ordered = np.sort(amounts)
    return {"min": int(ordered[0]), "median": int(ordered[(len(ordered) - 1) // 2]), "max": int(ordered[-1])}


def _kind(utility: Utility) -> str:
    if not isinstance(utility, SigmoidUtility):
        return type(utility).__name__.removesuffix("Utility").lower()
    if utility.theta2 == 0:
        return "sigmoid: time-insensitive"
    return "sigmoid: time-sensitive" if utility.theta2 <= TIME_SENSITIVE_LIMIT else "sigmoid: time-critical"


def _ps_demand(instance: AdmissionInstance) -> FloatArray:
    """Return the average PS demand per worker, shape (segments, resources)."""
    rate = instance.jobs.worker_micro_mbps / instance.jobs.ps_micro_mbps
    demand: FloatArray = instance.jobs.ps_demand * rate[instance.segment_job][:, None]
    return demand


def _demand_over_capacity(
    instance: AdmissionInstance,
    servers: ServerClasses,
    demand: IntArray | FloatArray,
    schedulable: NDArray[np.bool_],
) -> Mapping[str, float]:
    """Return for each resource the demand of the schedulable jobs divided by the servers' capacity over all slots."""
    jobs, owner = instance.jobs, instance.segment_job
    # A segment ends where the next segment of the same job starts, the last segment where the job is done.
    end = instance.target[owner].astype(np.float64)
    is_last = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.zeros(0, dtype=bool)
    end[~is_last] = np.minimum(end[~is_last], jobs.segment_start[np.flatnonzero(~is_last) + 1])
    part = np.maximum(end - jobs.segment_start, 0.0) / instance.target[owner]
    worker_slots = part * instance.work[owner] * schedulable[owner]
    needed = (worker_slots[:, None] * demand).sum(axis=0)
    available = np.einsum("ctr,c->r", servers.capacity, servers.count)
    return {name: float(needed[r] / available[r]) for r, name in enumerate(instance.resources) if available[r] > 0}


def max_share(instance: AdmissionInstance) -> Fraction:
    """Return eps: the largest share of one server's resource that one job can use in one slot, exactly.

    The maximum is over jobs that can complete alone and over the slots from their arrival to their deadline.
    """
    jobs, job = instance.jobs, instance.segment_job
    is_live = instance.earliest_completion[job] >= 0
    slots = np.arange(instance.horizon)
    in_window = is_live[:, None] & (slots >= jobs.arrival[job][:, None]) & (slots <= instance.deadline[job][:, None])
    if instance.has_shared_servers:
        return _max_shared(instance, in_window)
    best = Fraction(0)
    for units, demand, servers in (
        (instance.workers_per_server, jobs.worker_demand, instance.worker_servers),
        (instance.ps_per_server, jobs.ps_demand, instance.ps_servers),
    ):
        allowed = units * in_window[:, None, :]
        for r in range(instance.num_resources):
            used = allowed * demand[:, r][:, None, None]
            capacity = np.broadcast_to(servers.capacity[None, :, :, r], used.shape)
            best = max(best, _max_ratio(used[used > 0], capacity[used > 0]))
    return best


def _max_shared(instance: AdmissionInstance, in_window: NDArray[np.bool_]) -> Fraction:
    """Return the largest share over the pairs (workers, PSs) that fit one shared server."""
    servers = instance.worker_servers
    limit = share_of(servers.capacity, instance.max_share_per_server)
    best = Fraction(0)
    for s in np.flatnonzero(in_window.any(axis=1)).tolist():
        slots = np.flatnonzero(in_window[s])
        for c in range(servers.num_classes):
            _, first = np.unique(servers.capacity[c, slots], axis=0, return_index=True)
            for t in slots[first].tolist():
                used = _uses(instance, s, c, t, limit[c, t])
                capacity = np.broadcast_to(servers.capacity[c, t], used.shape)
                best = max(best, _max_ratio(used[used > 0], capacity[used > 0]))
    return best


def _uses(instance: AdmissionInstance, segment: int, server_class: int, slot: int, limit: IntArray) -> IntArray:
    """Return the resource use of each pair (workers, PSs) that fits one server, shape (pairs, resources)."""
    most = instance.workers_per_server[segment, server_class, slot], instance.ps_per_server[segment, server_class, slot]
    workers, ps = (grid.ravel()[:, None] for grid in np.indices((most[0] + 1, most[1] + 1)))
    used = workers * instance.jobs.worker_demand[segment] + ps * instance.jobs.ps_demand[segment]
    # A single worker or a single PS may exceed the share; `most` admits it only if it fits the server.
    fits = (used <= limit).all(axis=1) | (workers + ps <= 1).ravel()
    result: IntArray = used[fits]
    return result


def _max_ratio(used: IntArray, capacity: IntArray) -> Fraction:
    """Return the largest elementwise quotient of two arrays of whole numbers, exactly."""
    if not len(used):
        return Fraction(0)
    quotient = used / capacity
    close = quotient >= quotient.max() * (1 - 1e-12)
    pairs = set(zip(used[close].tolist(), capacity[close].tolist(), strict=True))
    return max(Fraction(a, b) for a, b in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLoad:
    """Load of an instance under a plan.

    Parameters
    ----------
    tight_rows
        Share of tight rows (server class, slot, resource). A row is tight if every server of the class has less
        of the resource free in the slot than the smallest positive demand of the jobs that can run in the slot.
        A job that can complete at all can run in every slot from its arrival to the last slot in which its
        completion earns something. Rows whose smallest demand exceeds an empty server are not counted.
    rejected_jobs
        Share of all jobs that the plan rejects, 0 if there are no jobs.
    worker_utilisation, ps_utilisation
        Use divided by capacity per resource, summed over servers and slots; resources without capacity are
        omitted. On shared servers both are equal.
    """

    tight_rows: float
    rejected_jobs: float
    worker_utilisation: Mapping[str, float]
    ps_utilisation: Mapping[str, float]


def plan_load(instance: AdmissionInstance, plan: AdmissionPlan) -> PlanLoad:
    """Return the load of an instance under a plan.

    Parameters
    ----------
    instance
        The instance.
    plan
        A plan of the instance, feasible or not.

    Returns
    -------
    PlanLoad
        Shares, in [0, 1] if the plan is feasible.
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
        rejected_jobs=1.0 - len(plan.admitted) / instance.num_jobs if instance.num_jobs else 0.0,
        worker_utilisation=utilisation[0],
        ps_utilisation=utilisation[-1],
    )


def _used(instance: AdmissionInstance, plan: AdmissionPlan) -> tuple[IntArray, IntArray]:
    """Return the plan's use of each server, shapes (servers, slots, resources)."""
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
    """Return whether the job of a segment can run in a slot, shape (segments, slots)."""
    owner = instance.segment_job
    can_finish = instance.earliest_completion >= 0
    slots = np.arange(instance.horizon)
    in_time = (slots >= instance.jobs.arrival[:, None]) & (slots <= instance.deadline[:, None])
    live: NDArray[np.bool_] = (in_time & can_finish[:, None])[owner]
    return live


def _smallest_demand(instance: AdmissionInstance, demands: list[IntArray], is_live: NDArray[np.bool_]) -> IntArray:
    """Return the smallest positive demand for each resource in each slot, shape (slots, resources)."""
    no_demand = np.iinfo(np.int64).max
    smallest = np.full((instance.horizon, instance.num_resources), no_demand)
    for demand in demands:
        for r in range(instance.num_resources):
            asked = np.where(is_live & (demand[:, r] > 0)[:, None], demand[:, r][:, None], no_demand)
            smallest[:, r] = np.minimum(smallest[:, r], asked.min(axis=0, initial=no_demand))
    return smallest


def _tight_rows(
    instance: AdmissionInstance, servers: ServerClasses, used: IntArray, smallest: IntArray
) -> tuple[int, int]:
    """Return the number of tight rows, and the number of rows that could be tight."""
    could_be = servers.capacity >= smallest
    free = servers.capacity[servers.class_of_server] - used
    max_free = np.full(servers.capacity.shape, np.iinfo(np.int64).min)
    np.maximum.at(max_free, servers.class_of_server, free)
    return int((could_be & (max_free < smallest)).sum()), int(could_be.sum())


def _utilisation(instance: AdmissionInstance, servers: ServerClasses, used: IntArray) -> Mapping[str, float]:
    available = np.einsum("ctr,c->r", servers.capacity, servers.count)
    total_used = used.sum(axis=(0, 1))
    return {name: float(total_used[r] / available[r]) for r, name in enumerate(instance.resources) if available[r] > 0}
