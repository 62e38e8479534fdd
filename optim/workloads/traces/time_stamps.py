"""Times of traces: dates, or seconds of a clock of their own."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.missing import require as require_package
from optim.workloads.csv_columns import LARGEST, line_of, read_columns, refuse
from optim.workloads.dates import utc_dates
from optim.workloads.traces.job_table import FloatArray, TextArray

PHILLY_STAMP, SLURM_STAMP = "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"
IN_WORDS = {PHILLY_STAMP: "YYYY-MM-DD hh:mm:ss", SLURM_STAMP: "YYYY-MM-DDThh:mm:ss"}

EPOCH = datetime(1970, 1, 1)
EPOCH_UNITS = ((1e17, 1e9, "nanoseconds"), (1e14, 1e6, "microseconds"), (1e11, 1e3, "milliseconds"))
"""Least number of each unit since 1970 (all are in 1973), its number in a second, and its name: seconds of 1e11 are the year 5138."""
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
    Numbers too large for seconds are milli-, micro- or nanoseconds since 1970.

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
    return numbers, None, ()


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
