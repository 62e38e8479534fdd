"""A primal-dual interior-point method for packing programmes with one convexity row per job.

The rows of a packing programme are sorted by slot, and a job couples only the slots in which it may run. If jobs are short
compared with the horizon, the n rows of the Newton matrix have few entries below its skyline, w per row (some hundred for
n = 36,000), and so has the factor: n w^2 operations instead of n^3 / 3. A matrix of few rows is factorised as a dense block.

Source: George, Liu, "Computer Solution of Large Sparse Positive Definite Systems", 1981, chapter 4 (envelope methods).

max v'x   s.t.  A x + s = 1,   sum of x over each job's columns + u = 1,   x, s, u >= 0
    min sum p + sum mu   s.t.  A'p + mu[job] - z = v,   p, mu, z >= 0

Column generation needs dual points in the middle of the optimal face instead of vertices: they give better
columns and better Lagrangian bounds, and a loose tolerance saves most of the work. Two properties make
packing programmes suitable for such methods. All entries are at least 0, so shrinking x gives a strictly
feasible point: every solve starts feasible, from the last point if there is one. And the rows define the
slacks, so the slacks' steps are computed from the rows, and the point stays feasible up to rounding.

References
----------
Mehrotra, "On the implementation of a primal-dual interior point method", 1992, DOI 10.1137/0802028.
Gondzio, "Multiple centrality corrections in a primal-dual method for linear programming", 1996,
DOI 10.1007/BF00249643. Gondzio, Gonzalez-Brevis, Munari, "Large-scale optimization with the primal-dual
column generation method", 2016, DOI 10.1007/s12532-015-0090-6.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dtrtrs
from scipy.sparse import csc_array, csr_array

from optim.compiled import compiled
from optim.core.arrays import FloatArray, IntArray


@compiled
def newton_matrix(base, num_entries, job_start, start, row, entry, weight, row_ratio, job_ratio, ignored):
    """Return the Newton matrix (entry (i, j), i >= j, at ``base[i] + j``) and the eliminated convexity rows' diagonal.

    For each job with columns a_j, weights d_j = x_j / z_j, their sum w and e = u / mu the block is

        sum_j d_j a_j a_j' - (sum_j d_j a_j)(...)' / (w + e)
          = sum_j d_j (a_j - m)(a_j - m)' + (e w / (w + e)) m m',   m = sum_j d_j a_j / w.

    The second form has no cancellation if one column dominates, where the first one fails.
    """
    num_jobs = len(job_start) - 1
    num_rows = len(base)
    newton = np.zeros(num_entries)
    for r in range(num_rows):
        newton[base[r] + r] = row_ratio[r]
    diagonal = np.empty(num_jobs)
    place = np.full(num_rows, -1, dtype=np.int64)
    for i in range(num_jobs):
        first, last = job_start[i], job_start[i + 1]
        total = 0.0
        for j in range(first, last):
            total += weight[j]
        diagonal[i] = total + job_ratio[i]
        if total == 0.0:  # no columns, or all have weight 0
            continue
        members, num_members = np.empty(last - first, dtype=np.int64), 0
        for j in range(first, last):
            if weight[j] > ignored * total:
                members[num_members] = j
                num_members += 1
        low, high, size = num_rows, -1, 0
        for k in range(num_members):
            j = members[k]
            for a in range(start[j], start[j + 1]):
                if place[row[a]] < 0:
                    place[row[a]] = 0
                    low, high, size = min(low, row[a]), max(high, row[a]), size + 1
        rows, size = np.empty(size, dtype=np.int64), 0
        for r in range(low, high + 1):  # the range is short, and sorting takes seconds to compile
            if place[r] >= 0:
                rows[size], place[r] = r, size
                size += 1
        mean = np.zeros(size)
        for k in range(num_members):
            j = members[k]
            for a in range(start[j], start[j + 1]):
                mean[place[row[a]]] += weight[j] / total * entry[a]
        # One more row for the mean: the block is then a single product of a thin matrix with its transpose.
        thin = np.empty((num_members + 1, size))
        for k in range(num_members):
            j = members[k]
            root = np.sqrt(weight[j])
            for a in range(size):
                thin[k, a] = -root * mean[a]
            for a in range(start[j], start[j + 1]):
                thin[k, place[row[a]]] += root * entry[a]
        root = np.sqrt(job_ratio[i] * total / diagonal[i])
        for a in range(size):
            thin[num_members, a] = root * mean[a]
        block = np.dot(thin.T, thin)
        for a in range(size):
            target = base[rows[a]]
            for b in range(a + 1):
                newton[target + rows[b]] += block[a, b]
        for a in range(size):
            place[rows[a]] = -1
    return newton, diagonal


MAX_DENSE = 4096
"""Maximal number of rows of a matrix that is a single dense block."""

BLOCK = 64
"""Number of columns of a block: products of thin matrices of this width run near the processor's peak."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Skyline:
    """Layout of the upper triangle's entries in one flat array.

    Entry (i, j) with i <= j is at ``base[j] + i``: columns one after the other, each from its block's first row down.

    Parameters
    ----------
    begin
        Shape (blocks + 1,): the columns at which blocks begin.
    first
        Shape (blocks,): first row of each block's columns, which is also the first row of a block.
    start
        Shape (blocks + 1,): start of each block in the flat array.
    base
        Shape (columns,): position of the column's entry in row 0, if it were stored.
    """

    begin: IntArray
    first: IntArray
    start: IntArray
    base: IntArray

    @classmethod
    def over(cls, first_row: IntArray, *, max_dense: int = MAX_DENSE, block: int = BLOCK) -> "Skyline":
        """Return the layout of a matrix whose column j has no entry above row ``first_row[j]``."""
        count = len(first_row)
        begin = np.append(np.arange(0, count, block if count > max_dense else max(count, 1)), count)
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
        """Number of stored entries."""
        return int(self.start[-1])

    @property
    def diagonal(self) -> IntArray:
        """Positions of the diagonal's entries, shape (columns,)."""
        return self.base + np.arange(len(self.base))

    def panels(self, flat: FloatArray) -> list[FloatArray]:
        """Return the blocks as views in column-major order; the shape of each is (rows from its first to its last, columns)."""
        height = self.begin[1:] - self.first
        return [
            flat[self.start[t] : self.start[t + 1]].reshape((height[t], -1), order="F") for t in range(len(self.first))
        ]


