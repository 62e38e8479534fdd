"""Finish-time-fair time shares: linear programmes by HiGHS, and a search over prices.

Let q be prices, q_k for all GPUs of type k, that add up to 1. The cost of r steps per second for job j is the minimum cost of
shares x with ``sum_k a_jk x_k >= r, sum_k x_k <= 1``: the lower envelope of the points (a_jk, w_j q_k / G_k) and (0, 0) at r.
A finish-time ratio rho requires a speed of every job. If the total cost of these speeds exceeds 1, no shares attain the ratio;
if it is at most 1 at all prices, some shares do. The excess of the total cost over 1 is concave in q, and convex and decreasing
in the ratio. So a polygon of prices is cut through its centre of gravity (Levin), and wherever the excess is positive, Newton's
method raises the ratio from below.

The prices prove a lower bound of the ratio. The jobs' cheapest shares at the last prices are averaged so that no type is used
beyond its capacity, by a linear programme of four rows with column generation (Dantzig and Wolfe).

With rho fixed the finish-time programme is linear: job j needs at least ``r_j(rho) = left / (rho x isolated_end - elapsed)``
steps per second. Maximising the common scale t with throughput >= t r_j(rho) is a linear programme, and the minimum rho has
t = 1. Newton's method on rho, with the slope from the duals, takes a few solves that start from the same basis. Shares that
attain the last rho and a dual solution prove it from both sides. With up to three types of GPU, the direct search for prices
(`price_shares`) is about ten times as fast.

References
----------
Levin, "On an algorithm for the minimization of convex functions", Soviet Mathematics Doklady 6 (1965).
"""

from dataclasses import dataclass

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.time_shares import ShareProblem, worst_ratio
from optim.solvers.lp.highs import run_to_optimum, silent_highs

KINDS = 3

MAX_VERTICES = 256
"""Maximal number of vertices of the polygon of prices; each cut adds at most one."""

MAX_NEWTON = 60

TIE = 1e-12


@compiled
def _charge(speed, relative, need, prices, x):
    """Return the minimum cost of the speed that a job needs, and its derivative; the job's shares are written to `x`.

    `speed` is 1 for the job's fastest type, and `need` is at most 1. At a kink, where `need` equals a type's speed, the
    derivative is the larger one, from the left, because a larger ratio reduces the need.
    """
    best, slope, low, high, part = np.inf, np.inf, -1, -1, np.inf  # the fastest type always sets them
    for k in range(KINDS):
        if speed[k] >= need:
            cost = relative[k] * prices[k]
            rate = cost / speed[k]
            if rate * need < best * (1 - TIE):
                best, slope, low, high, part = rate * need, rate, -1, k, need / speed[k]
            for i in range(KINDS):
                if 0.0 < speed[i] < need:
                    cheap = relative[i] * prices[i]
                    rate = (cost - cheap) / (speed[k] - speed[i])
                    total = cheap + rate * (need - speed[i])
                    if total < best * (1 - TIE) or (total <= best * (1 + TIE) and rate > slope):
                        best, slope, low, high = total, rate, i, k
                        part = (need - speed[i]) / (speed[k] - speed[i])
    x[:] = 0.0
    x[high] = part
    if low >= 0:
        x[low] = 1.0 - part
    return best, slope


@compiled
def _bill(speed, relative, remaining_s, end, elapsed, ratio, prices, used):
    """Return the excess over 1 of the total cost of the speeds that a ratio requires, and its derivative.

    The share of each type's GPUs that the jobs use is written to `used`.
    """
    used[:] = 0.0
    total, fall = -1.0, 0.0
    x = np.empty(KINDS)
    for job in range(len(remaining_s)):
        margin = ratio * end[job] - elapsed[job]
        need = min(1.0, remaining_s[job] / margin)
        cost, slope = _charge(speed[job], relative[job], need, prices, x)
        total += cost
        fall -= slope * need * end[job] / margin
        for k in range(KINDS):
            used[k] += relative[job, k] * x[k]
    return total, fall


