"""Common table of the jobs of a public trace: times, attempts, components of gangs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import BoolArray, FloatArray, IntArray, TextArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_in
from optim.core.optional import import_extra as require_package
from optim.workloads.csv_columns import LARGEST, line_of, read_columns, refuse, utc_dates

NO_WORK = "jobs without run time"

NO_GPU = "jobs without a GPU"

STILL = ("RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "QUEUED", "WAITING")
"""States, in capitals, of unfinished jobs. REQUEUED isn't among them: Slurm writes it for an attempt that has ended."""

NAMES_SHOWN = 8
"""Maximum number of virtual clusters that an error message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Selection of a trace's jobs, and further files that reading the trace needs.

    Parameters
    ----------
    virtual_cluster
        Read only the jobs of this virtual cluster; None for all.
    gpu_type
        GPU type (a column of Gavel's throughput table) whose speeds give the run times of Gavel's jobs.
    throughputs, nodes, steps
        Paths of Gavel's throughput table, of Alibaba's node list, and of Pollux' folder of step times. None to look for the
        published name in the trace's folder.
    run_s
        Run time for job lists without times, whose jobs are submitted one second apart; None to reject such lists.
    """

    virtual_cluster: str | None = None
    gpu_type: str = "v100"
    throughputs: Path | None = None
    nodes: Path | None = None
    steps: Path | None = None
    run_s: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("(0, 1e9]", self, "run_s")


VIRTUAL_CLUSTER = "virtual_cluster"

CLUSTER_NAMES = (VIRTUAL_CLUSTER, "partition", "vc", "group")
"""Names of the column of virtual clusters in traces; options may use any of these names."""


