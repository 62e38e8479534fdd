"""What a policy sees and answers, and policies that look back a cycle, a while, or not at all.

References
----------
Berral, Wang, Youssef, "AI4DL: Mining Behaviors of Deep Learning Workloads for Resource
Management", HotCloud 2020, section 4: prev.step.max, prev.step.rules.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import UnsupportedProblemError
from optim.rightsizing.world import World


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CycleView:
    """What is known as a cycle begins: the past of the A containers that still run, and nothing after it.

    Attributes
    ----------
    cycle
        Number of the cycle that begins, at least 1 for all but oracles.
    past
        Shape (A, cycle n, R): demand so far; all samples are there, as who runs now ran all the time.
    phase
        Shape (A, cycle n): phases so far; None where no phases are known.
    allocation
        Shape (A, R): allocation in the cycle that ends.
    limit
        Shape (A, R).
    cycle_samples
        n.
    """

    cycle: int
    past: FloatArray
    phase: IntArray | None
    allocation: FloatArray
    limit: FloatArray
    cycle_samples: int

    @property
    def previous(self) -> FloatArray:
        """Demand in the cycle that ends, shape (A, n, R)."""
        return self.past[:, -self.cycle_samples :]

    @property
    def phases(self) -> IntArray:
        """Phases so far, shape (A, cycle n)."""
        return require_phases(self.phase)

    @property
    def phase_now(self) -> IntArray:
        """Phase of the last sample, shape (A,)."""
        return self.phases[:, -1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """An allocation that grows with the policy's multiplier m: max(base + m spread, floor).

    Attributes
    ----------
    base, spread, floor
        Shape (A, R); `spread` is not negative. NaN in `base` or `spread`: nothing is known, as in the first cycle.
    """

    base: FloatArray
    spread: FloatArray
    floor: FloatArray | float = 0.0

    def allocation(self, multiplier: FloatArray, unknown: FloatArray, limit: FloatArray) -> FloatArray:
        """Return what is given: `unknown` where nothing is known, and never more than the limit."""
        value = np.maximum(self.base + multiplier * self.spread, self.floor)
        return np.asarray(np.clip(np.where(np.isnan(value), unknown, value), 0.0, limit))


class Answer(Protocol):
    """What a policy answers: an allocation for any multiplier, which grows with it; see `Estimate` and `Forecast`."""

    def allocation(self, multiplier: FloatArray, unknown: FloatArray, limit: FloatArray) -> FloatArray:
        """Return what is given, shape (A, R): `unknown` where nothing is known, and never more than the limit."""


class Stepper(Protocol):
    """A policy at work; it may keep what it has seen."""

    def estimate(self, view: CycleView, /) -> Answer:
        """Answer for a cycle; called for cycles 1, 2, ... in turn."""


class AbstractPolicy(ABC):
    """A custom policy: made again for each run, with the world, of which only `world.training` may be looked at.

    Attributes
    ----------
    has_feedback
        Whether answers depend on the allocations it got (`view.allocation`).
    needs_phases
        Whether it looks at phases.
    """

    has_feedback: ClassVar[bool] = False
    needs_phases: ClassVar[bool] = False

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def estimate(self, view: CycleView) -> Answer:
        """Answer for a cycle; called for cycles 1, 2, ... in turn."""


class Plan(Protocol):
    """A policy on a world, ready for any multiplier."""

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), for one multiplier per resource, shape (R,)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A stepper that is a function of what is seen."""

    estimate: Callable[[CycleView], Answer]


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A rule for allocations by name.

    Attributes
    ----------
    name
        Name in commands and tables.
    start
        Starts a run on a world, of which only the training containers may be looked at.
    has_feedback
        Whether its answers depend on the allocations it got.
    needs_phases
        Whether it looks at phases.
    """

    name: str
    start: Callable[[World], Stepper]
    has_feedback: bool = False
    needs_phases: bool = False


def with_and_without_phases(name: str, start: Callable[..., Stepper]) -> tuple[NamedPolicy, NamedPolicy]:
    """Return the policies NAME and NAME-phases, by a `start` with the option `has_phases`."""
    return (
        NamedPolicy(name, start),
        NamedPolicy(f"{name}-phases", partial(start, has_phases=True), needs_phases=True),
    )


def memoryless(name: str, estimate: Callable[[CycleView], Estimate]) -> NamedPolicy:
    """Return the policy that answers from what it sees alone."""
    return NamedPolicy(name, lambda world: Rule(estimate))


def scaled_by(value: FloatArray) -> Estimate:
    """Return the estimate m value."""
    return Estimate(base=np.zeros_like(value), spread=value)


def require_phases(phase: IntArray | None) -> IntArray:
    """Return phases.

    Raises
    ------
    UnsupportedProblemError
        If there are none.
    """
    if phase is None:
        raise UnsupportedProblemError("this policy needs phases; give phase labels when the world is made")
    return phase


QUANTILE_WINDOW_S = 1800.0


def previous_maximum(view: CycleView) -> Estimate:
    """Return the maximum of the cycle before, times m."""
    return scaled_by(view.previous.max(axis=1))


def previous_rules(view: CycleView) -> Estimate:
    """Return the mean of the cycle before plus m standard deviations."""
    return Estimate(base=view.previous.mean(axis=1), spread=view.previous.std(axis=1))


def running_maximum(view: CycleView) -> Estimate:
    """Return the maximum so far, times m."""
    return scaled_by(view.past.max(axis=1))


def static(world: World) -> Rule:
    """Return the rule that gives what all get in the first cycle, times m, for ever."""

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.broadcast_to(world.first, view.limit.shape))

    return Rule(estimate)


def recent_quantile(world: World, *, level: float) -> Rule:
    """Return the rule that gives a quantile, `level` in (0, 1), of the last half hour, times m."""
    window = max(1, round(QUANTILE_WINDOW_S / world.interval_s))

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.quantile(view.past[:, -window:], level, axis=1))

    return Rule(estimate)


def smoothing(world: World, *, half_life_min: float) -> Rule:
    """Return the rule that gives the exponentially weighted mean plus m deviations.

    mean <- (1 - g) mean + g x and s2 <- (1 - g)(s2 + g (x - mean)^2), with the mean before, begun at each container's
    first sample; after `half_life_min` minutes a sample counts half.
    """
    gain = 1.0 - 2.0 ** (-world.interval_s / (60.0 * half_life_min))
    means, squares = np.zeros(world.limit.shape), np.zeros(world.limit.shape)

    def estimate(view: CycleView) -> Estimate:
        mean, square = means[: len(view.past)], squares[: len(view.past)]
        if view.cycle == 1:
            mean[:] = view.past[:, 0]
        for place in range(view.cycle_samples):
            away = view.previous[:, place] - mean
            square[:] = (1 - gain) * (square + gain * away**2)
            mean += gain * away
        return Estimate(base=mean.copy(), spread=np.sqrt(square))

    return Rule(estimate)


LEVEL_GAIN, TREND_GAIN = 0.5, 0.3


def exponential_smoothing(world: World) -> Rule:
    """Return the rule that gives the next cycle's peak, by Holt's exponential smoothing, plus m mean absolute errors of it.

    level <- a x + (1 - a)(level + trend), trend <- b (level - level before) + (1 - b) trend, x the peak of the cycle before; the
    errors of the forecasts of earlier cycles are smoothed with the same a.

    References
    ----------
    Holt, "Forecasting seasonals and trends by exponentially weighted moving averages", 1957, reprinted 2004.
    doi:10.1016/j.ijforecast.2003.09.015
    """
    level, trend, error = (np.zeros(world.limit.shape) for _ in range(3))

    def estimate(view: CycleView) -> Estimate:
        peak, running = view.previous.max(axis=1), np.s_[: len(view.past)]
        if view.cycle == 1:
            level[running], error[running] = peak, view.previous.std(axis=1)
        else:
            expected = level[running] + trend[running]
            error[running] += LEVEL_GAIN * (np.abs(peak - expected) - error[running])
            fresh = expected + LEVEL_GAIN * (peak - expected)
            trend[running] += TREND_GAIN * (fresh - level[running] - trend[running])
            level[running] = fresh
        return Estimate(base=level[running] + trend[running], spread=error[running].copy())

    return Rule(estimate)


STEP_POLICIES = (
    memoryless("prev-step-max", previous_maximum),
    memoryless("prev-step-rules", previous_rules),
    NamedPolicy("static", static),
    NamedPolicy("holt", exponential_smoothing),
    memoryless("running-max", running_maximum),
    *(NamedPolicy(f"ewma-{minutes}", partial(smoothing, half_life_min=minutes)) for minutes in (2, 5, 10)),
    *(NamedPolicy(f"quantile-{100 * level:g}", partial(recent_quantile, level=level)) for level in (0.90, 0.95, 0.99)),
)
