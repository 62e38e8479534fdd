"""Availability of spot instances today: bids no longer decide, capacity does."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import ComparesByValue
from optim.core.errors import InvalidProblemError
from optim.models.bidding.price_history import IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class AvailabilityTrace(ComparesByValue):
    """Whether an instance could be had, tick by tick, in one zone; each tick holds until the next.

    Parameters
    ----------
    zone, resource
        Names of the zone and of what was asked for.
    time_s
        Shape (ticks,): strictly ascending.
    is_available
        Shape (ticks,): True where the instance could be launched, or kept.
    price_micro
        Shape (ticks,): spot price in micro-dollars an hour.
    on_demand_micro
        Price on demand.
    end_s
        When the last tick ends.
    """

    zone: str
    resource: str
    time_s: IntArray
    is_available: NDArray[np.bool_]
    price_micro: IntArray
    on_demand_micro: int
    end_s: int

    def __post_init__(self) -> None:
        if len(self.time_s) == 0 or (np.diff(self.time_s) <= 0).any() or self.end_s <= self.time_s[-1]:
            raise InvalidProblemError(f"{self.zone}: ticks must be strictly ascending in time, one at least")
        if len(self.is_available) != len(self.time_s) or len(self.price_micro) != len(self.time_s):
            raise InvalidProblemError(f"{self.zone}: availability and price must be given for every tick")

    def __len__(self) -> int:
        return len(self.time_s)

    def price_at(self, time_s: int) -> int | None:
        """Return the price at a time, None before the first tick."""
        tick = int(np.searchsorted(self.time_s, time_s, side="right")) - 1
        return int(self.price_micro[tick]) if tick >= 0 else None
