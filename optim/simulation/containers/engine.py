"""Steps all containers through their cycles at once."""

import numpy as np

from optim.models.containers.series import FloatArray
from optim.simulation.containers.policy import CycleView, Estimate, Policy, Stepper
from optim.simulation.containers.world import World


class SteppedPlan:
    """A policy on a world.

    Policies without feedback are stepped through once; allocations for any multiplier then follow from their
    estimates.

    Parameters
    ----------
    world
        Containers.
    policy
        Rule.
    """

    def __init__(self, world: World, policy: Policy) -> None:
        self._world = world
        self._policy = policy
        shape = (world.num_containers, world.num_cycles, len(world.resources))
        self._floor = np.zeros(shape)
        self._base = np.zeros(shape)
        self._spread = np.zeros(shape)
        if not policy.has_feedback:
            self._step(policy.start(world), None)

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R), 0 after a container's end."""
        if self._policy.has_feedback:
            return self._step(self._policy.start(self._world), multiplier)
        value = np.maximum(self._base + multiplier * self._spread, self._floor)
        value = np.clip(np.where(np.isnan(value), self._world.first, value), 0.0, self._world.limit[:, None])
        value[:, 0] = np.minimum(self._world.first, self._world.limit)
        value[self._world.samples == 0] = 0.0
        return value

    def _step(self, stepper: Stepper, multiplier: FloatArray | None) -> FloatArray:
        """Go through the cycles; without a multiplier only estimates are kept."""
        world = self._world
        allocation = np.zeros_like(self._base)
        allocation[:, 0] = np.minimum(world.first, world.limit)
        for cycle, count in enumerate(world.running.tolist()):
            if cycle == 0:
                continue
            estimate = stepper.estimate(view_of(world, cycle, count, allocation[:count, cycle - 1]))
            if multiplier is None:
                self._base[:count, cycle] = estimate.base
                self._spread[:count, cycle] = estimate.spread
                self._floor[:count, cycle] = estimate.floor
            else:
                allocation[:count, cycle] = _apply(estimate, multiplier, world.first, world.limit[:count])
        return allocation


def view_of(world: World, cycle: int, count: int, allocation: FloatArray) -> CycleView:
    """Return what is known of the first `count` containers as a cycle begins."""
    end = cycle * world.cycle_samples
    return CycleView(
        cycle=cycle,
        past=world.values[:count, :end],
        phase=None if world.phase is None else world.phase[:count, :end],
        allocation=allocation,
        limit=world.limit[:count],
        cycle_samples=world.cycle_samples,
    )


def _apply(estimate: Estimate, multiplier: FloatArray, first: FloatArray, limit: FloatArray) -> FloatArray:
    value = np.maximum(estimate.base + multiplier * estimate.spread, estimate.floor)
    return np.asarray(np.clip(np.where(np.isnan(value), first, value), 0.0, limit))
