"""Lower bound on online rules in one zone with two-state availability: (B.16) of docs/mathematics/bidding.md.

The dynamic programme over ticks, time without work, and allocation gives a lower bound on the mean cost of any online rule. The
bound also holds for rules that know the chain's probabilities and observe availability for free. A randomised rule is a mixture of
such rules, so its mean cost is no lower. Let the cost ratio be mean cost over minimum cost with full
information. By Yao's principle, some trace has a cost ratio of at least the ratio of the two means.

References
----------
Yao, "Probabilistic Computations: Toward a Unified Measure of Complexity", FOCS 1977, DOI 10.1109/SFCS.1977.24.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import BoolArray, FloatArray
from optim.core.errors import InvalidProblemError, UnsupportedProblemError, check_in
from optim.models.bidding.market.zones import UNITS_USD, ZoneJob


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailabilityChain:
    """Two-state chain: available machines stay for another tick with one probability, and return with another.

    Parameters
    ----------
    stays
        Probability that a tick with machines is followed by one with machines.
    comes
        Probability that a tick without machines is followed by one with machines.
    """

    stays: float
    comes: float

    def __post_init__(self) -> None:
        check_in("[0, 1]", self, "stays", "comes")

    @property
    def share(self) -> float:
        """Long-run share of ticks with machines; one half for a chain without changes."""
        changes = 1.0 - self.stays + self.comes
        return self.comes / changes if changes > 0 else 0.5

    def draw(self, ticks: int, rng: np.random.Generator) -> BoolArray:
        """Return which ticks have machines, the first one from the stationary distribution; shape (ticks,)."""
        dice = rng.random(ticks)
        flags = np.empty(ticks, dtype=bool)
        is_there = False
        for tick in range(ticks):
            chance = self.share if tick == 0 else self.stays if is_there else self.comes
            is_there = bool(dice[tick] < chance)
            flags[tick] = is_there
        return flags


def fit_chain(is_available: BoolArray) -> AvailabilityChain:
    """Return the maximum-likelihood chain of a recorded trace.

    Raises
    ------
    InvalidProblemError
        If the trace has no change, so that the durations can't be estimated.
    """
    now, then = is_available[:-1], is_available[1:]
    if not (now & ~then).any() or not (~now & then).any():
        raise InvalidProblemError(
            "machines never become available, or never become unavailable, in the trace; give a longer trace"
        )
    return AvailabilityChain(stays=float(then[now].mean()), comes=float(then[~now].mean()))


IDLE = 0
"""State without machines. State 1 + r has a spot machine with r ticks of set-up left; states of on-demand machines follow."""


def min_mean_usd(
    chain: AvailabilityChain, job: ZoneJob, *, spot_micro: int, on_demand_micro: int, tick_s: int
) -> float:
    """Return the minimum mean dollars of online rules that never miss the deadline, billed by the second.

    Parameters
    ----------
    chain
        Availability, known to the rule and observed by it.
    job
        A job in one zone.
    spot_micro, on_demand_micro
        Prices, micro-dollars per hour.
    tick_s
        Seconds per tick.

    Raises
    ------
    UnsupportedProblemError
        If the job may run in several zones.

    Notes
    -----
    Set-ups with and without a saved state both take the time of the shorter one. This can only lower the bound.
    """
    if job.setup_s.shape[1] != 1:
        raise UnsupportedProblemError(
            f"the chain describes one zone, but the job has {job.setup_s.shape[1]}; name one zone"
        )
    setup_s = int(job.setup_s.min())
    unit = gcd(tick_s, setup_s)
    times = (tick_s // unit, unit, setup_s // unit, job.work_s, job.slack_s // unit)
    value = min_means(
        chain.stays, chain.comes, float(spot_micro * job.machines), float(on_demand_micro * job.machines), times
    )
    return float((1.0 - chain.share) * value[0, 0, IDLE, 0] + chain.share * value[0, 0, IDLE, 1]) / UNITS_USD


@compiled
def min_means(
    stays: float, comes: float, spot: float, on_demand: float, times: tuple[int, int, int, int, int]
) -> FloatArray:
    """Return the minimum mean remaining cost, shape (ticks + 1, units without work + 1, states, 2).

    The last axis is the availability. If the deadline is missed, the cost is infinite. Prices are per second; `times` are
    units per tick, seconds per unit, units per set-up, seconds of work, and maximum units without work.
    """
    per_tick, unit, setup, work, steps = times
    tick_s = per_tick * unit
    num_ticks = -(-setup // per_tick) + 1
    ticks = -(-(work + steps * unit) // tick_s)
    value = np.full((ticks + 1, steps + 1, 1 + 2 * num_ticks, 2), np.inf)
    later = np.empty(2)
    for t in range(ticks, -1, -1):
        for lost in range(min(t * per_tick, steps) + 1):
            remaining_s = work - t * tick_s + lost * unit
            if remaining_s <= 0:
                value[t, lost] = 0.0
                continue
            for there in range(2):
                for situation in range(1 + 2 * num_ticks):
                    is_spot = 1 <= situation <= num_ticks
                    if is_spot and there == 0:
                        value[t, lost, situation, there] = value[t, lost, IDLE, there]  # the machine is lost
                        continue
                    best = np.inf
                    for kind in range(3):  # no machine, a spot machine, an on-demand machine
                        if kind == 1 and there == 0:
                            continue
                        price = 0.0 if kind == 0 else spot if kind == 1 else on_demand
                        keeps = kind > 0 and situation > 0 and (kind == 1) == is_spot
                        rest = (situation - 1) % num_ticks if keeps else num_ticks - 1
                        # A set-up with `rest` more ticks uses all of them in full, except for the last.
                        idle = per_tick
                        if kind > 0 and rest < 2:
                            idle = setup - (num_ticks - 2) * per_tick if rest == 1 else 0
                        if lost + idle > steps:
                            continue
                        if kind > 0 and idle * unit + remaining_s <= tick_s:
                            best = min(best, price * (idle * unit + remaining_s))
                            continue
                        then = IDLE if kind == 0 else 1 + (kind - 1) * num_ticks + max(0, rest - 1)
                        for next_there in range(2):
                            is_lost = kind == 1 and next_there == 0
                            later[next_there] = value[t + 1, lost + idle, IDLE if is_lost else then, next_there]
                        chance = stays if there else comes
                        mean = later[1] if chance == 1.0 else later[0] if chance == 0.0 else 0.0
                        if 0.0 < chance < 1.0:
                            mean = chance * later[1] + (1.0 - chance) * later[0]
                        best = min(best, price * tick_s + mean)
                    value[t, lost, situation, there] = best
    return value
