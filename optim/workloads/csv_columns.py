"""Columns of CSV files, read with one clear line for whatever is wrong."""

import io
from collections.abc import Mapping, Sequence
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
        refuse(
            path, name, ~np.isfinite(values) & ~is_empty, "a finite number is due", frame[name].to_numpy(dtype=object)
        )
        columns[name] = values
    return columns


def header_of(path: str | Path) -> tuple[str, ...]:
    """Return the names of a CSV file's columns; () if there is no first line."""
    first = read_bytes(path).split(b"\n", 1)[0].decode("utf-8", errors="replace")
    return tuple(name.strip().strip('"') for name in first.split(",") if name.strip())


def refuse(
    path: str | Path, column: str, is_wrong: NDArray[np.bool_], due: str, values: Sequence[Any] | NDArray[Any]
) -> None:
    """Raise InvalidProblemError at the first row whose field is wrong: where it is, what is due, and what is there."""
    for row in np.flatnonzero(is_wrong)[:1].tolist():
        value = values[row]
        found = repr(value) if isinstance(value, str) else "nothing" if np.isnan(value) else f"{value:g}"
        raise InvalidProblemError(
            f"{path}: row {row + 1 + HEADER_ROWS}, column {column!r}: {due}, got {found}; correct or remove the row"
        )


def require(
    path: str | Path, columns: Mapping[str, NDArray[Any]], *names: str, least: float, may_lack: bool = False
) -> None:
    """Raise InvalidProblemError at the first field of some columns that is below `least`, or empty unless `may_lack`."""
    for name in names:
        values = columns[name]
        is_wrong = (values < least) | (np.isnan(values) & (not may_lack))
        refuse(path, name, is_wrong, f"must be at least {least:g}", values)


def require_whole(path: str | Path, column: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers as integers, or raise InvalidProblemError at the first that is no whole number."""
    refuse(path, column, values != np.floor(values), "a whole number is due", values)
    return values.astype(np.int64)


def require_order(
    path: str | Path, name: str, rows: NDArray[np.int64], times: NDArray[np.int64], *, by: str, is_strict: bool = False
) -> None:
    """Raise InvalidProblemError where the times of a group's rows fall, or stand still where they mustn't."""
    steps = np.diff(times)
    for place in np.flatnonzero(steps <= 0 if is_strict else steps < 0)[:1].tolist():
        row = rows[place + 1] + 1 + HEADER_ROWS
        raise InvalidProblemError(f"{path}: row {row}: {name} goes back in time; sort the rows of each by {by}")


def groups(keys: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each key, keys in order of first appearance."""
    names, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return {str(names[k]): np.flatnonzero(group == k) for k in np.argsort(first)}


def joined(*columns: NDArray[Any], by: str) -> NDArray[np.object_]:
    """Return one text a row of several columns."""
    return np.array([by.join(parts) for parts in zip(*columns, strict=True)], dtype=object)
