"""BidBrain's one-step search."""

from typing import ClassVar

from optim.core.driver import Monitor, drive
from optim.core.registry import register
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.local_search.heuristic import AbstractHeuristic, Found, HeuristicOptions
from optim.solvers.bidding.local_search.steps import GreedySearch


@register("greedy", problem="bidding")
class GreedySolver(AbstractHeuristic[HeuristicOptions]):
    """Add the bid that adds work at the least cost per work, until none lowers that of the whole.

    Notes
    -----
    Exact where costs and work add up and bids have bounds of their own only: then the best footprint holds every bid
    whose own cost per work is below the optimum's. With a concave curve, joint limits, or losses that everybody
    bears, it may stop at a footprint that only an exchange improves. The bound is the relaxation's.

    References
    ----------
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182, BidBrain.
    """

    summary: ClassVar[str] = "one-step search: add bids in increasing cost per work until none lowers it"
    options_type: ClassVar[type[HeuristicOptions]] = HeuristicOptions

    def search(self, instance: BiddingInstance, options: HeuristicOptions, monitor: Monitor) -> Found:
        """Add bids to nothing."""
        search = GreedySearch(instance)
        return Found(counts=drive(search, monitor, task=self.name), steps=search.steps, figures={})
