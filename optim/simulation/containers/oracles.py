"""References that know the future: the paper's two, and the least that any policy can allocate at a risk.

References
----------
HotCloud 2020 (AI4DL), section 4: current.step.max, current.step.rules.
"""

import numpy as np

from optim.models.containers.series import FloatArray
from optim.simulation.containers.engine import AffinePlan
from optim.simulation.containers.metrics import UNDER_SHARE
from optim.simulation.containers.policy import Estimate, scaled_by
from optim.simulation.containers.world import World


def current_maximum(world: World) -> AffinePlan:
    """Return the plan m max(x) of each cycle, the first as well."""
    return AffinePlan(world, scaled_by(world.by_cycle.max(axis=2)))


def current_rules(world: World) -> AffinePlan:
    """Return the plan mean + m standard deviations of each cycle, the first as well."""
    count = np.maximum(world.samples, 1)[..., None]
    mean = world.by_cycle.sum(axis=2) / count
    away = np.where(world.is_sample[..., None], world.by_cycle - mean[:, :, None], 0.0)
    return AffinePlan(world, Estimate(base=mean, spread=np.sqrt((away**2).sum(axis=2) / count)))


def whole_maximum(world: World) -> AffinePlan:
    """Return the plan m max(x) of each container's whole life."""
    return AffinePlan(world, scaled_by(world.values.max(axis=1)[:, None] * (world.samples > 0)[..., None]))


class CheapestPlan:
    """The least total allocation among all plans that are constant in a cycle, for a price on under-provisioning.

    A cycle of n samples gets the y that minimises n y + m u(y) s, u(y) the samples below 95 % of demand and s the mean
    demand of all containers. So, by weak duality, no plan without more under-provisioned samples allocates less in
    total; see `lower_bound`.

    Parameters
    ----------
    world
        Containers.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        is_sample = world.is_sample[..., None]
        needed = np.where(is_sample, UNDER_SHARE * world.by_cycle, np.inf)
        # One may allocate nothing, or just enough for the i least demanding samples.
        self._levels = np.concatenate([np.zeros_like(needed[:, :, :1]), np.sort(needed, axis=2)], axis=2)
        count = world.samples[:, :, None, None]
        self._under = np.maximum(count - np.arange(world.cycle_samples + 1)[:, None], 0)
        self._is_known = np.isfinite(self._levels)
        cost = np.where(self._is_known, self._levels, 0.0) * count
        self._cost = np.where(self._is_known, cost, np.inf)
        self._scale = world.values.sum(axis=(0, 1)) / max(int(world.lengths.sum()), 1)

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R); of equally good ones the largest."""
        priced = self._cost + multiplier * self._scale * self._under
        last = self._levels.shape[2] - 1
        best = last - np.argmin(priced[:, :, ::-1], axis=2)
        value = np.take_along_axis(self._levels, best[:, :, None], axis=2)[:, :, 0]
        value = np.minimum(value, self._world.limit[:, None])
        value[self._world.samples == 0] = 0.0
        return np.asarray(value)

    def lower_bound(self, multiplier: FloatArray, under_samples: FloatArray) -> FloatArray:
        """Return a bound on the total allocation (units times samples) of all plans with so few samples under.

        Parameters
        ----------
        multiplier
            Shape (R,): any prices, not negative.
        under_samples
            Shape (R,): samples that may be under-provisioned.
        """
        price = multiplier * self._scale
        least = (self._cost + price * self._under).min(axis=2)
        return np.asarray(least.sum(axis=(0, 1)) - price * under_samples)
