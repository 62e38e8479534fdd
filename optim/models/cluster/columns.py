"""Columns of jobs, machines and logs, each declared once on its dataclass field.

The reader, the writer, the digest and the check of ranges use the declaration. A new column is one field declared with
``since=LATER``: older files are read with its `fill`, and their digests don't change.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError

ALWAYS, LATER = 0, 99
"""Version since which files contain a column: the first, or one after ``optim/cluster-run/2``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """Declaration of a column.

    Parameters
    ----------
    fill
        Default of the column: one number for all rows, or a function from the table to the column; None if the column is
        required.
    least, most
        Range of the numbers; None for no check.
    dtype
        64-bit integers or doubles.
    dims
        1, or 2 for several numbers per row.
    since
        Version of the first schema that introduced the column (see `optim.models.cluster.run_file.STAGES`), or `LATER`.
    former
        Name in files of earlier releases, which are still read; digests use it, so that keys stay valid.
    """

    fill: float | Callable[[Any], NDArray[Any]] | None = None
    least: float | None = None
    most: float | None = None
    dtype: type[np.int64] | type[np.float64] = np.int64
    dims: int = 1
    since: int = ALWAYS
    former: str = ""


def column(fill: float | Callable[[Any], NDArray[Any]], **declared: Any) -> Any:
    """Return a dataclass field for an optional column; see `Column`."""
    whole = Column(fill=fill, **declared)
    return field(default_factory=np.zeros((0,) * whole.dims, whole.dtype).copy, metadata={"column": whole})


def form(**declared: Any) -> Mapping[str, Any]:
    """Return the metadata of a dataclass field for a required column; see `Column`."""
    return {"column": Column(**declared)}


def columns_of(table: Any) -> Mapping[str, Column]:
    """Return the columns of a dataclass in order."""
    return {each.name: each.metadata["column"] for each in fields(table) if "column" in each.metadata}


def fill_columns(table: Any, count: int, row: str) -> None:
    """Fill in omitted columns of a frozen dataclass, and convert all to their declared type.

    Parameters
    ----------
    table, count
        The dataclass, and its number of rows.
    row
        Name of a row in messages, such as "job".

    Raises
    ------
    InvalidProblemError
        If a column has a wrong length or shape.
    """
    for name, declared in columns_of(table).items():
        values = getattr(table, name)
        if not len(values) and declared.fill is not None:
            values = declared.fill(table) if callable(declared.fill) else np.full(count, declared.fill)
        if len(values) != count:
            raise InvalidProblemError(f"{name} has {len(values)} entries for {count} {row}s; give one per {row}")
        values = np.array(
            values, declared.dtype, order="C"
        )  # a writable copy, so that compiled code sees one array type
        if values.ndim != declared.dims:
            raise InvalidProblemError(f"{name} must have one {'row' if declared.dims == 2 else 'number'} per {row}")
        object.__setattr__(table, name, values)


def check_ranges(table: Any) -> None:
    """Check that all columns lie in their declared ranges.

    Raises
    ------
    InvalidProblemError
        If a number is out of range; the message names the first such column.
    """
    for name, declared in columns_of(table).items():
        values, least, most = getattr(table, name), declared.least, declared.most
        if least is None or most is None or not values.size:
            continue
        if not (values.min() >= least and values.max() <= most):  # also false for NaN
            shown = f"{most:g}" if declared.dtype is np.float64 else f"{most}"
            raise InvalidProblemError(f"{name} must lie in {least}..{shown}, got {values.min()}..{values.max()}")
