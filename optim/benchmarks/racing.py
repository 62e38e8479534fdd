"""Time several ways of doing the same work in turn, so that what disturbs the machine disturbs all of them."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion

LEAST_ROUNDS, SIDE_S = 3, 4.0
"""A side that is slow leaves the race after so many rounds, once it has taken so many seconds."""

Call = Callable[[], Any]
Times = dict[str, list[tuple[float, float]]]
"""Wall and processor seconds of every call, by side."""


def timed(call: Call) -> tuple[float, float]:
    """Return wall and processor seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def race(
    calls: Mapping[str, Call],
    rounds: int,
    stop: StoppingCriterion,
    progress: Progress,
    *,
    always: Collection[str] = (),
    side_s: float = SIDE_S,
) -> Times:
    """Run all sides round after round.

    Parameters
    ----------
    calls
        The sides; each has run once, so that nothing is compiled in the race.
    rounds
        How many rounds.
    stop
        Asked after each round.
    progress
        Hears of each, and of the first side's milliseconds.
    always
        Sides that never leave.
    side_s
        Seconds after which another side does; the race is over when none is left.
    """
    times: Times = {name: [] for name in calls}
    shown = next(iter(always or calls))
    begun = time.perf_counter()
    progress.start("rounds", rounds)
    racing = dict(calls)
    for number in range(rounds):
        for name, call in list(racing.items()):
            times[name].append(timed(call))
            spent = sum(wall for wall, _ in times[name])
            if name not in always and len(times[name]) >= LEAST_ROUNDS and spent > side_s:
                del racing[name]
        progress.update(number + 1, {"ms": 1e3 * times[shown][-1][0]})
        if not racing:
            break
        if stop(SolveState(elapsed_s=time.perf_counter() - begun, iterations=number)) is not None:
            break
    progress.finish()
    return times


def medians(times: Times, which: int = 0) -> dict[str, float]:
    """Return each side's median seconds: of the wall clock (0) or of the processor (1)."""
    return {name: float(np.median([each[which] for each in taken])) for name, taken in times.items()}
