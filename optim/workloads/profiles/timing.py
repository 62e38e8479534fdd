"""Time pieces of work: medians of interleaved repeats, and the refusal of a machine that is too noisy."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from optim.core.errors import NotAllowedError
from optim.core.intervals import of_median
from optim.workloads.profiles.document import Interval
from optim.workloads.profiles.fitting import FloatArray

Clock = Callable[[], float]
Work = Callable[[], object]

DROPPED = 3
"""First repeats, which warm caches and page tables up."""

LEAST_REPEATS = 3
"""How often even the longest work is timed."""

BUDGET_FOR_FIRST = 0.1
"""Share of a budget that may go into repeats that only warm up."""

MOST_NOISE = 0.10
"""Median deviation over median beyond which times say little."""

MOST_LOAD = 0.5
"""Load of other work, as a share of the processors, beyond which times say little."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """Seconds of repeats of one piece of work.

    Parameters
    ----------
    seconds
        Shape (repeats,).
    """

    seconds: FloatArray

    @property
    def median(self) -> float:
        """The middle one."""
        return float(np.median(self.seconds))

    @property
    def noise(self) -> float:
        """Median absolute deviation over the median."""
        return float(np.median(np.abs(self.seconds - self.median)) / self.median) if self.median > 0 else 0.0

    def interval(self, scale: float = 1.0) -> Interval:
        """Return the median, times `scale`, with its 95 % interval by order statistics."""
        low, high = of_median(self.seconds * scale)
        return Interval(value=self.median * scale, low=low, high=high)

    def rate(self, amount: float) -> Interval:
        """Return ``amount / seconds`` with its interval."""
        slow = self.interval()
        return Interval(value=amount / slow.value, low=amount / slow.high, high=amount / slow.low)


def time_interleaved(
    works: Sequence[Work],
    *,
    repeats: int,
    dropped: int = DROPPED,
    clock: Clock = time.perf_counter,
    budget_s: float = np.inf,
) -> list[Timing]:
    """Time several pieces of work in turn, so that what disturbs the machine disturbs all of them.

    Parameters
    ----------
    works
        Each does its work whole before it returns.
    repeats
        How often each is timed.
    dropped
        How often each runs before.
    clock
        Seconds.
    budget_s
        Seconds of all repeats, after which none of them begins once each work has been timed `LEAST_REPEATS` times; long
        work runs once before instead of `dropped` times.
    """
    seconds: list[list[float]] = [[] for _ in works]
    spent = 0.0
    for repeat in range(-dropped, repeats):
        if repeat < 0 and repeat > -dropped and spent > BUDGET_FOR_FIRST * budget_s:
            continue
        if repeat >= LEAST_REPEATS and spent > budget_s:
            break
        for which, work in enumerate(works):
            begun = clock()
            work()
            if repeat < 0 and budget_s == np.inf:
                continue
            took = clock() - begun
            spent += took
            if repeat >= 0:
                seconds[which].append(took)
    return [Timing(seconds=np.array(taken)) for taken in seconds]


def present_load() -> float:
    """Return the mean number of runnable processes over the last minute, 0 where the system doesn't tell."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def check_quiet(noise: float, load: float, cores: int) -> None:
    """Refuse a machine on which times say little.

    Raises
    ------
    NotAllowedError
        If other work takes much of the processors, or equal work takes unequal times.
    """
    if load > MOST_LOAD * cores:
        raise NotAllowedError(
            f"the machine is too noisy: load {load:.2f} on {cores} processors, at most {MOST_LOAD * cores:.2f} gives a "
            "profile; wait until it is idle, or accept the noise with --accept-noise"
        )
    if noise > MOST_NOISE:
        raise NotAllowedError(
            f"the machine is too noisy: equal work takes times that differ by {noise:.0%}, at most {MOST_NOISE:.0%} gives "
            "a profile; wait until it is idle, or accept the noise with --accept-noise"
        )
