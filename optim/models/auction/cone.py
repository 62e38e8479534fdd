"""The fractional programmes in CVXPY, solved by Clarabel over the exponential cone; duals are prices.

References
----------
E. Eisenberg, D. Gale, "Consensus of subjective probabilities: the pari-mutuel method", Annals of Mathematical
Statistics 30 (1959), DOI 10.1214/aoms/1177706369. Cole, Gkatzelis, Goel, EC 2013, DOI 10.1145/2492002.2482582.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.instance import FloatArray
from optim.models.auction.market import FractionalMarket
from optim.models.unfilled_sums import unfilled_sums


@dataclass(frozen=True, kw_only=True, eq=False)
class ConeSolution:
    """An optimum of a fractional programme.

    Parameters
    ----------
    value
        Sum of the log values (of log speeds for the homogeneous programme).
    share
        x, shape (apps, goods).
    speed
        u, shape (apps,).
    price
        p, shape (goods,): log units a GPU.
    status, solver_s
        What Clarabel says, and its own seconds.
    """

    value: float
    share: FloatArray
    speed: FloatArray
    price: FloatArray
    status: str
    solver_s: float


@unfilled_sums
def eisenberg_gale(market: FractionalMarket) -> Any:
    """Build ``max sum_i log u_i``: values proportional to speeds.

    Returns
    -------
    cvxpy.Problem
        With variables ``share`` and ``speed`` and the constraint ``supply`` first, whose dual is the price.
    """
    import cvxpy as cp

    _share, speed, constraints = _shares(market)
    return cp.Problem(cp.Maximize(cp.sum(cp.log(speed))), constraints)


@unfilled_sums
def elapsed_programme(market: FractionalMarket) -> Any:
    """Build ``max sum_i -log((E_i + W_i / u_i) / T_i)``: with y_i <= log u_i, ``-log_sum_exp(log E_i, log W_i - y_i)``."""
    import cvxpy as cp

    _share, speed, constraints = _shares(market)
    has_elapsed = market.elapsed_min > 0
    terms = [np.log(market.ideal_min).sum() - np.log(market.work_min[~has_elapsed]).sum()]
    if (~has_elapsed).any():
        terms.append(cp.sum(cp.log(speed[np.flatnonzero(~has_elapsed)])))
    if has_elapsed.any():
        old = np.flatnonzero(has_elapsed)
        log_speed = cp.Variable(len(old), name="log_speed")
        constraints.append(log_speed <= cp.log(speed[old]))
        both = cp.vstack([np.log(market.elapsed_min[old]), np.log(market.work_min[old]) - log_speed])
        terms.append(-cp.sum(cp.log_sum_exp(both, axis=0)))
    return cp.Problem(cp.Maximize(cp.sum(cp.hstack(terms))), constraints)


@unfilled_sums
def solve_cone(problem: Any) -> ConeSolution:
    """Solve a programme of this module with Clarabel.

    Raises
    ------
    UnsupportedProblemError
        If Clarabel ends without a point.
    """
    import cvxpy as cp

    with warnings.catch_warnings():  # that a point is inaccurate is told by its status
        warnings.simplefilter("ignore", UserWarning)
        try:
            problem.solve(solver=cp.CLARABEL)
        except cp.error.SolverError as error:  # CVXPY tells no status then
            raise UnsupportedProblemError(
                "Clarabel fails on these numbers; scale times and speeds nearer to 1"
            ) from error
    if problem.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise UnsupportedProblemError(f"Clarabel ends with {problem.status!r}; scale times and speeds nearer to 1")
    by_name = {variable.name(): variable.value for variable in problem.variables()}
    return ConeSolution(
        value=float(problem.value),
        share=np.asarray(by_name["share"]),
        speed=np.asarray(by_name["speed"]),
        price=np.asarray(problem.constraints[0].dual_value),
        status=str(problem.status),
        solver_s=float(problem.solver_stats.solve_time),
    )


def _shares(market: FractionalMarket) -> tuple[Any, Any, list[Any]]:
    import cvxpy as cp

    share = cp.Variable(market.speed.shape, nonneg=True, name="share")
    speed = cp.Variable(len(market.cap), name="speed")
    constraints = [
        cp.sum(share, axis=0) <= market.supply,
        speed <= cp.sum(cp.multiply(market.speed, share), axis=1),
        speed <= market.cap,
    ]
    return share, speed, constraints
