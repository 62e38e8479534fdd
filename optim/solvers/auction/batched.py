"""All fractional problems without one app at once, in one jitted batch; the main one rounded to bids."""

from dataclasses import dataclass

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.market import market_of
from optim.solvers.auction.allocation.allocator import Allocator
from optim.solvers.auction.convex import empty_welfare
from optim.solvers.auction.fractional.interior_point import FractionalPayments, solve_fractional
from optim.solvers.auction.fractional.rounding import envy_ratio, rounded
from optim.solvers.auction.payments.bounded import bounded_outcome
from optim.solvers.auction.payments.options import PaymentOptions
from optim.solvers.auction.payments.settlement import make_solution
from optim.solvers.auction.tables import Tables
from optim.solvers.auction.warm_up import compile_loops


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
        if not 1e-10 <= self.tol < 1:
            raise InvalidOptionError(f"tol must be in [1e-10, 1), got {self.tol}")


@register("batched", problem="auction")
class Batched:
    """The fractional programme with all its payments, by an interior-point method in JAX.

    Notes
    -----
    Each of the N problems without an app starts at the main solution; all of them step together, each until its
    own certified gap is closed. Counts hold the fractional shares c (`kept_*`) and the width of the widest
    interval that holds one; the plan's own shares are those of the rounded allocation.
    """

    name: str
    problem: str
    summary = "all fractional problems without one app in one jitted batch, gated on certified gaps; rounded"
    options_type = BatchedOptions

    def supports(self, instance: AuctionInstance) -> Support:
        """Every auction is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: AuctionInstance,
        *,
        options: BatchedOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the rounded allocation, with the fractional payments among the counts."""
        del progress
        clock = PhaseClock()
        with clock.phase("build"):
            tables = Tables.build(instance)
            allocator, market = Allocator(tables), market_of(instance)
        with clock.phase("compile"):
            compile_loops()
            solve_fractional(market, tol=0.5)
        with clock.phase("solve"):
            with clock.phase("batch"):
                found = solve_fractional(market, tol=options.tol)
            allocation = rounded(tables, allocator, market, found.share) if len(market.cap) else allocator.empty()
            outcome = bounded_outcome(tables, allocator, allocation)
        reason = stop(SolveState(elapsed_s=clock.elapsed_s))
        counts = _figures(found) if len(market.cap) else {}
        if counts:
            counts["fractional"] = found.value - empty_welfare(instance, market.app)
            counts["envy_ratio"] = envy_ratio(market, found.share)
        return make_solution(
            self,
            instance,
            outcome,
            rule=options.payment_rule,
            options=options,
            seed=seed,
            clock=clock,
            termination=Termination.COMPLETED if reason is None else reason,
            iterations=sum(found.steps),
            counts=counts,
        )


def _figures(found: FractionalPayments) -> dict[str, float]:
    return {
        "fractional_gap": found.bound - found.value,
        "kept_least": float(found.kept.min()),
        "kept_mean": float(found.kept.mean()),
        "kept_widest": found.widest,
        "steps": float(found.steps[1]),
    }