def by_one_name(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return options with the one for the virtual cluster renamed to `VIRTUAL_CLUSTER`.

    Raises
    ------
    InvalidOptionError
        If the options have two of the names `CLUSTER_NAMES`; the message puts `prefix` before each name.
    """
    called = [name for name in given if name in CLUSTER_NAMES]
    if len(called) > 1:
        raise InvalidOptionError(f"{prefix}{called[0]} and {prefix}{called[1]} mean the same; give one of them")
    return {VIRTUAL_CLUSTER if name in CLUSTER_NAMES else name: value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeTable:
    """Servers of a trace, one row per server, with resources in the order GPUs, vCPUs, memory (GB).

    Parameters
    ----------
    kind
        Name of each server's type.
    capacity
        Shape (servers, resources): amount of each resource.
    """

    kind: tuple[str, ...]
    capacity: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTable:
    """Jobs of a trace with a positive run time, one row per job. Optional fields are None where the trace doesn't record them.

    Parameters
    ----------
    ids
        Unique names.
    submit_s
        Time of submission in seconds, on the clock `clock`; shape (jobs,).
    workers
        GPUs allocated to the job, one worker each; shape (jobs,).
    duration_s
        Run time with these workers, positive; shape (jobs,).
    clock
        Number of each job's clock; times on different clocks can't be compared; shape (jobs,).
    demand
        GPUs, vCPUs and memory (GB) per worker, shape (jobs, 3).
    virtual_cluster, user, model, status, app, account, qos
        Texts, "" where unknown, shape (jobs,).
    has_partitions
        Whether the virtual clusters are partitions: sets of machines that their jobs can't leave.
    names_queues
        Whether the virtual clusters are queues, which aren't bound to machines.
    gpu_type
        GPU types that the job may run on, separated by bars, "" where unknown; shape (jobs,).
    priority
        Priority; jobs with larger ones run first; shape (jobs,).
    min_gpus, max_gpus
        Smallest and largest number of GPUs on which the job could run; shape (jobs,) each.
    failed_s
        Run time after which the first attempt failed, NaN if it didn't; shape (jobs,).
    failed_attempts, good_s
        Number of failed attempts, and run time of the successful attempt, 0 if there was none; shape (jobs,) each.
    checkpoint_s
        Run time between two checkpoints, 0 for a job without checkpoints, NaN where unknown; shape (jobs,).
    step_time
        Time per step in equal parts of the job's steps, in any unit, shape (jobs, parts); None where speeds are constant.
    busy
        Share of its time that a job computes on its GPUs, in (0, 1], shape (jobs,).
    slowdown
        Ratio of the run time to `duration_s` if the workers share a machine, a rack, or only the cluster; at least 1;
        shape (jobs, 3).
    types, type_ratio
        Names of GPU types, and the ratio of the run time on each type to `duration_s`, NaN where the job can't run;
        shape (jobs, types).
    loss
        Loss after equal parts of the work, from 1 at its beginning, NaN for jobs without a recorded loss; shape (jobs, points).
    begin
        Date and time of second 0 of all clocks.
    rows_read
        Number of rows in the file.
    dropped
        Number of dropped rows by reason.
    dropped_gpu_h
        GPU-hours of the dropped rows by reason, as far as recorded.
    notes
        Remarks for the user, one line each.
    nodes
        The trace's servers, if it lists them.
    estimate_s
        Run time in seconds that the user stated, such as a time limit, NaN where unknown; shape (jobs,).
    waited_s
        Recorded waiting time in seconds: all time without GPUs from the job's submission to its end, NaN where unknown;
        shape (jobs,).
    """

    ids: tuple[str, ...]
    submit_s: FloatArray
    workers: IntArray
    duration_s: FloatArray
    clock: IntArray
    demand: FloatArray | None = None
    virtual_cluster: TextArray | None = None
    has_partitions: bool = False
    names_queues: bool = False
    user: TextArray | None = None
    model: TextArray | None = None
    status: TextArray | None = None
    app: TextArray | None = None
    account: TextArray | None = None
    qos: TextArray | None = None
    gpu_type: TextArray | None = None
    priority: IntArray | None = None
    min_gpus: IntArray | None = None
    max_gpus: IntArray | None = None
    failed_s: FloatArray | None = None
    failed_attempts: IntArray | None = None
    good_s: FloatArray | None = None
    checkpoint_s: FloatArray | None = None
    step_time: FloatArray | None = None
    busy: FloatArray | None = None
    slowdown: FloatArray | None = None
    types: tuple[str, ...] = ()
    type_ratio: FloatArray | None = None
    loss: FloatArray | None = None
    begin: datetime | None = None
    rows_read: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    dropped_gpu_h: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    nodes: NodeTable | None = None
    estimate_s: FloatArray | None = None
    waited_s: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.ids)


def leave_out(reasons: Mapping[str, BoolArray]) -> tuple[IntArray, dict[str, int]]:
    """Return the rows that no reason drops, and how many rows each reason drops; a row counts for its first reason only."""
    first = _first_reasons(reasons)
    is_kept = ~np.any(list(first.values()), axis=0)
    return np.flatnonzero(is_kept), {reason: int(holds.sum()) for reason, holds in first.items()}


def first_words(texts: TextArray) -> TextArray:
    """Return the first word of each text: ``CANCELLED`` of ``CANCELLED by 1000``."""
    return np.array([text.strip().split(" ", 1)[0] for text in texts.tolist()], dtype=object)


def gpu_hours_of(reasons: Mapping[str, BoolArray], gpu_s: FloatArray) -> dict[str, float]:
    """Return the GPU-hours of the rows that each reason drops, if positive; unknown GPU-times (NaN) count as 0."""
    hours = {reason: float(np.nansum(gpu_s[holds])) / 3600 for reason, holds in _first_reasons(reasons).items()}
    return {reason: held for reason, held in hours.items() if held > 0}


def _first_reasons(reasons: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    """Return for each reason which rows have it as their first reason."""
    is_left = np.ones(len(next(iter(reasons.values()))), dtype=bool)
    first = {}
    for reason, holds in reasons.items():
        first[reason] = is_left & holds
        is_left &= ~holds
    return first


def is_elsewhere(cluster: TextArray, options: ReadOptions) -> BoolArray:
    """Return which jobs are outside the requested virtual cluster; none if none was requested.

    Raises
    ------
    InvalidProblemError
        If the virtual cluster has no job; the message lists the virtual clusters of the trace.
    """
    if options.virtual_cluster is None:
        return np.zeros(len(cluster), dtype=bool)
    is_other: BoolArray = cluster != options.virtual_cluster
    if is_other.all():
        names = sorted({str(name) for name in cluster.tolist()} - {""})
        shown = [name[:20] for name in names[:NAMES_SHOWN]] + ["..."] * (len(names) > NAMES_SHOWN)
        raise InvalidProblemError(
            f"virtual_cluster: no job of the trace is in {options.virtual_cluster[:40]!r} (there are: "
            f"{', '.join(shown) or 'none'}); name one of them, or leave the option out"
        )
    return is_other


def sibling_file(trace: str | Path, names: Sequence[str], *, what: str, option: str) -> Path:
    """Return the first file of these names in a trace's folder, or raise InvalidProblemError."""
    found = [path for path in (Path(trace).parent / name for name in names) if path.exists()]
    if not found:
        raise InvalidProblemError(
            f"{trace}: no {what} {names[0]!r} in the folder of the jobs' file; put it there or give its path as {option} "
            f"(simulate cluster: --option trace.{option}=FILE)"
        )
    return found[0]


PHILLY_STAMP, SLURM_STAMP = "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"

IN_WORDS = {PHILLY_STAMP: "YYYY-MM-DD hh:mm:ss", SLURM_STAMP: "YYYY-MM-DDThh:mm:ss"}

EPOCH = datetime(1970, 1, 1)

EPOCH_UNITS = ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "milliseconds"))
"""Units of times since 1970: the smallest number read in this unit (a time in 1973), units per second, and name."""

