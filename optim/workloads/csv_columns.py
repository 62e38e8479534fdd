"""Columns of CSV files, read with one clear line for whatever is wrong."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.files import Source, cant_be_read
from optim.core.limits import check_limit, current_limits
from optim.core.missing import require as require_package

BLOCK_CELLS = 1_000_000
"""Fields in memory at once as texts."""
LARGEST = 1e18
"""Larger numbers are in no table of this world, and overflow where they are added or multiplied."""
SEPARATORS = ",;\t|"
"""What tables are written with: spreadsheets of some countries write semicolons."""
HEADER_ROWS = 1
"""Rows before the first row of data, for messages that number rows as an editor does."""


def read_columns(
    path: str | Path, numbers: Sequence[str], texts: Sequence[str] = (), separator: str = ","
) -> dict[str, NDArray[Any]]:
    """Read columns of a CSV file, plain or gzip.

    Parameters
    ----------
    path
        The file.
    numbers
        Columns of finite numbers; an empty field becomes NaN.
    texts
        Columns of text; an empty field becomes "".
    separator
        What stands between fields.

    Returns
    -------
    dict
        One array a column, float64 or objects.

    Raises
    ------
    InvalidProblemError
        Naming the file, the column, the row and the remedy.
    """
    pd = require_package("pandas", "reading CSV files")

    read: dict[str, list[NDArray[Any]]] = {name: [] for name in (*numbers, *texts)}
    num_rows = 0
    try:
        with _open(path) as source:
            columns = len(_names(source, separator))
            check_limit("columns", columns, f"{path}: columns")
            rows = max(1, BLOCK_CELLS // columns)
            options = {"dtype": str, "keep_default_na": False, "encoding": "utf-8", "chunksize": rows, "sep": separator}
            for block in pd.read_csv(io.BufferedReader(source), **options):
                _require_columns(path, tuple(read), block.columns, separator)
                for name in texts:
                    # Equal texts are one object, as few as there are: a column of names takes a pointer a row.
                    codes, known = pd.factorize(block[name].to_numpy(dtype=object), use_na_sentinel=False)
                    read[name].append(known[codes])
                for name in numbers:
                    read[name].append(_numbers(path, block[name], num_rows))
                num_rows += len(block)
                check_limit("rows", num_rows, f"{path}: rows")
    except pd.errors.EmptyDataError as error:
        raise InvalidProblemError(f"{path}: the file is empty; give a CSV file with a header") from error
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        cause = " ".join(str(error).split())
        raise InvalidProblemError(f"{path}: not a CSV file ({cause}); give a CSV file with a header") from error
    if num_rows == 0:
        raise InvalidProblemError(f"{path}: the file has a header but no rows; give one with rows")
    return {name: np.concatenate(parts) for name, parts in read.items()}


def _require_columns(path: str | Path, wanted: Sequence[str], found: Sequence[str], separator: str) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        shown = ", ".join(map(str, found[:12]))
        other = next((sign for sign in SEPARATORS if len(found) == 1 and sign in str(found[0])), None)
        remedy = "check file and trace format" if other is None else f"separate columns by {separator!r}, not {other!r}"
        alike = [name for name in map(str, found) if name.strip().lower() == missing[0].lower()]
        remedy = f"rename {alike[0][:40]!r}" if alike else remedy
        raise InvalidProblemError(f"{path}: column {missing[0]!r} is missing (there are: {shown}); {remedy}")


def _numbers(path: str | Path, column: Any, rows_before: int) -> NDArray[np.float64]:
    """Return a column's numbers, NaN for empty fields."""
    pd = require_package("pandas", "reading CSV files")

    values: NDArray[np.float64] = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    fields, is_wrong = column.to_numpy(dtype=object), ~np.isfinite(values)
    doubtful = np.flatnonzero(is_wrong)
    is_wrong[doubtful] = [str(field).strip() != "" for field in fields[doubtful]]
    refuse(path, column.name, is_wrong, "a finite number is due", fields, rows_before)
    refuse(path, column.name, np.abs(values) > LARGEST, f"a number of at most {LARGEST:g} is due", fields, rows_before)
    return values


def header_of(path: str | Path, separator: str = ",") -> tuple[str, ...]:
    """Return the names of a CSV file's columns; () if there is no first line."""
    with _open(path) as source:
        return tuple(name.strip().strip('"') for name in _names(source, separator) if name.strip())


def _open(path: str | Path) -> Source:
    """Open a table, its bytes and lines within the limits."""
    try:
        return Source(path, "table_bytes", current_limits().line_bytes)
    except OSError as error:
        raise cant_be_read(path, error) from error


def _names(source: Source, separator: str) -> list[str]:
    """Return the fields of the first line, which is read again afterwards."""
    return source.peek_line().decode("utf-8", errors="replace").split(separator)


def refuse(
    path: str | Path,
    column: str,
    is_wrong: NDArray[np.bool_],
    due: str,
    values: Sequence[Any] | NDArray[Any],
    rows_before: int = 0,
) -> None:
    """Raise InvalidProblemError at the first row whose field is wrong: where it is, what is due, and what is there."""
    for row in np.flatnonzero(is_wrong)[:1].tolist():
        value = values[row]
        found = repr(value) if isinstance(value, str) else "nothing" if np.isnan(value) else f"{value:g}"
        raise InvalidProblemError(
            f"{path}: row {rows_before + row + 1 + HEADER_ROWS}, column {column!r}: {due}, got {found}; correct or remove the row"
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
