"""A box of footprints: bounds on the counts and on two sums, and what is known of a change of the footprint."""

import math
from dataclasses import dataclass, replace

import numpy as np

from optim.models.bidding.instance import BiddingInstance, IntArray
from optim.models.bidding.proof import CHANGE, THETA

CAP_TOL = 1e-12
"""Caps may be exceeded by this, relative to their limit, and least work missed: sums are rounded. What a solver is given
has the tolerance already that footprints are held to (`held_instance`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """Footprints ``low <= counts <= high``.

    Parameters
    ----------
    low, high
        Shape (bids,).
    has_change
        True where new instances count as taken, False where none is, None where it is open.
    theta, rate
        Least and most of minus the logarithm of the probability that nothing is evicted, and of the sum of all rates.
    """

    low: IntArray
    high: IntArray
    has_change: bool | None
    theta: tuple[float, float] = (0.0, math.inf)
    rate: tuple[float, float] = (0.0, math.inf)

    @classmethod
    def root(cls, instance: BiddingInstance) -> "Box":
        """Return the box of all footprints."""
        has_change = None if instance.bids.is_new.any() else False
        low = np.zeros(instance.num_bids, dtype=np.int64)
        return cls(low=low, high=instance.bids.max_count, has_change=has_change)

    @property
    def is_single(self) -> bool:
        """Whether it holds one footprint."""
        return bool((self.low == self.high).all())

    def exceeds_a_cap(self, instance: BiddingInstance) -> bool:
        """Tell whether the least counts alone are more than a cap allows."""
        caps = instance.caps
        return bool((caps.weight @ self.low > caps.limit * (1.0 + CAP_TOL)).any())

    def split(self, instance: BiddingInstance, by: int, at: float) -> tuple["Box", "Box"]:
        """Return the parts with at most and with more than `at` instances of a bid, or below and above it of a sum."""
        if by == CHANGE:
            unchanged = replace(self, high=np.where(instance.bids.is_new, 0, self.high), has_change=False)
            return unchanged, replace(self, has_change=True)
        if by < 0:
            name = "theta" if by == THETA else "rate"
            low, high = self.theta if by == THETA else self.rate
            parts: tuple[dict[str, tuple[float, float]], ...] = (
                {name: (low, min(high, at))},
                {name: (max(low, at), high)},
            )
            return replace(self, **parts[0]), replace(self, **parts[1])  # type: ignore[arg-type]
        least, most = self.low.copy(), self.high.copy()
        most[by] = min(most[by], at)
        least[by] = max(least[by], at + 1)
        return replace(self, high=most), replace(self, low=least)
