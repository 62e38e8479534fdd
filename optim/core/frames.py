"""Conversion between rows of plain Python, pandas frames and columns."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optim.core.documents import MAX_WHOLE
from optim.core.errors import InvalidProblemError
from optim.core.optional import import_extra

if TYPE_CHECKING:
    import numpy as np
    from pandas import DataFrame

Columns = Mapping[str, "Sequence[Any] | np.ndarray"]
"""Columns of equal length by name."""

Rows = Any
"""Mappings of fields, one per row, or a pandas frame with one column per field."""


def frame_of(columns: Columns) -> "DataFrame":
    """Return columns as a pandas frame.

    Raises
    ------
    MissingDependencyError
        If pandas is not installed.
    """
    return import_extra("pandas", "a frame").DataFrame(dict(columns))


def is_frame(rows: object) -> bool:
    """Return whether an object is a pandas frame, without importing pandas."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def rows_of(rows: Rows, what: str) -> list[dict[str, Any]]:
    """Return rows as plain mappings.

    NumPy values become Python values, and integral floats become integers (a frame stores a column of integers with
    missing values as floats). Fields that are None, or NaN in a frame, are omitted. Columns with dots in their names
    become mappings: ``worker.gpu`` is the entry ``gpu`` of the field ``worker``.

    Raises
    ------
    InvalidProblemError
        If a row is not a mapping; the message has `what` and the row's index.

    Examples
    --------
    >>> rows_of([{"id": "a", "worker.gpu": 1, "deadline": None}], "jobs")
    [{'id': 'a', 'worker': {'gpu': 1}}]
    """
    entries: Iterable[Any] = rows.to_dict("records") if is_frame(rows) else rows
    mappings = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise InvalidProblemError(
                f"{what}[{number}] must be a mapping of fields, such as {{'id': 'a'}}, got {entry!r}"
            )
        mappings.append(
            _nested(
                {
                    str(name): plain
                    for name, value in entry.items()
                    if (plain := _plain(value, is_gap_nan=is_frame(rows))) is not None
                }
            )
        )
    return mappings


def _plain(value: Any, *, is_gap_nan: bool) -> Any:
    """Return a value as plain Python, None for a missing value; NaN is missing only in a frame."""
    if type(value).__module__ == "numpy":  # checked by name, so that this module need not import NumPy
        value = value.tolist()
    if isinstance(value, float) and value.is_integer() and abs(value) < MAX_WHOLE:
        return int(value)
    is_missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    is_missing = is_missing or (is_gap_nan and isinstance(value, float) and math.isnan(value))
    return None if is_missing else value


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in row.items():
        field, dot, part = name.partition(".")
        if dot:
            nested.setdefault(field, {})[part] = value
        else:
            nested[field] = value
    return nested
