"""Timing of pieces of work: medians of interleaved repeats, and the choice of points to measure."""

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
"""Default number of warm-up runs, whose times don't count: they fill caches and page tables."""

MIN_REPEATS = 3
"""Minimum number of timings of a piece of work, however long it takes."""

BUDGET_FOR_FIRST = 0.1
"""Share of the time limit for warm-up runs."""

MAX_NOISE = 0.10
"""Ratio of the median absolute deviation to the median above which times are unreliable."""

MAX_LOAD = 0.5
"""Load of other work, as a share of the processors, above which times are unreliable."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timing:
    """Seconds of repeats of one piece of work.

    Parameters
    ----------
    seconds
        Shape (repeats,): seconds of each repeat.
    """

    seconds: FloatArray

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return float(np.median(self.seconds))

    @property
    def noise(self) -> float:
        """Ratio of the median absolute deviation to the median."""
        return float(np.median(np.abs(self.seconds - self.median)) / self.median) if self.median > 0 else 0.0

    def interval(self, scale: float = 1.0) -> MeasuredValue:
        """Return the median, times `scale`, with its 95 % interval by order statistics."""
        low, high = of_median(self.seconds * scale)
        return MeasuredValue(value=self.median * scale, low=low, high=high)

    def rate(self, amount: float) -> MeasuredValue:
        """Return the rate ``amount / seconds`` with its interval."""
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
    """Time several pieces of work in turn, so that disturbances of the machine affect all of them.

    Parameters
    ----------
    works
        Functions that complete their work before they return.
    repeats
        Number of timings of each piece of work.
    dropped
        Number of warm-up runs of each piece of work.
    clock
        Clock in seconds.
    budget_s
        Time limit in seconds for all repeats. After it, no repeat begins if each piece of work has been timed
        `MIN_REPEATS` times. A long piece of work has one warm-up run instead of `dropped`.
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
    """Return the mean number of runnable processes over the last minute, 0 if the system doesn't report it."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return 0.0


def check_quiet(noise: float, load: float, cores: int) -> None:
    """Raise NotAllowedError unless times on this machine are reliable.

    Raises
    ------
    NotAllowedError
        If other work takes much of the processors' time, or times of equal work differ too much.
    """
    if load > MAX_LOAD * cores:
        raise NotAllowedError(
            f"the machine is too noisy: load {load:.2f} on {cores} processors, above the limit of {MAX_LOAD * cores:.2f} for a "
            "profile; wait until it is idle, or accept the noise with --accept-noise"
        )
    if noise > MAX_NOISE:
        raise NotAllowedError(
            f"the machine is too noisy: times of equal work differ by {noise:.0%}, above the limit of {MAX_NOISE:.0%} for "
            "a profile; wait until it is idle, or accept the noise with --accept-noise"
        )


Point = tuple[int, int]

TimeSteps = Callable[[Sequence[Point]], list[Timing]]

FIRST_POINTS = 5
"""Number of points that are timed first: as many as the speed function has coefficients, enough for a rough fit."""


def time_worthwhile(grid: Sequence[Point], max_points: int, batch: float, time_steps: TimeSteps) -> dict[Point, Timing]:
    """Time the most informative points of a grid for the speed function, at most `max_points` of them.

    A few first points give a rough fit. Its predicted times determine the most informative points, which are timed too.

    Parameters
    ----------
    grid
        Pairs of numbers of workers and servers; (1, 1) is always measured, as speed-ups are relative to it.
    max_points
        Maximum number of points to measure, more than `FIRST_POINTS`. A smaller grid is measured in full.
    batch
        Number of partitions per step.
    time_steps
        Function that times points.
    """
    if len(grid) <= max_points:
        return dict(zip(grid, time_steps(grid), strict=True))
    workers, servers = np.array(grid, dtype=np.float64).T
    terms = synchronous_terms(workers, servers, batch)
    # Before any timing, assume that a step takes only the time of the gradients, divided among the workers.
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
    """Choose the most informative points of a grid for the coefficients (D-optimal design, by exchange).

    Parameters
    ----------
    terms
        Shape (grid, terms): terms of the speed function at each grid point.
    seconds
        Shape (grid,): estimated time at each grid point; errors are relative to it.
    number
        Number of points.

    Returns
    -------
    ndarray
        Indices of the chosen grid points in ascending order, shape (number,).

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
