"""Finish-time shares by prices, for up to three types of GPU: a search over a triangle instead of a linear programme of all jobs.

The prices prove that no smaller ratio is possible. What jobs would buy at the prices looked at last is averaged so that no type
is sold more than once: a programme of four rows, which asks for further prices if need be (Dantzig and Wolfe).
"""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.time_shares import ShareProblem
from optim.models.cluster.world import FloatArray
from optim.solvers.cluster.price_polygon import KINDS, dearest_prices, shares_at, usage_at
from optim.solvers.lp.highs_run import run_to_optimum, silent_highs

MOST_PRICES = 200
BILL_TOL = 1e-8
"""Excess of a bill at which the search for prices ends."""

SLACK = 1e-7
"""Relative distance above the proven ratio at which shares are looked for."""

FIRST_COLUMNS = 12
MOST_COLUMNS = 60


@dataclass(frozen=True, kw_only=True, eq=False)
class Priced:
    """Shares, the least ratio that prices prove necessary, and how many prices were looked at."""

    x: FloatArray
    lower: float
    num_prices: int


def price_shares(problem: ShareProblem) -> Priced:
    """Return shares of a ratio near the least; there are at most three types, each with GPUs, and every job runs on one."""
    jobs, kinds = problem.throughput.shape
    fastest = problem.throughput.max(axis=1)
    speed, relative = np.zeros((jobs, KINDS)), np.ones((jobs, KINDS))
    speed[:, :kinds] = problem.throughput / fastest[:, None]
    relative[:, :kinds] = problem.width[:, None] / problem.gpus
    end, elapsed = problem.isolated_end_s, problem.elapsed_s.astype(float)
    facts = (speed, relative, problem.left / fastest, end, elapsed)
    floor = float(((elapsed + facts[2]) / end).max())
    seen = np.empty((MOST_PRICES, KINDS))
    lower, proof, looked = dearest_prices(*facts, floor, BILL_TOL, seen)
    if proof >= 0 and usage_at(*facts, lower * (1 - SLACK), seen[proof][None, :])[0] @ seen[proof] < 1 - BILL_TOL:
        lower = floor  # nothing that rounding could take away is claimed
    ratio = lower * (1 + SLACK)
    prices = seen[max(0, looked - FIRST_COLUMNS) : looked]
    usage = usage_at(*facts, ratio, prices)
    while True:
        most, weight, dearest = _mixture(usage)
        if most <= 1.0 or len(prices) >= MOST_COLUMNS:
            break
        found = usage_at(*facts, ratio, dearest[None, :])
        if found[0] @ dearest >= most * (1 - BILL_TOL * BILL_TOL):
            break  # no prices improve on it
        prices, usage = np.concatenate([prices, dearest[None, :]]), np.concatenate([usage, found])
    x = shares_at(*facts, ratio, prices, weight)[:, :kinds]
    return Priced(x=x / max(1.0, most), lower=float(lower), num_prices=looked)


def _mixture(usage: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return how much of the scarcest type the best average of purchases uses, its weights, and the prices that prove it."""
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
