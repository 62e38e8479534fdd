"""Jobs of a public trace in one form: times, attempts, components of gangs."""

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

NO_WORK = "without run time"

NO_GPU = "without a GPU"

STILL = ("RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING", "QUEUED", "WAITING")
"""States, in capitals, of jobs that aren't over; Slurm's REQUEUED record is an attempt that is."""

NAMES_SHOWN = 8
"""Virtual clusters that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to take of a trace, and where the files beside it are.

    Parameters
    ----------
    virtual_cluster
        Take only this virtual cluster's jobs; None for all.
    gpu_type
        Column of Gavel's throughput table.
    throughputs, nodes, steps
        Gavel's throughput table, Alibaba's node list, Pollux' folder of step times; None to look for the published name beside
        the trace.
    run_s
        Run time of jobs in lists that tell no times, which are submitted a second apart; None to refuse such lists.
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
"""What traces, and so their users, call virtual clusters."""


def by_one_name(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a reader's options with the virtual cluster under one name, whatever a trace's column calls it.

    Raises
    ------
    InvalidOptionError
        If it is given under two; options are written with the prefix.
    """
    called = [name for name in given if name in CLUSTER_NAMES]
    if len(called) > 1:
        raise InvalidOptionError(f"{prefix}{called[0]} and {prefix}{called[1]} mean the same; give one of them")
    return {VIRTUAL_CLUSTER if name in CLUSTER_NAMES else name: value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeTable:
    """Servers of a trace, one row a server: resources in the order GPUs, vCPUs, memory (GB).

    Parameters
    ----------
    kind
        Name of each server's type.
    capacity
        Shape (servers, resources).
    """

    kind: tuple[str, ...]
    capacity: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTable:
    """Jobs of a trace that had work, one row a job.

    Parameters
    ----------
    ids
        Unique names.
    submit_s
        Time of submission in seconds, on the clock `clock`; shape (jobs,).
    workers
        GPUs that the job held, a worker each; shape (jobs,).
    duration_s
        Run time with these workers, positive; shape (jobs,).
    clock
        Jobs with different numbers have different origins of time; shape (jobs,).
    demand
        What one worker takes of GPUs, vCPUs, memory (GB), shape (jobs, 3); None where the trace doesn't say.
    virtual_cluster, user, model, status, app, account, qos
        Texts, "" for a job of which the trace doesn't say it, shape (jobs,); None where it says it of no job.
    has_partitions
        Whether the virtual clusters are partitions: sets of machines, outside of which none of their jobs runs.
    names_queues
        Whether the virtual clusters are queues, which say nothing of machines.
    gpu_type
        Types of GPU that the job may run on, with bars between; "" for a job of which the trace doesn't say it; shape (jobs,);
        None where it says it of no job.
    priority
        Larger ones first, shape (jobs,); None where the trace has none.
    min_gpus, max_gpus
        What the job could also run on, shape (jobs,); None where the trace doesn't say.
    failed_s
        After how much run time the first attempt failed, NaN if none did; shape (jobs,); None where the trace doesn't say.
    failed_attempts, good_s
        How many attempts failed, and the run time of the one that didn't, 0 if there was none; shape (jobs,); None where the
        trace doesn't say.
    checkpoint_s
        Run time between two checkpoints of the job, 0 if it has none, NaN where the trace doesn't say; shape (jobs,); None where it
        says it of no job.
    step_time
        Time per step in each of equal parts of the job's steps, in any unit, shape (jobs, parts); None where speeds are constant.
    busy
        Share of its time that a job computes on its GPUs, in (0, 1], shape (jobs,); None where the trace doesn't say.
    slowdown
        Run time over `duration_s` where the workers share a machine, a rack, or only the cluster; at least 1, shape (jobs, 3);
        None where the trace doesn't say.
    types, type_ratio
        Names of GPU types, and the run time on each over `duration_s`, NaN where the job can't run; shape (jobs, types).
    loss
        Loss after equal parts of the work, from 1 at its beginning, NaN for jobs of which it isn't known; shape (jobs, points).
    begin
        Date and time of second 0 of all clocks; None where the trace tells no dates.
    rows_read
        Rows of the file.
    dropped
        How many rows were left out, by reason.
    dropped_gpu_h
        GPU-hours of those that held GPUs, by reason, as far as the trace tells them.
    notes
        What a user of the jobs should know, one line each.
    nodes
        The trace's own servers, if it lists them.
    estimate_s
        Run time that the user stated, such as a time limit, NaN where none is; shape (jobs,); None where it is of no job.
    waited_s
        How long each job waited in the cluster of the trace: all time without GPUs from its submission to its end; NaN where it
        isn't recorded, None where it is of no job.
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
    """Return the rows that no reason leaves out, and how many each does: the first that holds for a row counts."""
    first = _first_reasons(reasons)
    is_kept = ~np.any(list(first.values()), axis=0)
    return np.flatnonzero(is_kept), {reason: int(holds.sum()) for reason, holds in first.items()}


def first_words(texts: TextArray) -> TextArray:
    """Return the first word of each text: ``CANCELLED`` of ``CANCELLED by 1000``."""
    return np.array([text.strip().split(" ", 1)[0] for text in texts.tolist()], dtype=object)


def gpu_hours_of(reasons: Mapping[str, BoolArray], gpu_s: FloatArray) -> dict[str, float]:
    """Return the GPU-hours that each reason leaves out, where there are any; unknown ones (NaN) count as none."""
    hours = {reason: float(np.nansum(gpu_s[holds])) / 3600 for reason, holds in _first_reasons(reasons).items()}
    return {reason: held for reason, held in hours.items() if held > 0}


def _first_reasons(reasons: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    """Return for which rows each reason is the first that holds."""
    is_left = np.ones(len(next(iter(reasons.values()))), dtype=bool)
    first = {}
    for reason, holds in reasons.items():
        first[reason] = is_left & holds
        is_left &= ~holds
    return first


def is_elsewhere(cluster: TextArray, options: ReadOptions) -> BoolArray:
    """Tell which jobs are in other virtual clusters than the one asked for; none, if none was.

    Raises
    ------
    InvalidProblemError
        If no job is in it; it names those that there are.
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
            f"{trace}: no {what} {names[0]!r} beside the jobs; put it there or give its path as {option} "
            f"(simulate cluster: --option trace.{option}=FILE)"
        )
    return found[0]


