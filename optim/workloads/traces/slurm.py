"""Slurm's accounting records, as `sacct -P` prints them."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import BoolArray, FloatArray, IntArray, TextArray
from optim.core.errors import InvalidProblemError
from optim.core.optional import import_extra as require_package
from optim.models.cluster.workload import ELSEWHERE, UNFINISHED
from optim.workloads.csv_columns import header_of, read_columns, refuse, require_all_fields
from optim.workloads.traces.job_table import (
    EPOCH,
    NO_GPU,
    NO_WORK,
    STILL,
    TWICE,
    Gangs,
    JobTable,
    ReadOptions,
    first_words,
    gpu_hours_of,
    is_elsewhere,
    leave_out,
    read_spans,
    times_of,
    waits_until,
)
from optim.workloads.traces.queue_state import (
    HELD,
    NO_REQUEST,
    NO_START,
    NOT_ELIGIBLE,
    OTHER_STATE,
    QueuedJob,
    QueueState,
    expand_list,
    expand_numbers,
    given_now,
)
from optim.workloads.traces.sacct_command import COMMAND

SEPARATOR = "|"
RESOURCES = ("AllocTRES", "ReqTRES")
LIMITS = ("Timelimit", "TimelimitRaw")
NO_LIMIT = ("UNLIMITED", "Partition_Limit")
NAMES = ("JobID", "JobIDRaw")
STEP = "job steps (parts of their jobs)"
SLICES, TYPES = "jobs with MIG slices instead of full GPUs", "jobs with GPUs of several types"
NO_SUBMIT, NO_ELAPSED = "jobs with unknown submission", "jobs with unknown run time"
UNKNOWN = ("", "Unknown", "None", "N/A", "INVALID")
EARLIEST_S = 1e8
"""Earliest plausible submission in seconds since 1970: a time in 1973, before Slurm existed."""
_GPU = re.compile(r"(?:^|,)gres/gpu(?::(?P<type>[^=,]+))?=(?P<count>\d+)(?=,|$)")
_ANY_GPU = re.compile(r"(?:^|,)gres/gpu[:=]")
_SLICE = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
_CPU = re.compile(r"(?:^|,)cpu=(\d+)()(?=,|$)")
_MEMORY = re.compile(r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGTP]?)(?=,|$)")
MB_OF = {"K": 2.0**-10, "M": 1.0, "": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
GB_A_MB = 2.0**-10


def read_sacct(path: str | Path, options: ReadOptions) -> JobTable:
    """Read jobs from the output of `COMMAND`, or of `sacct -P` with some of its columns.

    Required are JobID, Partition, Submit, the run time, State, and AllocTRES or ReqTRES.

    GPUs are ``gres/gpu=N`` or ``gres/gpu:TYPE=N``; vCPUs and memory are those of the job. The partition is the virtual cluster.
    The user's estimate is Timelimit, or TimelimitRaw (minutes), if present. Account and QOS are optional.
    The run time is ElapsedRaw, else Elapsed, else End minus Start. Records of one JobID are attempts of one job.
    ``900+0``, ``900+1`` are components of one gang, which is submitted with the first of them; its work is their total
    GPU-time. Job steps (``123.batch``), jobs without full GPUs of one type, and unfinished jobs are dropped and
    counted.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field isn't a number or date, or the file can't be read.
    """
    header = header_of(path, SEPARATOR)
    columns = _read(path, header)
    count = len(columns["Submit"])
    ids = columns[next(name for name in NAMES if name in header)]
    granted = _granted(columns)
    is_step = np.array(["." in name for name in ids.tolist()])
    is_bad = ~is_step & np.array([len(_GPU.findall(text)) < len(_ANY_GPU.findall(text)) for text in granted.tolist()])
    refuse(
        path, next(name for name in RESOURCES if name in columns), is_bad, "expected gres/gpu[:TYPE]=NUMBER", granted
    )
    gpus, gpu_type, is_sliced, is_mixed = _cards(granted, columns.get("ReqTRES", granted))
    state = first_words(columns["State"])
    out: dict[str, BoolArray] = {STEP: is_step, TWICE: _repeats(columns)}
    is_job = ~np.any(list(out.values()), axis=0)
    out |= {ELSEWHERE: is_elsewhere(columns["Partition"], options)}
    out |= {UNFINISHED: np.isin(state, STILL), NO_GPU: gpus < 1}
    is_due = ~np.any(list(out.values()), axis=0)
    elapsed = _elapsed(path, columns, is_due)
    out |= {
        SLICES: is_sliced,
        TYPES: is_mixed,
        NO_SUBMIT: np.isin(columns["Submit"], UNKNOWN),
        NO_ELAPSED: np.isnan(elapsed),
        NO_WORK: elapsed <= 0,
    }
    base = np.array([name.split("+", 1)[0] for name in ids.tolist()], dtype=object)
    left_out = [out[reason] for reason in (SLICES, TYPES)]
    out[TYPES] = out[TYPES] | _of_split_jobs(base, ids, gpu_type, np.any(left_out, axis=0) & is_due, is_due)
    kept, dropped = leave_out(out)
    is_kept = np.isin(np.arange(count), kept)
    submit, begin, remarks = _submissions(path, columns["Submit"], is_kept)
    gangs = Gangs(base[kept], ids[kept], submit[kept], gpus[kept], elapsed[kept])
    last, workers = kept[gangs.last], gangs.workers
    waited = _waited(path, columns, is_kept, submit, begin)
    limit = _limits(path, columns, is_kept)
    cpus, memory = (gangs.summed(_amounts(granted[kept], pattern)) for pattern in (_CPU, _MEMORY))
    return JobTable(
        ids=tuple(base[last].tolist()),
        submit_s=gangs.first_submit,
        workers=workers,
        duration_s=gangs.gpu_s / workers,
        clock=np.zeros(len(last), dtype=np.int64),
        demand=np.stack([np.ones(len(last)), cpus / workers, memory * GB_A_MB / workers], axis=1),
        virtual_cluster=columns["Partition"][last],
        has_partitions=True,
        user=columns["User"][last] if "User" in columns else None,
        account=columns["Account"][last] if "Account" in columns else None,
        qos=columns["QOS"][last] if "QOS" in columns else None,
        status=state[last],
        gpu_type=gpu_type[last] if (gpu_type[last] != "").any() else None,
        begin=begin,
        rows_read=count,
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, np.where(is_job, gpus * elapsed, 0.0)),
        notes=(*remarks, *gangs.notes),
        estimate_s=None if limit is None else limit[last],
        waited_s=None if waited is None else gangs.longest(waited[kept]),
    )


def _read(path: str | Path, header: tuple[str, ...], more: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Return the columns as texts, "" where unknown.

    Raises
    ------
    InvalidProblemError
        If a column is missing, or the number of a row's fields differs from the header's: a lost or split field shifts the others.
    """
    wanted = {"JobID", "Submit", "State", "Partition", *RESOURCES, "ElapsedRaw", "Elapsed"}
    if not wanted & set(header):
        if len(header) == 1 and "," in header[0]:
            raise InvalidProblemError(f"{path}: its fields are separated by commas; read it with --trace-format csv")
        raise InvalidProblemError(f"{path}: the header is missing; print the table with it (without -n): {COMMAND}")
    for names in (NAMES, ("Partition",), ("Submit",), ("ElapsedRaw", "Elapsed", "End"), RESOURCES, ("State",)):
        if not set(names) & set(header):
            raise InvalidProblemError(f"{path}: column {names[0]!r} is missing; this command prints all: {COMMAND}")
    if not {"ElapsedRaw", "Elapsed"} & set(header) and "Start" not in header:
        raise InvalidProblemError(
            f"{path}: column 'Start' is missing, which 'End' needs; this command prints all: {COMMAND}"
        )
    known = (
        *NAMES,
        "User",
        "Account",
        "QOS",
        "Partition",
        "Submit",
        "ElapsedRaw",
        "Elapsed",
        *LIMITS,
        "Start",
        "End",
        *RESOURCES,
        "State",
        *more,
    )
    columns = read_columns(path, (), tuple(name for name in known if name in header), SEPARATOR)
    require_all_fields(path, SEPARATOR)
    return columns


