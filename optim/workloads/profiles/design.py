"""Which points of a grid of (workers, servers) are worth their time."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from optim.workloads.profiles.fitting import FloatArray, fit_times
from optim.workloads.profiles.speed import synchronous_terms
from optim.workloads.profiles.timing import Timing

Point = tuple[int, int]
TimeSteps = Callable[[Sequence[Point]], list[Timing]]

FIRST_POINTS = 5
"""As many as the speed function has coefficients: enough for a guess of the others' times."""


def time_worthwhile(grid: Sequence[Point], most: int, batch: float, time_steps: TimeSteps) -> dict[Point, Timing]:
    """Time the points of a grid that tell most about the speed function, and no more than `most` of them.

    A few points give a rough fit; by its times the best design is chosen, measured, and returned with the first ones.

    Parameters
    ----------
    grid
        (workers, servers); (1, 1) is always measured, because speed-ups are over it.
    most
        Points to measure, more than `FIRST_POINTS`, to which (1, 1) may come; a grid that has no more is measured whole.
    batch
        Partitions of a step.
    time_steps
        Times points.
    """
    if len(grid) <= most:
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
    for row in choose_points(terms, predicted, most).tolist():
        if len(timings) < most and grid[row] not in timings:
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
