"""A primal-dual interior-point method for packing programmes with one convexity row a job.

    max v'x   s.t.  A x + s = 1,   sum of x over each job's columns + u = 1,   x, s, u >= 0
    min sum p + sum mu   s.t.  A'p + mu[job] - z = v,   p, mu, z >= 0

Column generation wants dual points in the middle of the optimal face, not vertices: they give better
columns and better Lagrangian bounds, and a loose tolerance saves most of the work (Gondzio, Gonzalez-
Brevis, Munari, "Large-scale optimization with the primal-dual column generation method", 2016,
DOI 10.1007/s12532-015-0090-6). The convexity rows are eliminated job by job, so each Newton system has
only the rows of A and is dense: assembled job by job and factorised by Cholesky.

Source of the iteration: Mehrotra, "On the implementation of a primal-dual interior point method", 1992,
DOI 10.1137/0802028.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csc_array, csr_array

from optim.models.admission.instance import FloatArray, IntArray

MAX_ITERATIONS = 60
IGNORED_WEIGHT = 1e-9
"""Columns whose weight x / z is below this share of their job's are left out of the Newton matrix: the step
is then inexact by no more than that, and late in the solve most columns are such."""

STEP_SHARE = 0.995
"""Share of the longest feasible step that is taken, so that every variable stays positive."""

SMALLEST_CENTRING = 1e-4
REGULARISATION = 1e-11
"""Relative addition to the diagonal of the Newton matrix when its factorisation fails; tenfold each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InteriorPoint:
    """A nearly optimal pair of points.

    Parameters
    ----------
    x, slack, spare
        Primal: columns, rows' slack s, convexity rows' slack u.
    row_price, job_price, reduced_loss
        Dual: p, mu and z.
    value
        Primal objective v'x.
    complementarity
        x'z + s'p + u'mu, the distance of the two objectives up to infeasibility.
    infeasibility
        Largest absolute primal residual (rows have right-hand side 1).
    iterations
        Newton systems factorised.
    is_converged
        Whether the tolerance was reached.
    """

    x: FloatArray
    slack: FloatArray
    spare: FloatArray
    row_price: FloatArray
    job_price: FloatArray
    reduced_loss: FloatArray
    value: float
    complementarity: float
    infeasibility: float
    iterations: int
    is_converged: bool


def solve_packing(matrix: csc_array, job: IntArray, value: FloatArray, num_jobs: int, *, tol: float) -> InteriorPoint:
    """Solve the programme to a relative tolerance.

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
        Complementarity relative to max(1, |objective|); residuals are driven a hundred times lower.
    """
    iteration = _Iteration(matrix, job, value, num_jobs)
    for count in range(MAX_ITERATIONS + 1):
        iteration.update_residuals()
        if iteration.is_within(tol):
            return iteration.result(count, True)
        if count == MAX_ITERATIONS or not iteration.advance():
            return iteration.result(count, False)
    raise AssertionError("the loop above returns")


