"""Times of traces: dates, or seconds of a clock of their own."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError
from optim.core.missing import require as require_package
from optim.workloads.csv_columns import read_columns, refuse, require
from optim.workloads.traces.job_table import FloatArray, TextArray

PHILLY_STAMP, SLURM_STAMP = "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"
IN_WORDS = {PHILLY_STAMP: "YYYY-MM-DD hh:mm:ss", SLURM_STAMP: "YYYY-MM-DDThh:mm:ss"}


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


def read_times(path: str | Path, column: str, second: float = 1.0) -> tuple[FloatArray, datetime | None]:
    """Read a column of times, either numbers or dates, as seconds; and the date of second 0, if they are dates.

    Dates are ISO 8601, to the day, minute, second or part of one; those with an offset are brought to UTC.

    Parameters
    ----------
    second
        How many of the file's units a second has, where they are numbers.

    Raises
    ------
    InvalidProblemError
        If a time is neither, or below 0, or the column mixes both.
    """
    texts = read_columns(path, (), (column,))[column]
    if _are_dates(texts[:1])[1].all():
        times, is_date = _are_dates(texts)
        refuse(path, column, ~is_date, "a date such as 2017-10-03 12:30:00 is due", texts)
        begin: datetime = times.min().to_pydatetime()
        return seconds_from(begin, times), begin
    refuse(path, column, ~_are_numbers(texts), "seconds, or dates such as 2017-10-03 12:30:00, are due", texts)
    numbers = read_columns(path, (column,))
    require(path, numbers, column, least=0.0)
    seconds: NDArray[np.float64] = numbers[column] / second
    return seconds, None


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


def _are_numbers(texts: TextArray) -> NDArray[np.bool_]:
    pd = require_package("pandas", "reading times of a trace")

    numbers: NDArray[np.float64] = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(dtype=np.float64)
    return np.isfinite(numbers)


def _are_dates(texts: TextArray) -> tuple[Any, NDArray[np.bool_]]:
    """Return dates in UTC, as a pandas series without zones, and which texts are dates: those that begin as 2017-10-03."""
    pd = require_package("pandas", "reading times of a trace")

    series = pd.Series(texts, dtype=object)
    dated = series.where(series.str.match(r"\d{4}-\d{2}-\d{2}"))  # not 'now', which pandas reads, nor a year alone
    times = pd.to_datetime(dated, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
    return times, times.notna().to_numpy()
