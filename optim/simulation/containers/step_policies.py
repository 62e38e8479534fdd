"""Policies that look back a cycle, a while, or not at all.

References
----------
Buchaca, Villalba, Wang, Youssef, Berral et al., "AI4DL: Mining Behaviors of Deep Learning Workloads for Resource
Management", HotCloud 2020, section 4: prev.step.max, prev.step.rules.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.containers.series import FloatArray
from optim.simulation.containers.policy import CycleView, Estimate, scaled_by
from optim.simulation.containers.world import World


@dataclass(frozen=True, slots=True)
class PreviousMaximum:
    """The maximum of the cycle before, times m."""

    name: str = "prev-step-max"
    multiplier: float = 1.0
    has_feedback: bool = False

    def start(self, world: World) -> "PreviousMaximum":
        """Nothing to keep."""
        del world
        return self

    def estimate(self, view: CycleView) -> Estimate:
        """Answer for a cycle."""
        return scaled_by(view.previous.max(axis=1))


@dataclass(frozen=True, slots=True)
class PreviousRules:
    """Mean of the cycle before plus m standard deviations."""

    name: str = "prev-step-rules"
    multiplier: float = 2.0
    has_feedback: bool = False

    def start(self, world: World) -> "PreviousRules":
        """Nothing to keep."""
        del world
        return self

    def estimate(self, view: CycleView) -> Estimate:
        """Answer for a cycle."""
        return Estimate(base=view.previous.mean(axis=1), spread=view.previous.std(axis=1))


@dataclass(frozen=True, slots=True)
class Static:
    """What all get in the first cycle, times m, for ever."""

    name: str = "static"
    multiplier: float = 1.0
    has_feedback: bool = False

    def start(self, world: World) -> "_StaticStepper":
        """Take the pooled quantile."""
        return _StaticStepper(world.first)


@dataclass(frozen=True, slots=True, eq=False)
class _StaticStepper:
    value: FloatArray

    def estimate(self, view: CycleView) -> Estimate:
        return scaled_by(np.broadcast_to(self.value, view.limit.shape).copy())


@dataclass(frozen=True, slots=True)
class RunningMaximum:
    """The maximum so far, times m."""

    name: str = "running-max"
    multiplier: float = 1.0
    has_feedback: bool = False

    def start(self, world: World) -> "_RunningStepper":
        """Begin with no maximum."""
        return _RunningStepper(np.zeros(world.limit.shape))


class _RunningStepper:
    def __init__(self, most: FloatArray) -> None:
        self._most = most

    def estimate(self, view: CycleView) -> Estimate:
        most = self._most[: len(view.past)]
        np.maximum(most, view.previous.max(axis=1), out=most)
        return scaled_by(most.copy())


QUANTILE_WINDOW_S = 1800.0


@dataclass(frozen=True, slots=True)
class RecentQuantile:
    """A quantile of the last half hour, times m.

    Attributes
    ----------
    level
        In (0, 1).
    """

    level: float
    multiplier: float = 1.0
    has_feedback: bool = False

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 < self.level < 1:
            raise InvalidOptionError(f"level must be in (0, 1), got {self.level}")

    @property
    def name(self) -> str:
        """Name with the level in per cent."""
        return f"quantile-{100 * self.level:g}"

    def start(self, world: World) -> "_QuantileStepper":
        """Translate the window into samples."""
        return _QuantileStepper(self.level, max(1, round(QUANTILE_WINDOW_S / world.interval_s)))


@dataclass(frozen=True, slots=True)
class _QuantileStepper:
    level: float
    window: int

    def estimate(self, view: CycleView) -> Estimate:
        return scaled_by(np.quantile(view.past[:, -self.window :], self.level, axis=1))


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Exponentially weighted mean plus m deviations.

    m <- (1 - g) m + g x and s2 <- (1 - g)(s2 + g (x - m_old)^2).

    Attributes
    ----------
    half_life_min
        Minutes after which a sample counts half.
    """

    half_life_min: float
    multiplier: float = 2.0
    has_feedback: bool = False

    def __post_init__(self) -> None:
        """Check the range."""
        if not self.half_life_min > 0:
            raise InvalidOptionError(f"half_life_min must be above 0, got {self.half_life_min}")

    @property
    def name(self) -> str:
        """Name with the half-life in minutes."""
        return f"ewma-{self.half_life_min:g}"

    def start(self, world: World) -> "_SmoothingStepper":
        """Begin at each container's first sample."""
        return _SmoothingStepper(1.0 - 2.0 ** (-world.interval_s / (60.0 * self.half_life_min)), world.limit.shape)


class _SmoothingStepper:
    def __init__(self, gain: float, shape: tuple[int, ...]) -> None:
        self._gain = gain
        self._mean = np.zeros(shape)
        self._square = np.zeros(shape)

    def estimate(self, view: CycleView) -> Estimate:
        count, gain = len(view.past), self._gain
        mean, square = self._mean[:count], self._square[:count]
        if view.cycle == 1:
            mean[:] = view.past[:, 0]
        for place in range(view.cycle_samples):
            away = view.previous[:, place] - mean
            square[:] = (1 - gain) * (square + gain * away**2)
            mean += gain * away
        return Estimate(base=mean.copy(), spread=np.sqrt(square))
