"""References that know the future, but for the first cycle, in which they give what all give.

References
----------
HotCloud 2020 (AI4DL), section 4: current.step.max, current.step.rules.
"""

import numpy as np

from optim.models.containers.series import FloatArray
from optim.simulation.containers.engine import AffinePlan
from optim.simulation.containers.policy import Estimate
from optim.simulation.containers.world import World


def current_maximum(world: World) -> AffinePlan:
    """Return the plan m max(x) of each cycle."""
    peak = world.by_cycle.max(axis=2)
    return _plan(world, np.zeros_like(peak), peak)


def current_rules(world: World) -> AffinePlan:
    """Return the plan mean + m standard deviations of each cycle."""
    count = np.maximum(world.samples, 1)[..., None]
    mean = world.by_cycle.sum(axis=2) / count
    away = np.where(world.is_sample[..., None], world.by_cycle - mean[:, :, None], 0.0)
    return _plan(world, mean, np.sqrt((away**2).sum(axis=2) / count))


def whole_maximum(world: World) -> AffinePlan:
    """Return the plan m max(x) of each container's whole life."""
    peak = world.values.max(axis=1)[:, None] * (world.samples > 0)[..., None]
    return _plan(world, np.zeros_like(peak), peak)


def _plan(world: World, base: FloatArray, spread: FloatArray) -> AffinePlan:
    """Return the plan base + m spread, after the first cycle."""
    base, spread = base.copy(), spread.copy()
    base[:, 0], spread[:, 0] = world.first, 0.0
    return AffinePlan(world, Estimate(base=base, spread=spread))
