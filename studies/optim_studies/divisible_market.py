"""The divisible market behind an auction: its cone programmes in CVXPY, and all its payments in one JAX batch.

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
        d, shape (apps,): maximum speed that an app can use.
    elapsed_min, work_min, ideal_min
        E, W, T in minutes, shape (apps,).
    machine_good
        Shape (machines,): the good to which a machine's GPUs belong, -1 if it offers none.
    app
        Shape (apps of the market,): index of each app in the instance; apps without bids are left out.
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
                raise InvalidProblemError(f"{name} must have one number per app, got shape {getattr(self, name).shape}")
        if (self.speed < 0).any() or not (self.speed.max(axis=1, initial=0.0) > 0).all():
            raise InvalidProblemError("speed must be at least 0, and positive for at least one good of every app")

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
    speed per GPU of an app's bids that can use m; machines with the same speed for every app are one good.

    Notes
    -----
    The market's optimum is an upper bound on the auction's only if apps without GPUs have the value 0, since the market
    has no value for an app without GPUs.
    """
    bids, apps, cluster = instance.bids, instance.apps, instance.cluster
    remaining_min = apps.ideal_min[bids.app] * bids.rho - apps.elapsed_min[bids.app]
    if len(bids) and not (remaining_min > 0).all():
        b = int(np.argmin(remaining_min))
        raise InvalidProblemError(
            f"apps[{bids.app[b]}]: rho {bids.rho[b]} is less than the elapsed time alone gives; correct elapsed_min or ideal_min"
        )
    rate = apps.work_min[bids.app] / np.where(remaining_min > 0, remaining_min, 1.0)
    max_gpus = np.array([cluster.slot_free.max(initial=0), *[0] * 4])
    max_gpus[1:] = (
        cluster.machine_free.max(initial=0),
        cluster.rack_free.max(initial=0),
        cluster.num_free,
        cluster.num_free,
    )
    fits = bids.gpus <= max_gpus[bids.locality]
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
        p, shape (goods,): log units per GPU.
    status, solver_s
        Clarabel's status and solve time.
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

    with warnings.catch_warnings():  # the status reports an inaccurate point
        warnings.simplefilter("ignore", UserWarning)
        try:
            problem.solve(solver=cp.CLARABEL)
        except cp.error.SolverError as error:  # CVXPY has no status then
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


MAX_STEPS = 120
"""Maximum number of Newton steps per problem; about twenty are usual."""

WARM_COMPLEMENTARITY = 1e-3
"""Initial complementarity of the problems without one app."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FractionalPayments:
    """The fractional optimum and each app's share after payments.

    Parameters
    ----------
    share
        x, shape (apps, goods).
    speed, price
        u, shape (apps,), and p, shape (goods,).
    value, bound
        Log welfare of the shares, and a bound from the prices.
    kept_low, kept_high
        Shape (apps,): an interval that contains c, the share that an app keeps, from value and bound of the problem without it.
    steps
        Newton steps of the main problem, and the largest number of any problem without one app.
    """

    share: FloatArray
    speed: FloatArray
    price: FloatArray
    value: float
    bound: float
    kept_low: FloatArray
    kept_high: FloatArray
    steps: tuple[int, int]

    @property
    def kept_share(self) -> FloatArray:
        """Midpoint of each interval of c."""
        return np.asarray((self.kept_low + self.kept_high) / 2)

    @property
    def widest(self) -> float:
        """Width of the widest interval."""
        return float((self.kept_high - self.kept_low).max(initial=0.0))


def solve_fractional(market: FractionalMarket, *, tol: float = 1e-4, most_steps: int = MAX_STEPS) -> FractionalPayments:
    """Solve a market and all markets without one app, in one batch in JAX, 64 bits.

    Parameters
    ----------
    market
        The market.
    tol
        Maximum gap between value and bound of each problem, in log units: c has about this relative accuracy.
    most_steps
        Maximum number of Newton steps per problem; 0 only compiles for a market of this shape.

    Notes
    -----
    Speeds and times are scaled per app (values change by constants only). Problems without one app start at the
    main solution with the absent app's shares given to the others.
    """
    import jax
    import jax.numpy as jnp

    from optim_studies.kernels.sharing import Market, solve_all_present, solve_each_absent

    n = len(market.cap)
    if n == 0:
        return _nobody(market)
    scale = market.speed.max(axis=1)
    # u' = u / scale, W' = 1, E' = E scale / W: the same shares, log values up to constants.
    elapsed = market.elapsed_min * scale / market.work_min
    constant = float((np.log(market.ideal_min) - np.log(market.work_min) + np.log(scale)).sum())
    with jax.enable_x64(True):
        data = Market(
            speed=jnp.asarray(market.speed / scale[:, None]),
            supply=jnp.asarray(market.supply),
            cap=jnp.asarray(market.cap / scale),
            elapsed=jnp.asarray(elapsed),
            work=jnp.ones(n),
        )
        main = solve_all_present(data, jnp.asarray(tol / 10), most_steps)
        others = (
            solve_each_absent(
                data, main.point, jnp.arange(n), jnp.asarray(WARM_COMPLEMENTARITY), jnp.asarray(tol), most_steps
            )
            if n > 1
            else None
        )
        share, price = np.asarray(main.point.share), np.asarray(main.point.price)
        value, bound = float(main.value), float(main.bound)
        low, high = np.zeros(n), np.zeros(n)
        steps = 0
        if others is not None:
            low, high = np.asarray(others.value), np.asarray(others.bound)
            steps = int(np.asarray(others.steps).max())
        main_steps = int(main.steps)
    speed = (market.speed * share).sum(axis=1)
    log_value = np.log(speed / scale) - np.log(elapsed * speed / scale + 1.0)
    beside = log_value.sum() - log_value
    return FractionalPayments(
        share=share,
        speed=speed,
        price=price,
        value=value + constant,
        bound=bound + constant,
        kept_low=np.asarray(np.exp(np.minimum(0.0, beside - high))),
        kept_high=np.asarray(np.exp(np.minimum(0.0, beside - low))),
        steps=(main_steps, steps),
    )


def _nobody(market: FractionalMarket) -> FractionalPayments:
    """Return the optimum of a market without apps."""
    nothing = np.zeros(0)
    return FractionalPayments(
        share=np.zeros((0, len(market.supply))),
        speed=nothing,
        price=np.zeros(len(market.supply)),
        value=0.0,
        bound=0.0,
        kept_low=nothing,
        kept_high=nothing,
        steps=(0, 0),
    )


def envy_ratio(market: FractionalMarket, share: FloatArray) -> float:
    """Return the maximum ratio of an app's value for another app's shares to its value for its allocation; 1 without envy."""
    log_value = market.log_values(np.minimum((market.speed * share).sum(axis=1), market.cap))
    others = np.minimum(market.speed @ share.T, market.cap[:, None])
    with np.errstate(divide="ignore"):
        value = np.log(market.ideal_min)[:, None] - np.log(
            market.elapsed_min[:, None] + market.work_min[:, None] / others
        )
    return float(np.exp((value - log_value[:, None]).max(initial=0.0)))