def _granted(columns: Mapping[str, TextArray]) -> TextArray:
    """Return the resources allocated to each row's job, or those requested if the job never ran."""
    there = [columns[name] for name in RESOURCES if name in columns]
    granted = there[0].copy()
    for others in there[1:]:
        granted[granted == ""] = others[granted == ""]
    return granted


def _cards(granted: TextArray, asked: TextArray) -> tuple[IntArray, TextArray, BoolArray, BoolArray]:
    """Return each row's number of GPUs, their type ("" if unknown), and whether they are slices of GPUs or of several types.

    The number is the total, or the sum over types if the text has no total. The type may be in the request only.
    """
    known = {pair: cards_of(*pair) for pair in set(zip(granted.tolist(), asked.tolist(), strict=True))}
    rows = [known[pair] for pair in zip(granted.tolist(), asked.tolist(), strict=True)]
    numbers, names, sliced, mixed = zip(*rows, strict=True)
    return np.array(numbers, np.int64), np.array(names, object), np.array(sliced, bool), np.array(mixed, bool)


def cards_of(granted: str, asked: str) -> tuple[int, str, bool, bool]:
    """Return the values of `_cards` for the resource texts of one job."""
    total, by_type = _counts(granted)
    if total and not by_type:
        by_type = dict.fromkeys(_counts(asked)[1], total)
    types = list(by_type)
    is_sliced = any(_SLICE.search(name) for name in types)
    is_mixed = len(types) > 1 or (len(types) == 1 and by_type[types[0]] != total)
    return total, types[0] if len(types) == 1 else "", is_sliced, is_mixed