@compiled
def _clip(x, y, count, a, b, c):
    """Keep the part of a polygon with a x + b y >= c; return its number of vertices."""
    new_x, new_y = np.empty(MAX_VERTICES), np.empty(MAX_VERTICES)
    num_vertices = 0
    for at in range(count):
        after = (at + 1) % count
        here, there = a * x[at] + b * y[at] - c, a * x[after] + b * y[after] - c
        if here >= 0:
            new_x[num_vertices], new_y[num_vertices] = x[at], y[at]
            num_vertices += 1
        if (here > 0 > there) or (here < 0 < there):
            part = here / (here - there)
            new_x[num_vertices], new_y[num_vertices] = (
                x[at] + part * (x[after] - x[at]),
                y[at] + part * (y[after] - y[at]),
            )
            num_vertices += 1
    for at in range(num_vertices):  # copying slices takes seconds to compile
        x[at], y[at] = new_x[at], new_y[at]
    return num_vertices


@compiled
def _centre(x, y, count):
    """Return the centre of gravity of a polygon, or the mean of its vertices if its area is 0."""
    area, sum_x, sum_y = 0.0, 0.0, 0.0
    for at in range(1, count - 1):
        u, v = x[at] - x[0], y[at] - y[0]
        s, t = x[at + 1] - x[0], y[at + 1] - y[0]
        part = u * t - v * s
        area += part
        sum_x += part * (u + s) / 3.0
        sum_y += part * (v + t) / 3.0
    if area > 0.0:
        return x[0] + sum_x / area, y[0] + sum_y / area
    return x[:count].mean(), y[:count].mean()


@compiled
def dearest_prices(speed, relative, remaining_s, end, elapsed, ratio, tol, seen):
    """Return the largest lower bound of the ratio, the row in `seen` of the prices that prove it, and the number of prices.

    Parameters
    ----------
    speed, relative
        Shape (jobs, 3): each job's speed on each type divided by its highest speed, and its gang divided by the type's GPUs.
    remaining_s, end, elapsed
        Shape (jobs,): seconds of remaining work at the highest speed, run time of the isolated counterpart, and seconds
        since submission.
    ratio
        A known lower bound of the ratio.
    tol
        The search ends if the total cost exceeds 1 by at most `tol` at all prices.
    seen
        Output: the tried prices in order; shape (maximal number, 3).
    """
    x, y = np.zeros(MAX_VERTICES), np.zeros(MAX_VERTICES)
    x[1], y[2] = 1.0, 1.0
    count, looked, proof = 3, 0, -1
    prices, used = np.empty(KINDS), np.empty(KINDS)
    most = len(seen)
    while looked < most and count > 0:
        prices[0], prices[1] = _centre(x, y, count)
        prices[2] = max(0.0, 1.0 - prices[0] - prices[1])
        for k in range(KINDS):
            seen[looked, k] = prices[k]
        looked += 1
        excess, fall = _bill(speed, relative, remaining_s, end, elapsed, ratio, prices, used)
        is_raised = excess > tol
        proof = looked - 1 if is_raised else proof
        for _ in range(MAX_NEWTON):
            if not is_raised or abs(excess) <= tol or fall >= 0.0:
                break
            ratio -= excess / fall
            excess, fall = _bill(speed, relative, remaining_s, end, elapsed, ratio, prices, used)
        a, b = used[0] - used[2], used[1] - used[2]
        highest = excess
        for at in range(count):
            highest = max(highest, excess + a * (x[at] - prices[0]) + b * (y[at] - prices[1]))
        if highest <= tol:
            break
        count = _clip(x, y, count, a, b, a * prices[0] + b * prices[1] - min(excess, 0.0))
    return ratio, proof, looked


