"""Running and pending jobs of a cluster at one moment, from the output of `squeue`, `sacct` or `kubectl`."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray, TextArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.workload import counted
from optim.workloads.traces.job_table import EPOCH, JobTable, seconds_of

HELD = "held or dependent jobs"
OTHER_STATE = "jobs neither running nor pending"
NO_START = "jobs with unknown start"
NO_REQUEST = "pending jobs with unknown GPUs (print the column ReqTRES)"

NOT_ELIGIBLE = (
    "JobHeldUser",
    "JobHeldAdmin",
    "Dependency",
    "DependencyNeverSatisfied",
    "BeginTime",
    "PartitionDown",
    "PartitionInactive",
)
"""Reasons for which Slurm doesn't consider a pending job."""

MAX_ENTRIES = 100_000
"""Maximum number of names that one range or entry of a Slurm list may stand for."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One running or pending job.

    Parameters
    ----------
    name, gpus
        Name, and number of GPUs allocated or requested, at least 1.
    submit_s, start_s
        Submission and start in seconds since 1970 in UTC; `start_s` is None for a pending job.
    limit_s
        Limit of the run time in seconds, None if there is none.
    user, account, partition, gpu_type
        Texts, "" where unknown; on Kubernetes the partition is the queue.
    priority
        Priority; jobs with larger ones run first.
    nodes
        Names of the job's machines, each with the job's GPUs there, 0 where unknown; () if the machines are unknown.
    """

    name: str
    gpus: int
    submit_s: float
    start_s: float | None = None
    limit_s: float | None = None
    user: str = ""
    account: str = ""
    partition: str = ""
    gpu_type: str = ""
    priority: int = 0
    nodes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class QueueState:
    """All running and pending jobs.

    Parameters
    ----------
    jobs
        Jobs in the order of their submission.
    now_s
        Time of the snapshot, in seconds since 1970 in UTC.
    dropped, notes
        See `JobTable`.
    has_partitions
        Whether partitions are sets of machines, rather than queues.
    """

    jobs: tuple[QueuedJob, ...]
    now_s: float
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_partitions: bool = True

    @classmethod
    def of(
        cls,
        path: str | Path,
        jobs: Sequence[QueuedJob],
        now_s: float,
        dropped: Mapping[str, int],
        notes: Sequence[str],
        *,
        has_partitions: bool = True,
    ) -> "QueueState":
        """Return the state for jobs in any order.

        Raises
        ------
        InvalidProblemError
            If there is no job, names repeat, a number is negative, or a time is after now.
        """
        if not jobs:
            left = counted(dropped)
            raise InvalidProblemError(f"{path}: no job with GPUs is running or pending ({left or 'the list is empty'})")
        seen: set[str] = set()
        for job in jobs:
            said = f"{path}: job {job.name[:40]!r}"
            if job.name in seen:
                raise InvalidProblemError(f"{said} is listed twice; list it once")
            seen.add(job.name)
            if job.limit_s is not None and job.limit_s <= 0:
                raise InvalidProblemError(f"{said}: the limit must be above 0 seconds, got {job.limit_s:g}")
            if job.submit_s > now_s or (job.start_s is not None and not job.submit_s <= job.start_s <= now_s):
                raise InvalidProblemError(
                    f"{said}: the submission must precede the start, and both must precede now, "
                    f"{(EPOCH + timedelta(seconds=now_s)):%Y-%m-%d %H:%M:%S} UTC; correct it, or give state.now=DATE"
                )
        ordered = sorted(jobs, key=lambda job: job.submit_s)
        kept = {reason: count for reason, count in dropped.items() if count}
        return cls(jobs=tuple(ordered), now_s=now_s, dropped=kept, notes=tuple(notes), has_partitions=has_partitions)

    def texts(self, name: str) -> TextArray:
        """Return a text field of all jobs, shape (jobs,)."""
        return np.array([getattr(job, name) for job in self.jobs], dtype=object)

    @property
    def limit_s(self) -> FloatArray:
        """Limit of each job's run time in seconds, NaN for none; shape (jobs,)."""
        return np.array([np.nan if job.limit_s is None else job.limit_s for job in self.jobs])

    def table(self, default_s: float = 3600.0) -> JobTable:
        """Return a table of the jobs; run times are the limits, or else (also after a limit) elapsed time plus `default_s`."""
        submit = np.array([job.submit_s for job in self.jobs])
        held = np.array([0.0 if job.start_s is None else self.now_s - job.start_s for job in self.jobs])
        limit = self.limit_s
        is_limited = limit > held
        gpu_type, gpus = self.texts("gpu_type"), np.array([job.gpus for job in self.jobs], np.int64)
        return JobTable(
            ids=tuple(job.name for job in self.jobs),
            submit_s=submit - submit[0],
            workers=gpus,
            duration_s=np.where(is_limited, limit, held + default_s),
            clock=np.zeros(len(submit), dtype=np.int64),
            virtual_cluster=self.texts("partition"),
            has_partitions=self.has_partitions,
            names_queues=not self.has_partitions,
            user=self.texts("user"),
            account=self.texts("account"),
            gpu_type=gpu_type if (gpu_type != "").any() else None,
            priority=_priorities(self.jobs),
            begin=EPOCH + timedelta(seconds=float(submit[0])),
            estimate_s=limit if (limit > 0).any() else None,
            rows_read=len(submit),
            dropped=self.dropped,
            notes=self.notes,
        )