def _counts(text: str) -> tuple[int, dict[str, int]]:
    """Return the number of GPUs in a resource text, in total and by type."""
    found = [(match["type"], int(match["count"])) for match in _GPU.finditer(text)]
    by_type = {kind: count for kind, count in found if kind is not None and count}
    totals = [count for kind, count in found if kind is None]
    return (totals[0] if totals else sum(by_type.values())), by_type


def _amounts(texts: TextArray, pattern: re.Pattern[str]) -> FloatArray:
    """Return the amount that a pattern finds in each resource text, 0 where absent; memory without a unit is in MB."""
    found = [pattern.search(text) for text in texts.tolist()]
    return np.array([float(match[1]) * MB_OF[match[2]] if match else 0.0 for match in found])


def _elapsed(path: str | Path, columns: Mapping[str, TextArray], is_due: BoolArray) -> FloatArray:
    """Return each row's run time in seconds, NaN where unknown; unreadable texts are errors only where `is_due` is true."""
    for name in ("ElapsedRaw", "Elapsed"):
        if name in columns:
            texts = columns[name]
            return read_spans(path, name, texts, is_due=is_due & ~np.isin(texts, UNKNOWN), may_lack_hours=True)
    begin, end = columns["Start"], columns["End"]
    both = is_due & ~np.isin(begin, UNKNOWN) & ~np.isin(end, UNKNOWN)
    (start_s, start, _), (end_s, stop, _) = (
        times_of(path, name, columns[name], is_due=both) for name in ("Start", "End")
    )
    apart = 0.0 if start is None or stop is None else (stop - start).total_seconds()
    return np.asarray(end_s - start_s + apart)


def _limits(path: str | Path, columns: Mapping[str, TextArray], is_due: BoolArray) -> FloatArray | None:
    """Return each row's time limit in seconds, NaN without a limit; None if the table has no such column."""
    for name, seconds in zip(LIMITS, (1.0, 60.0), strict=True):
        if name in columns:
            texts = columns[name]
            is_stated = is_due & ~np.isin(texts, (*UNKNOWN, *NO_LIMIT))
            limit = read_spans(path, name, texts, is_due=is_stated, may_lack_hours=True) * seconds
            return np.where(is_stated & (limit > 0), limit, np.nan)
    return None


