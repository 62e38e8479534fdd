"""Figures that tell what an instance is like, before anything is solved."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.models.admission.instance import MICRO, AdmissionInstance, FloatArray, IntArray, ServerClasses
from optim.models.admission.never_run import remark
from optim.models.admission.reach import most_ps_beside
from optim.models.admission.utility import SigmoidUtility, Utility

TIME_SENSITIVE_LIMIT = 1.0
"""Largest theta2 of a time-sensitive job in the paper's evaluation; steeper ones are time-critical."""


def describe(instance: AdmissionInstance) -> Mapping[str, Any]:
    """Return figures that tell what an instance is like, in the order they are shown.

    Parameters
    ----------
    instance
        Any instance.

    Returns
    -------
    Mapping
        Plain values. `worker_demand` and `ps_demand` are, for each resource, what all schedulable jobs
        need over what the cluster has in all slots: worker-slots times the demand of a worker, and as
        many PS-slots as row (6) asks for on average (b / B a worker-slot). `max_share_of_server` is the
        largest share of one server's resource that a schedulable job may use in one slot (the eps of the
        competitive ratio's small-job condition). `schedulable_jobs` complete alone before the horizon;
        `never_run` says how many can't, and why.
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
        "max_share_of_server": _largest_share(instance, schedulable),
        "utilities": dict(sorted(Counter(map(_kind, jobs.utilities)).items())),
    }


def _own_ps_classes(instance: AdmissionInstance) -> int:
    return 0 if instance.has_shared_servers else instance.ps_servers.num_classes


def _spread(amounts: IntArray) -> Mapping[str, int] | None:
    """Return smallest, median (the lower of two) and largest amount."""
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
    """Return what the PSs of one worker take on average, shape (segments, resources)."""
    rate = instance.jobs.worker_micro_mbps / instance.jobs.ps_micro_mbps
    demand: FloatArray = instance.jobs.ps_demand * rate[instance.segment_job][:, None]
    return demand


def _demand_over_capacity(
    instance: AdmissionInstance,
    servers: ServerClasses,
    demand: IntArray | FloatArray,
    schedulable: NDArray[np.bool_],
) -> Mapping[str, float]:
    """Return for each resource what the schedulable jobs need over what the servers have in all slots."""
    jobs, owner = instance.jobs, instance.segment_job
    # A segment ends where the next one of the same job starts, the last one where the job is done.
    end = instance.target[owner].astype(np.float64)
    is_last = np.append(owner[1:] != owner[:-1], True) if len(owner) else np.zeros(0, dtype=bool)
    end[~is_last] = np.minimum(end[~is_last], jobs.segment_start[np.flatnonzero(~is_last) + 1])
    part = np.maximum(end - jobs.segment_start, 0.0) / instance.target[owner]
    worker_slots = part * instance.work[owner] * schedulable[owner]
    needed = (worker_slots[:, None] * demand).sum(axis=0)
    available = np.einsum("ctr,c->r", servers.capacity, servers.count)
    return {name: float(needed[r] / available[r]) for r, name in enumerate(instance.resources) if available[r] > 0}


def _largest_share(instance: AdmissionInstance, schedulable: NDArray[np.bool_]) -> float:
    """Return the largest share of one server's resource that one schedulable job may use in one slot."""
    if instance.has_shared_servers:
        return _largest_shared_share(instance, schedulable)
    jobs, owner = instance.jobs, instance.segment_job
    slots = np.arange(instance.horizon)
    in_time = (slots >= jobs.arrival[owner][:, None]) & (slots <= instance.deadline[owner][:, None])
    in_time &= schedulable[owner][:, None]
    largest = 0.0
    for servers, units, demand in (
        (instance.worker_servers, instance.workers_per_server, jobs.worker_demand),
        (instance.ps_servers, instance.ps_per_server, jobs.ps_demand),
    ):
        capacity = np.maximum(servers.capacity, 1)  # where there is none, no unit with a demand fits
        counted = units * in_time[:, None, :]
        for r in range(instance.num_resources):
            share = counted * demand[:, r, None, None] / capacity[None, :, :, r]
            largest = max(largest, float(share.max(initial=0.0)))
    return largest


def _largest_shared_share(instance: AdmissionInstance, schedulable: NDArray[np.bool_]) -> float:
    jobs, largest = instance.jobs, 0.0
    for segment, i in enumerate(instance.segment_job.tolist()):
        if not schedulable[i]:
            continue
        needed = instance.ps_needed[i]
        most = (len(needed) - 1, int(needed[-1]))
        worker, ps = jobs.worker_demand[segment], jobs.ps_demand[segment]
        lifetime = instance.worker_servers.capacity[:, jobs.arrival[i] : instance.deadline[i] + 1]
        for room in np.unique(lifetime.reshape(-1, instance.num_resources), axis=0):
            demand = (tuple(worker.tolist()), tuple(ps.tolist()))
            beside = most_ps_beside(demand, tuple(room.tolist()), instance.max_share_per_server, most)
            fits = np.flatnonzero(beside >= 0)
            used = fits[:, None] * worker + beside[fits][:, None] * ps
            largest = max(largest, float((used / np.maximum(room, 1)).max(initial=0.0)))
    return largest
