"""The restricted master of the packing LP: by Newton's method, or by first-order steps where rows are many or time is short.

Rows enter Newton's systems only when its primal point violates them: on contended instances half of the rows
never do, and the systems are dense in the rows. Until they have, columns give way where a row overflows. First-order
steps see all rows; columns give way likewise, as such steps keep to rows in the limit only.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.packing.interior_point import WarmStart, solve_packing
from optim.solvers.admission.packing.price_search import PriceSearch
from optim.solvers.admission.packing.saddle_point import solve_saddle
from optim.solvers.admission.packing.skyline import MOST_DENSE
from optim.solvers.admission.pricing.column_pool import ColumnPool

ROW_TOL = 1e-9
"""Relative violation by the master's primal point at which a left-out row enters."""

LOOSE_TOL = 1e-4
"""Large masters are solved by first-order steps up to this tolerance; Newton's method reaches tighter ones sooner."""

MOST_STEPS = 400
"""First-order steps of a master at first; twice as many after each that doesn't reach its tolerance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Master:
    """A solved master: its value in all rows, prices of whole units, what it took, and whether solving anew changes nothing."""

    value: float
    prices: FloatArray
    newton_steps: int = 0
    saddle_steps: int = 0
    is_settled: bool = False


class RestrictedMaster:
    """The master over the columns of a pool; keeps its point between solves.

    Parameters
    ----------
    pool
        The columns; receives their weights.
    search
        Right-hand sides, and the best prices so far.
    most_steps
        First-order steps of a loose master at first; None: Newton's method solves it, unless rows are many.
    """

    def __init__(self, pool: ColumnPool, search: PriceSearch, most_steps: int | None = None) -> None:
        self._pool, self._search = pool, search
        self._is_active = np.zeros(len(search.limit), dtype=np.bool_)
        self._row_price = np.zeros(len(search.limit))
        self._job_price: FloatArray | None = None
        self._is_hasty = most_steps is not None
        self._most_steps, self._overflows = most_steps or MOST_STEPS, False
        self.loss: FloatArray = np.zeros(0)
        """What each column lost at the last solve's prices, shape (columns,)."""

    @property
    def takes_steps(self) -> bool:
        """Whether loose masters take first-order steps."""
        return self._is_hasty or is_large(self._search.limit)

    def add_rows(self, count: int) -> None:
        """Append rows, of cuts, which are active."""
        self._is_active = np.concatenate([self._is_active, np.ones(count, dtype=np.bool_)])
        self._row_price = np.concatenate([self._row_price, np.zeros(count)])

    def keep_rows(self, kept: IntArray) -> None:
        """Forget all rows but the given ones."""
        self._is_active, self._row_price = self._is_active[kept], self._row_price[kept]

    def activate(self, which: NDArray[np.bool_]) -> None:
        """Take rows into Newton's systems, those of them that have capacity."""
        self._is_active |= which
        self._is_active &= self._search.limit > 0

    def solve(self, tol: float) -> Master:
        """Solve the master to a relative tolerance."""
        if self.takes_steps and tol >= LOOSE_TOL:
            return self._step(tol)
        return self._solve_exactly(tol)

    def _step(self, tol: float) -> Master:
        """Take first-order steps over all rows, on from where the last ones ended."""
        pool, search = self._pool, self._search
        price = self._row_price if self._row_price.any() else search.best.prices * search.limit
        solved = solve_saddle(
            pool.share, pool.job, pool.value, pool.tables.num_jobs, tol=tol, most_steps=self._most_steps,
            x=pool.weight, row_price=price,
        )  # fmt: skip
        if not solved.is_converged:
            self._most_steps *= 2
        self.activate(solved.row_price > 0)
        self._row_price, self._job_price = solved.last_price, solved.job_price
        self.loss = solved.reduced_loss
        self._overflows = True
        pool.set_weight(solved.last_x)
        return Master(value=solved.value, prices=solved.row_price * search.scale, saddle_steps=solved.steps)

    def _solve_exactly(self, tol: float) -> Master:
        """Solve the master over the active rows by Newton's method, and activate those that its point violates."""
        pool, search = self._pool, self._search
        active = self._active_rows()
        by_row = pool.share.tocsr()
        start = None
        if self._job_price is not None:
            weight = fitting(pool.share, pool.weight) if self._overflows else pool.weight
            start = WarmStart(
                x=weight,
                row_price=(search.best.prices * search.limit)[active],
                job_price=search.best.payoff,
                complementarity=tol * float(pool.value @ np.nan_to_num(weight)),
            )
        solved = solve_packing(
            csc_array(by_row[active]), pool.job, pool.value, pool.tables.num_jobs, tol=tol, start=start
        )
        use = by_row @ solved.x
        violated = np.flatnonzero((use > 1.0 + ROW_TOL) & ~self._is_active)
        x = solved.x * shares_that_fit(pool.share, use)
        self._is_active[violated] = True
        self._row_price[:] = 0.0
        self._row_price[active] = solved.row_price
        self._job_price, self.loss = solved.job_price, solved.reduced_loss
        self._overflows = False
        pool.set_weight(x)
        return Master(
            value=float(pool.value @ x),
            prices=self._row_price * search.scale,
            newton_steps=solved.iterations,
            is_settled=len(violated) == 0 and (not solved.is_converged or solved.iterations == 0),
        )

    def _active_rows(self) -> IntArray:
        """Return the rows of the master; where they are many, slot by slot, so that Newton's matrix has a skyline."""
        active = np.flatnonzero(self._is_active)
        if len(active) <= MOST_DENSE:
            return active
        rows = self._pool.rows
        num_cuts = len(self._search.limit) - rows.num_rows
        slot = np.append(rows.slot_of_row, np.full(num_cuts, self._pool.tables.instance.horizon))
        return active[np.argsort(slot[active], kind="stable")]


def is_large(capacity: FloatArray) -> bool:
    """Tell whether more rows have capacity than a dense factor pays for: then masters cost less than pricing."""
    return int(np.count_nonzero(capacity)) > MOST_DENSE


def fitting(share: csc_array, x: FloatArray) -> FloatArray:
    """Return a point, NaN where it is not known, taken back so that it fits into every row, shape (columns,)."""
    fits: FloatArray = x * shares_that_fit(share, share @ np.nan_to_num(x))
    return fits


def shares_that_fit(share: csc_array, use: FloatArray) -> FloatArray:
    """Return by how much each column is taken back so that no row is used beyond its capacity, shape (columns,).

    A column that uses a row gives way by that row's excess: what is left of the row's use is at most its capacity.
    """
    excess = np.maximum(use, 1.0)[share.indices]
    most = np.ones(share.shape[1])
    filled = np.flatnonzero(np.diff(share.indptr))
    most[filled] = np.maximum.reduceat(excess, share.indptr[filled])
    return 1.0 / most
