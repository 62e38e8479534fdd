"""A footprint: how many instances are taken at each bid."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.arrays import ComparesByValue, own_whole_rows, whole_numbers
from optim.core.frames import Columns
from optim.models.bidding.instance import MICRO, BiddingInstance, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class FootprintPlan(ComparesByValue):
    """The decision of a bidding instance.

    Parameters
    ----------
    counts
        Shape (bids,): instances of each bid.

    Examples
    --------
    >>> import optim
    >>> optim.FootprintPlan.of([0, 2, 1]).counts.sum()
    np.int64(3)
    """

    counts: IntArray

    def __post_init__(self) -> None:
        own_whole_rows(self, {"counts": None}, "a footprint's")

    @classmethod
    def of(cls, counts: Sequence[float] | IntArray | FloatArray) -> "FootprintPlan":
        """Return a plan that owns its counts; numbers within 1e-6 of a whole one are rounded to it.

        Raises
        ------
        InvalidProblemError
            If a count is not whole.
        """
        return cls(counts=whole_numbers(counts, "a footprint's counts"))

    def columns(self, instance: BiddingInstance | None = None) -> Columns:
        """Return the bids taken as columns bid and count; with the instance, market and delta_usd, too."""
        taken = np.flatnonzero(self.counts)
        own: Columns = {"bid": taken, "count": self.counts[taken]}
        if instance is None:
            return own
        markets = [instance.markets[m] for m in instance.bids.market[taken].tolist()]
        return {**own, "market": markets, "delta_usd": instance.bids.delta_micro[taken] / MICRO}

    def picture(self) -> str:
        """Return a chart as an ``<svg>`` element: a row a bid taken, a cell an instance."""
        from optim.core.svg import Cell, grid

        taken = np.flatnonzero(self.counts).tolist()
        counts = self.counts[taken].tolist()
        cells = [
            Cell(row, k, 0.8, f"bid {bid}: instances {count}")
            for row, (bid, count) in enumerate(zip(taken, counts, strict=True))
            for k in range(count)
        ]
        return grid([f"bid {bid}" for bid in taken], cells, "instances", f"Footprint of {sum(counts)} instances")
