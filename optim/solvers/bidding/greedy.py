"""BidBrain's one-step search."""

from typing import ClassVar

from optim.core.driver import Monitor, drive
from optim.core.registry import register
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.local_search.heuristic import AbstractHeuristic, Found, HeuristicOptions
from optim.solvers.bidding.local_search.steps import GreedySearch, LocalSearch, SteepestAdditions


@register("greedy", problem="bidding")
class GreedySolver(AbstractHeuristic[HeuristicOptions]):
    """Add one bid after the other until none lowers the cost per work of the whole, by two rules; the better is kept.

    Notes
    -----
    One rule takes the bid that adds work at the least cost per work, the other the one that lowers that of the whole
    most. The first is exact where costs and work add up and bids have bounds of their own only: then the best
    footprint holds every bid whose own cost per work is below the optimum's. Where a limit binds it may fill that with
    what is cheap and small; the second takes what is large. Where neither comes to the least work, bids are moved as by
    `exchange`. With a concave curve, joint limits, or losses that everybody bears, it may stop at a footprint that only
    an exchange improves. The additive case is proved in docs/mathematics/bidding.md. The bound is the relaxation's.

    References
    ----------
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182, BidBrain.
    """

    summary: ClassVar[str] = "one-step search: add bids by least own cost per work, and by largest drop of the whole's"
    options_type: ClassVar[type[HeuristicOptions]] = HeuristicOptions

    def search(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor) -> Found:
        """Add bids to nothing, by either rule; where neither reaches the least work, go on by moves."""
        searches = GreedySearch(instance), SteepestAdditions(instance)
        for search in searches:
            drive(search, monitor, task=self.name)
        best: LocalSearch = min(searches, key=lambda search: search.standard)
        steps = sum(search.steps for search in searches)
        if best.lack > 0:
            best = LocalSearch(instance, best.counts, begun=steps)
            drive(best, monitor, task=self.name)
            steps = best.steps
        return Found(counts=best.counts, steps=steps, figures={})
