"""Requirements, and the smallest multipliers that meet them.

Multipliers are tuned by split conformal prediction. From each of n units (containers, or pods of several containers)
one cycle after the first is sampled, with its need: the peak of an incompressible resource, a random sample of a rate.
Cycles of a container aren't exchangeable, but containers are. The smallest multiplier whose allocation covers at least
ceil((n + 1)(1 - a)) of the n draws covers a draw from a new container with probability at least 1 - a, over containers
and draws. So, on average over new containers, at most a fraction a of the cycles after the first have a kill, or of the
samples are throttled.

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
"""Function from an allocation, shape (C, K, R), to whether it meets the requirement of each resource, shape (R,)."""

MAX_MULTIPLIER = 1024.0
"""Maximum multiplier."""

TOL = 1e-9
"""Relative width of the interval at which bisection stops, far below the differences of samples."""

NUM_HALVINGS = 60
"""Maximum number of bisections, since an interval at zero has no relative width."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """One multiplier per resource.

    Attributes
    ----------
    multiplier
        Shape (R,): multiplier of each resource.
    is_reached
        Shape (R,): whether the requirement is met; if not, the multiplier is the maximum.
    """

    multiplier: FloatArray
    is_reached: NDArray[np.bool_]


def tune(plan: Plan, is_met: IsMet, num_resources: int) -> Tuned:
    """Return the smallest nonnegative multipliers whose allocation meets the requirement.

    The requirement must be monotone: if an allocation meets it, all larger allocations do. If kills raise later
    estimates (feedback), an allocation may decrease with the multiplier. Then the result meets the requirement, and
    slightly smaller values don't, but even smaller values may.

    Parameters
    ----------
    plan
        A policy on a world.
    is_met
        Test of the requirement.
    num_resources
        Number of resources R.
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
    """Risk measure, the same for all policies of a comparison."""

    HARM = "harm"
    """Kills for incompressible resources and throttled samples for rates; restarts are charged."""
    UNDER_TIME = "under-time"
    """The paper's measure: samples with less than 95 % of demand, for each resource; restarts aren't charged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Service level objective: the allowed risk.

    Attributes
    ----------
    measure
        Risk measure.
    kills
        Allowed fraction of a container's cycles that have a kill, not counting the first cycle.
    throttled
        Allowed fraction of a container's samples that are throttled, not counting the first cycle.
    under_time
        Allowed fraction of samples with less than 95 % of demand.
    checkpoint_s, startup_s
        Cost of a kill, see `Restarts`.
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
        """Cost of a kill."""
        return Restarts(checkpoint_s=self.checkpoint_s, startup_s=self.startup_s)

    @property
    def is_charged(self) -> bool:
        """Whether allocations include the cost of restarts."""
        return self.measure is Measure.HARM

    def allowed(self, world: World) -> FloatArray:
        """Return the allowed fraction of violations for each resource, shape (R,)."""
        if self.measure is Measure.UNDER_TIME:
            return np.full(len(world.resources), self.under_time)
        return np.where(world.is_level, self.kills, self.throttled)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draws:
    """One draw per unit and resource: the series, the cycle and the need; each array has shape (n, R) for n units."""

    series: IntArray
    cycle: IntArray
    need: FloatArray

    def covered(self, allocation: FloatArray) -> IntArray:
        """Return the number of draws that an allocation, shape (C, K, R), covers, shape (R,)."""
        allocated = allocation[self.series, self.cycle, np.arange(self.need.shape[1])]
        return np.asarray((allocated >= self.need).sum(axis=0))


def draw_needs(world: World, rng: np.random.Generator, *, is_whole: bool = False) -> Draws:
    """Sample a cycle after the first from each unit that has one.

    For an incompressible resource all of the unit's cycles after the first are equally likely; for a rate their
    probabilities are proportional to their numbers of samples. With `is_whole`, only complete cycles are sampled.
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
    """Return the number of units from which `draw_needs` samples a cycle without `is_whole`."""
    return len(np.unique(world.group[(world.samples[:, 1:] > 0).any(axis=1)]))


def guaranteed(world: World, slo: Slo) -> FloatArray:
    """Return the risk that tuning on n units guarantees for new containers: the allowed fraction, or 1 / (n + 1) if larger.

    The shape is (R,). The risk is NaN under the paper's measure, which has no guarantee.
    """
    if not slo.is_charged:
        return np.full(len(world.resources), np.nan)
    return np.maximum(slo.allowed(world), 1.0 / (num_drawn(world) + 1))


def min_covered(number: int, share: float) -> int:
    """Return how many of n draws to cover for coverage 1 - `share` of a new draw; more than n if n is too small."""
    return math.ceil((number + 1) * (1.0 - share) - 1e-9)


def num_needed(share: float) -> int:
    """Return the minimum number of draws with which a coverage of 1 - `share` can be guaranteed, about 1 / share - 1."""
    return max(1, math.ceil((1.0 - 1e-9) / share - 1.0))


def requirement_on(world: World, slo: Slo, seed: int) -> IsMet:
    """Return the test of allocations on a world of calibration containers.

    With fewer than `num_needed` units the allowed risk can't be guaranteed. Then all n draws must be covered, and the
    guaranteed risk is 1 / (n + 1).
    """
    allowed = slo.allowed(world)
    if slo.measure is Measure.UNDER_TIME:
        return lambda allocation: under_time(world, allocation) <= allowed
    return covering(draw_needs(world, np.random.default_rng(seed)), allowed)


def covering(draws: Draws, allowed: FloatArray) -> IsMet:
    """Return a test whether an allocation covers enough of the draws for the allowed fractions, shape (R,)."""
    min_number = num_to_cover(len(draws.need), allowed)
    return lambda allocation: draws.covered(allocation) >= min_number


def num_to_cover(number: int, allowed: FloatArray) -> IntArray:
    """Return how many of `number` draws must be covered for each allowed fraction; all of them if `number` is too small."""
    return np.array([min(min_covered(number, share), number) for share in allowed.tolist()])
