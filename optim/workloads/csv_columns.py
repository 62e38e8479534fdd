"""Columns of CSV files, read with one clear line for whatever is wrong."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes

HEADER_ROWS = 1
"""Rows before the first row of data, for messages that number rows as an editor does."""


def read_columns(path: str | Path, numbers: Sequence[str], texts: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read columns of a CSV file, plain or gzip.

    Parameters
    ----------
    path
        The file.
    numbers
        Columns of finite numbers; an empty field becomes NaN.
    texts
        Columns of text; an empty field becomes "".

    Returns
    -------
    dict
        One array a column, float64 or objects.

    Raises
    ------
    InvalidProblemError
        Naming the file, the column, the row and the remedy.
    """
    import pandas as pd

    data = read_bytes(path)
    try:
        frame = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False, encoding="utf-8")
    except pd.errors.EmptyDataError as error:
        raise InvalidProblemError(f"{path}: the file is empty; give a CSV file with a header") from error
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        cause = " ".join(str(error).split())
        raise InvalidProblemError(f"{path}: not a CSV file ({cause}); give a CSV file with a header") from error
    missing = [name for name in (*numbers, *texts) if name not in frame.columns]
    if missing:
        found = ", ".join(map(str, frame.columns[:12]))
        raise InvalidProblemError(
            f"{path}: column {missing[0]!r} is missing (there are: {found}); check file and trace format"
        )
    if not len(frame):
        raise InvalidProblemError(f"{path}: the file has a header but no rows; give one with rows")
    columns: dict[str, NDArray[Any]] = {name: frame[name].to_numpy(dtype=object) for name in texts}
    for name in numbers:
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)
        is_empty = (frame[name].str.strip() == "").to_numpy()
        for row in np.flatnonzero(~np.isfinite(values) & ~is_empty)[:1].tolist():
            raise InvalidProblemError(
                f"{path}: row {row + 1 + HEADER_ROWS}, column {name!r}: a finite number is due, "
                f"got {frame[name].iloc[row]!r}; correct the row"
            )
        columns[name] = values
    return columns


def header_of(path: str | Path) -> tuple[str, ...]:
    """Return the names of a CSV file's columns; () if there is no first line."""
    first = read_bytes(path).split(b"\n", 1)[0].decode("utf-8", errors="replace")
    return tuple(name.strip().strip('"') for name in first.split(",") if name.strip())


def require(
    path: str | Path, column: str, values: NDArray[np.float64], *, least: float, may_lack: bool = False
) -> None:
    """Raise InvalidProblemError at the first field that is below `least`, or empty unless `may_lack`."""
    wrong = (values < least) | (np.isnan(values) & (not may_lack))
    for row in np.flatnonzero(wrong)[:1].tolist():
        found = "nothing" if np.isnan(values[row]) else f"{values[row]:g}"
        raise InvalidProblemError(
            f"{path}: row {row + 1 + HEADER_ROWS}, column {column!r}: must be at least {least:g}, "
            f"got {found}; correct or remove the row"
        )


def require_whole(path: str | Path, column: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers as integers, or raise InvalidProblemError at the first that is no whole number."""
    for row in np.flatnonzero(values != np.floor(values))[:1].tolist():
        raise InvalidProblemError(
            f"{path}: row {row + 1 + HEADER_ROWS}, column {column!r}: a whole number is due, "
            f"got {values[row]:g}; correct the row"
        )
    return values.astype(np.int64)
