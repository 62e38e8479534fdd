"""Newton's systems of the packing master: assembled job by job, factorised once a step, solved to full accuracy."""

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csc_array, csr_array

from optim.models.admission.instance import FloatArray, IntArray

IGNORED_WEIGHT = 1e-9
"""Columns whose weight x / z is below this share of their job's are left out of the factorised matrix: late in a
solve most columns are such. Solutions are refined with the exact matrix; a larger share makes that slow."""

SOLVE_TOL = 1e-9
"""Relative residual of a solved system that needs no refinement."""

MOST_REFINEMENTS = 4
"""Conjugate-gradient steps at most, preconditioned by the factor."""

MOST_FACTORISATIONS = 6
REGULARISATION = 1e-13
"""Relative addition to the diagonal when a factorisation fails; a hundredfold at each further attempt."""


class NewtonSystem:
    """The normal equations of one packing programme, with the convexity rows eliminated.

    With d = x / z for each column, e = s / p for each row and f = u / mu for each job the matrix is
    diag(e) + A D A' - B' diag(w + f)^-1 B, where B = sum over a job's columns of d a' and w = sum of d.

    Parameters
    ----------
    matrix
        A, shape (rows, columns), with sorted indices.
    job
        Job of each column, ascending, shape (columns,).
    num_jobs
        Number of convexity rows.
    """

    def __init__(self, matrix: csc_array, job: IntArray, num_jobs: int) -> None:
        self._matrix = matrix
        self.by_row: csr_array = matrix.tocsr()
        self.transpose: csr_array = csr_array(matrix.T)
        self._job, self._num_jobs = job, num_jobs
        self._job_start = np.searchsorted(job, np.arange(num_jobs + 1))
        self._factor: tuple[FloatArray, bool] | None = None
        self._weight, self._row_ratio = np.zeros(0), np.zeros(0)
        self.job_diagonal: FloatArray = np.zeros(0)

    def factorise(self, weight: FloatArray, row_ratio: FloatArray, job_ratio: FloatArray) -> bool:
        """Assemble and factorise the matrix for d, e and f; False if it can't be factorised."""
        self._weight, self._row_ratio = weight, row_ratio
        matrix = self._matrix
        newton, self.job_diagonal = newton_matrix(
            matrix.shape[0], self._job_start, matrix.indptr, matrix.indices, matrix.data, weight, row_ratio, job_ratio,
            IGNORED_WEIGHT,
        )  # fmt: skip
        for attempt in range(MOST_FACTORISATIONS):
            trial = newton.copy()
            if attempt:
                trial[np.diag_indices_from(trial)] *= 1.0 + REGULARISATION * 100.0**attempt
            try:
                self._factor = cho_factor(trial.T, lower=False, overwrite_a=True, check_finite=False)
            except LinAlgError:
                continue
            return True
        return False

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve the factorised system, refining by conjugate gradients on the exact matrix where that is needed."""
        result = self._divide(right)
        residual = right - self._apply(result)
        limit = SOLVE_TOL * float(np.linalg.norm(right))
        if float(np.linalg.norm(residual)) <= limit:
            return result
        scaled = self._divide(residual)
        direction, product = scaled, float(residual @ scaled)
        for _ in range(MOST_REFINEMENTS):
            image = self._apply(direction)
            curvature = float(direction @ image)
            if curvature <= 0 or product <= 0:
                break
            step = product / curvature
            result, residual = result + step * direction, residual - step * image
            if float(np.linalg.norm(residual)) <= limit:
                break
            scaled = self._divide(residual)
            previous, product = product, float(residual @ scaled)
            direction = scaled + product / previous * direction
        return result

    def by_job(self, columns: FloatArray) -> FloatArray:
        """Return the sums of a vector over each job's columns."""
        result: FloatArray = np.bincount(self._job, columns, self._num_jobs)
        return result

    def _divide(self, right: FloatArray) -> NDArray[np.float64]:
        result: FloatArray = cho_solve(self._factor, right, check_finite=False)
        return result

    def _apply(self, vector: FloatArray) -> FloatArray:
        by_column = self.transpose @ vector
        mean = self.by_job(self._weight * by_column) / self.job_diagonal
        result: FloatArray = self._row_ratio * vector + self.by_row @ (self._weight * (by_column - mean[self._job]))
        return result


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
