"""Local search by additions, removals and exchanges."""

from typing import ClassVar

from optim.core.driver import Monitor
from optim.core.registry import register
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.local_search.heuristic import AbstractHeuristic, Found, HeuristicOptions, exchanged


@register("exchange", problem="bidding")
class ExchangeSolver(AbstractHeuristic[HeuristicOptions]):
    """Improve the greedy footprint by the best addition, removal or exchange between two bids, until none helps."""

    summary: ClassVar[str] = "local search from the greedy footprint: additions, removals, exchanges"
    options_type: ClassVar[type[HeuristicOptions]] = HeuristicOptions

    def search(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor) -> Found:
        """Search from the greedy footprint."""
        return exchanged(instance, monitor, self.name)