EARLIEST_S = 1e9
"""A column whose times are all at least this (a time in 2001) counts seconds since 1970, so that dates apply to it."""

_OFFSET = re.compile(r"[T ]\d.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)\s*$")

_SPAN = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,6}):(?P<seconds>\d{1,6}(?:\.\d{1,9})?)"
)


def parse_stamps(
    path: str | Path, column: str, texts: TextArray, form: str, *, may_lack: bool = False, is_table: bool = True
) -> Any:
    """Return time stamps as a pandas series; `may_lack` allows empty fields, and with `is_table` errors name the row.

    Raises
    ------
    InvalidProblemError
        At the first row whose text doesn't have this form.
    """
    pd = require_package("pandas", "reading times of a trace")

    series = pd.Series(texts)
    times = pd.to_datetime(series, format=form, errors="coerce")
    is_wrong = (times.isna() & ~(may_lack & (series == ""))).to_numpy()
    refuse(path, column, is_wrong, f"expected {IN_WORDS[form]}", texts, is_table=is_table)
    return times


def seconds_from(begin: datetime, times: Any) -> FloatArray:
    """Return seconds after a date, NaN for missing times."""
    seconds: FloatArray = (times - begin).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds


def since_first(path: str | Path, column: str, texts: TextArray, form: str) -> tuple[FloatArray, datetime]:
    """Return seconds since the earliest of all time stamps, and this time stamp."""
    times = parse_stamps(path, column, texts, form)
    begin: datetime = times.min().to_pydatetime()
    return seconds_from(begin, times), begin


def read_times(
    path: str | Path, column: str, second: float = 1.0
) -> tuple[FloatArray, datetime | None, tuple[str, ...]]:
    """Return a column of times (numbers or dates) as seconds, the date of second 0 if known, and remarks.

    Dates are ISO 8601, to the day, minute, second or fraction of a second. Either all have an offset from UTC, and are
    converted to UTC, or none has. Numbers too large for seconds are milli-, micro- or nanoseconds since 1970. Numbers
    of seconds that are all after 2001 also count from 1970.

    Parameters
    ----------
    second
        Number of the file's time units per second, for columns of numbers; 1 if unknown.

    Raises
    ------
    InvalidProblemError
        If a time is negative or neither date nor number, or the column mixes dates and numbers, dates with and without
        offset, or units.
    """
    return times_of(path, column, read_columns(path, (), (column,))[column], second)