@compiled
def shares_at(speed, relative, remaining_s, end, elapsed, ratio, seen, weight):
    """Return the weighted average over prices of the jobs' cheapest shares; shape (jobs, 3)."""
    shares, x = np.zeros((len(remaining_s), KINDS)), np.empty(KINDS)
    for row in range(len(seen)):
        if weight[row] > 0.0:
            for job in range(len(remaining_s)):
                need = min(1.0, remaining_s[job] / (ratio * end[job] - elapsed[job]))
                _charge(speed[job], relative[job], need, seen[row], x)
                for k in range(KINDS):
                    shares[job, k] += weight[row] * x[k]
    return shares


@compiled
def usage_at(speed, relative, remaining_s, end, elapsed, ratio, seen):
    """Return the share of each type's GPUs that the jobs' cheapest shares use at each price vector; shape (prices, 3)."""
    usage = np.empty((len(seen), KINDS))
    for row in range(len(seen)):
        _bill(speed, relative, remaining_s, end, elapsed, ratio, seen[row], usage[row])
    return usage


MAX_PRICES = 200

BILL_TOL = 1e-8
"""Excess of the total cost over 1 at which the search for prices ends."""

SLACK = 1e-7
"""The search looks for shares that attain the proven ratio times 1 + SLACK."""

FIRST_COLUMNS = 12

MAX_COLUMNS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class Priced:
    """Shares, the lower bound of the ratio that prices prove, and the number of tried prices."""

    x: FloatArray
    lower: float
    num_prices: int


def price_shares(problem: ShareProblem) -> Priced:
    """Return shares with a nearly minimal ratio, for at most three types of GPU; each job must run on at least one."""
    jobs, kinds = problem.throughput.shape
    fastest = problem.throughput.max(axis=1)
    speed, relative = np.zeros((jobs, KINDS)), np.ones((jobs, KINDS))
    speed[:, :kinds] = problem.throughput / fastest[:, None]
    relative[:, :kinds] = problem.width[:, None] / problem.gpus
    end, elapsed = problem.isolated_end_s, problem.elapsed_s.astype(float)
    facts = (speed, relative, problem.left / fastest, end, elapsed)
    floor = float(((elapsed + facts[2]) / end).max())
    seen = np.empty((MAX_PRICES, KINDS))
    lower, proof, looked = dearest_prices(*facts, floor, BILL_TOL, seen)
    if proof >= 0 and usage_at(*facts, lower * (1 - SLACK), seen[proof][None, :])[0] @ seen[proof] < 1 - BILL_TOL:
        lower = floor  # claim no bound that depends on rounding
    ratio = lower * (1 + SLACK)
    prices = seen[max(0, looked - FIRST_COLUMNS) : looked]
    usage = usage_at(*facts, ratio, prices)
    while True:
        most, weight, dearest = _mixture(usage)
        if most <= 1.0 or len(prices) >= MAX_COLUMNS:
            break
        usage_row = usage_at(*facts, ratio, dearest[None, :])
        if usage_row[0] @ dearest >= most * (1 - BILL_TOL * BILL_TOL):
            break  # no further price improves the average
        prices, usage = np.concatenate([prices, dearest[None, :]]), np.concatenate([usage, usage_row])
    x = shares_at(*facts, ratio, prices, weight)[:, :kinds]
    return Priced(x=x / max(1.0, most), lower=float(lower), num_prices=looked)