class SkylineFactor:
    """The factor U with U'U = A; it overwrites the matrix A.

    Parameters
    ----------
    layout
        Positions of the entries.
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
            block = slice(self._begin[t], self._begin[t + 1])
            x[block] = _divided(corner, x[block] - above.T @ x[top : block.start], transposed=True)
        for t in range(len(self._first) - 1, -1, -1):
            above, corner = self._parts(t)
            block = slice(self._begin[t], self._begin[t + 1])
            x[block] = _divided(corner, x[block], transposed=False)
            x[self._first[t] : block.start] -= above @ x[block]
        return x

    def _parts(self, t: int) -> tuple[FloatArray, FloatArray]:
        """Return a block's part above its diagonal block, and its diagonal block."""
        height = self._begin[t] - self._first[t]
        return self._panels[t][:height], self._panels[t][height:]

    def _eliminate(self, s: int, t: int) -> None:
        """Compute the final entries of block t in the rows of an earlier block s."""
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


IGNORED_WEIGHT = 1e-9
"""Columns whose weight x / z is below this share of their job's total are omitted from the factorised matrix. Late in a
solve, these are most columns. Solutions are refined with the exact matrix; a larger share makes refinement slow."""

SOLVE_TOL = 1e-9
"""Relative residual of a solved system that needs no refinement."""

MAX_REFINEMENTS = 4
"""Maximum number of conjugate-gradient steps, preconditioned by the factor."""

MAX_FACTORISATIONS = 6