class _Iteration:
    """The mutable state of one solve; all vectors stay strictly positive."""

    def __init__(self, matrix: csc_array, job: IntArray, value: FloatArray, num_jobs: int) -> None:
        matrix.sort_indices()
        self.matrix, self.transpose = matrix, csr_array(matrix.T)
        self.by_row = matrix.tocsr()
        self.job, self.value, self.num_jobs = job, value, num_jobs
        num_rows, num_columns = matrix.shape
        self.job_start = np.searchsorted(job, np.arange(num_jobs + 1))
        self.scale = max(1.0, float(value.mean())) if num_columns else 1.0
        per_job = np.maximum(np.diff(self.job_start), 1)
        self.x = 0.5 / per_job[job]
        self.s = np.full(num_rows, 0.5)
        self.u = np.full(num_jobs, 0.5)
        self.p = np.full(num_rows, 0.3 * self.scale * num_jobs / max(num_rows, 1))
        self.mu = np.full(num_jobs, 0.3 * self.scale)
        self.z = np.maximum(self.transpose @ self.p + self.mu[job] - value, 0.1 * self.scale)
        self.size = num_rows + num_columns + num_jobs

    def update_residuals(self) -> None:
        self.row_residual = 1.0 - self.by_row @ self.x - self.s
        self.job_residual = 1.0 - np.bincount(self.job, self.x, self.num_jobs) - self.u
        self.dual_residual = self.value - (self.transpose @ self.p + self.mu[self.job] - self.z)
        self.complementarity = float(self.x @ self.z + self.s @ self.p + self.u @ self.mu)
        self.objective = float(self.value @ self.x)
        self.infeasibility = max(_largest(self.row_residual), _largest(self.job_residual))

    def is_within(self, tol: float) -> bool:
        residual_tol = max(1e-9, 1e-2 * tol)
        return (
            self.complementarity <= tol * max(1.0, abs(self.objective))
            and self.infeasibility <= residual_tol
            and _largest(self.dual_residual) <= residual_tol * self.scale
        )

    def advance(self) -> bool:
        """Take one predictor-corrector step; False if the Newton matrix can't be factorised."""
        weight = self.x / self.z
        newton, diagonal = newton_matrix(
            len(self.s), self.job_start, self.matrix.indptr, self.matrix.indices, self.matrix.data, weight,
            self.s / self.p, self.u / self.mu, IGNORED_WEIGHT,
        )  # fmt: skip
        factor = _factorise(newton)
        if factor is None:
            return False
        solver = (factor, weight, diagonal)
        average = self.complementarity / self.size
        affine = self._direction(solver, -self.x * self.z, -self.s * self.p, -self.u * self.mu)
        primal, dual = self._longest(affine)
        x, s, u, p, mu, z = affine
        after = (
            (self.x + primal * x) @ (self.z + dual * z)
            + (self.s + primal * s) @ (self.p + dual * p)
            + (self.u + primal * u) @ (self.mu + dual * mu)
        ) / self.size
        centre = min(1.0, max(SMALLEST_CENTRING, (after / average) ** 3)) * average
        # Second-order terms are cut: where the affine step is bad they would throw the step away.
        limit = 5.0 * average
        step = self._direction(
            solver,
            centre - self.x * self.z - np.clip(x * z, -limit, limit),
            centre - self.s * self.p - np.clip(s * p, -limit, limit),
            centre - self.u * self.mu - np.clip(u * mu, -limit, limit),
        )
        primal, dual = (min(1.0, STEP_SHARE * length) for length in self._longest(step))
        x, s, u, p, mu, z = step
        self.x, self.s, self.u = self.x + primal * x, self.s + primal * s, self.u + primal * u
        self.p, self.mu, self.z = self.p + dual * p, self.mu + dual * mu, self.z + dual * z
        return True

    def _direction(self, solver, for_x, for_s, for_u):  # type: ignore[no-untyped-def]
        """Solve the Newton system for given right-hand sides of the complementarity equations."""
        factor, weight, diagonal = solver
        inside = (for_x + self.x * self.dual_residual) / self.z
        for_rows = self.by_row @ inside + for_s / self.p - self.row_residual
        for_jobs = np.bincount(self.job, inside, self.num_jobs) + for_u / self.mu - self.job_residual
        right = for_rows - self.by_row @ (weight * (for_jobs / diagonal)[self.job])
        p = cho_solve(factor, right, check_finite=False)
        mu = (for_jobs - np.bincount(self.job, weight * (self.transpose @ p), self.num_jobs)) / diagonal
        z = self.transpose @ p + mu[self.job] - self.dual_residual
        return (
            (for_x - self.x * z) / self.z,
            (for_s - self.s * p) / self.p,
            (for_u - self.u * mu) / self.mu,
            p,
            mu,
            z,
        )

    def _longest(self, step):  # type: ignore[no-untyped-def]
        """Return the longest primal and dual steps that keep every variable non-negative, at most 1."""
        x, s, u, p, mu, z = step
        primal = min(_step_to_zero(self.x, x), _step_to_zero(self.s, s), _step_to_zero(self.u, u))
        dual = min(_step_to_zero(self.p, p), _step_to_zero(self.mu, mu), _step_to_zero(self.z, z))
        return min(1.0, primal), min(1.0, dual)

    def result(self, iterations: int, is_converged: bool) -> InteriorPoint:
        return InteriorPoint(
            x=self.x,
            slack=self.s,
            spare=self.u,
            row_price=self.p,
            job_price=self.mu,
            reduced_loss=self.z,
            value=self.objective,
            complementarity=self.complementarity,
            infeasibility=self.infeasibility,
            iterations=iterations,
            is_converged=is_converged,
        )


