"""The linear programme behind a bound: its fractional solution and its prices, with rows and columns by name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optim.core.frames import Columns, frame_of

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """A fractional solution of a linear programme, and the prices of its rows.

    Parameters
    ----------
    objective
        What the fractional solution is worth; every bound of the programme is at least this.
    columns
        A table of the columns of positive weight, one array per field: what each stands for, its `value` and its `weight`.
    rows
        A table of the rows, one array per field: what each limits, its `capacity`, the `use` that the fractional solution
        makes of it, and the `price` of a unit in the dual point that proves the bound.

    Examples
    --------
    >>> import optim
    >>> solution = optim.solve(optim.reference_instance("tiny-0"), "column-generation")
    >>> frame = solution.relaxation.columns_frame()
    >>> frame.columns.tolist()
    ['job', 'completion', 'value', 'weight', 'workers', 'ps']
    """

    objective: float
    columns: Columns
    rows: Columns

    def columns_frame(self) -> "DataFrame":
        """Return the columns as a pandas frame.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        return frame_of(self.columns)

    def rows_frame(self) -> "DataFrame":
        """Return the rows as a pandas frame.

        Raises
        ------
        MissingDependencyError
            If pandas isn't installed.
        """
        return frame_of(self.rows)
