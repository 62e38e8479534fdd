"""Tables in and out: rows of plain Python or of a pandas frame, columns as a frame."""

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
"""Equally long columns by name."""

Rows = Any
"""Mappings of fields, one a row, or a pandas frame with a column a field."""


def frame_of(columns: Columns) -> "DataFrame":
    """Return columns as a pandas frame.

    Raises
    ------
    MissingDependencyError
        If pandas isn't installed.
    """
    return import_extra("pandas", "a frame").DataFrame(dict(columns))


def is_frame(rows: object) -> bool:
    """Tell whether something is a pandas frame, without loading pandas."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def rows_of(rows: Rows, what: str) -> list[dict[str, Any]]:
    """Return rows as plain mappings.

    Values of NumPy become Python's, whole numbers are whole (a frame's column with a gap holds fractions), what is None, or NaN in a frame, is left out, and columns with dots in their names become
    mappings: ``worker.gpu`` is the entry ``gpu`` of the field ``worker``.

    Raises
    ------
    InvalidProblemError
        If a row is no mapping; the text names it by `what` and its number.

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
    """Return a value as plain Python, None for one that is missing: NaN is only in a frame."""
    if type(value).__module__ == "numpy":  # which is heavy: commands that need no array don't load it
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
