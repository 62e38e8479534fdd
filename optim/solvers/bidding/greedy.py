"""Solvers by local search, BidBrain's one-step search and exchanges, with a lower bound from the relaxation."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from optim.core.arrays import IntArray
from optim.core.driver import Monitor, Outcome, run_iteration
from optim.core.registry import register
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.outcome import AbstractBiddingSolver, outcome_of, root_bound
from optim.solvers.bidding.steps import GreedySearch, LocalSearch, SteepestAdditions


@dataclass(frozen=True, slots=True, kw_only=True)
class HeuristicOptions:
    """Options of the heuristics.

    Parameters
    ----------
    bound
        Whether to bound the optimum by the relaxation after the search.
    """

    bound: bool = True


class SearchResult(NamedTuple):
    """A footprint, and the number of steps of the search that found it."""

    counts: IntArray
    steps: int


class AbstractHeuristic(AbstractBiddingSolver[HeuristicOptions]):
    """A search for a footprint; iterations are its steps."""

    options_type: ClassVar[type[HeuristicOptions]] = HeuristicOptions

    @abstractmethod
    def search(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor) -> SearchResult:
        """Return a footprint, and the number of steps of the search."""

    def run(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor, seed: int) -> Outcome:
        """Search until no step improves the footprint; then bound the optimum, unless `bound` is False."""
        with monitor.clock.phase("solve"):
            result = self.search(instance, options, monitor)
        proven = None
        if options.bound and monitor.reason is None:
            with monitor.clock.phase("bound"):
                proven = root_bound(instance, result.counts)
        return outcome_of(instance, result.counts, proven, iterations=result.steps, figures={})


def exchanged(instance: BiddingInstance, monitor: Monitor, task: str | None = None) -> SearchResult:
    """Return the footprint of a local search that starts at the greedy footprint."""
    greedy = GreedySearch(instance)
    search = LocalSearch(instance, run_iteration(greedy, monitor, task=task), begun=greedy.steps)
    return SearchResult(counts=run_iteration(search, monitor, task=task), steps=search.steps)


@register("exchange", problem="bidding")
class ExchangeSolver(AbstractHeuristic):
    """Improve the greedy footprint by the best addition, removal or exchange between two bids, until none helps."""

    summary: ClassVar[str] = "local search from the greedy footprint: additions, removals, exchanges"

    def search(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor) -> SearchResult:
        """Search from the greedy footprint."""
        return exchanged(instance, monitor, self.name)


@register("greedy", problem="bidding")
class GreedySolver(AbstractHeuristic):
    """Add bids one by one until none lowers the footprint's cost per work, by two rules; the better result is returned.

    Notes
    -----
    The first rule takes the bid whose addition has the least cost per work, the second the bid that lowers the footprint's
    cost per work most. The first is exact if costs and work are additive and no limit joins several bids: then the best
    footprint contains every bid whose cost per work is below the optimum's. Under a binding joint limit, the first rule
    may fill the limit with cheap, small bids; the second takes large bids. If neither result does the minimum work, the
    search continues as in `exchange`. With a concave curve, joint limits, or losses shared by all bids, the search may
    stop at a footprint that only an exchange improves. docs/mathematics/bidding.md proves the additive case. The lower
    bound is that of the relaxation.

    References
    ----------
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182, BidBrain.
    """

    summary: ClassVar[str] = (
        "one-step search: add bids by least cost per work, and by largest drop of the total cost per work"
    )

    def search(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor) -> SearchResult:
        """Add bids to the empty footprint by each rule; if neither result is feasible, continue as in `exchange`."""
        searches = GreedySearch(instance), SteepestAdditions(instance)
        for search in searches:
            run_iteration(search, monitor, task=self.name)
        best: LocalSearch = min(searches, key=lambda search: search.standard)
        steps = sum(search.steps for search in searches)
        if best.lack > 0:
            best = LocalSearch(instance, best.counts, begun=steps)
            run_iteration(best, monitor, task=self.name)
            steps = best.steps
        return SearchResult(counts=best.counts, steps=steps)
