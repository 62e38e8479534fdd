"""What a policy sees, and what it answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.world import World


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
    """A policy of one's own: made anew for each run, with the world, of which only `world.training` may be looked at.

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


class Policy(Protocol):
    """A rule for allocations."""

    @property
    def name(self) -> str:
        """What commands and tables call it."""
        ...

    @property
    def has_feedback(self) -> bool:
        """Whether its answers depend on the allocations it got."""
        ...

    def start(self, world: World, /) -> Stepper:
        """Begin anew; of the world, only its training containers may be looked at."""


class Plan(Protocol):
    """A policy on a world, ready for any multiplier."""

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), for a multiplier a resource, shape (R,)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A stepper that is a function of what is seen."""

    estimate: Callable[[CycleView], Answer]


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy from a function that begins anew, see `Policy`."""

    name: str
    start: Callable[[World], Stepper]
    has_feedback: bool = False


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
