"""A primal-dual interior-point method for packing programmes with one convexity row a job.

    max v'x   s.t.  A x + s = 1,   sum of x over each job's columns + u = 1,   x, s, u >= 0
    min sum p + sum mu   s.t.  A'p + mu[job] - z = v,   p, mu, z >= 0

Column generation wants dual points in the middle of the optimal face, not vertices: they give better
columns and better Lagrangian bounds, and a loose tolerance saves most of the work. Two things make
packing programmes kind to such methods. All entries are at least 0, so shrinking x gives a strictly
feasible point: every solve starts feasible, from the last point where there is one. And the slacks are
defined by the rows, so their steps are taken from the rows and the point stays feasible to rounding.

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
from scipy.sparse import csc_array

from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.packing.newton_system import NewtonSystem

MAX_ITERATIONS = 60

STEP_SHARE = 0.995
"""Share of the longest feasible step that is taken, so that every variable stays positive."""

SMALLEST_CENTRING = 1e-4

MOST_CORRECTIONS = 3
LONG_ENOUGH = 0.95
"""Centrality corrections of a step, each a solve with the same factor, until both steps are this long."""

REACH = 0.3
"""By how much a correction tries to lengthen the steps."""

LEAST_GAIN = 0.05
"""Corrections that lengthen both steps together by less are dropped."""

CENTRAL = (0.1, 10.0)
"""Complementarity products between these multiples of their target count as central."""

MOST_SLACK, MOST_ADDED = 1e-5, 1e-4
"""Share of a row's capacity that a warm start frees at most, and of a job that it adds to its columns: what one row needs
shrinks all columns, and each share of 1e-4 throws the point back by 1e-4 of the objective."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WarmStart:
    """A nearly optimal point of a programme that has since got other columns or rows.

    Parameters
    ----------
    x
        Shape (columns,): NaN for columns that are new.
    row_price, job_price
        p and mu; new rows have price 0.
    complementarity
        Of the point that is wanted: a start much closer to the boundary than that is moved away from it.
    """

    x: FloatArray
    row_price: FloatArray
    job_price: FloatArray
    complementarity: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InteriorPoint:
    """A nearly optimal pair of points.

    Parameters
    ----------
    x, slack, spare
        Primal: columns, rows' slack s, convexity rows' slack u. Feasible to rounding.
    row_price, job_price, reduced_loss
        Dual: p, mu and z.
    value
        Primal objective v'x.
    complementarity
        x'z + s'p + u'mu, the distance of the two objectives.
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
        """Return the point after a step, its primal and dual parts scaled."""
        lengths = (primal, primal, primal, dual, dual, dual)
        return _Point(*(own + length * change for own, length, change in zip(self, lengths, step, strict=True)))

    def products(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the complementarity products xz, sp and u mu."""
        return self.x * self.z, self.s * self.p, self.u * self.mu


class _Right(NamedTuple):
    """What the complementarity equations' right-hand sides are: x dz + z dx = for_x, and so on."""

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
        """Start well inside: shares so small that every row keeps room, prices so high that all columns lose."""
        x = 0.5 / self.columns_of[self.job]
        x *= min(1.0, 0.7 / max(float((self.system.by_row @ x).max(initial=0.0)), 1e-9))
        p = np.full(self.num_rows, 0.3 * self.scale * self.num_jobs / max(self.num_rows, 1))
        mu = np.full(self.num_jobs, 0.3 * self.scale)
        mu += np.maximum(0.1 * self.scale - self._least_loss(p, mu), 0.0)
        self._start(x, p, mu)

    def start_warm(self, start: WarmStart) -> None:
        """Start from a known point, made feasible by its jobs' prices and by shrinking x, and pushed off the boundary."""
        missing = np.maximum(-self._least_loss(start.row_price, start.job_price), 0.0)
        gap = max(start.complementarity, float(missing.sum()))
        target = gap / self.size
        mu = start.job_price + missing + 0.1 * gap / max(self.num_jobs, 1)
        p = np.maximum(start.row_price, target)
        z = np.maximum(self._loss(p, mu), 1e-12)
        x = np.maximum(np.nan_to_num(start.x), np.minimum(target / z, MOST_ADDED / self.columns_of[self.job]))
        used, price = np.concatenate([self.system.by_row @ x, self.system.by_job(x)]), np.concatenate([p, mu])
        room = 1.0 - np.minimum(target / price, MOST_SLACK)
        shrink = float((room / np.maximum(used, 1e-12)).min(initial=1.0))
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

    def _least_loss(self, p: FloatArray, mu: FloatArray) -> FloatArray:
        """Return each job's least reduced loss, 0 for jobs without columns."""
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
        """Tell whether the point is optimal to the tolerance."""
        residual_tol = max(1e-9, 1e-2 * tol)
        return (
            self.complementarity <= tol * max(1.0, abs(self.objective))
            and self.infeasibility <= residual_tol
            and _largest(self.dual_residual) <= residual_tol * self.scale
        )

    def advance(self) -> bool:
        """Take one predictor-corrector step; False if the Newton matrix can't be factorised."""
        at = self.at
        if not self.system.factorise(at.x / at.z, at.s / at.p, at.u / at.mu):
            return False
        average = self.complementarity / self.size
        affine = self._direction(_Right(*(-product for product in at.products())), is_first=True)
        primal, dual = self._longest(affine)
        after = sum(float(product.sum()) for product in at.moved(affine, primal, dual).products()) / self.size
        centre = min(1.0, max(SMALLEST_CENTRING, (after / average) ** 3)) * average
        # The second-order terms count for as much as the step that they correct, and are cut: where the affine
        # step is bad they would throw the step away.
        share, limit = primal * dual, 5.0 * average
        second = _Right(*(centre - np.clip(share * product, -limit, limit) for product in affine.products()))
        step = _sum(affine, self._direction(second))
        step, primal, dual = self._corrected(step, centre)
        self.at = at.moved(step, min(1.0, STEP_SHARE * primal), min(1.0, STEP_SHARE * dual))
        return True

    def _corrected(self, step: _Point, centre: float) -> tuple[_Point, float, float]:
        """Lengthen a step by moving outlying complementarity products towards the centre."""
        primal, dual = self._longest(step)
        for _ in range(MOST_CORRECTIONS):
            if min(primal, dual) > LONG_ENOUGH:
                break
            trial = self.at.moved(step, min(1.0, primal + REACH), min(1.0, dual + REACH))
            lack = (
                np.maximum(np.clip(product, CENTRAL[0] * centre, CENTRAL[1] * centre) - product, -CENTRAL[1] * centre)
                for product in trial.products()
            )
            candidate = _sum(step, self._direction(_Right(*lack)))
            new_primal, new_dual = self._longest(candidate)
            if new_primal < primal or new_dual < dual or new_primal + new_dual < primal + dual + LEAST_GAIN:
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
        # From the rows, not from complementarity: so the point stays feasible however inexact the solve was.
        s, u = -(system.by_row @ x), -system.by_job(x)
        if is_first:
            s, u = s + self.row_residual, u + self.job_residual
        return _Point(x=x, s=s, u=u, p=p, mu=mu, z=z)

    def _longest(self, step: _Point) -> tuple[float, float]:
        """Return the longest primal and dual steps that keep every variable non-negative, at most 1."""
        lengths = [_step_to_zero(own, change) for own, change in zip(self.at, step, strict=True)]
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
            reduced_loss=at.z,
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
