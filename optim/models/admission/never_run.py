"""Jobs that no plan can admit, each with the reason: even alone in the empty cluster they complete in no slot that earns."""

from collections.abc import Mapping

import numpy as np

from optim.models.admission.instance import MICRO, AdmissionInstance, IntArray, ServerClasses
from optim.models.admission.reach import most_workers

MOST_NAMED = 3
"""Jobs that a sentence names."""


def never_run(instance: AdmissionInstance) -> Mapping[str, str]:
    """Return the reason of each job that can never run, by its id, in the order of the jobs."""
    jobs = np.flatnonzero(instance.earliest_completion < 0).tolist()
    most = most_workers(instance) if jobs else np.zeros((0, 0), dtype=np.int64)
    return {instance.jobs.ids[job]: _reason(instance, job, most) for job in jobs}


def remark(instance: AdmissionInstance) -> str:
    """Return one sentence on the jobs that can never run; nothing where there is none."""
    reasons = instance.never_run
    if not reasons:
        return ""
    named = [f"{name!r} {reason}" for name, reason in list(reasons.items())[:MOST_NAMED]]
    more = [f"and {len(reasons) - MOST_NAMED} more"] if len(reasons) > MOST_NAMED else []
    return f"{len(reasons)} of {instance.num_jobs} jobs can never run: {'; '.join([*named, *more])}"


def _reason(instance: AdmissionInstance, job: int, most: IntArray) -> str:
    first, last = int(instance.jobs.arrival[job]), int(instance.deadline[job])
    if last < first:
        return "earns nothing in any slot from its arrival on"
    slots = slice(first, last + 1)
    begin, end = instance.jobs.segment_offset[job : job + 2].tolist()
    hosts = "shared server" if instance.has_shared_servers else "worker server"
    for segment in range(begin, end):
        demand = instance.jobs.worker_demand[segment]
        if not instance.workers_per_server[segment, :, slots].any():
            return f"has workers that no {hosts} holds{_lacking(instance, demand, instance.worker_servers, slots)}"
        demand = instance.jobs.ps_demand[segment]
        if not instance.ps_per_server[segment, :, slots].any():
            hosts = hosts if instance.has_shared_servers else "host of parameter servers"
            return (
                f"needs parameter servers that no {hosts} holds{_lacking(instance, demand, instance.ps_servers, slots)}"
            )
        if not most[segment, slots].any():
            return "has no slot in which workers and the parameter servers that they need fit together"
    if end - begin > 1:
        return f"can't be done alone by slot {last}, the last that earns"
    possible = int(instance.progress[job][most[begin, slots]].sum())
    return (
        f"can't be done alone by slot {last}, the last that earns: "
        f"{possible / int(instance.target[job]):.0%} of its work from slot {first} on"
    )


def _lacking(instance: AdmissionInstance, demand: IntArray, servers: ServerClasses, slots: slice) -> str:
    """Return which resources a unit takes more of than any server has."""
    room = servers.capacity[:, slots].max(axis=(0, 1), initial=0)
    short = [
        f"{name} {need / MICRO:g} of {have / MICRO:g}"
        for name, need, have in zip(instance.resources, demand.tolist(), room.tolist(), strict=True)
        if need > have
    ]
    return f" ({', '.join(short)})" if short else " at once"
