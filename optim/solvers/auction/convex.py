"""The fractional programme solved by Clarabel, then rounded."""

from dataclasses import dataclass

import numpy as np

from optim.core.clock import PhaseClock
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.auction.cone import elapsed_programme, solve_cone
from optim.models.auction.instance import AuctionInstance, IntArray
from optim.models.auction.market import market_of
from optim.solvers.auction.allocation.allocator import Allocator
from optim.solvers.auction.fractional.rounding import envy_ratio, rounded
from optim.solvers.auction.payments.bounded import bounded_outcome
from optim.solvers.auction.payments.options import PaymentOptions
from optim.solvers.auction.payments.settlement import make_solution
from optim.solvers.auction.tables import Tables
from optim.solvers.auction.warm_up import compile_loops


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvexOptions(PaymentOptions):
    """Options of `convex`: those of payments."""


@register("convex", problem="auction")
class Convex:
    """The Eisenberg-Gale programme with elapsed time, rounded to bids.

    Notes
    -----
    The relaxation knows no empty row and no whole bundles. It bounds the auction only where empty rows are worth
    nothing, so that the bound comes from counts and from the programme over kinds, as for `greedy`. Among the
    counts are its value (`fractional`, above granting nothing, so that it compares with objective and bound)
    and the envy ratio of its shares.
    """

    name: str
    problem: str
    summary = "the fractional programme over the exponential cone, rounded by largest remainders"
    options_type = ConvexOptions

    def supports(self, instance: AuctionInstance) -> Support:
        """Every auction is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: AuctionInstance,
        *,
        options: ConvexOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the rounded allocation."""
        del progress
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
        with clock.phase("build"):
            tables = Tables.build(instance)
            allocator, market = Allocator(tables), market_of(instance)
        with clock.phase("solve"):
            counts = {}
            if len(market.cap):
                with clock.phase("cone"):
                    point = solve_cone(elapsed_programme(market))
                allocation = rounded(tables, allocator, market, point.share.clip(0.0))
                counts = {
                    "fractional": point.value - empty_welfare(instance, market.app),
                    "envy_ratio": envy_ratio(market, point.share.clip(0.0)),
                    "clarabel_s": point.solver_s,
                }
            else:
                allocation = allocator.empty()
            outcome = bounded_outcome(tables, allocator, allocation)
        reason = stop(SolveState(elapsed_s=clock.elapsed_s))
        return make_solution(
            self,
            instance,
            outcome,
            rule=options.payment_rule,
            options=options,
            seed=seed,
            clock=clock,
            termination=Termination.COMPLETED if reason is None else reason,
            counts=counts,
        )


def empty_welfare(instance: AuctionInstance, apps: IntArray) -> float:
    """Return the log welfare of some apps if they are granted nothing."""
    return float(-np.log(instance.apps.empty_rho[apps]).sum())
