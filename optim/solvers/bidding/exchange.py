"""Local search by additions, removals and exchanges."""

from optim.core.registry import register
from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.solvers.bidding.local_search.heuristic import AbstractHeuristic
from optim.solvers.bidding.local_search.steps import Halt, exchange_counts, greedy_counts


@register("exchange", problem="bidding")
class ExchangeSolver(AbstractHeuristic):
    """Improve the greedy footprint by the best addition, removal or exchange between two bids, until none helps."""

    summary = "local search from the greedy footprint: additions, removals, exchanges"

    def search(self, instance: BiddingInstance, halt: Halt) -> tuple[IntArray, int]:
        """Search from the greedy footprint."""
        counts, first = greedy_counts(instance, halt)
        counts, more = exchange_counts(instance, counts, lambda steps: halt(first + steps))
        return counts, first + more
