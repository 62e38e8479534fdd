"""Availability of one zone as a chain of two states: what it takes to draw traces, and to say what nobody can beat on them."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.ranges import check_in
from optim.models.bidding.instance import BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailabilityChain:
    """Machines that are there stay for another tick with one probability, and come with another.

    Parameters
    ----------
    stays
        Probability that a tick with machines is followed by one with machines.
    comes
        Probability that a tick without is.
    """

    stays: float
    comes: float

    def __post_init__(self) -> None:
        check_in("[0, 1]", self, "stays", "comes")

    @property
    def share(self) -> float:
        """Share of the ticks with machines in the long run; where nothing ever changes, half."""
        changes = 1.0 - self.stays + self.comes
        return self.comes / changes if changes > 0 else 0.5

    def draw(self, ticks: int, rng: np.random.Generator) -> BoolArray:
        """Return which of so many ticks have machines, the first as in the long run; shape (ticks,)."""
        dice = rng.random(ticks)
        flags = np.empty(ticks, dtype=bool)
        is_there = False
        for tick in range(ticks):
            chance = self.share if tick == 0 else self.stays if is_there else self.comes
            is_there = bool(dice[tick] < chance)
            flags[tick] = is_there
        return flags


def fit_chain(is_available: BoolArray) -> AvailabilityChain:
    """Return the likeliest chain of a recorded trace.

    Raises
    ------
    InvalidProblemError
        If the trace has no change in it: then nothing tells how long either lasts.
    """
    now, then = is_available[:-1], is_available[1:]
    if not (now & ~then).any() or not (~now & then).any():
        raise InvalidProblemError("the trace has no machines that come and go; give a longer one")
    return AvailabilityChain(stays=float(then[now].mean()), comes=float(then[~now].mean()))
