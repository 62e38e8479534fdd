"""The fractional programme solved by Clarabel, then rounded."""

from dataclasses import dataclass
from typing import ClassVar

from optim.core.registry import register
from optim.models.auction.cone import elapsed_programme, solve_cone
from optim.models.auction.market import FractionalMarket
from optim.solvers.auction.fractional.rounded_solver import AbstractRoundedSolver, Division
from optim.solvers.auction.payments.options import PaymentOptions


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
