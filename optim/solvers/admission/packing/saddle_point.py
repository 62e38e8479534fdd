"""A first-order method for packing programmes with one convexity row a job: primal-dual hybrid gradients with restarts.

    max v'x   s.t.  A x <= 1,   x >= 0, sum of x over each job's columns <= 1
    min sum p + sum mu   s.t.  A'p + mu[job] >= v,   p, mu >= 0

A step costs two passes over the entries of A, whatever couples the rows: on ten thousand jobs a hundred steps take as long as
one Newton system of `interior_point`, and reach some 0.5 % of the optimum. Steps of columns are projected onto each job's
convexity row. What is reported is attained: columns of rows that overflow give way.

References
----------
Chambolle, Pock, "A first-order primal-dual algorithm for convex problems with applications to imaging", 2011,
DOI 10.1007/s10851-010-0251-1. Applegate, Diaz, Hinder, Lu, Lubin, O'Donoghue, Schudy, "Practical large-scale linear
programming using primal-dual hybrid gradient", NeurIPS 2021, arXiv 2106.04756 (restarts, weights of the two sides).
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.packing.saddle_loop import Columns, attained, losses, saddle_steps, step_sizes

CHECK_EVERY = 40
"""Steps between two looks at the gap; each costs as much as some four steps."""

ENOUGH_DECAY, SOME_DECAY = 0.3, 0.8
"""Restart once the gap fell to the first share of what it was at the last restart, or to the second and rises again."""

LONGEST_SHARE = 0.36
"""Restart after this share of all steps in any case."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SaddlePoint:
    """A nearly optimal pair of points.

    Parameters
    ----------
    x
        Shape (columns,): satisfies every row to rounding.
    row_price, job_price, reduced_loss
        Dual: p, mu, and A'p + mu[job] - v, all at least 0.
    value, bound
        The two objectives.
    last_x, last_price
        Where the steps ended, feasible or not: from where to go on once there are other columns.
    steps
        Steps taken.
    is_converged
        Whether the tolerance was reached.
    """

    x: FloatArray
    row_price: FloatArray
    job_price: FloatArray
    reduced_loss: FloatArray
    value: float
    bound: float
    last_x: FloatArray
    last_price: FloatArray
    steps: int
    is_converged: bool


def solve_saddle(
    matrix: csc_array,
    job: IntArray,
    value: FloatArray,
    num_jobs: int,
    *,
    tol: float,
    most_steps: int,
    x: FloatArray | None = None,
    row_price: FloatArray | None = None,
) -> SaddlePoint:
    """Solve the programme to a relative gap, or as far as the steps go.

    Parameters
    ----------
    matrix
        A, shape (rows, columns), entries >= 0, rows scaled to right-hand side 1.
    job
        Job of each column, ascending, shape (columns,).
    value
        v, shape (columns,).
    num_jobs
        Number of convexity rows.
    tol
        Gap between the two objectives, relative to the primal one.
    most_steps
        Steps after which the best points are returned.
    x, row_price
        Where to start; x is NaN for new columns.
    """
    iteration = _Iteration(matrix, job, value, num_jobs, x, row_price)
    while not iteration.is_within(tol) and iteration.steps < most_steps:
        iteration.advance(min(CHECK_EVERY, most_steps - iteration.steps))
    return iteration.result(tol)


