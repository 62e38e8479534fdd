"""Jobs of several days as one instance on one cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.admission.instance import MICRO, AdmissionInstance, IntArray, Jobs

PER_SEGMENT = ("segment_start", "worker_demand", "ps_demand")
"""Fields of jobs with an entry per demand segment; every other field has one per job."""

LEFT_OUT: Mapping[str, Any] = {"speedup": ()}
"""What stands for one job in a field that may be left out for all."""


def check_same_day(day: AdmissionInstance, cluster: AdmissionInstance, what: str) -> None:
    """Refuse a day whose resources, slots or rules differ from the cluster's.

    Raises
    ------
    InvalidProblemError
        For other resources, another slot length, fewer slots, or servers shared on one side only.
    """
    if day.resources != cluster.resources:
        raise InvalidProblemError(
            f"{what} has resources {list(day.resources)}, instance {cluster.name!r} has {list(cluster.resources)}; "
            "learn from days that count the same resources in the same order"
        )
    if day.slot_micro_s != cluster.slot_micro_s:
        raise InvalidProblemError(
            f"{what} has slots of {day.slot_micro_s / MICRO:g} s, instance {cluster.name!r} of "
            f"{cluster.slot_micro_s / MICRO:g} s; learn from days with the same slot length"
        )
    if day.horizon < cluster.horizon:
        raise InvalidProblemError(
            f"{what} has {day.horizon} slots, instance {cluster.name!r} has {cluster.horizon}; "
            "learn from days that are at least as long"
        )
    if day.has_shared_servers != cluster.has_shared_servers:
        raise InvalidProblemError(
            f"{what} and instance {cluster.name!r} differ in whether workers and PSs share servers; "
            "learn from days of a cluster of the same kind"
        )


def take_jobs(jobs: Jobs, which: IntArray) -> Jobs:
    """Return some of the jobs, in the order given, with all their fields."""
    sizes = np.diff(jobs.segment_offset)[which]
    segments = np.concatenate(
        [np.arange(*jobs.segment_offset[i : i + 2]) for i in which.tolist()] or [np.zeros(0, dtype=np.int64)]
    )
    taken: dict[str, Any] = {}
    for field in fields(jobs):
        column = getattr(jobs, field.name)
        if isinstance(column, np.ndarray):
            taken[field.name] = column[segments if field.name in PER_SEGMENT else which]
        else:
            taken[field.name] = tuple(column[i] for i in which.tolist()) if column else ()
    taken["segment_offset"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return replace(jobs, **taken)


def together(days: Sequence[Jobs], cluster: AdmissionInstance) -> AdmissionInstance:
    """Return the jobs of all days on a cluster, those that arrive within its horizon.

    Parameters
    ----------
    days
        Jobs by day; a job's id is preceded by its day's number.
    cluster
        Servers, slots and rules; its own jobs don't matter.
    """
    kept = [take_jobs(jobs, np.flatnonzero(jobs.arrival < cluster.horizon)) for jobs in days]
    nobody = take_jobs(cluster.jobs, np.zeros(0, dtype=np.int64))
    joined = {field.name: _joined(field.name, [nobody, *kept]) for field in fields(nobody)}
    joined["ids"] = tuple(f"{day}:{name}" for day, jobs in enumerate(kept) for name in jobs.ids)
    offsets = np.cumsum([0, *(len(jobs.segment_start) for jobs in kept)])
    shifted = [jobs.segment_offset[1:] + first for jobs, first in zip(kept, offsets, strict=False)]
    joined["segment_offset"] = np.concatenate([[0], *shifted]).astype(np.int64)
    return replace(cluster, jobs=replace(nobody, **joined))


def _joined(name: str, parts: Sequence[Jobs]) -> Any:
    """Return a field of all jobs, one part after the other."""
    columns = [getattr(jobs, name) for jobs in parts]
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    if not any(columns):
        return ()
    return tuple(
        entry
        for jobs, column in zip(parts, columns, strict=True)
        for entry in (column or [LEFT_OUT[name] for _ in jobs.ids])
    )