def times_of(
    path: str | Path,
    column: str,
    texts: TextArray,
    second: float = 1.0,
    *,
    is_due: NDArray[np.bool_] | None = None,
    hint: str = "",
) -> tuple[FloatArray, datetime | None, tuple[str, ...]]:
    """Return the result of `read_times` for texts, NaN where `is_due` is false. `hint` goes before the expected form in errors."""
    wanted = np.ones(len(texts), dtype=bool) if is_due is None else is_due
    if not wanted.any():
        return np.full(len(texts), np.nan), None, ()
    times, is_date = _are_dates(texts)
    if is_date[np.flatnonzero(wanted)[0]]:
        refuse(path, column, wanted & ~is_date, f"expected {hint}a date such as 2017-10-03 12:30:00", texts)
        _refuse_some_offsets(path, column, texts, wanted)
        begin: datetime = times[wanted].min().to_pydatetime()
        return np.where(wanted, seconds_from(begin, times), np.nan), begin, ()
    numbers = _numbers(texts)
    is_wrong = wanted & ~np.isfinite(numbers)
    refuse(path, column, is_wrong, f"expected {hint}seconds, or dates such as 2017-10-03 12:30:00", texts)
    refuse(path, column, wanted & (numbers < 0), "must be at least 0", texts)
    refuse(path, column, wanted & (numbers > LARGEST), f"expected a number of at most {LARGEST:g}", texts)
    seconds = np.where(wanted, numbers / second, np.nan)
    return (seconds, None, ()) if second != 1.0 else _from_epoch(path, column, seconds)


def waits_until(
    path: str | Path,
    column: str,
    texts: TextArray,
    submit_s: FloatArray,
    begin: datetime | None,
    *,
    is_due: NDArray[np.bool_],
) -> FloatArray | None:
    """Return the seconds from each row's submission to the start that a column records, NaN where `is_due` is false.

    Parameters
    ----------
    texts
        Starts, in the form that `times_of` reads.
    submit_s, begin
        Submission times in seconds, and the date of second 0; `begin` is None if the trace has no dates.

    Returns
    -------
    waits
        Waiting time of each row in seconds, shape (rows,); None if no start is recorded.

    Raises
    ------
    InvalidProblemError
        If a start can't be read, or only one of starts and submissions has dates.
    """
    if not is_due.any():
        return None
    start_s, first, _ = times_of(path, column, texts, is_due=is_due)
    if (first is None) != (begin is None) and EPOCH not in (first, begin):
        raise InvalidProblemError(
            f"{path}: column {column!r}: starts must be dates if submissions are dates, and seconds if submissions are seconds"
        )
    return np.where(is_due, start_s - submit_s + ((first or EPOCH) - (begin or EPOCH)).total_seconds(), np.nan)


def _from_epoch(
    path: str | Path, column: str, numbers: FloatArray
) -> tuple[FloatArray, datetime | None, tuple[str, ...]]:
    """Return numbers as seconds: numbers too large for seconds count from 1970 in a smaller unit."""
    for least, per_second, unit in EPOCH_UNITS:
        is_small_unit = numbers >= least
        if is_small_unit.any():
            is_other = ~is_small_unit & ~np.isnan(numbers)
            if is_other.any():
                rows = [line_of(path, int(np.flatnonzero(each)[0])) for each in (is_small_unit, is_other)]
                raise InvalidProblemError(
                    f"{path}: column {column!r}: row {rows[0]} is in {unit} since 1970, and row {rows[1]} isn't; "
                    "write all in one unit"
                )
            return numbers / per_second, EPOCH, (f"the times in {column!r} are read as {unit} since 1970",)
    is_dated = bool((numbers[~np.isnan(numbers)] >= EARLIEST_S).all())
    return numbers, EPOCH if is_dated else None, ()


def _refuse_some_offsets(path: str | Path, column: str, texts: TextArray, is_due: NDArray[np.bool_]) -> None:
    """Raise InvalidProblemError if some dates have an offset from UTC, and others don't."""
    has_offset = np.array([_OFFSET.search(text) is not None for text in texts.tolist()])
    bare, said = np.flatnonzero(is_due & ~has_offset), np.flatnonzero(is_due & has_offset)
    if len(bare) and len(said):
        raise InvalidProblemError(
            f"{path}: column {column!r}: row {line_of(path, int(bare[0]))} ({texts[bare[0]][:40]!r}) has no offset from UTC, "
            f"and row {line_of(path, int(said[0]))} ({texts[said[0]][:40]!r}) has one; write all with an offset, or none"
        )


