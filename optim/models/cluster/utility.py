"""What jobs are worth by when they end, for policies that admit by utility; and prices that show how much could be earned."""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import ComparesByValue
from optim.core.errors import InvalidProblemError
from optim.models.cluster.proof import MOST_PRICE
from optim.models.cluster.workload import LATEST_US
from optim.models.cluster.world import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Worth(ComparesByValue):
    """Utilities of jobs, and prices of GPU-slots.

    Parameters
    ----------
    theta
        A job that ends d slots after its submission is worth ``theta1 / (1 + exp(theta2 (d - theta3)))``; shape (jobs, 3).
    slot_us
        Length of a slot, positive.
    price
        Price of a GPU for each slot from time 0 on, at least 0; later slots cost nothing; shape (slots,).
    utility, bound
        What the run earned, and what no schedule can, as claimed.

    Raises
    ------
    InvalidProblemError
        If a number isn't finite, or outside its range.
    """

    theta: FloatArray
    slot_us: int
    price: FloatArray
    utility: float
    bound: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        is_whole = self.theta.ndim == 2 and self.theta.shape[1] == 3 and self.price.ndim == 1
        if not is_whole or not 1 <= self.slot_us <= LATEST_US:
            raise InvalidProblemError(f"utilities are three numbers a job, and slots 1..{LATEST_US} microseconds")
        if not ((abs(self.theta) <= MOST_PRICE).all() and (self.price <= MOST_PRICE).all()):
            raise InvalidProblemError(f"theta and prices must be finite, and at most {MOST_PRICE:g}")
        if not (np.isfinite(self.utility) and np.isfinite(self.bound)):
            raise InvalidProblemError(f"utility and bound must be finite, got {self.utility} and {self.bound}")
        if (self.theta[:, :2] < 0).any() or (self.price < 0).any():
            raise InvalidProblemError("theta1, theta2 and prices must be at least 0")