def _mixture(usage: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return the least usage of the scarcest type that an average of rows attains, its weights, and the dual prices."""
    import highspy

    rows, kinds = usage.shape
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = rows + 1, kinds + 1
    lp.col_cost_ = np.append(np.zeros(rows), 1.0)
    lp.col_lower_, lp.col_upper_ = np.zeros(rows + 1), np.full(rows + 1, highspy.kHighsInf)
    lp.row_lower_ = np.append(np.full(kinds, -highspy.kHighsInf), 1.0)
    lp.row_upper_ = np.append(np.zeros(kinds), 1.0)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.append((kinds + 1) * np.arange(rows + 1), (kinds + 1) * rows + kinds).astype(np.int32)
    lp.a_matrix_.index_ = np.append(np.tile(np.arange(kinds + 1), rows), np.arange(kinds)).astype(np.int32)
    lp.a_matrix_.value_ = np.append(np.column_stack([usage, np.ones(rows)]).ravel(), -np.ones(kinds))
    highs = silent_highs(lp, presolve="off")
    run_to_optimum(highs)
    solution = highs.getSolution()
    weight = np.maximum(np.asarray(solution.col_value)[:rows], 0.0)
    weight /= weight.sum()
    dearest = np.abs(np.asarray(solution.row_dual)[:kinds])
    return float((weight @ usage).max()), weight, dearest / dearest.sum()


TOL = 1e-6
"""Relative gap between the bounds of rho at which the search ends."""

MANY_JOBS = 1_024
"""From this number of jobs on, HiGHS' interior-point method with crossover is used, since it is faster than the simplex
method."""

MAX_PRICED_TYPES = 3

MIN_PRICE = 1e-7
"""Smallest dual price of a job that counts as positive; prices add up to 1."""

MAX_SOLVES = 60

MIN_MARGIN = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Shares:
    """Time shares and their objective value.

    Parameters
    ----------
    x
        Share of time of each job on each type; shape (jobs, types).
    value
        Smallest relative throughput, or largest finish-time ratio.
    solves, solver_s
        Number of solved linear programmes, and HiGHS' seconds; after the direct search, the number of tried prices, and 0.
    """

    x: FloatArray
    value: float
    solves: int
    solver_s: float


class ShareProgramme:
    """A HiGHS model of ``max t`` with ``throughput(x_j) >= t r_j``, ``sum_k x_jk <= 1`` and the GPUs of each type.

    The model is solved again for other r.
    """

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
        """Pass the model to HiGHS: columns x[j, k] and t; rows for speeds, jobs' time and types."""
        import highspy

        count, problem = len(job), self.problem
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = count + 1, 2 * jobs + kinds
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = np.append(np.zeros(count), 1.0)
        lp.col_lower_, lp.col_upper_ = np.zeros(count + 1), np.append(np.ones(count), highspy.kHighsInf)
        lp.row_lower_ = np.concatenate([np.zeros(jobs), np.full(jobs + kinds, -highspy.kHighsInf)])
        lp.row_upper_ = np.concatenate([np.full(jobs, highspy.kHighsInf), np.ones(jobs), problem.gpus.astype(float)])
        speed = problem.throughput / problem.throughput.max(axis=1)[:, None]  # rows of equal scale
        entries = np.stack([speed[job, kind], np.ones(count), problem.width[job].astype(float)], axis=1).ravel()
        rows = np.stack([job, jobs + job, 2 * jobs + kind], axis=1).ravel()
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate([3 * np.arange(count + 1), [3 * count + jobs]]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate([rows, np.arange(jobs)]).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate([entries, -np.ones(jobs)])
        self.highs.passModel(lp)

    def hold(self, jobs: "np.typing.NDArray[np.bool_]", speed: FloatArray) -> None:
        """Set lower bounds on the speeds of some jobs."""
        import highspy

        for row in np.flatnonzero(jobs).tolist():
            least = float(speed[row] / self.problem.throughput[row].max()) * (1 - MIN_MARGIN)
            self.highs.changeRowBounds(row, least, highspy.kHighsInf)

    def solve(self, need: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return t, the shares, shape (jobs, types), and the duals of the speed rows; `need` is in steps per second."""
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
    can_run = ((problem.throughput > 0) & (problem.gpus > 0)).any(axis=1)
    if not can_run.all():
        raise UnsupportedProblemError(f"job {int(can_run.argmin())} can't run on any type of GPU; leave the job out")


def max_min_shares(problem: ShareProblem) -> Shares:
    """Return lexicographically max-min fair shares of throughput relative to the isolated counterparts.

    Jobs whose row has a positive dual price have the minimum in every optimum. These jobs are fixed at the minimum, and the
    minimum of the other jobs is maximised next.
    """
    programme = ShareProgramme(problem)
    need, is_open = problem.isolated.astype(float), np.ones(len(problem.width), np.bool_)
    value, x, dual = programme.solve(need)
    least = value
    while True:
        price = np.where(is_open, dual * problem.isolated, 0.0)
        is_fixed = is_open & (price >= min(MIN_PRICE, float(price.max())))
        programme.hold(is_fixed, value * problem.isolated)
        is_open &= ~is_fixed
        if not is_open.any():
            return Shares(x=np.maximum(x, 0.0), value=least, solves=programme.solves, solver_s=programme.seconds)
        value, x, dual = programme.solve(np.where(is_open, need, 0.0))


def finish_time_shares(problem: ShareProblem) -> Shares:
    """Return shares that minimise the largest finish-time ratio, to a relative `TOL`.

    Raises
    ------
    UnsupportedProblemError
        If a job can't run on any available type of GPU.
    """
    _require_types(problem)
    if problem.throughput.shape[1] <= MAX_PRICED_TYPES and (problem.gpus > 0).all():
        priced = price_shares(problem)
        reached = worst_ratio(problem, priced.x)
        if reached - priced.lower <= TOL * reached:
            return Shares(x=priced.x, value=reached, solves=priced.num_prices, solver_s=0.0)
    return finish_time_shares_by_programmes(problem)


def finish_time_shares_by_programmes(problem: ShareProblem) -> Shares:
    """Return shares that minimise the largest finish-time ratio, to a relative `TOL`, for any number of types.

    The search starts below the optimum, from the ratio of each job alone, and Newton's steps never exceed the optimum:
    ``t(rho)`` is the minimum over dual prices y of ``c(y) / sum_j y_j r_j(rho)``. A step solves ``sum_j y_j r_j(rho) = c(y)``
    for the prices of the last programme, which proves a lower bound of rho. The ratio attained by the shares of the last
    programme is an upper bound.
    """
    programme = ShareProgramme(problem)
    end, fastest = problem.isolated_end_s, problem.throughput.max(axis=1)
    floor = float(((problem.elapsed_s + problem.left / fastest) / end).max())
    lower, best, best_x = floor, np.inf, np.zeros_like(problem.throughput)
    while programme.solves < MAX_SOLVES:
        value, x, dual = programme.solve(_need(problem, lower))
        reached = worst_ratio(problem, x)
        if reached < best:
            best, best_x = reached, x
        if value >= 1 - TOL or best - lower <= TOL * best:
            break
        lower = max(lower, _next_lower(problem, dual, value, lower))
    return Shares(x=best_x, value=best, solves=programme.solves, solver_s=programme.seconds)


def _need(problem: ShareProblem, rho: float) -> FloatArray:
    """Return the steps per second that each job needs to stay within a ratio."""
    margin = rho * problem.isolated_end_s - problem.elapsed_s
    return np.asarray(problem.left / np.maximum(margin, MIN_MARGIN * problem.isolated_end_s))


def _next_lower(problem: ShareProblem, dual: FloatArray, value: float, rho: float) -> float:
    """Return the lower bound of rho that dual prices prove: the rho at which the needs cost the available budget.

    The total cost of needs is decreasing and convex in rho, so Newton's method from the left stays on the left.
    """
    budget = value * float(dual @ _need(problem, rho))
    end, remaining_s, elapsed = problem.isolated_end_s, problem.left, problem.elapsed_s
    for _ in range(MAX_SOLVES):
        margin = np.maximum(rho * end - elapsed, MIN_MARGIN * end)
        cost = float(dual @ (remaining_s / margin))
        step = (cost - budget) / float(dual @ (remaining_s * end / margin**2))
        rho += max(step, 0.0)
        if step <= TOL * TOL * rho:
            break
    return rho
