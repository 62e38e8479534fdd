"""Marginal Nash welfare with exchange: the heuristic beside the exact solvers."""

from dataclasses import dataclass

from optim.core.clock import PhaseClock
from optim.core.errors import InvalidOptionError
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support, register
from optim.core.solution import Solution
from optim.core.status import Termination
from optim.core.stopping import SolveState, StoppingCriterion
from optim.models.auction.instance import AuctionInstance
from optim.solvers.auction.allocation.allocator import Allocation, Allocator
from optim.solvers.auction.payments.bounded import bounded_outcome
from optim.solvers.auction.payments.options import PaymentOptions
from optim.solvers.auction.payments.settlement import make_solution
from optim.solvers.auction.tables import Tables
from optim.solvers.auction.warm_up import compile_loops

BATCH = 50
"""Moves of exchange between two looks at the stopping rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyOptions(PaymentOptions):
    """Options of `greedy`.

    Parameters
    ----------
    moves
        Moves of exchange: two to four bundles are taken back, one app takes a bundle drawn from its own, and the
        rest is filled up greedily; what improves is kept.
    """

    moves: int = 500

    def __post_init__(self) -> None:
        PaymentOptions.__post_init__(self)
        if self.moves < 0:
            raise InvalidOptionError(f"moves must be at least 0, got {self.moves}")


@register("greedy", problem="auction")
class Greedy:
    """Upgrade the app that gains most log welfare a GPU until nothing fits, then exchange.

    Notes
    -----
    The bound is the better of two relaxations, the count of GPUs and the linear programme over kinds. What the
    others can have without an app is found by filling up what it leaves, so that payments are intervals.
    """

    name: str
    problem: str
    summary = "the largest gain of log welfare a GPU first, then exchange; payments in intervals"
    options_type = GreedyOptions

    def supports(self, instance: AuctionInstance) -> Support:
        """Every auction is supported."""
        del instance
        return SUPPORTED

    def solve(
        self,
        instance: AuctionInstance,
        *,
        options: GreedyOptions,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Return the allocation and the better bound."""
        del progress
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_loops()
        with clock.phase("build"):
            tables = Tables.build(instance)
            allocator = Allocator(tables)
        with clock.phase("solve"):
            allocation, moves, reason = _exchanged(tables, allocator, options.moves, seed, stop, clock)
            outcome = bounded_outcome(tables, allocator, allocation)
        return make_solution(
            self,
            instance,
            outcome,
            rule=options.payment_rule,
            options=options,
            seed=seed,
            clock=clock,
            termination=Termination.COMPLETED if reason is None else reason,
            iterations=moves,
        )


def _exchanged(
    tables: Tables, allocator: Allocator, moves: int, seed: int, stop: StoppingCriterion, clock: PhaseClock
) -> tuple[Allocation, int, Termination | None]:
    """Return the allocation, the moves made, and why they ended early."""
    allocation = allocator.filled(allocator.empty())
    done = 0
    while done < moves:
        state = SolveState(
            elapsed_s=clock.elapsed_s, iterations=done // BATCH, objective=tables.welfare(allocation.choice)
        )
        reason = stop(state)
        if reason is not None:
            return allocation, done, reason
        now = min(BATCH, moves - done)
        allocation = allocator.improved(allocation, seed=seed * 1_000_003 + done, moves=now)
        done += now
    return allocation, done, None
