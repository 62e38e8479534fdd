"""What a policy for containers sees and answers, plans for any multiplier, and policies by name.

A policy is registered by `policy(NAME, world="containers")` above a class or function that makes a `Stepper` of a world.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, UnsupportedProblemError, unknown_name
from optim.core.policies import default_names, find_policy, shipped_names
from optim.core.user_code import is_file_reference, load_class_from_file
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


class AffinePlan:
    """What is given is known but for the multiplier: base plus m spread in every cycle, at least a floor.

    Parameters
    ----------
    world
        Containers.
    estimate
        Of every container and cycle, shape (C, K, R) all.
    """

    def __init__(self, world: World, estimate: Estimate) -> None:
        self._world, self._estimate = world, estimate

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), 0 after a container's end."""
        world = self._world
        value = self._estimate.allocation(multiplier, world.first, world.limit[:, None])
        value[world.samples == 0] = 0.0
        return value


class SteppedPlan:
    """A policy on a world.

    Without feedback it is stepped through once: allocations for any multiplier follow from its estimates. With
    feedback it is stepped through again for every multiplier.

    Parameters
    ----------
    world
        Containers.
    start
        Starts the policy on a world, of which only the training containers may be looked at.
    has_feedback
        Whether its answers depend on the allocations it got.
    """

    def __init__(self, world: World, start: Callable[[World], Stepper], *, has_feedback: bool = False) -> None:
        self._world, self._start, self._has_feedback = world, start, has_feedback
        self._answers: list[Answer] = []
        if not has_feedback:
            stepper, nothing = start(world), np.zeros((*world.samples.shape, len(world.resources)))
            self._answers = [stepper.estimate(view) for view in views(world, nothing)]

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), 0 after a container's end."""
        world = self._world
        stepper = self._start(world) if self._has_feedback else None
        allocation = np.zeros((*world.samples.shape, len(world.resources)))
        allocation[:, 0] = np.minimum(world.first, world.limit)
        for view in views(world, allocation):
            answer = self._answers[view.cycle - 1] if stepper is None else stepper.estimate(view)
            allocation[: len(view.past), view.cycle] = answer.allocation(multiplier, world.first, view.limit)
        return allocation


def views(world: World, allocation: FloatArray) -> Iterator[CycleView]:
    """Yield what is known as each cycle but the first begins; `allocation`, shape (C, K, R), fills up meanwhile."""
    for cycle, count in enumerate(world.running.tolist()):
        if cycle > 0:
            end = cycle * world.cycle_samples
            yield CycleView(
                cycle=cycle,
                past=world.values[:count, :end],
                phase=None if world.phase is None else world.phase[:count, :end],
                allocation=allocation[:count, cycle - 1],
                limit=world.limit[:count],
                cycle_samples=world.cycle_samples,
            )


REFERENCE = "prev-step-rules"
"""Policy that reductions are against."""

CLAIRVOYANT, HARMLESS = "clairvoyant", "oracle-zero-violation"

BOUNDS = (CLAIRVOYANT, HARMLESS)
"""The cheapest plans by one who knows the future, with the harm that is allowed and without any; not to be tuned."""


class Trait(StrEnum):
    """What the registry of policies says of a policy for containers."""

    PHASES = "phases"
    """It looks at phases."""
    FEEDBACK = "feedback"
    """Its answers depend on the allocations it got."""
    PLAN = "plan"
    """What is registered makes a `Plan` itself, no `Stepper`."""


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies that run by default."""
    return default_names("containers")


def check_names(names: Sequence[str]) -> None:
    """Raise if there is no policy of a name; the user's, ``./mine.py:MyPolicy``, must be there and derive from `AbstractPolicy`.

    Raises
    ------
    InvalidOptionError
        The text lists those there are.
    """
    known = shipped_names("containers")
    for name in names:
        if is_file_reference(name):
            _user_policy(name)
        elif name not in known:
            raise unknown_name("policy", name, known)


def need_phases(names: Sequence[str]) -> bool:
    """Return whether any of these policies looks at phases."""
    return any(Trait.PHASES in _traits(name) for name in names)


def make_plan(world: World, name: str) -> Plan:
    """Return a policy on a world: by name, or the user's by ``./mine.py:MyPolicy``.

    Raises
    ------
    InvalidOptionError
        If there is no such policy, or it is one of `BOUNDS`.
    UnsupportedProblemError
        If it needs phases and the world has none.
    """
    check_names([name])
    if name in BOUNDS:
        raise InvalidOptionError(
            f"policy {name!r} is a bound, which has no multiplier; compare policies with it instead"
        )
    traits = _traits(name)
    if Trait.PHASES in traits and world.phase is None:
        raise UnsupportedProblemError(f"policy {name!r} needs phases; give phase labels when the world is made")
    entry = find_policy("containers", name)
    start: Callable[..., Any] = _user_policy(name) if entry is None else entry.make
    if Trait.PLAN in traits:
        made: Plan = start(world)
        return made
    return SteppedPlan(world, start, has_feedback=Trait.FEEDBACK in traits)


def _traits(name: str) -> Collection[str]:
    if is_file_reference(name):
        own = _user_policy(name)
        flags = {Trait.PHASES: own.needs_phases, Trait.FEEDBACK: own.has_feedback}
        return [trait for trait, is_set in flags.items() if is_set]
    entry = find_policy("containers", name)
    return () if entry is None else entry.traits


def _user_policy(name: str) -> type[AbstractPolicy]:
    return load_class_from_file(name, AbstractPolicy, "a policy for containers")
