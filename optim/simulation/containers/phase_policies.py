"""Policies that ask for the phase a container is in: the paper's rule, and variants that mend its known weakness.

The paper's rule takes absolute statistics over all containers and so gives small and large ones the same.

References
----------
HotCloud 2020 (AI4DL), section 4: phase.rule.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.phase_demand import TINY, moments, phase_demand, running_maximum
from optim.simulation.containers.policy import CycleView, Estimate, require_phases
from optim.simulation.containers.world import World


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """Mean of the present phase over all containers plus m standard deviations.

    Attributes
    ----------
    is_held
        Whether resources that are held, as memory, get at least what is used at present.
    """

    is_held: bool = False
    multiplier: float = 2.0
    has_feedback: bool = False

    @property
    def name(self) -> str:
        """`phase-max` holds what is used."""
        return "phase-max" if self.is_held else "phase-rule"

    def start(self, world: World) -> "_RuleStepper":
        """Take statistics of the training containers."""
        labels = require_phases(world.training_phase)
        mean, deviation = moments(world.training.values, labels, world.num_phases)
        levels = np.array([resource.is_level for resource in world.resources]) & self.is_held
        return _RuleStepper(mean, deviation, levels)


@dataclass(frozen=True, slots=True, eq=False)
class _RuleStepper:
    mean: FloatArray
    deviation: FloatArray
    is_held: NDArray[np.bool_]

    def estimate(self, view: CycleView) -> Estimate:
        phase = view.phase_now
        floor = np.where(self.is_held, view.past[:, -1], 0.0)
        return Estimate(base=of_phase(self.mean, phase), spread=of_phase(self.deviation, phase), floor=floor)


@dataclass(frozen=True, slots=True)
class PhaseRuleScaled:
    """The paper's rule on demand relative to a container's size.

    Attributes
    ----------
    is_by_limit
        Whether the size is the container's limit, else its own maximum so far. Where a limit is unknown, the maximum
        stands in.
    """

    is_by_limit: bool = False
    multiplier: float = 2.0
    has_feedback: bool = False

    @property
    def name(self) -> str:
        """`phase-rule-limit` divides by limits."""
        return "phase-rule-limit" if self.is_by_limit else "phase-rule-scaled"

    def start(self, world: World) -> "_ScaledStepper":
        """Take statistics of the training containers' relative demand."""
        training = world.training
        size = running_maximum(training)
        if self.is_by_limit and training.limit is not None:
            limit = training.limit[training.segment]
            size = np.where(np.isfinite(limit), limit, size)
        labels = require_phases(world.training_phase)
        mean, deviation = moments(training.values / np.maximum(size, TINY), labels, world.num_phases)
        return _ScaledStepper(mean, deviation, self.is_by_limit)


@dataclass(frozen=True, slots=True, eq=False)
class _ScaledStepper:
    mean: FloatArray
    deviation: FloatArray
    is_by_limit: bool

    def estimate(self, view: CycleView) -> Estimate:
        size = view.past.max(axis=1)
        if self.is_by_limit:
            size = np.where(np.isfinite(view.limit), view.limit, size)
        phase = view.phase_now
        return Estimate(base=size * of_phase(self.mean, phase), spread=size * of_phase(self.deviation, phase))


@dataclass(frozen=True, slots=True)
class PhaseShift:
    """Own mean since the phase began plus m deviations within runs of that phase."""

    name: str = "phase-shift"
    multiplier: float = 2.0
    has_feedback: bool = False

    def start(self, world: World) -> "_ShiftStepper":
        """Take deviations within runs of the training containers."""
        training = world.training
        labels = require_phases(world.training_phase)
        return _ShiftStepper(phase_demand(training.values, labels, training.segment, world.num_phases).within)


@dataclass(frozen=True, slots=True, eq=False)
class _ShiftStepper:
    within: FloatArray

    def estimate(self, view: CycleView) -> Estimate:
        mean = own_mean(view.past, require_phases(view.phase))
        return Estimate(base=mean, spread=of_phase(self.within, view.phase_now))


def of_phase(table: FloatArray, phase: IntArray) -> FloatArray:
    """Return the row of each phase, shape (A, R), NaN where the phase is unknown."""
    return np.where((phase >= 0)[:, None], table[phase], np.nan)


def own_mean(past: FloatArray, phase: IntArray) -> FloatArray:
    """Return each container's mean since its present phase began, shape (A, R)."""
    differs = phase[:, ::-1] != phase[:, -1:]
    length = np.where(differs.any(axis=1), differs.argmax(axis=1), phase.shape[1])
    is_own = np.arange(phase.shape[1])[::-1] < length[:, None]
    return np.asarray((past * is_own[..., None]).sum(axis=1) / length[:, None])
