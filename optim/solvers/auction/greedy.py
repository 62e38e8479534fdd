"""Marginal Nash welfare with exchange: the heuristic alternative to the exact solvers."""

from dataclasses import dataclass
from typing import ClassVar

from optim.core.driver import AbstractIteration, Monitor, SolverState, run_iteration
from optim.core.errors import check_in
from optim.core.registry import register
from optim.core.solution import Termination
from optim.models.auction.instance import AuctionInstance
from optim.solvers.auction.allocation import Allocation, Allocator
from optim.solvers.auction.payments import bounded_award
from optim.solvers.auction.settlement import AbstractAuctionSolver, Award, PaymentOptions
from optim.solvers.auction.tables import Tables

BATCH = 50
"""Number of exchange moves between two checks of the stopping rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyOptions(PaymentOptions):
    """Options of `greedy`.

    Parameters
    ----------
    moves
        Number of exchange moves. A move frees up to four bundles, gives one app a random bundle from its bids, and
        allocates the other free GPUs greedily; only improvements are accepted.
    """

    moves: int = 500

    def __post_init__(self) -> None:
        PaymentOptions.__post_init__(self)
        check_in("[0, inf)", self, "moves")


@register("greedy", problem="auction")
class Greedy(AbstractAuctionSolver[GreedyOptions]):
    """Upgrade the app with the largest gain of log welfare per GPU until no row fits, then exchange.

    Notes
    -----
    The bound is the better of two relaxations, the count of GPUs and the linear programme over types. A
    payment depends on the other apps' optimal log welfare without the paying app. A lower bound of this optimum comes from
    giving the app's GPUs to the other apps greedily, an upper bound from the count of GPUs. So payments are intervals.
    """

    summary: ClassVar[str] = (
        "bids by their gain of log welfare per GPU, largest first, then exchanges; payments as intervals"
    )
    options_type: ClassVar[type[GreedyOptions]] = GreedyOptions

    def award(self, instance: AuctionInstance, options: GreedyOptions, monitor: Monitor, seed: int) -> Award:
        """Allocate greedily, improve by exchange, and bound the optimum."""
        with monitor.clock.phase("build"):
            tables = Tables.build(instance)
            search = Exchange(tables, Allocator(tables), options.moves, seed)
        with monitor.clock.phase("solve"):
            allocation = run_iteration(search, monitor, task=self.name)
            return bounded_award(tables, search.allocator, allocation, iterations=search.moves)


class Exchange(AbstractIteration[Allocation]):
    """Local search by exchange from the greedy allocation; an iteration is a batch of moves."""

    def __init__(self, tables: Tables, allocator: Allocator, max_moves: int, seed: int) -> None:
        self.allocator, self.moves = allocator, 0
        self._tables, self._max_moves, self._seed = tables, max_moves, seed
        self._allocation = allocator.filled(allocator.empty())

    def is_done(self) -> bool:
        """Return whether all moves are made."""
        return self.moves >= self._max_moves

    def step(self) -> None:
        """Make a batch of moves."""
        now = min(BATCH, self._max_moves - self.moves)
        seed = self._seed * 1_000_003 + self.moves
        self._allocation = self.allocator.improved(self._allocation, seed=seed, moves=now)
        self.moves += now

    def standing(self) -> SolverState:
        """Return the number of batches and the welfare."""
        return SolverState(iterations=self.moves // BATCH, objective=self._tables.welfare(self._allocation.choice))

    def finish(self, reason: Termination | None) -> Allocation:
        """Return the allocation."""
        return self._allocation
