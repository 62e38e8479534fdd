"""Counters of a solution: those that tell of its decision or proof are recounted, the others held to what they can be.

A counter whose name a checker doesn't know is its solver's own, and has to be a number.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optim.core.recomputed import is_finite
from optim.core.verification import Violation, violation

COUNTER_TOL = 1e-9
"""By how much a figure may lie outside its range through rounding, as a share of the end that it passes, at least of 1."""

MOST = 2.0**53
"""No count is larger: up to here a double tells every whole number from the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRange:
    """What a counter can be.

    Parameters
    ----------
    low, high
        Ends, both in it.
    is_whole
        Whether it counts something.
    """

    low: float = 0.0
    high: float = math.inf
    is_whole: bool = False

    @classmethod
    def whole(cls, high: float = MOST) -> "CountRange":
        """Return the range of a count."""
        return cls(high=min(high, MOST), is_whole=True)

    @classmethod
    def each_whole(cls, names: Iterable[str], high: float = MOST) -> dict[str, "CountRange"]:
        """Return the range of several counts, by name."""
        return dict.fromkeys(names, cls.whole(high))

    def __str__(self) -> str:
        number = "a whole number" if self.is_whole else "a number"
        if self.high == math.inf:
            return f"{number} of at least {self.low:g}"
        return f"{number} from {self.low:g} to {self.high:g}"

    def holds(self, stated: float) -> bool:
        """Tell whether a number is in it, to rounding if it counts nothing."""
        if self.is_whole:
            return stated == math.floor(stated) and self.low <= stated <= self.high
        below, above = (COUNTER_TOL * max(1.0, abs(end)) for end in (self.low, self.high))
        return self.low - below <= stated <= self.high + above


def check_ranges(stated: Mapping[str, Any], ranges: Mapping[str, CountRange]) -> list[Violation]:
    """Return which counters are no numbers, or can't be what they are said to be."""
    found = []
    for name, number in stated.items():
        if not is_finite(number):
            found.append(violation("counts", f"{name} must be a number, got {number!r}", where=name))
        elif name in ranges and not ranges[name].holds(number):
            found.append(violation("counts", f"{name} must be {ranges[name]}, got {number!r}", where=name))
    return found