def read_spans(
    path: str | Path,
    column: str,
    texts: TextArray,
    *,
    is_due: NDArray[np.bool_] | None = None,
    may_lack_hours: bool = False,
) -> FloatArray:
    """Return durations in seconds, from seconds or [days-]hours:minutes:seconds; NaN if unreadable and not `is_due`.

    Parameters
    ----------
    may_lack_hours
        Whether a text of two numbers means minutes:seconds; otherwise it is rejected, as it could be hours:minutes.

    Raises
    ------
    InvalidProblemError
        If a text has neither form, or is negative.
    """
    wanted = np.ones(len(texts), dtype=bool) if is_due is None else is_due
    seconds = _numbers(texts)
    for text in set(texts[~np.isfinite(seconds)].tolist()):
        match = _SPAN.fullmatch(text.strip())
        if match is not None and (may_lack_hours or match["hours"]):
            days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
            seconds[texts == text] = 86400 * days + 3600 * hours + 60 * minutes + float(match["seconds"])
    form = "[days-][hours:]minutes:seconds" if may_lack_hours else "hours:minutes:seconds"
    refuse(path, column, wanted & ~np.isfinite(seconds), f"expected seconds, or {form}", texts)
    refuse(path, column, wanted & (seconds < 0), "must be at least 0", texts)
    refuse(path, column, wanted & (seconds > LARGEST), f"expected a number of at most {LARGEST:g}", texts)
    return np.where((seconds >= 0) & (seconds <= LARGEST), seconds, np.nan)


def seconds_of(begin: datetime | None, text: str) -> float:
    """Return a date's second on a trace's clock; a number is already in seconds of this clock.

    A date with an offset is converted to UTC, as in the trace.

    Raises
    ------
    InvalidOptionError
        If the text is neither a number nor a date, or is a date although the trace has no dates.
    """
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        if np.isfinite(seconds):
            return seconds
    try:
        date = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidOptionError(
            f"--from must be a date such as 2017-10-03 or 2017-10-03T12:00, or seconds, got {text[:40]!r}"
        ) from error
    if begin is None:
        raise InvalidOptionError("--from: the trace has no dates; give seconds on its clock")
    return (date.replace(tzinfo=None) - begin - (date.utcoffset() or timedelta())).total_seconds()


def _numbers(texts: TextArray) -> NDArray[np.float64]:
    """Return texts as numbers, NaN for other texts."""
    pd = require_package("pandas", "reading times of a trace")

    numbers: NDArray[np.float64] = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _are_dates(texts: TextArray) -> tuple[Any, NDArray[np.bool_]]:
    """Return dates in UTC, as a pandas series without zones, and which texts are dates such as 2017-10-03."""
    pd = require_package("pandas", "reading times of a trace")

    series = pd.Series(texts, dtype=object)
    dated = series.where(series.str.match(r"\d{4}-\d{2}-\d{2}"))
    times = utc_dates(dated)
    return times, times.notna().to_numpy()


TWICE = "repeated rows"


