"""Microsoft's Philly trace: the merged list, Pollux's list, and the published job log.

The lists and the log carry the attribution: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019 (trace: CC BY 4.0).
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np

from optim.core.documents import decode, first_sign
from optim.core.errors import InvalidProblemError
from optim.core.files import Source, cant_be_read, read_bytes
from optim.models.cluster.workload import ELSEWHERE
from optim.workloads.csv_columns import header_of, read_columns, require_columns, require_rereadable, require_whole
from optim.workloads.traces.job_table import (
    NO_GPU,
    NO_WORK,
    PHILLY_STAMP,
    JobTable,
    ReadOptions,
    gpu_hours_of,
    is_elsewhere,
    leave_out,
    parse_stamps,
    seconds_from,
    since_first,
)

NEVER_RAN = "jobs without an attempt"

NO_SUBMIT = "jobs with unknown submission"

STILL_RUNNING = "jobs whose last attempt has no end"

FAILED = "Failed"

PEEKED = 64
"""Number of bytes at the beginning of a file from which `is_log` distinguishes a JSON list from a table."""


class _Machine(msgspec.Struct):
    """GPUs of an attempt on one machine."""

    gpus: list[str]
    ip: str = ""


class _Attempt(msgspec.Struct):
    """One attempt of a job."""

    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] = []

    @property
    def num_gpus(self) -> int:
        """GPUs allocated to the attempt."""
        return sum(len(machine.gpus) for machine in self.detail)

    @property
    def is_told(self) -> bool:
        """Whether the log records the attempt's machines or times; otherwise the entry is ignored."""
        return self.num_gpus > 0 or not {self.start_time, self.end_time} & {None, "None", ""}


class _Job(msgspec.Struct):
    """One job of the log."""

    jobid: str
    submitted_time: str | None
    status: str | None = None
    vc: str | None = ""
    user: str | None = ""
    attempts: list[_Attempt] = []


def is_log(path: str | Path) -> bool:
    """Return whether a file is the JSON log rather than a table."""
    require_rereadable(path)
    try:
        with Source(path, "document_bytes") as source:
            return first_sign(source.read(PEEKED)) == b"["
    except OSError as error:
        raise cant_be_read(path, error) from error


def read_log(path: str | Path, options: ReadOptions) -> JobTable:
    """Read the log: a list of jobs with `jobid`, `submitted_time`, `status`, `vc`, `user` and `attempts`.

    An attempt has `start_time`, `end_time` (dates and times, or null) and `detail`, its machines with their `gpus`. An
    attempt with neither times nor machines is ignored. A job's run time is the sum over its attempts. The job's wait is
    the remaining time from its submission to the end of the last attempt. The job's gang is that of the last attempt
    with machines. A job without a submission time is dropped. All attempts but the last count as failed, and the last
    one if the job's status is Failed; `failed_s` is the run time of the first attempt if it failed.

    Raises
    ------
    InvalidProblemError
        If the file isn't Philly's job log.

    References
    ----------
    Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", USENIX ATC 2019.
    """
    try:
        jobs = decode(read_bytes(path), list[_Job])
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: not Philly's job log: {error}") from error
    if not jobs:
        raise InvalidProblemError(f"{path}: the log has no jobs; give a log with jobs")
    submitted_texts = _texts([job.submitted_time for job in jobs])
    submitted = parse_stamps(path, "submitted_time", submitted_texts, PHILLY_STAMP, may_lack=True, is_table=False)
    if submitted.isna().all():
        raise InvalidProblemError(f"{path}: no job has a submitted_time; give a log with times")
    begin = submitted.min().to_pydatetime()
    tries = [[attempt for attempt in job.attempts if attempt.is_told] for job in jobs]
    owner = np.repeat(np.arange(len(jobs)), [len(each) for each in tries])
    attempts = [attempt for each in tries for attempt in each]
    start, end = (
        seconds_from(begin, parse_stamps(path, name, _texts(texts), PHILLY_STAMP, may_lack=True, is_table=False))
        for name, texts in (
            ("start_time", [attempt.start_time for attempt in attempts]),
            ("end_time", [attempt.end_time for attempt in attempts]),
        )
    )
    ran = np.maximum(end - start, 0.0)
    duration = np.bincount(owner, weights=np.nan_to_num(ran), minlength=len(jobs)).astype(np.float64)
    last = np.full(len(jobs), -1)
    last[owner] = np.arange(len(owner))  # of equal indices numpy keeps the last
    last_end = np.full(len(jobs), -np.inf)
    np.maximum.at(last_end, owner, np.where(np.isnan(ran), np.inf, end))  # infinite where a start or an end is unknown
    submit_s = seconds_from(begin, submitted)
    last_run = np.where(last >= 0, ran[last], np.nan) if attempts else np.full(len(jobs), np.nan)
    gpus = np.array([next((held for a in reversed(each) if (held := a.num_gpus)), 0) for each in tries])
    status = _texts([job.status for job in jobs])
    cluster = _texts([job.vc for job in jobs])
    out = {
        ELSEWHERE: is_elsewhere(cluster, options),
        NO_SUBMIT: submitted.isna().to_numpy(),
        NEVER_RAN: (last < 0) | (gpus < 1),
        STILL_RUNNING: np.isnan(last_run),
        NO_WORK: duration <= 0,
    }
    kept, dropped = leave_out(out)
    first = np.full(len(jobs), -1)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    is_retried = np.bincount(owner, minlength=len(jobs)) > 1
    failed = np.where((is_retried | (status == FAILED)) & (first >= 0), ran[first] if attempts else np.nan, np.nan)
    return JobTable(
        ids=tuple(jobs[row].jobid for row in kept.tolist()),
        submit_s=submit_s[kept],
        workers=gpus[kept].astype(np.int64),
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        virtual_cluster=cluster[kept],
        user=_texts([job.user for job in jobs])[kept],
        status=status[kept],
        failed_s=failed[kept],
        failed_attempts=(np.bincount(owner, minlength=len(jobs)) - (status != FAILED))[kept],
        good_s=np.where(status == FAILED, 0.0, np.nan_to_num(last_run))[kept],
        begin=begin,
        rows_read=len(jobs),
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, gpus * duration),
        waited_s=(last_end - submit_s - duration)[kept],
        notes=("run times add up all attempts; the gang is that of the last attempt with machines",),
    )


