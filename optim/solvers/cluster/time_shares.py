"""Time shares by HiGHS on sparse arrays that are built directly.

With rho fixed the finish-time programme is linear: job j needs at least ``r_j(rho) = left / (rho x isolated_end - elapsed)``
steps a second. So the largest common scale t with throughput >= t r_j(rho) is a linear programme, and the least rho is that with
t = 1. Newton's method on rho, with the slope from the programme's duals, takes a few solves from the same basis; the last rho
is proven from both sides: shares that reach it, and a dual that shows less can't be. With up to three types of GPU prices are
searched for directly (`price_search`), some ten times as fast.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.time_shares import ShareProblem, worst_ratio
from optim.models.cluster.world import FloatArray, IntArray
from optim.solvers.lp.highs_run import run_to_optimum, silent_highs

TOL = 1e-6
"""Relative distance of the two sides of rho at which the search ends."""

MANY_JOBS = 1_024
"""From so many jobs on HiGHS' interior point (with crossover) beats its simplex method: 0.25 against 0.42 s for 1,851."""

MOST_PRICED_TYPES = 3

LEAST_PRICE = 1e-7
"""Share of all prices from which on a job's own counts: they add up to 1."""

MOST_SOLVES = 60
LEAST_MARGIN = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Time shares, and what they come to.

    Parameters
    ----------
    x
        Share of time of each job on each type; shape (jobs, types).
    value
        Least relative throughput, or largest finish-time ratio.
    solves, solver_s
        Linear programmes solved, and the seconds that HiGHS took for them; prices looked at, and 0, where they were searched for.
    """

    x: FloatArray
    value: float
    solves: int
    solver_s: float


class ShareProgramme:
    """max t with throughput(x_j) >= t r_j, one place at a time, GPUs of each type: kept in HiGHS, resolved for other r."""

    def __init__(self, problem: ShareProblem) -> None:
        self.problem = problem
        self.highs = silent_highs()
        if len(problem.width) >= MANY_JOBS:
            self.highs.setOptionValue("solver", "ipm")
        self.solves, self.seconds = 0, 0.0
        _require_types(problem)
        job, kind = np.nonzero(problem.throughput > 0)
        jobs, kinds = problem.throughput.shape
        self.job, self.kind = job, kind
        self._build(job, kind, jobs, kinds)

    def _build(self, job: IntArray, kind: IntArray, jobs: int, kinds: int) -> None:
        """Hand the columns x[j, k] and t to HiGHS: rows are speeds, places, types."""
        import highspy

        count, problem = len(job), self.problem
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count + 1, 2 * jobs + kinds
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = np.append(np.zeros(count), 1.0)
        lp.col_lower_, lp.col_upper_ = np.zeros(count + 1), np.append(np.ones(count), highspy.kHighsInf)
        lp.row_lower_ = np.concatenate([np.zeros(jobs), np.full(jobs + kinds, -highspy.kHighsInf)])
        lp.row_upper_ = np.concatenate([np.full(jobs, highspy.kHighsInf), np.ones(jobs), problem.gpus.astype(float)])
        speed = problem.throughput / problem.throughput.max(axis=1)[:, None]  # rows of one size
        entries = np.stack([speed[job, kind], np.ones(count), problem.width[job].astype(float)], axis=1).ravel()
        rows = np.stack([job, jobs + job, 2 * jobs + kind], axis=1).ravel()
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate([3 * np.arange(count + 1), [3 * count + jobs]]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([rows, np.arange(jobs)]).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate([entries, -np.ones(jobs)])
        self.highs.passModel(lp)

    def hold(self, jobs: "np.typing.NDArray[np.bool_]", speed: FloatArray) -> None:
        """Let some jobs have a speed at least, whatever the scale of the others."""
        import highspy

        for row in np.flatnonzero(jobs).tolist():
            least = float(speed[row] / self.problem.throughput[row].max()) * (1 - LEAST_MARGIN)
            self.highs.changeRowBounds(row, least, highspy.kHighsInf)

    def solve(self, need: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return t, the shares, and the dual of each speed row, for needs in steps a second; shapes (jobs, types), (jobs,)."""
        jobs, column = len(need), len(self.job)
        scaled = need / self.problem.throughput.max(axis=1)
        for row, value in enumerate(scaled.tolist()):
            self.highs.changeCoeff(row, column, -value)
        before = self.highs.getRunTime()
        run_to_optimum(self.highs)
        self.seconds += self.highs.getRunTime() - before
        self.solves += 1
        solution = self.highs.getSolution()
        values = np.asarray(solution.col_value)
        x = np.zeros(self.problem.throughput.shape)
        x[self.job, self.kind] = values[:column]
        dual = np.abs(np.asarray(solution.row_dual)[:jobs]) / self.problem.throughput.max(axis=1)
        return float(values[column]), x, dual