def _submissions(
    path: str | Path, texts: TextArray, is_due: BoolArray, column: str = "Submit"
) -> tuple[FloatArray, datetime, tuple[str, ...]]:
    """Return a column of times, such as submissions; the date of second 0; and remarks."""
    hint = "YYYY-MM-DDThh:mm:ss (unset SLURM_TIME_FORMAT), "
    submit, begin, remarks = times_of(path, column, texts, is_due=is_due, hint=hint)
    if begin is None:
        refuse(path, column, submit < EARLIEST_S, "expected YYYY-MM-DDThh:mm:ss, or seconds since 1970", texts)
    return submit, EPOCH if begin is None else begin, remarks


def _waited(
    path: str | Path, columns: Mapping[str, TextArray], is_kept: BoolArray, submit: FloatArray, begin: datetime
) -> FloatArray | None:
    """Return each record's waiting time, NaN where its start is unknown; None if the table has no starts."""
    if "Start" not in columns:
        return None
    is_told = is_kept & ~np.isin(columns["Start"], UNKNOWN)
    return waits_until(path, "Start", columns["Start"], submit, begin, is_due=is_told)


def _repeats(columns: Mapping[str, TextArray]) -> BoolArray:
    """Return which rows equal an earlier row in all fields, for instance because two joined outputs overlap in time."""
    pd = require_package("pandas", "reading traces")

    return np.asarray(pd.DataFrame(dict(columns)).duplicated().to_numpy(), bool)


def _of_split_jobs(base: TextArray, ids: TextArray, types: TextArray, is_out: BoolArray, is_in: BoolArray) -> BoolArray:
    """Return which components belong to jobs of which another component was dropped, or whose components differ in GPU type."""
    is_split = np.zeros(len(base), dtype=bool)
    is_part = is_in & np.array(["+" in name for name in ids.tolist()])
    by_job: dict[str, list[int]] = {}
    for row in np.flatnonzero(is_part).tolist():
        by_job.setdefault(base[row], []).append(row)
    for rows in by_job.values():
        is_split[rows] = bool(is_out[rows].any()) or len(set(types[rows].tolist())) > 1
    return is_split


STATE_COLUMNS = ("Priority", "NodeList", "Reason")
"""Additional columns that are read for running and pending jobs."""
WAITS = ("PENDING", "CONFIGURING", "QUEUED", "WAITING")


