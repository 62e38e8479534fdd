"""Fractional optima of a market and the shares that payments leave, each with both ends certified."""

from dataclasses import dataclass

import numpy as np

from optim.models.auction.instance import FloatArray
from optim.models.auction.market import FractionalMarket

MOST_STEPS = 120
"""Twenty are usual."""

WARM_COMPLEMENTARITY = 1e-3
"""Complementarity from which problems without one app start."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FractionalPayments:
    """The fractional optimum and what payments leave each app.

    Parameters
    ----------
    share
        x, shape (apps, goods).
    speed, price
        u, shape (apps,), and p, shape (goods,).
    value, bound
        Log welfare of the shares, and a bound from the prices.
    kept_low, kept_high
        Shape (apps,): an interval that holds c, from both ends of each problem without an app.
    steps
        Newton steps of the main problem and the most of any other.
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
    def kept(self) -> FloatArray:
        """The middle of each interval."""
        return np.asarray((self.kept_low + self.kept_high) / 2)

    @property
    def widest(self) -> float:
        """Width of the widest interval."""
        return float((self.kept_high - self.kept_low).max(initial=0.0))


def solve_fractional(
    market: FractionalMarket, *, tol: float = 1e-4, most_steps: int = MOST_STEPS
) -> FractionalPayments:
    """Solve a market and all markets without one app, in one batch in JAX, 64 bits.

    Parameters
    ----------
    market
        The market.
    tol
        Largest gap between value and bound of each problem, in log units: c is known to about this share of it.
    most_steps
        Newton steps after which a problem is given up; without any, a shape of market is compiled and no more.

    Notes
    -----
    Speeds and times are scaled per app (values change by constants only). Problems without one app start at the
    main solution with the absent app's shares given to the others.
    """
    import jax
    import jax.numpy as jnp

    from optim.kernels.sharing import Market, solve_all_present, solve_each_absent

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
    own = np.log(speed / scale) - np.log(elapsed * speed / scale + 1.0)
    beside = own.sum() - own
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