class Gangs:
    """Jobs assembled from rows: successive attempts of one job, and parallel components of one gang.

    A job's work is the GPU-time of all its rows, so that the total stays the same even if its gang changed.

    Parameters
    ----------
    base, ids
        Job and component of each row; equal for jobs without components.
    submit, gpus, elapsed
        Submission time, GPUs and run time of each row.

    Attributes
    ----------
    ids
        Names of the components.
    job
        Index of each row's job; jobs are in the order of their first rows.
    last
        Row number of each job's last attempt.
    is_last
        Whether each row is the last attempt of its component.
    first_submit
        Each job's first submission.
    workers
        Each job's GPUs: the sum over the last attempts of its components.
    gpu_s
        Each job's GPU-time: the sum over all of its rows.
    notes
        Remarks on combined rows.
    """

    def __init__(
        self, base: TextArray, ids: TextArray, submit: FloatArray, gpus: IntArray, elapsed: FloatArray
    ) -> None:
        self.ids = ids
        order = np.argsort(submit, kind="stable")
        place = {int(row): rank for rank, row in enumerate(order.tolist())}
        numbers: dict[str, int] = {}
        self.job = np.array([numbers.setdefault(name, len(numbers)) for name in base.tolist()], np.int64)
        latest: dict[str, int] = {}
        for row, name in enumerate(ids.tolist()):
            if name not in latest or place[row] > place[latest[name]]:
                latest[name] = row
        self.is_last = np.zeros(len(base), dtype=bool)
        self.is_last[list(latest.values())] = True
        self.last = np.zeros(len(numbers), np.int64)
        self.last[self.job[order]] = order  # of equal indices numpy keeps the last
        count = len(numbers)
        self.first_submit = np.full(count, np.inf)
        np.minimum.at(self.first_submit, self.job, submit)
        self.workers = np.bincount(self.job, gpus * self.is_last, count).astype(np.int64)
        self.gpu_s = np.bincount(self.job, gpus * elapsed, count)
        again = int((np.bincount(self.job, ~self.is_last, count) > 0).sum())
        wide = int((np.bincount(self.job, self.is_last, count) > 1).sum())
        self.notes = (
            *((f"{_jobs(again)} in several records: attempts of one job, whose run times add up",) if again else ()),
            *((f"{_jobs(wide)} in heterogeneous components: one gang each",) if wide else ()),
        )

    def longest(self, amounts: FloatArray) -> FloatArray:
        """Sum amounts over the attempts of each component, and return each job's maximum over its components."""
        names, component = np.unique(self.ids.astype(str), return_inverse=True)
        of_component = np.bincount(component, amounts, len(names))
        found = np.full(len(self.last), -np.inf)
        np.maximum.at(found, self.job, of_component[component])
        return found

    def idle(self, end_s: FloatArray, elapsed: FloatArray) -> FloatArray:
        """Return the time from each job's first submission to its last end during which no attempt ran."""
        last_end = np.full(len(self.last), -np.inf)
        np.maximum.at(last_end, self.job, end_s)
        return np.asarray(last_end - self.first_submit - np.bincount(self.job, elapsed, len(self.last)))

    def summed(self, amounts: FloatArray) -> FloatArray:
        """Return each job's sum of amounts over the last attempts of its components."""
        return np.bincount(self.job, amounts * self.is_last, len(self.last)).astype(np.float64)


def _jobs(number: int) -> str:
    return f"{number} job is" if number == 1 else f"{number} jobs are"


def merge_attempts(table: JobTable) -> JobTable:
    """Return a table with one row per job: rows with equal names are attempts of one job, and repeated rows are dropped.

    A job has the GPUs of its last attempt, and a run time that keeps the GPU-time of all attempts. It is submitted with
    its first attempt. Its recorded wait is all time until the end of the last attempt in which no attempt ran. All
    other fields are those of the last attempt.
    """
    if len(set(table.ids)) == len(table):
        return table
    waited = np.zeros(len(table)) if table.waited_s is None else np.nan_to_num(table.waited_s, nan=-1.0)
    same = (table.submit_s, table.workers, table.duration_s, waited)
    rows = list(zip(table.ids, *(column.tolist() for column in same), strict=True))
    first = {row: place for place, row in reversed(list(enumerate(rows)))}
    once = np.array(sorted(first.values()), np.int64)
    repeated = len(rows) - len(once)
    ids = np.array(table.ids, object)[once]
    gangs = Gangs(ids, ids, table.submit_s[once], table.workers[once], table.duration_s[once])
    last = once[gangs.last]
    taken: dict[str, Any] = {}
    for name in (each.name for each in fields(JobTable)):
        value = getattr(table, name)
        if isinstance(value, np.ndarray):
            taken[name] = value[last]
    if table.waited_s is not None:
        taken["waited_s"] = gangs.idle(
            table.submit_s[once] + table.waited_s[once] + table.duration_s[once], table.duration_s[once]
        )
    taken |= {"submit_s": gangs.first_submit, "duration_s": gangs.gpu_s / gangs.workers}
    return replace(
        table,
        **taken,
        ids=tuple(table.ids[row] for row in last.tolist()),
        dropped={**table.dropped, TWICE: repeated} if repeated else table.dropped,
        notes=(*table.notes, *gangs.notes),
    )