PHILLY_STAMP, SLURM_STAMP = "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"

IN_WORDS = {PHILLY_STAMP: "YYYY-MM-DD hh:mm:ss", SLURM_STAMP: "YYYY-MM-DDThh:mm:ss"}

EPOCH = datetime(1970, 1, 1)

EPOCH_UNITS = ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "milliseconds"))
"""Least number of each unit since 1970 (all are in 1973), its number in a second, and its name: seconds of 1e11 are the year 5138."""

EARLIEST_S = 1e9
"""Seconds that all are at least these are taken as counted from 1970, so that dates can be laid beside them: in 2001."""

_OFFSET = re.compile(r"[T ]\d.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)\s*$")

_SPAN = re.compile(
    r"(?:(?P<days>\d{1,6})-)?(?:(?P<hours>\d{1,6}):)?(?P<minutes>\d{1,6}):(?P<seconds>\d{1,6}(?:\.\d{1,9})?)"
)


def parse_stamps(
    path: str | Path, column: str, texts: TextArray, form: str, *, may_lack: bool = False, is_table: bool = True
) -> Any:
    """Return time stamps as a pandas series; an empty one is refused unless `may_lack`. With `is_table` each has a row.

    Raises
    ------
    InvalidProblemError
        Naming the first row whose text isn't of the form.
    """
    pd = require_package("pandas", "reading times of a trace")

    series = pd.Series(texts)
    times = pd.to_datetime(series, format=form, errors="coerce")
    is_wrong = (times.isna() & ~(may_lack & (series == ""))).to_numpy()
    refuse(path, column, is_wrong, f"{IN_WORDS[form]} is due", texts, is_table=is_table)
    return times


def seconds_from(begin: datetime, times: Any) -> FloatArray:
    """Return seconds after a date, NaN for what is missing."""
    seconds: FloatArray = (times - begin).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds


def since_first(path: str | Path, column: str, texts: TextArray, form: str) -> tuple[FloatArray, datetime]:
    """Return seconds since the first of all time stamps, and that one."""
    times = parse_stamps(path, column, texts, form)
    begin: datetime = times.min().to_pydatetime()
    return seconds_from(begin, times), begin


def read_times(
    path: str | Path, column: str, second: float = 1.0
) -> tuple[FloatArray, datetime | None, tuple[str, ...]]:
    """Read a column of times, either numbers or dates, as seconds; the date of second 0, if it is known; and remarks.

    Dates are ISO 8601, to the day, minute, second or part of one. All have an offset, and are brought to UTC, or none has.
    Numbers too large for seconds are milli-, micro- or nanoseconds since 1970; seconds of which none lies before 2001 have dates, too.

    Parameters
    ----------
    second
        How many of the file's units a second has, where they are numbers; 1 where it isn't said.

    Raises
    ------
    InvalidProblemError
        If a time is neither, or below 0, or the column mixes dates and numbers, offsets and none, or units.
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
    """Return what `read_times` does, of texts; NaN where none is due. `hint` goes before what is due instead of another text."""
    wanted = np.ones(len(texts), dtype=bool) if is_due is None else is_due
    if not wanted.any():
        return np.full(len(texts), np.nan), None, ()
    times, is_date = _are_dates(texts)
    if is_date[np.flatnonzero(wanted)[0]]:
        refuse(path, column, wanted & ~is_date, f"{hint}a date such as 2017-10-03 12:30:00 is due", texts)
        _refuse_some_offsets(path, column, texts, wanted)
        begin: datetime = times[wanted].min().to_pydatetime()
        return np.where(wanted, seconds_from(begin, times), np.nan), begin, ()
    numbers = _numbers(texts)
    is_wrong = wanted & ~np.isfinite(numbers)
    refuse(path, column, is_wrong, f"{hint}seconds, or dates such as 2017-10-03 12:30:00, are due", texts)
    refuse(path, column, wanted & (numbers < 0), "must be at least 0", texts)
    refuse(path, column, wanted & (numbers > LARGEST), f"a number of at most {LARGEST:g} is due", texts)
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
    """Return how long each row waited from its submission to the start that a column records, NaN where none is due.

    Parameters
    ----------
    texts
        Starts, in the form that `times_of` reads.
    submit_s, begin
        Submissions, and the date of their second 0, None where they tell no dates.

    Returns
    -------
    waits
        None where no start is due at all.

    Raises
    ------
    InvalidProblemError
        If a start can't be read, or either starts or submissions tell dates, and the others don't.
    """
    if not is_due.any():
        return None
    start_s, first, _ = times_of(path, column, texts, is_due=is_due)
    if (first is None) != (begin is None) and EPOCH not in (first, begin):
        raise InvalidProblemError(
            f"{path}: column {column!r}: write starts in the form of the submissions, dates or seconds"
        )
    return np.where(is_due, start_s - submit_s + ((first or EPOCH) - (begin or EPOCH)).total_seconds(), np.nan)


def _from_epoch(
    path: str | Path, column: str, numbers: FloatArray
) -> tuple[FloatArray, datetime | None, tuple[str, ...]]:
    """Return numbers as seconds: those that no clock of seconds shows count from 1970 in a smaller unit."""
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
    """Raise InvalidProblemError if some dates say how far they are from UTC, and others don't."""
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
    """Return lengths of time in seconds, written as such or as [days-]hours:minutes:seconds.

    Where none is due, what can't be read is NaN.

    Parameters
    ----------
    may_lack_hours
        Whether minutes:seconds are meant where there are two numbers; they are refused otherwise, as they might be hours and
        minutes.

    Raises
    ------
    InvalidProblemError
        If a text is neither, or below 0.
    """
    wanted = np.ones(len(texts), dtype=bool) if is_due is None else is_due
    seconds = _numbers(texts)
    for text in set(texts[~np.isfinite(seconds)].tolist()):
        match = _SPAN.fullmatch(text.strip())
        if match is not None and (may_lack_hours or match["hours"]):
            days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
            seconds[texts == text] = 86400 * days + 3600 * hours + 60 * minutes + float(match["seconds"])
    form = "[days-][hours:]minutes:seconds" if may_lack_hours else "hours:minutes:seconds"
    refuse(path, column, wanted & ~np.isfinite(seconds), f"seconds, or {form}, are due", texts)
    refuse(path, column, wanted & (seconds < 0), "must be at least 0", texts)
    refuse(path, column, wanted & (seconds > LARGEST), f"a number of at most {LARGEST:g} is due", texts)
    return np.where((seconds >= 0) & (seconds <= LARGEST), seconds, np.nan)


