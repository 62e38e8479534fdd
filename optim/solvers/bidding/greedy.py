"""BidBrain's one-step search."""

from optim.core.registry import register
from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.solvers.bidding.local_search.heuristic import AbstractHeuristic
from optim.solvers.bidding.local_search.steps import Halt, greedy_counts


@register("greedy", problem="bidding")
class GreedySolver(AbstractHeuristic):
    """Add the bid that lowers the cost per work most, until none does.

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

    summary = "BidBrain's one-step search: add the best bid until none lowers the cost per work"

    def search(self, instance: BiddingInstance, halt: Halt) -> tuple[IntArray, int]:
        """Add bids to nothing."""
        return greedy_counts(instance, halt)
