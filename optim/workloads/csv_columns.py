"""Columns of CSV files, with one-line errors that name file, row and column; parsing of dates."""

import csv
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.files import Source, cant_be_read
from optim.core.limits import check_limit, current_limits
from optim.core.optional import import_extra as require_package

WITH_OFFSET = (
    r"^(?P<date>\d{4}-?\d{2}-?\d{2}[T ][^Z+-]*?)\s*"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01]\d|2[0-3])(?::?(?P<minutes>[0-5]\d))?)$"
)


def utc_dates(texts: Sequence[str] | NDArray[Any]) -> Any:
    """Return dates in UTC as a pandas series without a zone, NaT for other texts; a date without an offset is in UTC.

    The function subtracts offsets itself: pandas before 3.1 may ignore them if they differ between rows.
    """
    pd = require_package("pandas", "reading dates")

    series = pd.Series(texts, dtype=object)
    series = series.where(series.str.match(r"\d{4}-?\d{2}-?\d{2}"))  # excludes 'now' and bare years, which pandas reads
    parts = series.str.extract(WITH_OFFSET)
    dates = parts["date"].astype(object).where(parts["date"].notna(), series)
    times = pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None).to_numpy()
    hours, minutes = (pd.to_numeric(parts[name]).fillna(0).to_numpy(dtype=np.int64) for name in ("hours", "minutes"))
    east = (60 * hours + minutes) * np.where((parts["sign"] == "-").to_numpy(dtype=bool), -1, 1)
    return pd.Series(times - east.astype("timedelta64[m]"))


BLOCK_CELLS = 1_000_000
"""Maximum number of fields held in memory as texts at a time."""

READ_BYTES = 2**20
"""Bytes per read."""

LARGEST = 1e18
"""Largest plausible number; sums and products of larger ones could overflow."""

SEPARATORS = ",;\t|"
"""Known field separators; spreadsheets of some countries write semicolons."""

UNQUOTED = "\t|"
"""Separators of formats without quoting (`sacct -P`, simulators' tables), where a quotation mark is an ordinary character."""

HEADERLESS = "\t"
"""Separator of headerless tables."""

HEADER_ROWS = 1
"""Rows before the first row of data."""


def read_columns(
    path: str | Path,
    numbers: Sequence[str],
    texts: Sequence[str] = (),
    separator: str = ",",
    *,
    names: Sequence[str] = (),
) -> dict[str, NDArray[Any]]:
    """Read columns of a CSV file, plain or gzip; a row may have fewer fields than the header, but not more.

    Parameters
    ----------
    path
        The file; a pipe is an error, since the function opens a table several times.
    numbers
        Columns of finite numbers; an empty field becomes NaN.
    texts
        Columns of text; an empty field becomes "".
    separator
        Field separator; with one of `UNQUOTED`, quotation marks are ordinary characters.
    names
        Column names of a headerless file, in order.

    Returns
    -------
    dict
        One array per column, float64 or object.

    Raises
    ------
    InvalidProblemError
        If the file is invalid; the message gives file, column, row and remedy.
    """
    read: dict[str, list[NDArray[Any]]] = {name: [] for name in (*numbers, *texts)}
    for columns in column_blocks(path, numbers, texts, separator, names=names):
        for name, values in columns.items():
            read[name].append(values)
    return {name: np.concatenate(parts) for name, parts in read.items()}


