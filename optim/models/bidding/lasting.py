"""At least so much capacity with so much probability: what a footprint must keep through the hour."""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import ComparesByValue, freeze_arrays
from optim.core.errors import InvalidProblemError
from optim.models.bidding.common_shocks import CommonShocks
from optim.models.bidding.instance import BiddingInstance, FloatArray, IntArray

LASTING_TOL = 1e-9
"""Probabilities may fall short by this through rounding alone."""

MOST_CAPACITY = 4096
"""Largest capacity, of one instance or asked for: probabilities are sums over every amount up to it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LastingCapacity(ComparesByValue):
    """``P(capacity that lasts the hour >= least) >= probability``: docs/mathematics/bidding.md, (B.14) and (B.17).

    A market's instances are lost together, whatever was bid, by a cause of their own, of their zone, or of their region.

    Parameters
    ----------
    shocks
        Expected shocks within the hour; its kinds are the instance's markets.
    capacity
        Shape (bids,): whole capacity (GPUs, say) of one instance.
    least
        Capacity that must last, at least 1.
    probability
        How surely, above 0 and at most 1.

    Raises
    ------
    InvalidProblemError
        If a number is out of its range.
    """

    shocks: CommonShocks
    capacity: IntArray
    least: int
    probability: float

    def __post_init__(self) -> None:
        freeze_arrays(self)
        if not 1 <= self.least <= MOST_CAPACITY:
            raise InvalidProblemError(f"lasting.least must be between 1 and {MOST_CAPACITY}, got {self.least}")
        if not 0 < self.probability <= 1:
            raise InvalidProblemError(f"lasting.probability must be above 0 and at most 1, got {self.probability}")
        for j in np.flatnonzero((self.capacity < 0) | (self.capacity > MOST_CAPACITY))[:1]:
            raise InvalidProblemError(
                f"lasting.capacity[{j}] must be between 0 and {MOST_CAPACITY}, got {self.capacity[j]}"
            )

    def held(self, market: IntArray, counts: IntArray) -> FloatArray:
        """Return what a footprint holds of each market, shape (markets,)."""
        return np.bincount(market, self.capacity * counts, len(self.shocks.zone)).astype(np.float64)


def kept_probability(instance: BiddingInstance, counts: IntArray) -> float:
    """Return the exact probability that a footprint keeps what the instance asks for; 1 where it asks for nothing."""
    lasting = instance.lasting
    if lasting is None:
        return 1.0
    return lasting.shocks.probability(lasting.held(instance.bids.market, counts), lasting.least)
