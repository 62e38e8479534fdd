"""Jobs of several days as one instance on one cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.admission.instance import MICRO, AdmissionInstance, IntArray, Jobs

PER_JOB = (
    *("arrival", "epochs", "chunks", "minibatches", "minibatch_micro_s", "gradient_micro_mb"),
    *("worker_micro_mbps", "ps_micro_mbps", "min_utility"),
)
PER_SEGMENT = ("segment_start", "worker_demand", "ps_demand")


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
    """Return some of the jobs, in the order given."""
    sizes = np.diff(jobs.segment_offset)[which]
    segments = np.concatenate(
        [np.arange(*jobs.segment_offset[i : i + 2]) for i in which.tolist()] or [np.zeros(0, dtype=np.int64)]
    )
    return Jobs(
        ids=tuple(jobs.ids[i] for i in which.tolist()),
        utilities=tuple(jobs.utilities[i] for i in which.tolist()),
        speedup=tuple(jobs.speedup[i] for i in which.tolist()) if jobs.speedup else (),
        segment_offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        **{name: getattr(jobs, name)[which] for name in PER_JOB},
        **{name: getattr(jobs, name)[segments] for name in PER_SEGMENT},
    )


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
    offsets = np.cumsum([0, *(len(jobs.segment_start) for jobs in kept)])
    shifted = [jobs.segment_offset[1:] + first for jobs, first in zip(kept, offsets, strict=False)]
    width = (0, cluster.num_resources)
    empty = {name: np.zeros(width if name.endswith("demand") else 0, dtype=np.int64) for name in PER_SEGMENT}
    empty |= {name: np.zeros(0, dtype=np.float64 if name == "min_utility" else np.int64) for name in PER_JOB}
    joined: dict[str, Any] = {
        name: np.concatenate([empty[name], *(getattr(jobs, name) for jobs in kept)]) for name in empty
    }
    jobs = Jobs(
        ids=tuple(f"{day}:{name}" for day, jobs in enumerate(kept) for name in jobs.ids),
        utilities=tuple(utility for jobs in kept for utility in jobs.utilities),
        speedup=tuple(table for jobs in kept for table in jobs.speedup or ((),) * len(jobs))
        if any(jobs.speedup for jobs in kept)
        else (),
        segment_offset=np.concatenate([[0], *shifted]).astype(np.int64),
        **joined,
    )
    return replace(cluster, jobs=jobs)