def _require_types(problem: ShareProblem) -> None:
    if not ((problem.throughput > 0) & (problem.gpus > 0)).any(axis=1).all():
        raise UnsupportedProblemError("a job runs on no type of GPU; leave it out")


def max_min_shares(problem: ShareProblem) -> Shares:
    """Return the shares with the largest least throughput relative to the isolated counterpart's, then the largest second least, and so on.

    Jobs whose row has a price are at the least in every optimum: they keep it, and the others' least is raised.
    """
    programme = ShareProgramme(problem)
    need, is_open = problem.isolated.astype(float), np.ones(len(problem.width), np.bool_)
    value, x, dual = programme.solve(need)
    least = value
    while True:
        price = np.where(is_open, dual * problem.isolated, 0.0)
        held = is_open & (price >= min(LEAST_PRICE, float(price.max())))
        programme.hold(held, value * problem.isolated)
        is_open &= ~held
        if not is_open.any():
            return Shares(x=np.maximum(x, 0.0), value=least, solves=programme.solves, solver_s=programme.seconds)
        value, x, dual = programme.solve(np.where(is_open, need, 0.0))


def finish_time_shares(problem: ShareProblem) -> Shares:
    """Return the shares with the least largest finish-time ratio, to a relative `TOL`.

    Raises
    ------
    UnsupportedProblemError
        If a job runs on no type of GPU that there is.
    """
    _require_types(problem)
    if problem.throughput.shape[1] <= MOST_PRICED_TYPES and (problem.gpus > 0).all():
        from optim.solvers.cluster.price_search import price_shares

        found = price_shares(problem)
        reached = worst_ratio(problem, found.x)
        if reached - found.lower <= TOL * reached:
            return Shares(x=found.x, value=reached, solves=found.num_prices, solver_s=0.0)
    return finish_time_shares_by_programmes(problem)


def finish_time_shares_by_programmes(problem: ShareProblem) -> Shares:
    """Return the shares with the least largest finish-time ratio, to a relative `TOL`, for any number of types.

    From a ratio below the optimum (all jobs alone) Newton's steps never pass it: ``t(rho)`` is the minimum over dual prices y of
    ``c(y) / sum_j y_j r_j(rho)``, so a step solves ``sum_j y_j r_j(rho) = c(y)`` for the prices of the last programme, which
    proves that no smaller rho is possible; shares of the last programme, scaled to what they reach, prove the other side.
    """
    programme = ShareProgramme(problem)
    end, fastest = problem.isolated_end_s, problem.throughput.max(axis=1)
    floor = float(((problem.elapsed_s + problem.left / fastest) / end).max())
    lower, best, best_x = floor, np.inf, np.zeros_like(problem.throughput)
    while programme.solves < MOST_SOLVES:
        value, x, dual = programme.solve(_need(problem, lower))
        reached = worst_ratio(problem, x)
        if reached < best:
            best, best_x = reached, x
        if value >= 1 - TOL or best - lower <= TOL * best:
            break
        lower = max(lower, _next_lower(problem, dual, value, lower))
    return Shares(x=best_x, value=best, solves=programme.solves, solver_s=programme.seconds)


def _need(problem: ShareProblem, rho: float) -> FloatArray:
    """Return the steps a second that each job needs to keep within a ratio."""
    margin = rho * problem.isolated_end_s - problem.elapsed_s
    return np.asarray(problem.left / np.maximum(margin, LEAST_MARGIN * problem.isolated_end_s))


def _next_lower(problem: ShareProblem, dual: FloatArray, value: float, rho: float) -> float:
    """Return the least ratio that the prices of a programme don't rule out: that where what is needed costs what there is.

    The cost of all needs falls and is convex in rho: Newton's method from the left stays on the left.
    """
    budget = value * float(dual @ _need(problem, rho))
    end, left, elapsed = problem.isolated_end_s, problem.left, problem.elapsed_s
    for _ in range(MOST_SOLVES):
        margin = np.maximum(rho * end - elapsed, LEAST_MARGIN * end)
        cost = float(dual @ (left / margin))
        step = (cost - budget) / float(dual @ (left * end / margin**2))
        rho += max(step, 0.0)
        if step <= TOL * TOL * rho:
            break
    return rho
