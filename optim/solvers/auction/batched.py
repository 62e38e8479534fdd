"""All fractional problems without one app at once, in one jitted batch; the main one rounded to bids."""

from dataclasses import dataclass
from typing import ClassVar

from optim.core.ranges import check_in
from optim.core.registry import register
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.market import FractionalMarket, market_of
from optim.solvers.auction.fractional.interior_point import solve_fractional
from optim.solvers.auction.fractional.rounded_solver import AbstractRoundedSolver, Division
from optim.solvers.auction.payments.options import PaymentOptions


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