def seconds_of(begin: datetime | None, text: str) -> float:
    """Return where a date lies on a trace's clock; a number is taken as seconds of that clock.

    A date with an offset is brought to UTC, as those of a trace are.

    Raises
    ------
    InvalidOptionError
        If the text is neither, or a date and the trace tells none.
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
        raise InvalidOptionError("--from: the trace tells no dates; give seconds on its own clock")
    return (date.replace(tzinfo=None) - begin - (date.utcoffset() or timedelta())).total_seconds()


def _numbers(texts: TextArray) -> NDArray[np.float64]:
    """Return texts as numbers, NaN where they are none."""
    pd = require_package("pandas", "reading times of a trace")

    numbers: NDArray[np.float64] = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _are_dates(texts: TextArray) -> tuple[Any, NDArray[np.bool_]]:
    """Return dates in UTC, as a pandas series without zones, and which texts are dates: those that begin as 2017-10-03."""
    pd = require_package("pandas", "reading times of a trace")

    series = pd.Series(texts, dtype=object)
    dated = series.where(series.str.match(r"\d{4}-\d{2}-\d{2}"))
    times = utc_dates(dated)
    return times, times.notna().to_numpy()


TWICE = "that repeat another row"


class Gangs:
    """Rows put together to jobs: attempts of one job, one after the other, and components of one gang, side by side.

    A job's work is the GPU-time of all its rows, so that none is lost or counted twice, also where its gang changed.

    Parameters
    ----------
    base, ids
        Names of job and component of each row; the same where jobs have no components.
    submit, gpus, elapsed
        Time of submission, GPUs and run time of each row.

    Attributes
    ----------
    ids
        Names of the components.
    job
        Number of each row's job; jobs are in the order of their first rows.
    last
        Row of each job's last attempt.
    is_last
        Whether a row is the last attempt of its component.
    first_submit, workers, gpu_s
        First submission, GPUs of the last attempts of all components, and GPU-time of all rows, of each job.
    notes
        What was put together.
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
        self.last[self.job[order]] = order  # the last of equal indices stays
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
        """Return an amount of each job: that of all attempts of a component, of the component of which it is most."""
        names, component = np.unique(self.ids.astype(str), return_inverse=True)
        of_component = np.bincount(component, amounts, len(names))
        found = np.full(len(self.last), -np.inf)
        np.maximum.at(found, self.job, of_component[component])
        return found

    def idle(self, end_s: FloatArray, elapsed: FloatArray) -> FloatArray:
        """Return the time from each job's first submission to its last end in which none of its attempts ran, by their ends."""
        last_end = np.full(len(self.last), -np.inf)
        np.maximum.at(last_end, self.job, end_s)
        return np.asarray(last_end - self.first_submit - np.bincount(self.job, elapsed, len(self.last)))

    def summed(self, amounts: FloatArray) -> FloatArray:
        """Return an amount of each job: the sum over its components' last attempts."""
        return np.bincount(self.job, amounts * self.is_last, len(self.last)).astype(np.float64)


def _jobs(number: int) -> str:
    return f"{number} job is" if number == 1 else f"{number} jobs are"


def merge_attempts(table: JobTable) -> JobTable:
    """Return a table with a row a job: rows of one name are its attempts, and a row that repeats another is left out.

    Run times add up (at the gang of the last attempt, so that the GPU-time is that of all), the submission is the first, and
    the wait that is recorded is all time until the last end in which none ran, everything else is the last attempt's.
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
