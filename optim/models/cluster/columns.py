"""Columns of jobs, machines and logs, each declared once: on the field of the dataclass that holds it.

A reader, a writer, a digest and a check of ranges all read the declaration. So a new column is one field, declared with
``since=LATER``: files written before lack it and are read with what `fill` says, and it changes no digest of theirs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError

ALWAYS, LATER = 0, 99
"""Since when files hold a column: from the first version on, or only from a version on after ``optim/cluster-run/2``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How a column looks.

    Parameters
    ----------
    fill
        What each row holds where the column isn't given: a number, or what makes the whole column from the table; None for a
        column that must be given.
    least, most
        Range of its numbers; None for any.
    dtype
        Whole numbers of 64 bits, or doubles.
    dims
        1, or 2 for several numbers a row.
    since
        Version of a file of the first schema that first held it (see `optim.models.cluster.run_file.STAGES`), or `LATER`.
    former
        Its name in files of earlier releases, which are still read; digests go by it, so that their keys stay.
    """

    fill: float | Callable[[Any], NDArray[Any]] | None = None
    least: float | None = None
    most: float | None = None
    dtype: type[np.int64] | type[np.float64] = np.int64
    dims: int = 1
    since: int = ALWAYS
    former: str = ""


def column(fill: float | Callable[[Any], NDArray[Any]], **declared: Any) -> Any:
    """Return a dataclass field for a column that may be left out; see `Column`."""
    whole = Column(fill=fill, **declared)
    return field(default_factory=np.zeros((0,) * whole.dims, whole.dtype).copy, metadata={"column": whole})


def form(**declared: Any) -> Mapping[str, Any]:
    """Return the metadata of a dataclass field for a column that must be given; see `Column`."""
    return {"column": Column(**declared)}


def columns_of(table: Any) -> Mapping[str, Column]:
    """Return the columns of a dataclass in their order."""
    return {each.name: each.metadata["column"] for each in fields(table) if "column" in each.metadata}


def fill_columns(table: Any, count: int, row: str) -> None:
    """Fill the columns of a frozen dataclass that were left out, and give all the form that is declared.

    Parameters
    ----------
    table, count
        The dataclass, and how many rows it has.
    row
        What a row is, for people.

    Raises
    ------
    InvalidProblemError
        If a column has another length or form, or a number outside its range.
    """
    for name, declared in columns_of(table).items():
        values = getattr(table, name)
        if not len(values) and declared.fill is not None:
            values = declared.fill(table) if callable(declared.fill) else np.full(count, declared.fill)
        if len(values) != count:
            raise InvalidProblemError(f"{name} has {len(values)} entries for {count} {row}s; give one a {row}")
        values = np.array(values, declared.dtype, order="C")  # own and writable: one compiled type
        if values.ndim != declared.dims:
            raise InvalidProblemError(f"{name} must have {'a row' if declared.dims == 2 else 'one number'} a {row}")
        object.__setattr__(table, name, values)


def check_ranges(table: Any) -> None:
    """Check that the numbers of all columns lie in the ranges that are declared.

    Raises
    ------
    InvalidProblemError
        Naming the first that don't.
    """
    for name, declared in columns_of(table).items():
        values, least, most = getattr(table, name), declared.least, declared.most
        if least is None or most is None or not values.size:
            continue
        if not (values.min() >= least and values.max() <= most):  # not a number is neither
            shown = f"{most:g}" if declared.dtype is np.float64 else f"{most}"
            raise InvalidProblemError(f"{name} must lie in {least}..{shown}, got {values.min()}..{values.max()}")
