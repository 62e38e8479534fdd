"""What checkpoints cost, and when to write them: Young's and Daly's intervals beside the best by dynamic programming.

The best interval follows from the hazard by age, on a grid of minutes: (B.15) of docs/mathematics/bidding.md.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.compile_cache import compiled
from optim.models.bidding.instance import FloatArray, IntArray
from optim.simulation.spot.options import CheckpointCost
from optim.simulation.spot.simple_policies import checkpoint_interval

MINUTE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When to write checkpoints, and what a job then takes.

    Parameters
    ----------
    minutes
        Work before each checkpoint, in order, while nothing is lost.
    expected_h
        Expected hours until the work is done.
    checkpoints
        Number of checkpoints while nothing is lost.
    """

    minutes: tuple[int, ...]
    expected_h: float

    @property
    def checkpoints(self) -> int:
        """Number of checkpoints while nothing is lost: the end of the work is none."""
        return len(self.minutes) - 1


def schedule(
    cumulative: FloatArray, work_min: int, write_min: int, restart_min: int, every_min: int | None = None
) -> Schedule:
    """Return checkpoints and what a job takes with them.

    Parameters
    ----------
    cumulative
        Shape (minutes,): expected losses of a machine up to each minute of its age; beyond the end its last slope goes on.
    work_min, write_min, restart_min
        Minutes of work, to write a checkpoint, and to start again on a new machine.
    every_min
        A checkpoint after so many minutes of work; by default those that take least, by a dynamic programme over age and
        work left, among which no stretch of work is shorter than the writing after it.

    Notes
    -----
    Time and memory grow with the square of `work_min`, the programme's time with its cube.
    """
    most = -(-work_min // (every_min or max(1, write_min)))  # stretches of work: none but the last is shorter
    lasting = _extended(cumulative, work_min + (most - 1) * write_min + 1)
    expected, choice = _expected(lasting, work_min, write_min, restart_min, every_min or 0)
    stretches, left, age = [], work_min, 0
    while left:
        stretches.append(int(choice[left, age]))
        left -= stretches[-1]
        age += stretches[-1] + write_min
    return Schedule(minutes=tuple(stretches), expected_h=float(expected[work_min, 0]) / 60)


def compare_intervals(
    cumulative: FloatArray, work_min: int, cost: CheckpointCost, restart_min: int, mean_s: float
) -> dict[str, Schedule]:
    """Return the schedules by Young, by Daly and by dynamic programming, with what each takes under the same hazard.

    Parameters
    ----------
    cumulative, work_min, restart_min
        As in `schedule`; a restart reads the state besides.
    cost
        Of a checkpoint.
    mean_s
        Mean time to a loss, which is all that Young and Daly know.
    """
    write = max(1, round(cost.write_s / MINUTE_S))
    restart = restart_min + round(cost.read_s / MINUTE_S)
    found = {}
    for name, is_daly in (("young", False), ("daly", True)):
        every_s = min(checkpoint_interval(mean_s, cost.write_s, is_daly=is_daly), work_min * MINUTE_S)
        found[name] = schedule(cumulative, work_min, write, restart, max(1, round(every_s / MINUTE_S)))
    return {**found, "optimal": schedule(cumulative, work_min, write, restart)}


def _extended(cumulative: FloatArray, minutes: int) -> FloatArray:
    """Return expected losses up to so many minutes, the last slope going on."""
    if len(cumulative) >= minutes:
        return cumulative[:minutes]
    slope = float(cumulative[-1] - cumulative[-2])
    return np.concatenate([cumulative, cumulative[-1] + slope * np.arange(1, minutes - len(cumulative) + 1)])


@compiled
def _expected(lasting: FloatArray, work: int, write: int, restart: int, every: int) -> tuple[FloatArray, IntArray]:
    """Return expected minutes by work left and age, and the next stretch of work: the best one where `every` is 0.

    A loss leads to age 0 with the same work left, whose value solves a linear equation of its own.
    """
    ages = len(lasting)
    value, choice = np.zeros((work + 1, ages)), np.zeros((work + 1, ages), np.int64)
    alive = np.exp(-lasting)
    area = np.zeros(ages)
    for a in range(ages - 1):
        area[a + 1] = area[a] + (alive[a] + alive[a + 1]) / 2
    for left in range(1, work + 1):
        least = min(max(1, write), left)
        most = left
        if every > 0:
            least = most = min(every, left)
        for a in range(ages):
            best, taken = np.inf, left
            for s in range(least, most + 1):
                end = min(a + s + (write if s < left else 0), ages - 1)
                stays = alive[end] / alive[a]
                spent = (area[end] - area[a]) / alive[a] + stays * value[left - s, end]
                if a == 0:
                    found = (spent + (1 - stays) * restart) / max(stays, 1e-300)
                else:
                    found = spent + (1 - stays) * (restart + value[left, 0])
                if found < best:
                    best, taken = found, s
            value[left, a], choice[left, a] = best, taken
    return value, choice