def _priorities(jobs: Sequence[QueuedJob]) -> IntArray:
    return np.array([min(max(job.priority, -(2**31)), 2**31) for job in jobs], np.int64)


def given_now(text: str | None, latest_s: float) -> float:
    """Return the current time in seconds since 1970: the option's date, or else the latest time in the file.

    Raises
    ------
    InvalidOptionError
        If the option isn't a date.
    """
    if text is None:
        return latest_s
    try:
        return seconds_of(EPOCH, text)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"state.now must be a date such as 2026-11-02T18:30, got {text[:40]!r}") from error


def expand_list(text: str) -> list[str]:
    """Return the names in a Slurm host list: `n[01-02],m3` is n01, n02 and m3; several brackets give all combinations.

    Raises
    ------
    InvalidProblemError
        If a bracket isn't closed, or a range or an entry stands for more than `MAX_ENTRIES` names.

    Examples
    --------
    >>> expand_list("gpu[08-10],login")
    ['gpu08', 'gpu09', 'gpu10', 'login']
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        pieces = re.split(r"\[([^\]]*)\]", part)  # every second piece was in brackets
        choices = [expand_numbers(piece) if place % 2 else [piece] for place, piece in enumerate(pieces)]
        if math.prod(map(len, choices)) > MAX_ENTRIES:
            raise InvalidProblemError(f"{part[:40]!r} stands for more than {MAX_ENTRIES:,} entries; list fewer")
        names.extend(map("".join, product(*choices)))
    if "[" in text and text.count("[") != text.count("]"):
        raise InvalidProblemError(f"list of names {text[:40]!r} lacks a bracket; add it")
    return names


def expand_numbers(text: str) -> list[str]:
    """Return the numbers of a list such as `01-03,7%2`, with their leading zeros.

    Raises
    ------
    InvalidProblemError
        If a range stands for more than `MAX_ENTRIES` numbers.
    """
    numbers: list[str] = []
    for match in _RANGE.finditer(text.partition("%")[0]):
        first, last = match[1], match[2] or match[1]
        if int(last) - int(first) > MAX_ENTRIES:
            raise InvalidProblemError(
                f"range {match[0][:40]!r} stands for more than {MAX_ENTRIES:,} entries; list fewer"
            )
        numbers.extend(str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
    return numbers
