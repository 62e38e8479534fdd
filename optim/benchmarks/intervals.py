"""Means of independent values, and shares of trials, with 95 % intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

T_95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)
"""Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and half the width of its 95 % interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Return the mean of independent values, at least two."""
        array = np.asarray(values, dtype=float)
        spread = float(array.std(ddof=1)) / math.sqrt(len(array))
        return cls(mean=float(array.mean()), half=spread * T_95[min(len(array) - 2, len(T_95) - 1)])


def with_halves(intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Return means by name, each followed by half the width of its interval, `NAME_half`.

    Examples
    --------
    >>> with_halves({"gain": Interval(mean=2.0, half=0.5)})
    {'gain': 2.0, 'gain_half': 0.5}
    """
    found: dict[str, float] = {}
    for name, interval in intervals.items():
        found |= {name: interval.mean, f"{name}_half": interval.half}
    return found


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, JASA 1927).

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0, 20)]
    [0.0, 0.161]
    """
    share, weight = hits / count, z * z / count
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / count + weight / count / 4) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
