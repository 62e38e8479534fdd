"""The fractional market behind an auction, and its cone programmes in CVXPY.

References
----------
E. Eisenberg, D. Gale, "Consensus of subjective probabilities: the pari-mutuel method", Annals of Mathematical
Statistics 30 (1959), DOI 10.1214/aoms/1177706369. Cole, Gkatzelis, Goel, EC 2013, DOI 10.1145/2492002.2482582.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, UnsupportedProblemError
from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance
from optim.models.programmes import unfilled_sums


@dataclass(frozen=True, kw_only=True, eq=False)
class FractionalMarket:
    """Apps with concave values on divisible goods.

    An app's speed is ``u_i = sum_m a_im x_im <= d_i`` and its log value ``-log((E_i + W_i / u_i) / T_i)``.

    Parameters
    ----------
    speed
        a, shape (apps, goods): speed of one GPU of a good, at least 0, positive somewhere in each row.
    supply
        R, shape (goods,): GPUs of a good.
    cap
        d, shape (apps,): most speed that an app can use.
    elapsed_min, work_min, ideal_min
        E, W, T, shape (apps,).
    machine_good
        Shape (machines,): the good that a machine's GPUs belong to, -1 where it offers none.
    app
        Shape (apps of the market,): which app of the instance each one is; apps without bids are left out.
    """

    speed: FloatArray
    supply: FloatArray
    cap: FloatArray
    elapsed_min: FloatArray
    work_min: FloatArray
    ideal_min: FloatArray
    machine_good: IntArray
    app: IntArray

    def __post_init__(self) -> None:
        apps, goods = self.speed.shape
        if self.supply.shape != (goods,) or not (self.supply > 0).all():
            raise InvalidProblemError(f"supply must be positive for each of {goods} goods, got {self.supply}")
        for name in ("cap", "elapsed_min", "work_min", "ideal_min"):
            if getattr(self, name).shape != (apps,):
                raise InvalidProblemError(f"{name} must hold one number an app, got shape {getattr(self, name).shape}")
        if (self.speed < 0).any() or not (self.speed.max(axis=1, initial=0.0) > 0).all():
            raise InvalidProblemError("speed must be at least 0, and positive somewhere for every app")

    def log_values(self, speed: FloatArray) -> FloatArray:
        """Return each app's log value at a speed."""
        return np.asarray(np.log(self.ideal_min) - np.log(self.elapsed_min + self.work_min / speed))

    def without(self, app: int) -> "FractionalMarket":
        """Return the market without one of its apps."""
        keep = np.arange(len(self.cap)) != app
        return FractionalMarket(
            speed=self.speed[keep],
            supply=self.supply,
            cap=self.cap[keep],
            elapsed_min=self.elapsed_min[keep],
            work_min=self.work_min[keep],
            ideal_min=self.ideal_min[keep],
            machine_good=self.machine_good,
            app=self.app[keep],
        )


def market_of(instance: AuctionInstance) -> FractionalMarket:
    """Return the market of an auction's bids.

    A bid's speed follows from its rho: ``r = W / (T rho - E)``. The speed of a GPU of machine m is the largest
    speed per GPU of an app's bids that can use m; machines that no app tells apart are one good.

    Notes
    -----
    The market's optimum bounds the auction's only if no empty row is worth anything: it has no empty rows.
    """
    bids, apps, cluster = instance.bids, instance.apps, instance.cluster
    left = apps.ideal_min[bids.app] * bids.rho - apps.elapsed_min[bids.app]
    if len(bids) and not (left > 0).all():
        b = int(np.argmin(left))
        raise InvalidProblemError(
            f"apps[{bids.app[b]}]: rho {bids.rho[b]} is less than the elapsed time alone gives; correct elapsed_min or ideal_min"
        )
    rate = apps.work_min[bids.app] / np.where(left > 0, left, 1.0)
    room = np.array([cluster.slot_free.max(initial=0), *[0] * 4])
    room[1:] = cluster.machine_free.max(initial=0), cluster.rack_free.max(initial=0), cluster.num_free, cluster.num_free
    fits = bids.gpus <= room[bids.locality]
    speed = np.zeros((instance.num_apps, cluster.num_machines))
    offers = cluster.machine_free > 0
    for b in np.flatnonzero(fits & (bids.locality != Locality.NAMED)).tolist():
        i = int(bids.app[b])
        speed[i, offers] = np.maximum(speed[i, offers], rate[b] / bids.gpus[b])
    per_gpu = rate[bids.named_row] / bids.gpus[bids.named_row]
    usable = fits[bids.named_row] & offers[bids.named_machine]
    np.maximum.at(speed, (bids.app[bids.named_row[usable]], bids.named_machine[usable]), per_gpu[usable])
    cap = np.zeros(instance.num_apps)
    np.maximum.at(cap, bids.app[fits], rate[fits])
    keep = np.flatnonzero(speed.max(axis=1, initial=0.0) > 0)
    columns, good = np.unique(speed[keep][:, offers], axis=1, return_inverse=True)
    machine_good = np.full(cluster.num_machines, -1, dtype=np.int64)
    machine_good[offers] = good.ravel()
    supply = np.bincount(good.ravel(), cluster.machine_free[offers], columns.shape[1])
    return FractionalMarket(
        speed=np.ascontiguousarray(columns),
        supply=supply.astype(np.float64),
        cap=cap[keep],
        elapsed_min=apps.elapsed_min[keep],
        work_min=apps.work_min[keep],
        ideal_min=apps.ideal_min[keep],
        machine_good=machine_good,
        app=keep,
    )


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