def _largest(vector: FloatArray) -> float:
    return float(np.abs(vector).max(initial=0.0))


def _step_to_zero(vector: FloatArray, change: FloatArray) -> float:
    falling = change < 0
    return float((-vector[falling] / change[falling]).min()) if falling.any() else 1.0 / STEP_SHARE


def _factorise(newton: FloatArray):  # type: ignore[no-untyped-def]
    """Return the Cholesky factor, adding to the diagonal as little as makes it succeed; None if nothing does."""
    for attempt in range(5):
        trial = newton if attempt == 4 else newton.copy()
        if attempt:
            trial[np.diag_indices_from(trial)] *= 1.0 + REGULARISATION * 100.0**attempt
        try:
            return cho_factor(trial.T, lower=False, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
    return None


@njit(cache=True, nogil=True)
def newton_matrix(num_rows, job_start, start, row, entry, weight, row_ratio, job_ratio, ignored):
    """Return the Newton matrix (lower triangle) and the eliminated convexity rows' diagonal.

    For each job with columns a_j, weights d_j = x_j / z_j, their sum w and e = u / mu the block is

        sum_j d_j a_j a_j' - (sum_j d_j a_j)(...)' / (w + e)
          = sum_j d_j (a_j - m)(a_j - m)' + (e w / (w + e)) m m',   m = sum_j d_j a_j / w.

    The second form has no cancellation where one column dominates, which is where the first one fails.
    """
    num_jobs = len(job_start) - 1
    newton = np.zeros((num_rows, num_rows))
    for r in range(num_rows):
        newton[r, r] = row_ratio[r]
    diagonal = np.empty(num_jobs)
    place = np.full(num_rows, -1, dtype=np.int64)
    for i in range(num_jobs):
        first, last = job_start[i], job_start[i + 1]
        total = 0.0
        for j in range(first, last):
            total += weight[j]
        diagonal[i] = total + job_ratio[i]
        if first == last:
            continue
        members = first + np.flatnonzero(weight[first:last] > ignored * total)
        union = np.empty(start[last] - start[first], dtype=np.int64)
        size = 0
        for j in members:
            for a in range(start[j], start[j + 1]):
                if place[row[a]] < 0:
                    place[row[a]] = 0
                    union[size] = row[a]
                    size += 1
        rows = np.sort(union[:size])
        for a in range(size):
            place[rows[a]] = a
        mean = np.zeros(size)
        for j in members:
            for a in range(start[j], start[j + 1]):
                mean[place[row[a]]] += weight[j] / total * entry[a]
        # One row more for the mean itself: the block is then a single product of a thin matrix with its transpose.
        thin = np.empty((len(members) + 1, size))
        for k in range(len(members)):
            j = members[k]
            root = np.sqrt(weight[j])
            for a in range(size):
                thin[k, a] = -root * mean[a]
            for a in range(start[j], start[j + 1]):
                thin[k, place[row[a]]] += root * entry[a]
        root = np.sqrt(job_ratio[i] * total / diagonal[i])
        for a in range(size):
            thin[len(members), a] = root * mean[a]
        block = np.dot(thin.T, thin)
        for a in range(size):
            target = newton[rows[a]]
            for b in range(a + 1):
                target[rows[b]] += block[a, b]
        for a in range(size):
            place[rows[a]] = -1
    return newton, diagonal
