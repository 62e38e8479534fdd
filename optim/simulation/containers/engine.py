"""Policies on a world: all containers go through their cycles at once."""

from collections.abc import Iterator

import numpy as np

from optim.models.containers.series import FloatArray
from optim.simulation.containers.policy import Answer, CycleView, Estimate, Policy
from optim.simulation.containers.world import World


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
    feedback it is stepped through anew for every multiplier.

    Parameters
    ----------
    world
        Containers.
    policy
        Rule.
    """

    def __init__(self, world: World, policy: Policy) -> None:
        self._world, self._policy = world, policy
        self._answers: list[Answer] = []
        if not policy.has_feedback:
            stepper, nothing = policy.start(world), np.zeros((*world.samples.shape, len(world.resources)))
            self._answers = [stepper.estimate(view) for view in views(world, nothing)]

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), 0 after a container's end."""
        world = self._world
        stepper = self._policy.start(world) if self._policy.has_feedback else None
        given = np.zeros((*world.samples.shape, len(world.resources)))
        given[:, 0] = np.minimum(world.first, world.limit)
        for view in views(world, given):
            answer = self._answers[view.cycle - 1] if stepper is None else stepper.estimate(view)
            given[: len(view.past), view.cycle] = answer.allocation(multiplier, world.first, view.limit)
        return given


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
