"""A footprint: how many instances are taken at each bid."""

from dataclasses import dataclass

import numpy as np

from optim.models.bidding.instance import IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class FootprintPlan:
    """The decision of a bidding instance.

    Parameters
    ----------
    counts
        Shape (bids,): instances of each bid.
    """

    counts: IntArray

    @classmethod
    def of(cls, counts: IntArray) -> "FootprintPlan":
        """Return a plan that owns its counts."""
        owned = np.array(counts, dtype=np.int64)
        owned.setflags(write=False)
        return cls(counts=owned)