REGULARISATION = 1e-13
"""After k failed factorisations, the diagonal is multiplied by 1 + REGULARISATION * 100^k."""


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
        # One index type, since the compiled loop is compiled once per type.
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
        """Assemble and factorise the matrix for d, e and f; return False if it can't be factorised."""
        self._weight, self._row_ratio = weight, row_ratio
        matrix = self._matrix
        newton, self.job_diagonal = newton_matrix(
            self._layout.base, self._layout.num_entries, self._job_start, self._start, self._row, matrix.data, weight,
            row_ratio, job_ratio, IGNORED_WEIGHT,
        )  # fmt: skip
        if not (self.job_diagonal > 0).all():
            return False
        for attempt in range(MAX_FACTORISATIONS):
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
        """Solve the factorised system, refining by conjugate gradients on the exact matrix if needed."""
        result = self._divide(right)
        residual = right - self._apply(result)
        limit = SOLVE_TOL * float(np.linalg.norm(right))
        if float(np.linalg.norm(residual)) <= limit:
            return result
        scaled = self._divide(residual)
        direction, product = scaled, float(residual @ scaled)
        for _ in range(MAX_REFINEMENTS):
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
    """Return for each row the first row with which a job couples it, shape (rows,)."""
    job_of_entry = np.repeat(job, np.diff(matrix.indptr))
    of_job = np.full(num_jobs, matrix.shape[0])
    np.minimum.at(of_job, job_of_entry, matrix.indices)
    first = np.arange(matrix.shape[0])
    np.minimum.at(first, matrix.indices, of_job[job_of_entry])
    return first


MAX_ITERATIONS = 60

STEP_SHARE = 0.995
"""Fraction of the longest feasible step to take, so that every variable stays positive."""

SMALLEST_CENTRING = 1e-4

MAX_CORRECTIONS = 3

LONG_ENOUGH = 0.95
"""Centrality corrections, each a solve with the same factor, end when the primal and dual steps are at least this long."""

REACH = 0.3
"""Increase of the step lengths that a correction attempts."""

MIN_GAIN = 0.05
"""A correction that increases the sum of both step lengths by less is dropped."""

CENTRAL = (0.1, 10.0)
"""Complementarity products between these multiples of their target count as central."""

MAX_SLACK, MAX_ADDED = 1e-5, 1e-4
"""Largest share of a row's capacity that a warm start frees, and largest weight that it adds to a job's columns. One row's
slack shrinks all columns: a share of 1e-4 costs 1e-4 of the objective."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarmStart:
    """A nearly optimal point of a programme whose columns or rows have changed since.

    Parameters
    ----------
    x
        Shape (columns,): NaN for new columns.
    row_price, job_price
        p and mu; new rows have price 0.
    complementarity
        Target complementarity: a start that is much closer to the boundary is moved away from the boundary.
    """

    x: FloatArray
    row_price: FloatArray
    job_price: FloatArray
    complementarity: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InteriorPoint:
    """A nearly optimal pair of a primal and a dual point.

    Parameters
    ----------
    x, slack, spare
        Primal point: columns, slack s of the rows, slack u of the convexity rows. It is feasible up to rounding.
    row_price, job_price, dual_slack
        Dual point: p, mu and z.
    value
        Primal objective v'x.
    complementarity
        x'z + s'p + u'mu, the difference between the dual and the primal objective.
    infeasibility
        Largest absolute primal residual (rows have right-hand side 1).
    iterations
        Number of factorised Newton systems.
    is_converged
        Whether the tolerance was reached.
    """

    x: FloatArray
    slack: FloatArray
    spare: FloatArray
    row_price: FloatArray
    job_price: FloatArray
    dual_slack: FloatArray
    value: float
    complementarity: float
    infeasibility: float
    iterations: int
    is_converged: bool


def solve_packing(
    matrix: csc_array, job: IntArray, value: FloatArray, num_jobs: int, *, tol: float, start: WarmStart | None = None
) -> InteriorPoint:
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
    start
        A point to start from.
    """
    matrix.sort_indices()
    iteration = _Iteration(NewtonSystem(matrix, job, num_jobs), job, value)
    if start is None:
        iteration.start_cold()
    else:
        iteration.start_warm(start)
    for count in range(MAX_ITERATIONS + 1):
        iteration.update_residuals()
        if iteration.is_within(tol):
            return iteration.result(count, True)
        if count == MAX_ITERATIONS or not iteration.advance():
            return iteration.result(count, False)
    raise AssertionError("the loop above returns")