class _Iteration:
    """The mutable state of one solve."""

    def __init__(
        self,
        matrix: csc_array,
        job: IntArray,
        value: FloatArray,
        num_jobs: int,
        x: FloatArray | None,
        row_price: FloatArray | None,
    ) -> None:
        self.num_rows = matrix.shape[0]
        self.columns = Columns(
            job_start=np.searchsorted(job, np.arange(num_jobs + 1)),
            start=matrix.indptr.astype(np.int64),
            row=matrix.indices.astype(np.int32),
            entry=np.ascontiguousarray(matrix.data, dtype=np.float64),
            value=np.ascontiguousarray(value, dtype=np.float64),
        )
        self.job_step, self.row_step = np.zeros(num_jobs), np.zeros(self.num_rows)
        step_sizes(self.columns, self.job_step, self.row_step)
        self.steps, self.reach = 0, 1.0
        self.x: FloatArray = np.zeros(len(value)) if x is None else np.nan_to_num(x)
        price = np.zeros(self.num_rows) if row_price is None else row_price
        self.price: FloatArray = np.where(self.row_step > 0, price, 0.0)
        self.best_x, self.best_price = self.x, self.price
        self.value, self.bound = self._value(self.x)[0], self._bound(self.price)
        self.weight = self._weight()
        self.last_gap = self.bound - self.value
        self._restart(self.x, self.price, self.last_gap)

    def _weight(self) -> float:
        """Return how long steps of prices are beside those of columns: as far as either have to go, roughly.

        Prices add up to at most the optimum, a column's share is about a half. A factor of three more or less changes little.
        """
        rows, jobs = self.row_step > 0, self.job_step > 0
        price = self.bound / max(int(np.count_nonzero(rows)), 1) * float(np.sqrt(np.sum(1.0 / self.row_step[rows])))
        share = 0.5 * float(np.sqrt(np.sum(1.0 / self.job_step[jobs])))
        return price / share if price > 0 and share > 0 else 1.0

    def is_within(self, tol: float) -> bool:
        """Tell whether the best points agree to the tolerance."""
        return self.bound - self.value <= tol * max(abs(self.value), 1e-9)

    def advance(self, count: int) -> None:
        """Take steps, keep the best points of the last one and the average, and restart from the better where it pays."""
        self.reach, length = saddle_steps(
            count, self.columns, self.job_step / self.weight, self.row_step * self.weight, self.steps, self.reach, self.x,
            self.price, self.x_sum, self.price_sum,
        )  # fmt: skip
        self.steps += count
        self.since += count
        self.length += length
        points = ((self.x, self.price), (self.x_sum / self.length, self.price_sum / self.length))
        gaps = [self._judged(x, price) for x, price in points]
        gap = min(gaps)
        if (
            gap <= ENOUGH_DECAY * self.restart_gap
            or (gap <= SOME_DECAY * self.restart_gap and gap > self.last_gap)
            or self.since >= LONGEST_SHARE * self.steps
        ):
            self._restart(*points[gaps.index(gap)], gap)
        self.last_gap = gap

    def _judged(self, x: FloatArray, price: FloatArray) -> float:
        """Return a pair's gap, and keep either of it that is the best so far."""
        value, fitted = self._value(x)
        bound = self._bound(price)
        if value > self.value:
            self.value, self.best_x = value, fitted
        if bound < self.bound:
            self.bound, self.best_price = bound, price.copy()
        return bound - value

    def _restart(self, x: FloatArray, price: FloatArray, gap: float) -> None:
        self.x, self.price = x.copy(), price.copy()
        self.x_sum, self.price_sum = np.zeros_like(self.x), np.zeros_like(self.price)
        self.since, self.length, self.restart_gap = 0, 0.0, gap

    def _value(self, x: FloatArray) -> tuple[float, FloatArray]:
        fitted = np.empty_like(x)
        return float(attained(self.columns, x, self.num_rows, fitted)), fitted

    def _bound(self, price: FloatArray) -> float:
        return float(losses(self.columns, price, np.empty(len(self.x)), np.empty(len(self.job_step))))

    def result(self, tol: float) -> SaddlePoint:
        """Return the best points."""
        loss, job_price = np.empty(len(self.x)), np.empty(len(self.job_step))
        losses(self.columns, self.best_price, loss, job_price)
        return SaddlePoint(
            x=self._value(self.best_x)[1],
            row_price=self.best_price,
            job_price=job_price,
            reduced_loss=loss,
            value=self.value,
            bound=self.bound,
            last_x=self.x,
            last_price=self.price,
            steps=self.steps,
            is_converged=self.is_within(tol),
        )
