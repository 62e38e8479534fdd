"""A box of footprints: bounds on the counts, and what is known of a change of the footprint."""

from dataclasses import dataclass

import numpy as np

from optim.models.bidding.instance import BiddingInstance, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """Footprints ``low <= counts <= high``.

    Parameters
    ----------
    low, high
        Shape (bids,).
    has_change
        True where new instances count as taken, False where none is, None where it is open.
    """

    low: IntArray
    high: IntArray
    has_change: bool | None

    @classmethod
    def root(cls, instance: BiddingInstance) -> "Box":
        """Return the box of all footprints."""
        return cls(low=np.zeros(instance.num_bids, dtype=np.int64), high=instance.bids.max_count, has_change=None)

    def without_change(self, instance: BiddingInstance) -> "Box":
        """Return the part without new instances."""
        return Box(low=self.low, high=np.where(instance.bids.is_new, 0, self.high), has_change=False)

    def with_change(self) -> "Box":
        """Return the part with new instances."""
        return Box(low=self.low, high=self.high, has_change=True)

    def at_most(self, bid: int, value: int) -> "Box":
        """Return the part with at most `value` instances of a bid."""
        high = self.high.copy()
        high[bid] = min(high[bid], value)
        return Box(low=self.low, high=high, has_change=self.has_change)

    def at_least(self, bid: int, value: int) -> "Box":
        """Return the part with at least `value` instances of a bid."""
        low = self.low.copy()
        low[bid] = max(low[bid], value)
        return Box(low=low, high=self.high, has_change=self.has_change)
