"""Newton's systems of the packing master: assembled job by job, factorised once a step, solved to full accuracy."""

import numpy as np
from scipy.linalg import LinAlgError
from scipy.sparse import csc_array, csr_array

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.packing.newton_loop import newton_matrix
from optim.solvers.admission.packing.skyline import Skyline, SkylineFactor

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
        # One type of index, else the compiled loop is compiled for each.
        self._start, self._row = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        self.by_row: csr_array = matrix.tocsr()
        self.transpose: csr_array = csr_array(matrix.T)
        self._job, self._num_jobs = job, num_jobs
        self._job_start = np.searchsorted(job, np.arange(num_jobs + 1))
        self._layout = Skyline.over(_first_rows(matrix, job, num_jobs))
        self._factor: SkylineFactor | None = None
        self._weight, self._row_ratio = np.zeros(0), np.zeros(0)
        self.job_diagonal: FloatArray = np.zeros(0)

    def factorise(self, weight: FloatArray, row_ratio: FloatArray, job_ratio: FloatArray) -> bool:
        """Assemble and factorise the matrix for d, e and f; False if it can't be factorised."""
        self._weight, self._row_ratio = weight, row_ratio
        matrix = self._matrix
        newton, self.job_diagonal = newton_matrix(
            self._layout.base, self._layout.num_entries, self._job_start, self._start, self._row, matrix.data, weight,
            row_ratio, job_ratio, IGNORED_WEIGHT,
        )  # fmt: skip
        if not (self.job_diagonal > 0).all():
            return False
        for attempt in range(MOST_FACTORISATIONS):
            trial = newton.copy()
            if attempt:
                trial[self._layout.diagonal] *= 1.0 + REGULARISATION * 100.0**attempt
            try:
                self._factor = SkylineFactor(self._layout, trial)
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
        result: FloatArray = np.bincount(self._job, columns, self._num_jobs).astype(np.float64, copy=False)
        return result

    def _divide(self, right: FloatArray) -> FloatArray:
        assert self._factor is not None, "a system is factorised before it is solved"
        return self._factor.solve(right)

    def _apply(self, vector: FloatArray) -> FloatArray:
        by_column = self.transpose @ vector
        mean = self.by_job(self._weight * by_column) / self.job_diagonal
        result: FloatArray = self._row_ratio * vector + self.by_row @ (self._weight * (by_column - mean[self._job]))
        return result


def _first_rows(matrix: csc_array, job: IntArray, num_jobs: int) -> IntArray:
    """Return the first row that each row is coupled with by a job, shape (rows,)."""
    job_of_entry = np.repeat(job, np.diff(matrix.indptr))
    of_job = np.full(num_jobs, matrix.shape[0])
    np.minimum.at(of_job, job_of_entry, matrix.indices)
    first = np.arange(matrix.shape[0])
    np.minimum.at(first, matrix.indices, of_job[job_of_entry])
    return first
