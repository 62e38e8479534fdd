"""Time pieces of work: medians of interleaved repeats, and which points are worth their time."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray
from optim.core.errors import NotAllowedError
from optim.profiling.document import MeasuredValue
from optim.profiling.fitting import fit_times, synchronous_terms
from optim.statistics import of_median

Clock = Callable[[], float]

Work = Callable[[], object]

DROPPED = 3
"""First repeats, which warm caches and page tables up."""

MIN_REPEATS = 3
"""How often even the longest work is timed."""

BUDGET_FOR_FIRST = 0.1
"""Share of a budget that may go into repeats that only warm up."""

MAX_NOISE = 0.10
"""Median deviation over median beyond which times say little."""

MAX_LOAD = 0.5
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

    def interval(self, scale: float = 1.0) -> MeasuredValue:
        """Return the median, times `scale`, with its 95 % interval by order statistics."""
        low, high = of_median(self.seconds * scale)
        return MeasuredValue(value=self.median * scale, low=low, high=high)

    def rate(self, amount: float) -> MeasuredValue:
        """Return ``amount / seconds`` with its interval."""
        slow = self.interval()
        return MeasuredValue(value=amount / slow.value, low=amount / slow.high, high=amount / slow.low)


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
        Seconds of all repeats, after which none of them begins once each work has been timed `MIN_REPEATS` times; long
        work runs once before instead of `dropped` times.
    """
    seconds: list[list[float]] = [[] for _ in works]
    spent = 0.0
    for repeat in range(-dropped, repeats):
        if repeat < 0 and repeat > -dropped and spent > BUDGET_FOR_FIRST * budget_s:
            continue
        if repeat >= MIN_REPEATS and spent > budget_s:
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
    if load > MAX_LOAD * cores:
        raise NotAllowedError(
            f"the machine is too noisy: load {load:.2f} on {cores} processors, at most {MAX_LOAD * cores:.2f} gives a "
            "profile; wait until it is idle, or accept the noise with --accept-noise"
        )
    if noise > MAX_NOISE:
        raise NotAllowedError(
            f"the machine is too noisy: equal work takes times that differ by {noise:.0%}, at most {MAX_NOISE:.0%} gives "
            "a profile; wait until it is idle, or accept the noise with --accept-noise"
        )


Point = tuple[int, int]

TimeSteps = Callable[[Sequence[Point]], list[Timing]]

FIRST_POINTS = 5
"""As many as the speed function has coefficients: enough for a guess of the others' times."""


def time_worthwhile(grid: Sequence[Point], max_points: int, batch: float, time_steps: TimeSteps) -> dict[Point, Timing]:
    """Time the points of a grid that tell most about the speed function, and no more than `max_points` of them.

    A few points give a rough fit; by its times the best design is chosen, measured, and returned with the first ones.

    Parameters
    ----------
    grid
        (workers, servers); (1, 1) is always measured, because speed-ups are over it.
    max_points
        Points to measure, more than `FIRST_POINTS`, to which (1, 1) may come; a grid that has no more is measured whole.
    batch
        Partitions of a step.
    time_steps
        Times points.
    """
    if len(grid) <= max_points:
        return dict(zip(grid, time_steps(grid), strict=True))
    workers, servers = np.array(grid, dtype=np.float64).T
    terms = synchronous_terms(workers, servers, batch)
    # Without times all points weigh alike but for the gradients, which most workers share.
    first = {grid[row] for row in choose_points(terms, batch / workers, FIRST_POINTS).tolist()} | {(1, 1)}
    known = sorted(first)
    timings = dict(zip(known, time_steps(known), strict=True))
    rows = [grid.index(point) for point in known]
    rough = fit_times(terms[rows], np.array([timings[point].median for point in known]))
    predicted = np.maximum(rough.predict(terms), 1e-12)
    for row in choose_points(terms, predicted, max_points).tolist():
        if len(timings) < max_points and grid[row] not in timings:
            timings |= dict(zip([grid[row]], time_steps([grid[row]]), strict=True))
    return dict(sorted(timings.items()))


def choose_points(terms: FloatArray, seconds: FloatArray, number: int) -> NDArray[np.int64]:
    """Choose the points of a grid that tell most about the coefficients (D-optimal, by exchange).

    Parameters
    ----------
    terms
        Shape (grid, terms).
    seconds
        Shape (grid,): rough times, by which errors are relative.
    number
        How many points.

    Returns
    -------
    ndarray
        Shape (number,): rows of the grid, ascending.

    References
    ----------
    Fedorov, "Theory of Optimal Experiments", 1972 (the exchange).
    """
    relative = terms / seconds[:, None]
    relative = relative / np.maximum(np.linalg.norm(relative, axis=0), 1e-300)
    ridge = 1e-9 * np.eye(terms.shape[1])
    chosen: list[int] = []

    def volume(rows: list[int]) -> float:
        picked = relative[rows]
        return float(np.linalg.slogdet(picked.T @ picked + ridge)[1])

    while len(chosen) < min(number, len(terms)):
        rest = [row for row in range(len(terms)) if row not in chosen]
        chosen.append(max(rest, key=lambda row: (volume([*chosen, row]), -row)))
    is_better = True
    while is_better:
        is_better = False
        for place in range(len(chosen)):
            rest = [row for row in range(len(terms)) if row not in chosen]
            if not rest:
                break
            best = max(rest, key=lambda row: (volume([*chosen[:place], row, *chosen[place + 1 :]]), -row))
            if volume([*chosen[:place], best, *chosen[place + 1 :]]) > volume(chosen) + 1e-9:
                chosen[place], is_better = best, True
    return np.sort(np.array(chosen, dtype=np.int64))
