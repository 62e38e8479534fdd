"""Solvers of the divisible market, rounded to bundles: by Clarabel, and batched by an interior point."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import Monitor
from optim.core.errors import check_in
from optim.core.registry import register
from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.market import FractionalMarket, elapsed_programme, market_of, solve_cone
from optim.solvers.auction.allocation import Allocation, Allocator
from optim.solvers.auction.payments import bounded_award
from optim.solvers.auction.settlement import AbstractAuctionSolver, Award, PaymentOptions, PaymentOptionsT
from optim.solvers.auction.tables import Tables

MAX_STEPS = 120
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


def solve_fractional(market: FractionalMarket, *, tol: float = 1e-4, most_steps: int = MAX_STEPS) -> FractionalPayments:
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


def integral_shares(market: FractionalMarket, share: FloatArray) -> IntArray:
    """Return whole GPUs by app and good: the floors, then one more to the largest remainders of each good."""
    floor = np.floor(share + 1e-9)
    for m in range(len(market.supply)):
        left = round(float(market.supply[m] - floor[:, m].sum()))
        remainder = share[:, m] - floor[:, m]
        order = np.lexsort((np.arange(len(remainder)), -remainder))
        order = order[remainder[order] > 1e-9][: max(0, left)]
        floor[order, m] += 1
    return floor.astype(np.int64)


def rounded(tables: Tables, allocator: Allocator, market: FractionalMarket, share: FloatArray) -> Allocation:
    """Return an allocation near fractional shares.

    Each app wants its best bid of no more GPUs than its whole share (of no more of each named machine's good).
    What can't be placed is replaced, and GPUs that stay free are given out by the largest gain a GPU.
    """
    whole = integral_shares(market, share)
    wanted = np.full(tables.num_apps, -1, dtype=np.int64)
    instance = tables.instance
    for position, i in enumerate(market.app.tolist()):
        total, best = int(whole[position].sum()), 0.0
        for b in range(int(tables.offset[i]), int(tables.offset[i + 1])):
            if tables.size[b] > total or tables.weight[b] <= best:
                continue
            if tables.level[b] == Locality.NAMED:
                row = int(tables.row[b])
                part = slice(int(instance.named_offset[row]), int(instance.named_offset[row + 1]))
                goods = market.machine_good[instance.bids.named_machine[part]]
                if (whole[position, goods] < instance.bids.named_gpus[part]).any():
                    continue
            wanted[i], best = b, float(tables.weight[b])
    return allocator.repaired(wanted)


def envy_ratio(market: FractionalMarket, share: FloatArray) -> float:
    """Return the largest factor by which an app would value another one's shares above its own; 1 without envy."""
    own = market.log_values(np.minimum((market.speed * share).sum(axis=1), market.cap))
    others = np.minimum(market.speed @ share.T, market.cap[:, None])
    with np.errstate(divide="ignore"):
        value = np.log(market.ideal_min)[:, None] - np.log(
            market.elapsed_min[:, None] + market.work_min[:, None] / others
        )
    return float(np.exp((value - own[:, None]).max(initial=0.0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Division:
    """Shares of a market, shape (apps, goods), their log welfare, steps, and figures of the method."""

    share: FloatArray
    value: float
    steps: int = 0
    figures: Mapping[str, float]


class AbstractRoundedSolver(AbstractAuctionSolver[PaymentOptionsT], Generic[PaymentOptionsT]):
    """A solver of the fractional market by its `divide`, rounded.

    Among the counts are the market's value (`fractional`, above granting nothing, so that it compares with objective
    and bound) and the envy ratio of its shares.
    """

    @abstractmethod
    def divide(self, market: FractionalMarket, options: PaymentOptionsT) -> Division:
        """Solve the market."""

    def award(self, instance: AuctionInstance, options: PaymentOptionsT, monitor: Monitor, seed: int) -> Award:
        """Divide, round, bound."""
        with monitor.clock.phase("build"):
            tables = Tables.build(instance)
            allocator, market = Allocator(tables), market_of(instance)
        with monitor.clock.phase("solve"):
            if not len(market.cap):
                return bounded_award(tables, allocator, allocator.empty())
            with monitor.clock.phase("divide"):
                found = self.divide(market, options)
            empty = float(-np.log(instance.apps.empty_rho[market.app]).sum())
            figures = {"fractional": found.value - empty, "envy_ratio": envy_ratio(market, found.share)}
            return bounded_award(
                tables,
                allocator,
                rounded(tables, allocator, market, found.share),
                iterations=found.steps,
                figures={**found.figures, **figures},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvexOptions(PaymentOptions):
    """Options of `convex`: those of payments."""


@register("convex", problem="auction")
class Convex(AbstractRoundedSolver[ConvexOptions]):
    """The Eisenberg-Gale programme with elapsed time, rounded to bids.

    Notes
    -----
    The relaxation knows no empty row and no whole bundles. It bounds the auction only where empty rows are worth
    nothing, so that the bound comes from counts and from the programme over kinds, as for `greedy`.
    """

    summary: ClassVar[str] = "the fractional programme over the exponential cone, rounded by largest remainders"
    options_type: ClassVar[type[ConvexOptions]] = ConvexOptions

    def divide(self, market: FractionalMarket, options: ConvexOptions) -> Division:
        """Solve the programme."""
        point = solve_cone(elapsed_programme(market))
        return Division(share=point.share.clip(0.0), value=point.value, figures={"clarabel_s": point.solver_s})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedOptions(PaymentOptions):
    """Options of `batched`.

    Parameters
    ----------
    tol
        Largest gap of each fractional problem between its value and the bound of its prices, in log units.
    """

    tol: float = 1e-4

    def __post_init__(self) -> None:
        PaymentOptions.__post_init__(self)
        check_in("[1e-10, 1)", self, "tol")


@register("batched", problem="auction")
class Batched(AbstractRoundedSolver[BatchedOptions]):
    """The fractional programme with all its payments, by an interior-point method in JAX.

    Notes
    -----
    Each of the N problems without an app starts at the main solution; all of them step together, each until its
    own certified gap is closed. Counts hold the fractional shares c (`kept_*`) and the width of the widest
    interval that holds one; the plan's own shares are those of the rounded allocation. A shape of market that a
    process meets for the first time is compiled before its clock starts.
    """

    summary: ClassVar[str] = (
        "all fractional problems without one app in one jitted batch, gated on certified gaps; rounded"
    )
    options_type: ClassVar[type[BatchedOptions]] = BatchedOptions

    def warm_up(self, instance: AuctionInstance, options: BatchedOptions) -> None:
        """Compile the loops, and the batch for the shape of this market."""
        super().warm_up(instance, options)
        solve_fractional(market_of(instance), tol=options.tol, most_steps=0)

    def divide(self, market: FractionalMarket, options: BatchedOptions) -> Division:
        """Solve the market with and without each app."""
        found = solve_fractional(market, tol=options.tol)
        figures = {
            "fractional_gap": found.bound - found.value,
            "kept_least": float(found.kept.min()),
            "kept_mean": float(found.kept.mean()),
            "kept_widest": found.widest,
            "steps": float(found.steps[1]),
        }
        return Division(share=found.share, value=found.value, steps=sum(found.steps), figures=figures)
