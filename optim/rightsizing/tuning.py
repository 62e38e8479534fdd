"""Requirements, and the smallest multipliers that meet them.

Harm is tuned by split conformal prediction. Of each of n units (containers; those of a pod are one) one cycle after the first is drawn at
random, and of it what the resource needed: the peak of one that is held, a random sample of a rate. Cycles of a container
aren't exchangeable, containers are. The smallest multiplier whose allocation covers at least ceil((n + 1)(1 - a)) of the n
draws covers a draw from a fresh container with a probability of at least 1 - a, over the containers and the draws: on average
at most a share a of a fresh container's cycles after the first is killed, or of its samples after the first cycle throttled.

References
----------
Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005, section 4.2.2; Angelopoulos, Bates, "Conformal
Prediction: A Gentle Introduction", 2023, section 1. doi:10.1561/2200000101
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.rightsizing.engine import Restarts, under_time
from optim.rightsizing.policy import Plan
from optim.rightsizing.world import World

IsMet = Callable[[FloatArray], NDArray[np.bool_]]
"""Tells of an allocation, shape (C, K, R), whether each resource meets what is required, shape (R,)."""

MAX_MULTIPLIER = 1024.0
"""Largest multiplier that is tried."""

TOL = 1e-9
"""Relative width of the interval that bisection stops at: far less than any two samples differ by."""

NUM_HALVINGS = 60
"""Never more; a multiplier of zero has no relative width."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """One multiplier per resource.

    Attributes
    ----------
    multiplier
        Shape (R,).
    is_reached
        Shape (R,): whether the requirement is met; if not, the largest multiplier is used and the risk is what it is.
    """

    multiplier: FloatArray
    is_reached: NDArray[np.bool_]


def tune(plan: Plan, is_met: IsMet, num_resources: int) -> Tuned:
    """Return the smallest multipliers, at least 0, whose allocation is met.

    What is required must be met by all larger allocations as well. With feedback (kills raise later estimates) allocations
    need not grow with the multiplier everywhere; then the multiplier meets what is required still, and one a hair smaller
    doesn't.

    Parameters
    ----------
    plan
        A policy on a world.
    is_met
        What is required.
    num_resources
        R.
    """

    def meets(multiplier: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(is_met(plan.allocate(multiplier)))

    high = np.where(meets(np.zeros(num_resources)), 0.0, 1.0)
    is_reached = meets(high)
    while not is_reached.all() and high.max() < MAX_MULTIPLIER:
        high = np.where(is_reached, high, 2 * high)
        is_reached = meets(high)
    low = np.where(is_reached, np.where(high > 1, high / 2, 0.0), high)
    for _ in range(NUM_HALVINGS):
        if (high - low <= TOL * high).all():
            break
        middle = (low + high) / 2
        is_met_there = meets(middle)
        high = np.where(is_met_there & is_reached, middle, high)
        low = np.where(is_met_there, low, middle)
    return Tuned(multiplier=high, is_reached=is_reached)


class Measure(StrEnum):
    """What is held equal."""

    HARM = "harm"
    """Kills of incompressible resources, throttled samples of rates; restarts are charged."""
    UNDER_TIME = "under-time"
    """The paper's: samples with less than 95 % of demand, of each resource; restarts aren't charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What is allowed.

    Attributes
    ----------
    measure
        What of.
    kills
        Share of a container's cycles after the first with a kill.
    throttled
        Share of a container's samples after the first cycle that are throttled.
    under_time
        Share of all samples with less than 95 % of demand.
    checkpoint_s, startup_s
        What a kill costs, see `Restarts`.
    """

    measure: Measure = Measure.HARM
    kills: float = 0.01
    throttled: float = 0.05
    under_time: float = 0.05
    checkpoint_s: float = 1800.0
    startup_s: float = 120.0

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("(0, 1)", self, "kills", "throttled", "under_time")
        _ = self.restarts

    @property
    def restarts(self) -> Restarts:
        """What a kill costs."""
        return Restarts(checkpoint_s=self.checkpoint_s, startup_s=self.startup_s)

    @property
    def is_charged(self) -> bool:
        """Whether allocations hold what restarts cost."""
        return self.measure is Measure.HARM

    def allowed(self, world: World) -> FloatArray:
        """Return the allowed share of each resource, shape (R,)."""
        if self.measure is Measure.UNDER_TIME:
            return np.full(len(world.resources), self.under_time)
        return np.where(world.is_level, self.kills, self.throttled)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """A draw of each unit, shape (n, R) all: the series and cycle it is from, and what was needed there."""

    series: IntArray
    cycle: IntArray
    need: FloatArray

    def covered(self, allocation: FloatArray) -> IntArray:
        """Return how many draws an allocation, shape (C, K, R), covers, shape (R,)."""
        allocated = allocation[self.series, self.cycle, np.arange(self.need.shape[1])]
        return np.asarray((allocated >= self.need).sum(axis=0))


def draw_needs(world: World, rng: np.random.Generator, *, is_whole: bool = False) -> Draws:
    """Draw a cycle after the first of each unit that has one: of its cycles for an incompressible resource, by samples for a rate.

    `is_whole`: of cycles that are whole only.
    """
    samples = world.samples[:, 1:]
    if is_whole:
        samples = np.where(samples == world.cycle_samples, samples, 0)
    peak = world.by_cycle.max(axis=2)
    picked = []
    for unit in range(world.num_units):
        members = np.flatnonzero(world.group == unit)
        series, cycle = np.nonzero(samples[members])
        if not len(series):
            continue
        counts = samples[members][series, cycle]
        line = []
        for column, is_level in enumerate(world.is_level.tolist()):
            chosen = rng.choice(len(series), p=None if is_level else counts / counts.sum())
            place, number = members[series[chosen]], cycle[chosen] + 1
            sample = rng.integers(counts[chosen])
            need = peak[place, number, column] if is_level else world.by_cycle[place, number, sample, column]
            line.append((place, number, need))
        picked.append(line)
    table = np.array(picked, dtype=np.float64).reshape(-1, len(world.resources), 3)
    places = table[..., :2].astype(np.int64)
    return Draws(series=places[..., 0], cycle=places[..., 1], need=table[..., 2])


def num_drawn(world: World) -> int:
    """Return of how many units `draw_needs` draws a cycle that need not be whole."""
    return len(np.unique(world.group[(world.samples[:, 1:] > 0).any(axis=1)]))


def guaranteed(world: World, slo: Slo) -> FloatArray:
    """Return what tuning on a world's containers guarantees of fresh ones, shape (R,): the share allowed, or 1 / (n + 1) if n are few.

    NaN under the paper's measure, which promises nothing.
    """
    if not slo.is_charged:
        return np.full(len(world.resources), np.nan)
    return np.maximum(slo.allowed(world), 1.0 / (num_drawn(world) + 1))


def min_covered(number: int, share: float) -> int:
    """Return how many of n draws must be covered for a share `share` of uncovered ones; more than n if n are too few."""
    return math.ceil((number + 1) * (1.0 - share) - 1e-9)


def num_needed(share: float) -> int:
    """Return the fewest draws by which a share `share`, above 0, of uncovered ones can be kept: about 1 / a - 1."""
    return max(1, math.ceil((1.0 - 1e-9) / share - 1.0))


def requirement_on(world: World, slo: Slo, seed: int) -> IsMet:
    """Return the test of allocations on a world of containers to tune on.

    With fewer than `num_needed` units no allocation has the guarantee; then all draws must be covered, and what is promised is
    1 / (n + 1) only.
    """
    allowed = slo.allowed(world)
    if slo.measure is Measure.UNDER_TIME:
        return lambda allocation: under_time(world, allocation) <= allowed
    return covering(draw_needs(world, np.random.default_rng(seed)), allowed)


def covering(draws: Draws, allowed: FloatArray) -> IsMet:
    """Return the test whether all but the allowed share, shape (R,), of draws are covered."""
    min_number = num_to_cover(len(draws.need), allowed)
    return lambda allocation: draws.covered(allocation) >= min_number


def num_to_cover(number: int, allowed: FloatArray) -> IntArray:
    """Return how many of n draws are to be covered for each allowed share: all where n are too few."""
    return np.array([min(min_covered(number, share), number) for share in allowed.tolist()])