def _texts(values: Sequence[str | None]) -> np.ndarray:
    """Return texts as an array, with "" for None and for the text "None"."""
    return np.array(["" if value in (None, "None") else value for value in values], dtype=object)


MERGED_BEGIN = datetime(2017, 8, 14, 23, 27)
"""Second 0 of the merged list."""


def read_philly(path: str | Path, options: ReadOptions) -> JobTable:
    """Read a list of Philly's jobs in one of three forms, recognised by its beginning.

    The merged list has columns `job_id`, `submit_s` (seconds since the first job), `num_gpus`, `duration_s`
    and `vc`. The list's run times add up all attempts, so that GPU-hours are upper bounds. The virtual cluster is empty
    for the long and wide jobs.
    Pollux' list has `timestamp` (date and time, not in order), `duration` (s), `num_gpus` and `cluster`.
    The job log published with the trace is JSON (`read_log`).

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field isn't a number or is negative, or the file can't be read.
    """
    if is_log(path):
        return read_log(path, options)
    begin = MERGED_BEGIN
    is_pollux = "timestamp" in header_of(path) and "submit_s" not in header_of(path)
    if is_pollux:
        columns = read_columns(path, ("duration", "num_gpus"), ("timestamp", "cluster"))
        submit, begin = since_first(path, "timestamp", columns["timestamp"], PHILLY_STAMP)
        duration, cluster = columns["duration"], columns["cluster"]
        duration_name = "duration"
        ids = [f"row-{row}" for row in range(len(submit))]
    else:
        columns = read_columns(path, ("submit_s", "num_gpus", "duration_s"), ("job_id", "vc"))
        submit, duration, cluster = columns["submit_s"], columns["duration_s"], columns["vc"]
        duration_name = "duration_s"
        ids = [f"philly-{name}" for name in columns["job_id"].tolist()]
        require_columns(path, columns, "submit_s", least=0.0)
    require_columns(path, columns, duration_name, least=0.0)
    require_columns(path, columns, "num_gpus", least=0.0)
    gpus = require_whole(path, "num_gpus", columns["num_gpus"])
    out = {ELSEWHERE: is_elsewhere(cluster, options), NO_GPU: gpus < 1, NO_WORK: duration <= 0}
    kept, dropped = leave_out(out)
    return JobTable(
        ids=tuple(ids[row] for row in kept.tolist()),
        submit_s=submit[kept],
        workers=gpus[kept],
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        virtual_cluster=cluster[kept],
        begin=begin,
        rows_read=len(submit),
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, gpus * duration),
        notes=() if is_pollux else ("run times add up all attempts: GPU-hours are upper bounds",),
    )
