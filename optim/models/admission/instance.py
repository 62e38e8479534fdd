"""The admission instance, built from a document, from rows of plain Python or pandas, or from several days."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from optim.core.arrays import IntArray, derived
from optim.core.errors import InvalidProblemError
from optim.core.frames import Rows, frame_of
from optim.models.admission.codec import AdmissionDocument, admission_document, fields_from_document, job_columns
from optim.models.admission.data import MICRO, AdmissionData, Jobs
from optim.models.admission.earliest_completion import earliest_completion, never_run

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, eq=False)
class AdmissionInstance(AdmissionData):
    """An admission problem: decide which jobs to train, and with how many workers and PSs, where and when.

    The fields are those of `AdmissionData`.
    """

    @classmethod
    def from_jobs(
        cls,
        jobs: Rows,
        *,
        horizon: int,
        slot_s: float = 3600.0,
        worker_servers: Rows | None = None,
        ps_servers: Rows | None = None,
        shared_servers: Rows | None = None,
        resources: Sequence[str] | None = None,
        name: str = "jobs",
        min_utility: float | None = None,
        max_share_per_server: float | None = None,
        chunk_integral: bool | None = None,
    ) -> "AdmissionInstance":
        """Build an instance from plain Python, or from pandas frames with one column per field.

        Parameters
        ----------
        jobs
            One mapping per job, or a frame, with fields as in a file of the schema ``optim/admission/1``. The usual
            fields are:

            - ``id``: name (default ``job-0``, ``job-1``, ...)
            - ``arrival``: slot (default 0)
            - ``work``: work in worker-slots, communication included; it excludes ``gradient_mb`` and replaces
              ``epochs``, ``chunks``, ``minibatches`` and ``minibatch_s``
            - ``max_workers``: maximum number of concurrent workers (default 1)
            - ``worker``, ``ps``: demand of one worker and of one parameter server, by resource
            - ``value``: utility of a completion by slot ``deadline`` (default: no deadline; a deadline beyond the
              horizon has the same effect)

            Without ``worker_mbps`` and ``ps_mbps`` one parameter server suffices for any number of workers. In
            frames the column ``worker.gpu`` is a worker's demand for ``gpu``.
        horizon, slot_s
            Number of slots, and length of a slot in seconds (default 3600).
        worker_servers, ps_servers, shared_servers
            One mapping per class: ``capacity`` by resource, ``count`` (default 1) and ``type``. If neither
            `ps_servers` nor `shared_servers` is given, parameter servers must have no demand. Shared servers
            host workers and parameter servers.
        resources
            Names of the resources (default: the names in the capacities).
        name, min_utility, max_share_per_server, chunk_integral
            The fields of these names in a file of the schema (None: the file's default).

        Raises
        ------
        InvalidProblemError
            If a field is unknown, missing or invalid; the message names it.

        Warns
        -----
        UserWarning
            If jobs can never run; the message names the first of them with the reasons, and `never_run` lists
            all.

        Examples
        --------
        >>> jobs = [
        ...     {"id": "a", "work": 6, "max_workers": 3, "worker": {"gpu": 1}, "value": 10, "deadline": 2},
        ...     {"id": "b", "work": 4, "max_workers": 2, "worker": {"gpu": 2}, "value": 3},
        ... ]
        >>> instance = AdmissionInstance.from_jobs(jobs, horizon=4, worker_servers=[{"capacity": {"gpu": 4}}])
        >>> instance.work.tolist(), instance.value.max(axis=1).tolist()
        ([6, 4], [10.0, 3.0])
        """
        fields = {"min_utility": min_utility, "max_share_per_server": max_share_per_server}
        servers = {"worker_servers": worker_servers, "ps_servers": ps_servers, "shared_servers": shared_servers}
        instance = instance_from_document(
            admission_document(
                jobs,
                horizon=horizon,
                slot_s=slot_s,
                servers=servers,
                resources=resources,
                name=name,
                chunk_integral=chunk_integral,
                **fields,
            )
        )
        if message := remark(instance):
            warnings.warn(message, stacklevel=2)
        return instance

    def to_frame(self) -> "DataFrame":
        """Return the jobs as a pandas frame, one row per job, one column per field; `from_jobs` reads it.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        return frame_of(job_columns(self))

    @derived
    def earliest_completion(self) -> IntArray:
        """Completion slot of each job if it runs alone on the cluster, -1 if it cannot complete; shape (jobs,)."""
        return earliest_completion(self)

    @property
    def never_run(self) -> Mapping[str, str]:
        """Jobs that no plan can admit, by id, each with the reason."""
        return MappingProxyType(dict(self._never_run))

    @derived
    def _never_run(self) -> tuple[tuple[str, str], ...]:
        return tuple(never_run(self, self.earliest_completion).items())


def instance_from_document(document: AdmissionDocument) -> AdmissionInstance:
    """Build a validated instance.

    Raises
    ------
    InvalidProblemError
        If a field contradicts the format; the message names its path, value and remedy.
    """
    return AdmissionInstance(**fields_from_document(document))


MAX_NAMED = 3
"""Maximum number of jobs named in a message."""


def remark(instance: AdmissionInstance) -> str:
    """Return one sentence on the jobs that can never run; an empty string if there are none."""
    reasons = instance.never_run
    if not reasons:
        return ""
    named = [f"{name!r} {reason}" for name, reason in list(reasons.items())[:MAX_NAMED]]
    more = [f"and {len(reasons) - MAX_NAMED} more"] if len(reasons) > MAX_NAMED else []
    return f"{len(reasons)} of {instance.num_jobs} jobs can never run: {'; '.join([*named, *more])}"


PER_SEGMENT = ("segment_start", "worker_demand", "ps_demand")
"""Fields of `Jobs` with one entry per demand segment; all others except `segment_offset` have one entry per job."""

LEFT_OUT: Mapping[str, Any] = {"speedup": ()}
"""For fields of `Jobs` that may be empty for all jobs of a day: the entry that each of these jobs gets in a merge."""


def check_compatible_cluster(day: AdmissionInstance, cluster: AdmissionInstance, what: str) -> None:
    """Reject a day that differs from the cluster in resources, slots or the sharing of servers.

    Raises
    ------
    InvalidProblemError
        If the resources or the slot length differ, the day has fewer slots, or only one of the two has shared
        servers.
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
            "learn from days of a cluster with the same setting"
        )


def take_jobs(jobs: Jobs, which: IntArray) -> Jobs:
    """Return the jobs with the given indices, in this order, with all their fields."""
    sizes = np.diff(jobs.segment_offset)[which]
    segments = np.concatenate(
        [np.arange(*jobs.segment_offset[i : i + 2]) for i in which.tolist()] or [np.zeros(0, dtype=np.int64)]
    )
    columns: dict[str, Any] = {}
    for each in fields(jobs):
        column = getattr(jobs, each.name)
        if isinstance(column, np.ndarray):
            columns[each.name] = column[segments if each.name in PER_SEGMENT else which]
        else:
            columns[each.name] = tuple(column[i] for i in which.tolist()) if column else ()
    columns["segment_offset"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return replace(jobs, **columns)


def merge_days(days: Sequence[Jobs], cluster: AdmissionInstance) -> AdmissionInstance:
    """Return an instance with the jobs of all days that arrive within the horizon of a cluster.

    Parameters
    ----------
    days
        Jobs by day; a job's id is preceded by its day's number.
    cluster
        Servers, slots and rules; its jobs are ignored.
    """
    in_horizon = [take_jobs(jobs, np.flatnonzero(jobs.arrival < cluster.horizon)) for jobs in days]
    no_jobs = take_jobs(cluster.jobs, np.zeros(0, dtype=np.int64))
    joined = {field.name: _joined(field.name, [no_jobs, *in_horizon]) for field in fields(no_jobs)}
    joined["ids"] = tuple(f"{day}:{name}" for day, jobs in enumerate(in_horizon) for name in jobs.ids)
    offsets = np.cumsum([0, *(len(jobs.segment_start) for jobs in in_horizon)])
    shifted = [jobs.segment_offset[1:] + first for jobs, first in zip(in_horizon, offsets, strict=False)]
    joined["segment_offset"] = np.concatenate([[0], *shifted]).astype(np.int64)
    return replace(cluster, jobs=replace(no_jobs, **joined))


def _joined(name: str, parts: Sequence[Jobs]) -> Any:
    """Return a field of the jobs of all parts, concatenated."""
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
