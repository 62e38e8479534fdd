"""Cholesky factors of symmetric matrices that are zero outside a skyline, in blocks of columns.

The rows of a packing programme stand by slot, and a job couples only the slots in which it may run. Where jobs are short beside
the horizon, a Newton matrix of 36,000 rows then has some hundred entries a row below its skyline, and the factor stays there:
n w^2 operations instead of n^3 / 3. A matrix of few rows is a single block, factorised as a dense one.

Source: George, Liu, "Computer Solution of Large Sparse Positive Definite Systems", 1981, chapter 4 (envelope methods).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dtrtrs

from optim.models.admission.instance import FloatArray, IntArray

MOST_DENSE = 4096
"""Rows up to which a matrix is a single dense block."""

BLOCK = 64
"""Columns of a block: products of thin matrices of this width run near the processor's best."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skyline:
    """Where the entries of the upper triangle lie in one flat array.

    Entry (i, j) with i <= j is at ``base[j] + i``: columns one after the other, each from its block's first row down.

    Parameters
    ----------
    begin
        Shape (blocks + 1,): the columns at which blocks begin.
    first
        Shape (blocks,): first row of each block's columns, itself the first of a block.
    start
        Shape (blocks + 1,): where in the flat array blocks begin.
    base
        Shape (columns,).
    """

    begin: IntArray
    first: IntArray
    start: IntArray
    base: IntArray

    @classmethod
    def over(cls, first_row: IntArray, *, most_dense: int = MOST_DENSE, block: int = BLOCK) -> "Skyline":
        """Lay out a matrix whose column j has no entry above row ``first_row[j]``."""
        count = len(first_row)
        begin = np.append(np.arange(0, count, block if count > most_dense else max(count, 1)), count)
        size = np.diff(begin)
        lowest = np.minimum.reduceat(np.minimum(first_row, np.arange(count)), begin[:-1]) if count else begin[:-1]
        first = begin[np.searchsorted(begin, lowest, side="right") - 1]
        start = np.concatenate([[0], np.cumsum((begin[1:] - first) * size)])
        block_of = np.repeat(np.arange(len(size)), size)
        inside = np.arange(count) - begin[block_of]
        base = start[block_of] + inside * (begin[1:] - first)[block_of] - first[block_of]
        return cls(begin=begin, first=first, start=start, base=base)

    @property
    def num_entries(self) -> int:
        """Entries that are kept."""
        return int(self.start[-1])

    @property
    def diagonal(self) -> IntArray:
        """Where the diagonal's entries are, shape (columns,)."""
        return self.base + np.arange(len(self.base))

    def panels(self, flat: FloatArray) -> list[FloatArray]:
        """Return the blocks as views, each of shape (rows from its first to its last, columns), by columns."""
        height = self.begin[1:] - self.first
        return [
            flat[self.start[t] : self.start[t + 1]].reshape((height[t], -1), order="F") for t in range(len(self.first))
        ]


class SkylineFactor:
    """The factor U with U'U = A; overwrites the matrix.

    Parameters
    ----------
    layout
        Where the entries are.
    flat
        The upper triangle's entries, shape (layout.num_entries,); entries below the diagonal are not read.

    Raises
    ------
    LinAlgError
        If the matrix isn't positive definite to rounding.
    """

    def __init__(self, layout: Skyline, flat: FloatArray) -> None:
        self._panels = layout.panels(flat)
        self._begin, self._first = layout.begin.tolist(), layout.first.tolist()
        for t, top in enumerate(self._first):
            for s in range(int(np.searchsorted(layout.begin, top)), t):
                self._eliminate(s, t)
            above, corner = self._parts(t)
            if len(above):
                corner -= above.T @ above
            corner[:], failed = dpotrf(corner, lower=0, clean=1, overwrite_a=1)
            if failed:
                raise LinAlgError(f"the matrix is not positive definite at row {self._begin[t] + failed - 1}")

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve A x = right, shape (rows,)."""
        x = right.copy()
        for t, top in enumerate(self._first):
            above, corner = self._parts(t)
            own = slice(self._begin[t], self._begin[t + 1])
            x[own] = _divided(corner, x[own] - above.T @ x[top : own.start], transposed=True)
        for t in range(len(self._first) - 1, -1, -1):
            above, corner = self._parts(t)
            own = slice(self._begin[t], self._begin[t + 1])
            x[own] = _divided(corner, x[own], transposed=False)
            x[self._first[t] : own.start] -= above @ x[own]
        return x

    def _parts(self, t: int) -> tuple[FloatArray, FloatArray]:
        """Return what a block has above its diagonal block, and that."""
        height = self._begin[t] - self._first[t]
        return self._panels[t][:height], self._panels[t][height:]

    def _eliminate(self, s: int, t: int) -> None:
        """Bring the entries of block t in the rows of an earlier block s into their final form."""
        low = max(self._first[s], self._first[t])
        above, corner = self._parts(s)
        panel, top = self._panels[t], self._first[t]
        rows = panel[self._begin[s] - top : self._begin[s + 1] - top]
        if low < self._begin[s]:
            rows -= above[low - self._first[s] :].T @ panel[low - top : self._begin[s] - top]
        rows[:] = _divided(corner, rows, transposed=True)


def _divided(corner: FloatArray, right: FloatArray, *, transposed: bool) -> FloatArray:
    """Solve a system with a triangular block, or its transpose."""
    result: FloatArray = dtrtrs(corner, right, lower=0, trans=int(transposed))[0]
    return result