def column_blocks(
    path: str | Path,
    numbers: Sequence[str],
    texts: Sequence[str] = (),
    separator: str = ",",
    *,
    names: Sequence[str] = (),
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the columns of `read_columns` in blocks of rows, for tables larger than memory.

    Within a block equal texts are one object. An error is raised where it occurs, after the blocks before it.

    Raises
    ------
    InvalidProblemError
        As `read_columns` does.
    """
    for block in coded_blocks(path, (*numbers, *texts), separator, names=names):
        columns = {name: block[name].values for name in texts}
        yield columns | {name: block[name].numbers() for name in numbers}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodedColumn:
    """A column of a block of rows: distinct texts in `known`, and each row's index into them in `codes`, shape (rows,)."""

    path: str | Path
    name: str
    rows_before: int
    codes: NDArray[np.intp]
    known: NDArray[Any]

    @property
    def values(self) -> NDArray[Any]:
        """The texts, shape (rows,)."""
        return np.asarray(self.known[self.codes])

    def numbers(self) -> NDArray[np.float64]:
        """Return the numbers, NaN for empty fields, shape (rows,); each distinct text is parsed once.

        Raises
        ------
        InvalidProblemError
            If a field isn't a finite number; the message names its row.
        """
        pd = require_package("pandas", "reading CSV files")

        found = pd.to_numeric(pd.Series(self.known, dtype=object), errors="coerce").to_numpy(np.float64)
        is_wrong = ~np.isfinite(found)
        doubtful = np.flatnonzero(is_wrong)
        is_wrong[doubtful] = [str(field).strip() != "" for field in self.known[doubtful]]
        is_large = np.abs(found) > LARGEST
        for wrong, due in (
            (is_wrong, "expected a finite number"),
            (is_large, f"expected a number of at most {LARGEST:g}"),
        ):
            if wrong.any():
                refuse(self.path, self.name, wrong[self.codes], due, self.values, self.rows_before)
        return np.asarray(found[self.codes])


def coded_blocks(
    path: str | Path, columns: Sequence[str], separator: str = ",", *, names: Sequence[str] = ()
) -> Iterator[dict[str, CodedColumn]]:
    """Yield columns like `column_blocks`, with distinct texts stored once: for columns with few distinct texts in many rows.

    Raises
    ------
    InvalidProblemError
        As `read_columns` does, except for numbers.
    """
    pd = require_package("pandas", "reading CSV files")

    num_rows = 0
    try:
        header = list(names) or _header(path, separator, errors="strict")
        check_limit("columns", len(header), f"{path}: columns")
        if header:
            _require_columns(path, columns, header, separator)
        for block in _blocks(path, max(1, BLOCK_CELLS // max(1, len(header))), separator, names):
            coded = {}
            for name in columns:
                codes, known = pd.factorize(block[name].to_numpy(dtype=object), use_na_sentinel=False)
                coded[name] = CodedColumn(path=path, name=name, rows_before=num_rows, codes=codes, known=known)
            yield coded
            num_rows += len(block)
            check_limit("rows", num_rows, f"{path}: rows")
        _refuse_wide(path, len(header), separator, "the first row" if names else "the header")
    except pd.errors.EmptyDataError as error:
        raise InvalidProblemError(f"{path}: the file is empty; give a CSV file with a header") from error
    except pd.errors.ParserError as error:
        _refuse_wide(path, len(header), separator, "the first row" if names else "the header")
        raise _no_table(path, error) from error
    except UnicodeDecodeError as error:
        raise _no_table(path, error) from error
    if num_rows == 0:
        raise InvalidProblemError(f"{path}: the file has a header but no rows; give one with rows")


def _blocks(path: str | Path, rows: int, separator: str, names: Sequence[str] = ()) -> Iterator[Any]:
    """Yield a table's fields as texts, in blocks of rows."""
    pd = require_package("pandas", "reading CSV files")

    options = {"dtype": str, "keep_default_na": False, "encoding": "utf-8", "chunksize": rows, "sep": separator}
    options["quoting"] = _quoting(separator)
    if names:
        options |= {"header": None, "names": list(names)}
    with _open(path) as source:
        for block in pd.read_csv(io.BufferedReader(source, READ_BYTES), **options):
            if not isinstance(block.index, pd.RangeIndex):  # pandas took the first fields for row names
                raise pd.errors.ParserError("rows have more fields than the header")
            yield block


def _quoting(separator: str) -> Literal[0, 3]:
    return csv.QUOTE_NONE if separator in UNQUOTED else csv.QUOTE_MINIMAL


def _no_table(path: str | Path, error: Exception) -> InvalidProblemError:
    cause = " ".join(str(error).split())
    return InvalidProblemError(f"{path}: not a CSV file ({cause}); give a CSV file with a header")


def _refuse_wide(path: str | Path, width: int, separator: str, first: str) -> None:
    """Raise InvalidProblemError at the first row with more fields than the first row.

    This doesn't rely on pandas: before 3.1 it drops surplus fields in the first row of each of its blocks.
    """
    if not _may_be_wide(path, width, separator):
        return
    with suppress(csv.Error):
        with _open(path) as source:
            lines = io.TextIOWrapper(io.BufferedReader(source), encoding="utf-8-sig", errors="replace", newline="")
            if max(map(len, csv.reader(lines, delimiter=separator, quoting=_quoting(separator))), default=0) <= width:
                return
        for line, fields in _records(path, separator):
            if len(fields) > width:
                raise InvalidProblemError(
                    f"{path}: row {line} has more fields than {first} ({len(fields)}, not {width}); "
                    f"remove the surplus, such as {separator!r} at its end"
                    + (
                        " or in a name, which the format can't mark (print no names of jobs)"
                        if separator in UNQUOTED
                        else ", or name the column"
                    )
                )


def _may_be_wide(path: str | Path, width: int, separator: str) -> bool:
    """Return whether a row may have more than `width` fields, by its separators; exact without quotation marks."""
    rest = b""
    with _open(path) as source:
        reader = io.BufferedReader(source, READ_BYTES)
        for part in chain(iter(lambda: reader.read(READ_BYTES), b""), [b"\n"]):
            if b'"' in part and _quoting(separator) != csv.QUOTE_NONE:
                return True
            whole, _, rest = (rest + part).rpartition(b"\n")
            signs = np.frombuffer(whole, np.uint8)
            begins = np.concatenate([[0], np.flatnonzero(signs == ord("\n")) + 1])
            begins = begins[begins < len(signs)]
            if len(signs) and np.add.reduceat(signs == ord(separator), begins, dtype=np.int64).max() >= width:
                return True
    return False


def require_all_fields(path: str | Path, separator: str = ",", first: str = "the header") -> None:
    """Raise InvalidProblemError at the first row with fewer fields than the first row, since the missing ones are unknown."""
    width = 0
    for line, fields in _records(path, separator):
        width = width or len(fields)
        if len(fields) < width:
            raise InvalidProblemError(
                f"{path}: row {line} has fewer fields than {first} ({len(fields)}, not {width}); "
                "complete or remove the row"
            )


def _require_columns(path: str | Path, wanted: Sequence[str], found: Sequence[str], separator: str) -> None:
    """Raise InvalidProblemError if the header lacks a required column, or has it twice."""
    for name in wanted:
        if found.count(name) > 1:
            raise InvalidProblemError(f"{path}: column {name!r} is named twice in the header; rename or remove one")
    missing = [name for name in wanted if name not in found]
    if missing:
        shown = ", ".join(found[:12])
        other = next((sign for sign in SEPARATORS if len(found) == 1 and sign in found[0]), None)
        remedy = "check file and trace format" if other is None else f"separate columns by {separator!r}, not {other!r}"
        alike = [name for name in found if name.strip().lower() == missing[0].lower()]
        others = [name for name in found if name not in wanted]
        counts = re.compile(
            rf"(?:num|number|n|count)?(?:_of)?_?{re.escape(missing[0].rstrip('s'))}s?_?(?:num|number|count)?"
        )
        near = get_close_matches(missing[0], others, n=1) or [name for name in others if counts.fullmatch(name.lower())]
        remedy = f"is {near[0][:40]!r} meant? rename it" if near and not alike else remedy
        remedy = f"rename {alike[0][:40]!r}" if alike else remedy
        raise InvalidProblemError(f"{path}: column {missing[0]!r} is missing (there are: {shown}); {remedy}")


def header_of(path: str | Path, separator: str = ",") -> tuple[str, ...]:
    """Return the names of a CSV file's columns, without surrounding white space; () if there is none."""
    return tuple(name.strip() for name in _header(path, separator) if name.strip())


def width_of(path: str | Path, separator: str = ",") -> int:
    """Return the number of fields of the first row, empty ones included; 0 if there is none."""
    return len(_header(path, separator))


def require_rereadable(path: str | Path) -> None:
    """Raise InvalidProblemError for a pipe or a device, which can't be read twice."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # opening the file will raise the precise error
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidProblemError(
            f"{path}: a table is read more than once, but this is a pipe or a device; write it to a file first"
        )


def _open(path: str | Path) -> Source:
    """Open a table within the limits on bytes and line length."""
    require_rereadable(path)
    try:
        return Source(path, "table_bytes", current_limits().line_bytes)
    except OSError as error:
        raise cant_be_read(path, error) from error


def _records(path: str | Path, separator: str, errors: str = "replace") -> Iterator[tuple[int, list[str]]]:
    """Yield each record (the header and the rows) as the number of its first line and its fields; blank lines are skipped."""
    with _open(path) as source:
        lines = io.TextIOWrapper(io.BufferedReader(source), encoding="utf-8-sig", errors=errors, newline="")
        reader = csv.reader(lines, delimiter=separator, quoting=_quoting(separator))
        line = 1
        for fields in reader:
            if fields and (len(fields) > 1 or not fields[0] or fields[0].strip(" \t")):
                yield line, fields
            line = reader.line_num + 1


def _header(path: str | Path, separator: str, errors: str = "replace") -> list[str]:
    """Return the column names, unchanged."""
    try:
        return next(_records(path, separator, errors), (0, []))[1]
    except csv.Error as error:
        raise _no_table(path, error) from error


def line_of(path: str | Path, row: int) -> int:
    """Return the line where a row of data begins, as an editor counts it, including blank lines and those in quotes.

    The separator is the most frequent candidate in the header. If the file can't be read again, or has an earlier field of
    more than 131,072 characters, each row counts as one line.
    """
    counted = row + 1 + HEADER_ROWS
    try:
        separator = max(SEPARATORS, key=",".join(_header(path, ",")).count)
        before = 0 if separator == HEADERLESS else HEADER_ROWS
        return next(islice(_records(path, separator), row + before, None), (counted, []))[0]
    except (InvalidProblemError, csv.Error):
        return counted


def refuse(
    path: str | Path,
    column: str,
    is_wrong: NDArray[np.bool_],
    due: str,
    values: Sequence[Any] | NDArray[Any],
    rows_before: int = 0,
    *,
    is_table: bool = True,
) -> None:
    """Raise InvalidProblemError at the first invalid field, with its position and value, and the expected form (`due`).

    For files that aren't tables (`is_table` is false), the message gives no row.
    """
    for row in np.flatnonzero(is_wrong)[:1].tolist():
        value = values[row]
        found = repr(value) if isinstance(value, str) else "nothing" if np.isnan(value) else f"{value:g}"
        place, what = (f"row {line_of(path, rows_before + row)}, column", "the row") if is_table else ("field", "it")
        raise InvalidProblemError(f"{path}: {place} {column!r}: {due}, got {found}; correct or remove {what}")


def require_columns(
    path: str | Path,
    columns: Mapping[str, NDArray[Any]],
    *names: str,
    least: float,
    may_lack: bool = False,
    is_table: bool = True,
) -> None:
    """Raise InvalidProblemError at the first field of these columns that is below `least` or, unless `may_lack`, empty."""
    for name in names:
        values = columns[name]
        is_wrong = (values < least) | (np.isnan(values) & (not may_lack))
        refuse(path, name, is_wrong, f"must be at least {least:g}", values, is_table=is_table)


def require_whole(path: str | Path, column: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers as integers, or raise InvalidProblemError at the first number that isn't an integer."""
    refuse(path, column, values != np.floor(values), "expected an integer", values)
    return values.astype(np.int64)


def require_order(
    path: str | Path, name: str, rows: NDArray[np.int64], times: NDArray[np.int64], *, by: str, is_strict: bool = False
) -> None:
    """Raise InvalidProblemError where the times of a group's rows decrease or, if `is_strict`, repeat."""
    steps = np.diff(times)
    for place in np.flatnonzero(steps <= 0 if is_strict else steps < 0)[:1].tolist():
        row = line_of(path, int(rows[place + 1]))
        raise InvalidProblemError(f"{path}: row {row}: {name} goes back in time; sort its rows by {by}")


def groups(keys: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the row numbers of each key; the keys are in order of their first rows."""
    names, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return {str(names[k]): np.flatnonzero(group == k) for k in np.argsort(first)}


def joined(*columns: NDArray[Any], by: str) -> NDArray[np.object_]:
    """Return one text per row: the fields of several columns, joined by `by`."""
    return np.array([by.join(parts) for parts in zip(*columns, strict=True)], dtype=object)
