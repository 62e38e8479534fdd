"""Inputs and outputs of policies for containers, plans for any multiplier, and policies by name.

A policy is registered by `policy(NAME, world="containers")` above a class or function that creates a `Stepper` for a
world.
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
    """Information at the beginning of a cycle: the past of the A containers that are still running, for R resources.

    Attributes
    ----------
    cycle
        Index of the cycle that begins, at least 1: in cycle 0 all policies allocate the same.
    past
        Shape (A, cycle n, R): demand in all earlier cycles, in which these containers have run throughout.
    phase
        Shape (A, cycle n): phase of each earlier sample; None without phases.
    allocation
        Shape (A, R): allocation in the previous cycle.
    limit
        Shape (A, R): maximum allocation, infinite if unknown.
    cycle_samples
        Number n of samples per cycle.
    """

    cycle: int
    past: FloatArray
    phase: IntArray | None
    allocation: FloatArray
    limit: FloatArray
    cycle_samples: int

    @property
    def previous(self) -> FloatArray:
        """Demand in the previous cycle, shape (A, n, R)."""
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
        Shape (A, R) each: terms of the allocation of A containers and R resources. `spread` is nonnegative. NaN in
        `base` or `spread` means unknown, as in the first cycle.
    """

    base: FloatArray
    spread: FloatArray
    floor: FloatArray | float = 0.0

    def allocation(self, multiplier: FloatArray, unknown: FloatArray, limit: FloatArray) -> FloatArray:
        """Return the allocation, at most the limit; it is `unknown` where the estimate is NaN."""
        value = np.maximum(self.base + multiplier * self.spread, self.floor)
        return np.asarray(np.clip(np.where(np.isnan(value), unknown, value), 0.0, limit))


class Answer(Protocol):
    """A policy's answer: an allocation that grows with the multiplier; see `Estimate` and `Forecast`."""

    def allocation(self, multiplier: FloatArray, unknown: FloatArray, limit: FloatArray) -> FloatArray:
        """Return the allocation, shape (A, R), at most the limit; it is `unknown` where the answer is NaN."""


class Stepper(Protocol):
    """A running policy, which may store past views."""

    def estimate(self, view: CycleView, /) -> Answer:
        """Return the answer for a cycle; called for cycles 1, 2, ... in turn."""


class AbstractPolicy(ABC):
    """Base class of custom policies.

    Each run creates a policy. It may use the demand in `world.training` and in views, but not `world.values`.

    Attributes
    ----------
    has_feedback
        Whether answers depend on past allocations (`view.allocation`).
    needs_phases
        Whether the policy uses phases.
    """

    has_feedback: ClassVar[bool] = False
    needs_phases: ClassVar[bool] = False

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def estimate(self, view: CycleView) -> Answer:
        """Return the answer for a cycle; called for cycles 1, 2, ... in turn."""


class Plan(Protocol):
    """A policy on a world, ready for any multiplier."""

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), for one multiplier per resource, shape (R,)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A stepper that is a function of the view."""

    estimate: Callable[[CycleView], Answer]


def scaled_by(value: FloatArray) -> Estimate:
    """Return the estimate of an allocation of m times the value, with the multiplier m."""
    return Estimate(base=np.zeros_like(value), spread=value)


def require_phases(phase: IntArray | None) -> IntArray:
    """Return the phases, which must be known.

    Raises
    ------
    UnsupportedProblemError
        If phases are unknown.
    """
    if phase is None:
        raise UnsupportedProblemError("this policy needs phases; create its `World` with phase labels")
    return phase


class AffinePlan:
    """A plan that is affine in the multiplier: base plus m spread in every cycle, at least a floor.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    estimate
        Estimate for every container and cycle; all arrays have shape (C, K, R).
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
    """A policy that is run cycle by cycle on a world.

    A policy without feedback runs once, and its estimates give the allocations for any multiplier. A policy with feedback
    runs again for every multiplier.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    start
        Function that starts the policy on a world; from the world's demand it may use only that of the training
        containers.
    has_feedback
        Whether answers depend on past allocations.
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
    """Yield the view of each cycle but the first; the caller fills `allocation`, shape (C, K, R), between views."""
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
"""Reference policy: reductions are relative to its allocation."""

CLAIRVOYANT, HARMLESS = "clairvoyant", "oracle-zero-violation"

BOUNDS = (CLAIRVOYANT, HARMLESS)
"""Names of the clairvoyant plans of least allocation, with the allowed violations and without violations; not tuned."""


class Trait(StrEnum):
    """Traits of a policy for containers in the registry."""

    PHASES = "phases"
    """The policy uses phases."""
    FEEDBACK = "feedback"
    """Answers depend on past allocations."""
    PLAN = "plan"
    """The registered object creates a `Plan` instead of a `Stepper`."""


def policy_names() -> tuple[str, ...]:
    """Return the names of all policies that run by default."""
    return default_names("containers")


def check_names(names: Sequence[str]) -> None:
    """Check that policies exist; a user policy, ``./mine.py:MyPolicy``, must derive from `AbstractPolicy`.

    Raises
    ------
    InvalidOptionError
        If a policy is unknown; the message lists the known ones.
    """
    known = shipped_names("containers")
    for name in names:
        if is_file_reference(name):
            _user_policy(name)
        elif name not in known:
            raise unknown_name("policy", name, known)


def need_phases(names: Sequence[str]) -> bool:
    """Return whether any of these policies uses phases."""
    return any(Trait.PHASES in _traits(name) for name in names)


def make_plan(world: World, name: str) -> Plan:
    """Return a policy on a world, by name or, for a user policy, by ``./mine.py:MyPolicy``.

    Raises
    ------
    InvalidOptionError
        If the policy is unknown, or one of `BOUNDS`.
    UnsupportedProblemError
        If the policy needs phases and the world has none.
    """
    check_names([name])
    if name in BOUNDS:
        raise InvalidOptionError(f"policy {name!r} is a bound and has no multiplier; compare policies with it instead")
    traits = _traits(name)
    if Trait.PHASES in traits and world.phase is None:
        raise UnsupportedProblemError(f"policy {name!r} needs phases; create the `World` with phase labels")
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