class _Point(NamedTuple):
    """Primal and dual variables, or a step of each."""

    x: FloatArray
    s: FloatArray
    u: FloatArray
    p: FloatArray
    mu: FloatArray
    z: FloatArray

    def moved(self, step: "_Point", primal: float, dual: float) -> "_Point":
        """Return the point after a step whose primal and dual parts are scaled by `primal` and `dual`."""
        lengths = (primal, primal, primal, dual, dual, dual)
        return _Point(*(part + length * change for part, length, change in zip(self, lengths, step, strict=True)))

    def products(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the complementarity products xz, sp and u mu."""
        return self.x * self.z, self.s * self.p, self.u * self.mu


class _Right(NamedTuple):
    """Right-hand sides of the complementarity equations: x dz + z dx = for_x, and so on."""

    for_x: FloatArray
    for_s: FloatArray
    for_u: FloatArray


class _Iteration:
    """The mutable state of one solve; all variables stay strictly positive."""

    def __init__(self, system: NewtonSystem, job: IntArray, value: FloatArray) -> None:
        self.system, self.job, self.value = system, job, value
        self.num_rows, self.num_jobs = system.by_row.shape[0], len(system.by_job(np.zeros(len(value))))
        self.scale = max(1.0, float(value.mean())) if len(value) else 1.0
        self.columns_of = np.maximum(system.by_job(np.ones(len(value))), 1.0)
        self.size = self.num_rows + len(value) + self.num_jobs

    def start_cold(self) -> None:
        """Start far inside: x so small that every row has slack, prices so high that all reduced costs are positive."""
        x = 0.5 / self.columns_of[self.job]
        x *= min(1.0, 0.7 / max(float((self.system.by_row @ x).max(initial=0.0)), 1e-9))
        p = np.full(self.num_rows, 0.3 * self.scale * self.num_jobs / max(self.num_rows, 1))
        mu = np.full(self.num_jobs, 0.3 * self.scale)
        mu += np.maximum(0.1 * self.scale - self._min_loss(p, mu), 0.0)
        self._start(x, p, mu)

    def start_warm(self, start: WarmStart) -> None:
        """Start from a known point: raise the jobs' prices and shrink x until it is feasible and off the boundary."""
        missing = np.maximum(-self._min_loss(start.row_price, start.job_price), 0.0)
        gap = max(start.complementarity, float(missing.sum()))
        target = gap / self.size
        mu = start.job_price + missing + 0.1 * gap / max(self.num_jobs, 1)
        p = np.maximum(start.row_price, target)
        z = np.maximum(self._loss(p, mu), 1e-12)
        x = np.maximum(np.nan_to_num(start.x), np.minimum(target / z, MAX_ADDED / self.columns_of[self.job]))
        used, price = np.concatenate([self.system.by_row @ x, self.system.by_job(x)]), np.concatenate([p, mu])
        dual_slack = 1.0 - np.minimum(target / price, MAX_SLACK)
        shrink = float((dual_slack / np.maximum(used, 1e-12)).min(initial=1.0))
        self._start(shrink * x, p, mu)

    def _start(self, x: FloatArray, p: FloatArray, mu: FloatArray) -> None:
        self.at = _Point(
            x=x,
            s=1.0 - self.system.by_row @ x,
            u=1.0 - self.system.by_job(x),
            p=p,
            mu=mu,
            z=np.maximum(self._loss(p, mu), 1e-12),
        )

    def _loss(self, p: FloatArray, mu: FloatArray) -> FloatArray:
        result: FloatArray = self.system.transpose @ p + mu[self.job] - self.value
        return result

    def _min_loss(self, p: FloatArray, mu: FloatArray) -> FloatArray:
        """Return each job's minimal dual slack, 0 for jobs without columns."""
        least = np.full(self.num_jobs, np.inf)
        np.minimum.at(least, self.job, self._loss(p, mu))
        return np.where(np.isfinite(least), least, 0.0)

    def update_residuals(self) -> None:
        """Recompute residuals, complementarity and objective."""
        at = self.at
        self.row_residual = 1.0 - self.system.by_row @ at.x - at.s
        self.job_residual = 1.0 - self.system.by_job(at.x) - at.u
        self.dual_residual = at.z - self._loss(at.p, at.mu)
        self.complementarity = sum(float(product.sum()) for product in at.products())
        self.objective = float(self.value @ at.x)
        self.infeasibility = max(_largest(self.row_residual), _largest(self.job_residual))

    def is_within(self, tol: float) -> bool:
        """Return whether the point is optimal to the tolerance."""
        residual_tol = max(1e-9, 1e-2 * tol)
        return (
            self.complementarity <= tol * max(1.0, abs(self.objective))
            and self.infeasibility <= residual_tol
            and _largest(self.dual_residual) <= residual_tol * self.scale
        )

    def advance(self) -> bool:
        """Take one predictor-corrector step; return False if the Newton matrix can't be factorised."""
        at = self.at
        if not self.system.factorise(at.x / at.z, at.s / at.p, at.u / at.mu):
            return False
        average = self.complementarity / self.size
        affine = self._direction(_Right(*(-product for product in at.products())), is_first=True)
        primal, dual = self._longest(affine)
        after = sum(float(product.sum()) for product in at.moved(affine, primal, dual).products()) / self.size
        centre = min(1.0, max(SMALLEST_CENTRING, (after / average) ** 3)) * average
        # The second-order terms are weighted by the length of the step that they correct, and clipped: with a bad affine
        # step they would ruin the step.
        share, limit = primal * dual, 5.0 * average
        second = _Right(*(centre - np.clip(share * product, -limit, limit) for product in affine.products()))
        step = _sum(affine, self._direction(second))
        step, primal, dual = self._corrected(step, centre)
        self.at = at.moved(step, min(1.0, STEP_SHARE * primal), min(1.0, STEP_SHARE * dual))
        return True

    def _corrected(self, step: _Point, centre: float) -> tuple[_Point, float, float]:
        """Lengthen a step by moving outlying complementarity products towards the centre."""
        primal, dual = self._longest(step)
        for _ in range(MAX_CORRECTIONS):
            if min(primal, dual) > LONG_ENOUGH:
                break
            trial = self.at.moved(step, min(1.0, primal + REACH), min(1.0, dual + REACH))
            lack = (
                np.maximum(np.clip(product, CENTRAL[0] * centre, CENTRAL[1] * centre) - product, -CENTRAL[1] * centre)
                for product in trial.products()
            )
            candidate = _sum(step, self._direction(_Right(*lack)))
            new_primal, new_dual = self._longest(candidate)
            if new_primal < primal or new_dual < dual or new_primal + new_dual < primal + dual + MIN_GAIN:
                break
            step, primal, dual = candidate, new_primal, new_dual
        return step, primal, dual

    def _direction(self, right: _Right, *, is_first: bool = False) -> _Point:
        """Solve the Newton system; the first direction of a step also removes the residuals."""
        at, system = self.at, self.system
        weight = at.x / at.z
        inside, rows, jobs = right.for_x / at.z, right.for_s / at.p, right.for_u / at.mu
        if is_first:
            inside = inside + weight * self.dual_residual
            rows, jobs = rows - self.row_residual, jobs - self.job_residual
        for_jobs = system.by_job(inside) + jobs
        for_rows = system.by_row @ (inside - weight * (for_jobs / system.job_diagonal)[self.job]) + rows
        p = system.solve(for_rows)
        by_column = system.transpose @ p
        mu = (for_jobs - system.by_job(weight * by_column)) / system.job_diagonal
        z = by_column + mu[self.job]
        if is_first:
            z = z - self.dual_residual
        x = (right.for_x - at.x * z) / at.z
        # Computed from the rows instead of complementarity, so that the point stays feasible even after an inexact solve.
        s, u = -(system.by_row @ x), -system.by_job(x)
        if is_first:
            s, u = s + self.row_residual, u + self.job_residual
        return _Point(x=x, s=s, u=u, p=p, mu=mu, z=z)

    def _longest(self, step: _Point) -> tuple[float, float]:
        """Return the longest primal and dual steps that keep every variable non-negative, at most 1."""
        lengths = [_step_to_zero(part, change) for part, change in zip(self.at, step, strict=True)]
        return min(1.0, *lengths[:3]), min(1.0, *lengths[3:])

    def result(self, iterations: int, is_converged: bool) -> InteriorPoint:
        """Return the present point."""
        at = self.at
        return InteriorPoint(
            x=at.x,
            slack=at.s,
            spare=at.u,
            row_price=at.p,
            job_price=at.mu,
            dual_slack=at.z,
            value=self.objective,
            complementarity=self.complementarity,
            infeasibility=self.infeasibility,
            iterations=iterations,
            is_converged=is_converged,
        )


def _sum(one: _Point, other: _Point) -> _Point:
    return _Point(*(a + b for a, b in zip(one, other, strict=True)))


def _largest(vector: FloatArray) -> float:
    return float(np.abs(vector).max(initial=0.0))


def _step_to_zero(vector: FloatArray, change: FloatArray) -> float:
    falling = change < 0
    return float((-vector[falling] / change[falling]).min()) if falling.any() else 1.0 / STEP_SHARE
