"""Time shares of jobs on types of GPU: max-min throughput and finish-time fairness, stated in CVXPY.

Statement ((D.6) and (D.7) of docs/mathematics/cluster.md): x[j, k] is the share of time for which job j holds its gang on type
k. A job of w_j GPUs uses one type at a time, and type k has G_k GPUs:

    sum_k x[j, k] <= 1,    sum_j w_j x[j, k] <= G_k,    x >= 0.

References
----------
Narayanan, Santhanam, Kazhamiaka, Phanishayee, Zaharia, "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads" (Gavel), OSDI 2020, sections 4.1 and 4.2; Mahajan et al., Themis, NSDI 2020, for the ratio.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.programmes import unfilled_sums


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareProblem:
    """Jobs that share types of GPU in time.

    With n jobs, a job's isolated counterpart is a copy of it that has 1/n of every type's GPUs to itself.

    Parameters
    ----------
    throughput
        Steps per second of each job's gang on each type, 0 where it can't run; shape (jobs, types).
    width
        Gang of each job, in GPUs; shape (jobs,).
    gpus
        GPUs of each type; shape (types,).
    elapsed_s
        Time since each job's submission; shape (jobs,).
    left
        Remaining steps of each job; shape (jobs,).
    isolated_s
        Time for which each job's isolated counterpart has run so far; shape (jobs,).
    """

    throughput: FloatArray
    width: IntArray
    gpus: IntArray
    elapsed_s: FloatArray
    left: FloatArray
    isolated_s: FloatArray

    @property
    def isolated(self) -> FloatArray:
        """Steps per second of each job's isolated counterpart."""
        count = len(self.width)
        share = np.minimum(1.0, self.gpus[None, :] / (count * self.width[:, None]))
        share /= np.maximum(1.0, share.sum(axis=1))[:, None]
        return np.asarray((self.throughput * share).sum(axis=1))

    @property
    def isolated_end_s(self) -> FloatArray:
        """Total run time of each job's isolated counterpart, from its start to its end."""
        return self.isolated_s + self.left / self.isolated


@unfilled_sums
def max_min_model(problem: ShareProblem) -> Any:
    """Return the CVXPY problem in `x` that maximises the minimum throughput relative to the isolated counterparts."""
    import cvxpy as cp

    x = cp.Variable(problem.throughput.shape, nonneg=True, name="x")
    speed = cp.sum(cp.multiply(problem.throughput / problem.isolated[:, None], x), axis=1)
    return cp.Problem(cp.Maximize(cp.min(speed)), _constraints(cp, problem, x))


@unfilled_sums
def finish_time_model(problem: ShareProblem) -> Any:
    """Return the CVXPY problem in `x` that minimises the maximum finish-time ratio.

    The ratio of a job is its total time with shares x over the total time of its isolated counterpart:
    ``(elapsed + left / throughput(x)) / (isolated so far + left / isolated throughput)``.
    """
    import cvxpy as cp

    x = cp.Variable(problem.throughput.shape, nonneg=True, name="x")
    end = problem.isolated_end_s  # as a unit of time per job, it gives all coefficients a similar scale
    speed = cp.sum(cp.multiply(problem.throughput * (end / problem.left)[:, None], x), axis=1)
    ratio = problem.elapsed_s / end + cp.inv_pos(speed)
    return cp.Problem(cp.Minimize(cp.max(ratio)), _constraints(cp, problem, x))


def _constraints(cp: Any, problem: ShareProblem, x: Any) -> list[Any]:
    used = cp.sum(cp.multiply(problem.width[:, None].astype(float), x), axis=0)
    return [cp.sum(x, axis=1) <= 1, used <= problem.gpus]


def worst_ratio(problem: ShareProblem, shares: FloatArray) -> float:
    """Return the largest finish-time ratio under given shares."""
    speed = (problem.throughput * shares).sum(axis=1) / problem.left
    with np.errstate(divide="ignore"):
        return float(((problem.elapsed_s + 1 / speed) / problem.isolated_end_s).max())
