"""Slurm's current queue, as `squeue --json` prints it."""

from pathlib import Path

import msgspec
import numpy as np

from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.workloads.traces.job_table import NO_GPU
from optim.workloads.traces.queue_state import (
    HELD,
    NO_START,
    NOT_ELIGIBLE,
    OTHER_STATE,
    QueuedJob,
    QueueState,
    expand_list,
    expand_numbers,
    given_now,
)
from optim.workloads.traces.slurm import SLICES, TYPES, cards_of

COMMAND = "squeue --json"
RUNNING = ("RUNNING", "COMPLETING", "SUSPENDED", "RESIZING", "STOPPED")
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD")


class _Number(msgspec.Struct):
    """A number as Slurm's later releases write it."""

    number: float = 0.0
    set: bool = True
    infinite: bool = False


Number = _Number | int | float | str | None


class _Job(msgspec.Struct):
    """One job of the output."""

    job_id: Number
    job_state: list[str] | str
    array_task_id: Number = None
    array_job_id: Number = None
    array_task_string: str | None = ""
    user_name: str | None = ""
    account: str | None = ""
    partition: str | None = ""
    submit_time: Number = None
    start_time: Number = None
    time_limit: Number = None
    priority: Number = None
    state_reason: str | None = ""
    nodes: str | None = ""
    tres_alloc_str: str | None = ""
    tres_req_str: str | None = ""
    gres_detail: list[str] | None = None


class _Queue(msgspec.Struct):
    """The output of ``squeue --json``."""

    jobs: list[_Job]
    last_update: Number = None


def read_squeue(path: str | Path, now: str | None = None) -> QueueState:
    """Read running and pending jobs from ``squeue --json``; each remaining task of a pending job array is one job.

    GPUs are ``gres/gpu=N`` or ``gres/gpu:TYPE=N`` in `tres_alloc_str`, for a pending job in `tres_req_str`; `time_limit` is in
    minutes. The current time is `last_update`, or the latest start or submission.

    Raises
    ------
    InvalidProblemError
        If the file isn't the output of ``squeue --json``, no job is running or pending, or a number is invalid.
    InvalidOptionError
        If `now` isn't a date.
    """
    try:
        queue = decode(read_bytes(path), _Queue)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: not the output of {COMMAND}: {error}") from error
    dropped = dict.fromkeys((OTHER_STATE, HELD, NO_GPU, SLICES, TYPES, NO_START), 0)
    jobs: list[QueuedJob] = []
    for each in queue.jobs:
        reason = _add(path, each, jobs)
        if reason:
            dropped[reason] += 1
    told = [job.submit_s for job in jobs] + [job.start_s for job in jobs if job.start_s is not None]
    latest = _value(path, "last_update", queue.last_update)
    return QueueState.of(path, jobs, given_now(now, latest or max(told, default=0.0)), dropped, ())


def _add(path: str | Path, each: _Job, jobs: list[QueuedJob]) -> str:
    """Add a job's tasks, or return the reason for dropping it."""
    states = [each.job_state] if isinstance(each.job_state, str) else each.job_state
    is_running = any(state in RUNNING for state in states)
    if not is_running and not any(state in WAITING for state in states):
        return OTHER_STATE
    if not is_running and each.state_reason in NOT_ELIGIBLE:
        return HELD
    granted = (each.tres_alloc_str if is_running else "") or each.tres_req_str or ""
    gpus, gpu_type, is_sliced, is_mixed = cards_of(granted, each.tres_req_str or granted)
    if gpus < 1 or is_sliced or is_mixed:
        return NO_GPU if gpus < 1 else SLICES if is_sliced else TYPES
    number = f"{_value(path, 'job_id', each.job_id) or 0:.0f}"
    start = _value(path, "start_time", each.start_time)
    if is_running and not start:
        return NO_START
    limit = _value(path, "time_limit", each.time_limit)
    task = _value(path, "array_task_id", each.array_task_id)
    owner = _value(path, "array_job_id", each.array_job_id)
    names = [f"{owner:.0f}_{task:.0f}" if owner and task is not None else number]
    if not is_running and each.array_task_string:
        names = [f"{owner or 0:.0f}_{entry}" for entry in expand_numbers(each.array_task_string)] or names
    jobs.extend(
        QueuedJob(
            name=name,
            gpus=gpus,
            submit_s=_value(path, "submit_time", each.submit_time) or 0.0,
            start_s=start if is_running else None,
            limit_s=None if limit is None else 60 * limit,
            user=each.user_name or "",
            account=each.account or "",
            partition=(each.partition or "").partition(",")[0],
            gpu_type=gpu_type,
            priority=int(_value(path, "priority", each.priority) or 0),
            nodes=_nodes(each) if is_running else (),
        )
        for name in names
    )
    return ""


def _nodes(each: _Job) -> tuple[tuple[str, int], ...]:
    """Return a running job's machines, each with the job's GPUs there; only `gres_detail` gives these numbers."""
    names = expand_list(each.nodes or "")
    details = [cards_of_gres(text) for text in each.gres_detail or ()]
    return tuple(zip(names, details if len(details) == len(names) else [0] * len(names), strict=True))


def cards_of_gres(text: str) -> int:
    """Return the number of GPUs of one machine in a text such as ``gpu:a100:4(IDX:0-3)``."""
    return sum(
        int(number)
        for part in text.split(",")
        if part.startswith("gpu")
        for number in [part.partition("(")[0].rpartition(":")[2]]
        if number.isdigit()
    )


def _value(path: str | Path, name: str, number: Number) -> float | None:
    """Return a number, None if it is unset or infinite."""
    if isinstance(number, _Number):
        if number.infinite or not number.set:
            return None
        number = number.number
    if number is None or number == "":
        return None
    try:
        value = float(number)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 1e15:
        raise InvalidProblemError(f"{path}: {name} must be a number of at least 0, got {str(number)[:40]!r}")
    return value
