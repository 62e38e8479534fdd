"""Proofs of lower bounds for schedules of rigid jobs, and utilities of jobs by completion time."""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.cluster.workload import LATEST_US, US

MAX_PRICE = 1e100
"""Largest price of a GPU per second or slot, so that sums over all jobs and slots stay finite."""

MAX_SLOWDOWN, LAST_US = 2.0**50, 2**62
"""Largest slowdown of a proof, and the latest end of a slot or interval in microseconds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceProof(ComparesByValue):
    """Prices of a GPU-second, constant within each slot and 0 after the last slot; the first slot begins at time 0.

    The prices prove ``mean JCT >= (sum_j min_C (C - r_j + w_j x the cheapest d_j seconds of p in [r_j, C]) - G x integral of p) / n``
    for n jobs on G GPUs; job j is submitted at r_j, runs for d_j on w_j GPUs and ends at C (docs/mathematics/cluster.md,
    (D.1)). If jobs are restricted to some types of GPU, each type has separate prices (D.1b).

    Parameters
    ----------
    end_us
        End of each slot, which is the start of the next one, in microseconds; shape (slots,).
    price
        Price of a GPU-second in seconds of completion time, at least 0; shape (slots,), or (types, slots) for two or more types.

    Raises
    ------
    InvalidProblemError
        If a price isn't finite or is negative, or the slots' ends don't increase.
    """

    end_us: IntArray
    price: FloatArray

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.price.ndim not in (1, 2) or not ((self.price >= 0) & (self.price <= MAX_PRICE)).all():
            raise InvalidProblemError(f"prices must be one per slot, finite, and in 0..{MAX_PRICE:g}")
        if self.price.ndim == 2 and len(self.price) < 2:
            raise InvalidProblemError(
                "prices of a single type of GPU must have shape (slots,), without an axis of types"
            )
        if self.end_us.shape != self.price.shape[-1:]:
            raise InvalidProblemError(
                f"end_us has {len(self.end_us)} entries for {self.price.shape[-1]} prices; give one per slot"
            )
        if len(self.end_us) and not (
            self.end_us[0] > 0 and self.end_us[-1] <= LAST_US and (self.end_us[1:] > self.end_us[:-1]).all()
        ):
            raise InvalidProblemError(f"end_us must increase, from more than 0 to at most {LAST_US}")

    @classmethod
    def of_equal_slots(cls, slot_us: int, price: FloatArray) -> "PriceProof":
        """Return a proof with slots of equal length `slot_us`, in microseconds.

        Raises
        ------
        InvalidProblemError
            If slots are shorter than a second or end too late, or a price is out of range.
        """
        if not US <= slot_us <= LATEST_US:
            raise InvalidProblemError(f"slot_us must lie in {US}..{LATEST_US}, got {slot_us}")
        if slot_us * len(price) > LAST_US:
            raise InvalidProblemError(f"slots of {slot_us} us for {len(price)} prices end after {LAST_US} us")
        return cls(end_us=slot_us * np.arange(1, len(price) + 1, dtype=np.int64), price=price)


@dataclass(frozen=True, kw_only=True, eq=False)
class DivisibleSchedule(ComparesByValue):
    """A schedule of divisible gangs, whose mean completion time is an upper bound of all price bounds.

    Each part runs a share of its job's gang on one type of GPU. Jobs with equal submission, duration, gang and types share one
    list of parts. The part with the smallest `start_us` has priority or, if `start_us` is empty, the part with the least
    remaining work.

    Parameters
    ----------
    job
        Row of each part's job; shape (parts,).
    weight
        Weight of each part, positive. Shares are weights, scaled so that the parts of n equal jobs have shares with sum n;
        shape (parts,).
    gpu_type
        Index of each part's type of GPU; shape (parts,).
    start_us
        Priority of each part, smaller numbers first; shape (parts,) or (0,).

    Raises
    ------
    InvalidProblemError
        If arrays differ in length, or a weight isn't positive and finite.
    """

    job: IntArray
    weight: FloatArray
    gpu_type: IntArray
    start_us: IntArray

    def __post_init__(self) -> None:
        """Check the ranges."""
        count = len(self.job)
        if not len(self.weight) == len(self.gpu_type) == count or len(self.start_us) not in (0, count):
            raise InvalidProblemError(
                "job, weight, gpu_type and start_us must have one entry per part; start_us may be empty"
            )
        if not ((self.weight > 0) & (self.weight <= MAX_PRICE)).all():
            raise InvalidProblemError(f"weights of parts must be positive and at most {MAX_PRICE:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProof:
    """A time `from_us` that proves a lower bound of the makespan (D.2).

    Together, the jobs submitted at `from_us` or later take at least their total work over the number of GPUs.
    """

    from_us: int

    def __post_init__(self) -> None:
        """Raise InvalidProblemError if the time is out of range."""
        if not 0 <= self.from_us <= LATEST_US:
            raise InvalidProblemError(f"from_us must lie in 0..{LATEST_US}, got {self.from_us}")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalProof:
    """An interval that is overloaded if every job must end within `slowdown` times its exclusive duration (D.3)."""

    slowdown: float
    from_us: int
    to_us: int

    def __post_init__(self) -> None:
        """Raise InvalidProblemError if a number is out of range."""
        if not 1 <= self.slowdown <= MAX_SLOWDOWN:
            raise InvalidProblemError(f"slowdown must lie in 1..{MAX_SLOWDOWN:g}, got {self.slowdown}")
        for name, most in (("from_us", LATEST_US), ("to_us", LAST_US)):
            if not 0 <= getattr(self, name) <= most:
                raise InvalidProblemError(f"{name} must lie in 0..{most}, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Worth(ComparesByValue):
    """Utilities of jobs, and prices of GPU-slots.

    Parameters
    ----------
    theta
        A job that ends d slots after its submission has the utility ``theta1 / (1 + exp(theta2 (d - theta3)))``; shape (jobs, 3).
    slot_us
        Length of a slot in microseconds, positive.
    price
        Price of a GPU in each slot from time 0 on, at least 0; later slots are free; shape (slots,).
    utility
        Claimed total utility of the run.
    bound
        Claimed upper bound of the total utility of all schedules.

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
            raise InvalidProblemError(
                f"theta must have shape (jobs, 3), price must have shape (slots,), and slot_us must lie in 1..{LATEST_US}"
            )
        if not ((abs(self.theta) <= MAX_PRICE).all() and (self.price <= MAX_PRICE).all()):
            raise InvalidProblemError(f"theta and prices must be finite, and at most {MAX_PRICE:g}")
        if not (np.isfinite(self.utility) and np.isfinite(self.bound)):
            raise InvalidProblemError(f"utility and bound must be finite, got {self.utility} and {self.bound}")
        if (self.theta[:, :2] < 0).any() or (self.price < 0).any():
            raise InvalidProblemError("theta1, theta2 and prices must be at least 0")
