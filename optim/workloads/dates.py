"""Dates of tables: ISO 8601, to the day, minute, second or part of one, with or without an offset from UTC."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.missing import require as require_package

WITH_OFFSET = (
    r"^(?P<date>\d{4}-?\d{2}-?\d{2}[T ][^Z+-]*?)\s*"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3])(?::?(?P<minutes>[0-5]\d))?)$"
)


def utc_dates(texts: Sequence[str] | NDArray[Any]) -> Any:
    """Return dates in UTC as a pandas series without a zone, NaT for what is no date; one without an offset is in UTC.

    Offsets are taken off here: pandas before 3.1 may leave them out where rows have several.
    """
    pd = require_package("pandas", "reading dates")

    series = pd.Series(texts, dtype=object)
    series = series.where(series.str.match(r"\d{4}-?\d{2}-?\d{2}"))  # not 'now', which pandas reads, nor a year alone
    parts = series.str.extract(WITH_OFFSET)
    dates = parts["date"].astype(object).where(parts["date"].notna(), series)
    times = pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None).to_numpy()
    hours, minutes = (pd.to_numeric(parts[name]).fillna(0).to_numpy(dtype=np.int64) for name in ("hours", "minutes"))
    east = (60 * hours + minutes) * np.where((parts["sign"] == "-").to_numpy(dtype=bool), -1, 1)
    return pd.Series(times - east.astype("timedelta64[m]"))