def read_sacct_state(path: str | Path, now: str | None = None) -> QueueState:
    """Read running and pending jobs from the output of `sacct -P`.

    Columns are those of `read_sacct`, and `Start` (required), `Timelimit`, `Account`, `Priority`, `NodeList`, `Reason`.
    The current time is the latest of all submissions and of the running jobs' starts plus elapsed times. Each remaining
    task of a pending job array is one job; the components of one gang (``900+0``) together are one job.

    Raises
    ------
    InvalidProblemError
        If a column is missing, no job is running or pending, or a field is invalid.
    InvalidOptionError
        If `now` isn't a date.
    """
    header = header_of(path, SEPARATOR)
    columns = _read(path, header, tuple(name for name in STATE_COLUMNS if name in header))
    if "Start" not in columns:
        raise InvalidProblemError(
            f"{path}: column 'Start', the start of running jobs, is missing; this command prints all: {COMMAND}"
        )
    ids = columns[next(name for name in NAMES if name in header)]
    granted = _granted(columns)
    gpus, gpu_type, is_sliced, is_mixed = _cards(granted, columns.get("ReqTRES", granted))
    state = first_words(columns["State"])
    is_waiting = np.isin(state, WAITS)
    reason = columns.get("Reason", np.full(len(ids), "", dtype=object))
    is_step, is_open = np.array(["." in name for name in ids.tolist()]), np.isin(state, STILL)
    out: dict[str, BoolArray] = {
        STEP: is_step,
        OTHER_STATE: ~is_open,
        HELD: is_waiting & np.isin(reason, NOT_ELIGIBLE),
        NO_REQUEST: is_waiting & (gpus < 1) & ("ReqTRES" not in columns),
        NO_GPU: gpus < 1,
        SLICES: is_sliced,
        TYPES: is_mixed,
        NO_SUBMIT: np.isin(columns["Submit"], UNKNOWN),
        NO_START: ~is_waiting & np.isin(columns["Start"], UNKNOWN),
    }
    kept, dropped = leave_out(out)
    dropped.pop(OTHER_STATE)
    dropped.pop(STEP)
    is_kept = np.isin(np.arange(len(ids)), kept)
    submit = _since_1970(path, "Submit", columns, is_kept)
    start = _since_1970(path, "Start", columns, is_kept & ~is_waiting)
    elapsed = _elapsed(path, columns, is_kept & ~is_waiting)
    stated = _limits(path, columns, is_kept)
    limit = np.full(len(ids), np.nan) if stated is None else stated
    priority = _priority(path, columns, is_kept)
    jobs: dict[str, QueuedJob] = {}
    for row in kept.tolist():
        base = str(ids[row]).split("+", 1)[0]
        for name in _tasks(base) if is_waiting[row] else [base]:
            nodes = () if is_waiting[row] else tuple((each, 0) for each in expand_list(_text(columns, "NodeList", row)))
            before = jobs.get(name)
            jobs[name] = QueuedJob(
                name=name,
                gpus=int(gpus[row]) + (before.gpus if before and "+" in ids[row] else 0),
                submit_s=float(submit[row]),
                start_s=None if is_waiting[row] else float(start[row]),
                limit_s=None if np.isnan(limit[row]) else float(limit[row]),
                user=_text(columns, "User", row),
                account=_text(columns, "Account", row),
                partition=_text(columns, "Partition", row).partition(",")[0],
                gpu_type=str(gpu_type[row]),
                priority=int(priority[row]),
                nodes=(*(before.nodes if before and "+" in ids[row] else ()), *nodes),
            )
    latest = np.nanmax([*(start + np.nan_to_num(elapsed)), *submit, 0.0])
    return QueueState.of(path, list(jobs.values()), given_now(now, float(latest)), dropped, ())


def _since_1970(path: str | Path, name: str, columns: Mapping[str, TextArray], is_due: BoolArray) -> FloatArray:
    """Return a column of dates in seconds since 1970, NaN where `is_due` is false."""
    if not is_due.any():
        return np.full(len(is_due), np.nan)
    seconds, begin, _ = _submissions(path, columns[name], is_due, name)
    return np.where(is_due, seconds + (begin - EPOCH).total_seconds(), np.nan)


def _priority(path: str | Path, columns: Mapping[str, TextArray], is_due: BoolArray) -> IntArray:
    texts = columns.get("Priority")
    if texts is None:
        return np.zeros(len(is_due), np.int64)
    is_number = np.array([re.fullmatch(r"\d{1,18}", text.strip()) is not None for text in texts.tolist()])
    refuse(path, "Priority", is_due & ~is_number & ~np.isin(texts, UNKNOWN), "expected an integer", texts)
    return np.array(
        [int(text) if known else 0 for text, known in zip(texts.tolist(), is_number, strict=True)], np.int64
    )


def _tasks(name: str) -> list[str]:
    """Return the names of a pending job's tasks: ``900_[1-3%2]`` has three."""
    owner, bracket, tasks = name.partition("_[")
    return [f"{owner}_{number}" for number in expand_numbers(tasks)] if bracket else [name]


def _text(columns: Mapping[str, TextArray], name: str, row: int) -> str:
    """Return a field, "" where it is absent or unknown."""
    text = str(columns[name][row]) if name in columns else ""
    return "" if text in UNKNOWN or text == "None assigned" else text
