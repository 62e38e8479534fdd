"""What an allocation costs, and what it risks."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.harm import SECONDS_PER_DAY, Harm, Restarts, harm_of
from optim.simulation.containers.world import World

OVER_SHARE = 1.05
UNDER_SHARE = 0.95
"""Allocations within 5 % of demand are neither over nor under it; HotCloud 2020 names the tolerance."""

CHANGE = 0.05
"""A change of an allocation counts if it is larger than this share of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Sums over each container, shape (C, R) all.

    Attributes
    ----------
    samples, days
        Samples, and what they are in days.
    demand, allocation
        Sums over samples.
    over, under
        Sums of what is above 105 %, and of what lacks to 95 %, of demand.
    under_samples
        Samples with less than 95 % of demand.
    changes
        Changes of the allocation by more than 5 %.
    harm
        Kills, throttling and what restarts cost.
    """

    samples: IntArray
    days: FloatArray
    demand: FloatArray
    allocation: FloatArray
    over: FloatArray
    under: FloatArray
    under_samples: IntArray
    changes: IntArray
    harm: Harm

    @property
    def under_time(self) -> FloatArray:
        """Share of samples with less than 95 % of demand, shape (R,)."""
        return np.asarray(self.under_samples.sum(axis=0) / self.samples.sum(axis=0))

    @property
    def total_allocation(self) -> FloatArray:
        """Sum of allocations over samples, shape (R,)."""
        return np.asarray(self.allocation.sum(axis=0))

    def figures(self) -> dict[str, FloatArray | IntArray]:
        """Return what is told of a policy, by name, shape (R,) each.

        `under_time`; `allocation_over_demand`; `over_share` and `under_share`, what is above 105 % and lacks to 95 % of
        demand, over demand; `kills`, `throttled_time`, `delayed_share` (demand above the allocation of rates, over demand) and `changes`.
        """
        demand = self.demand.sum(axis=0)
        return {
            "under_time": self.under_time,
            "allocation_over_demand": relative(self.total_allocation, demand),
            "over_share": _over(self.over.sum(axis=0), demand),
            "under_share": _over(self.under.sum(axis=0), demand),
            "kills": self.harm.kills.sum(axis=0),
            "delayed_share": _over(self.harm.delayed.sum(axis=0), demand),
            "throttled_time": self.harm.throttled.sum(axis=0) / self.samples.sum(axis=0),
            "changes": self.changes.sum(axis=0),
        }

    def container_percentiles(self, levels: tuple[float, ...] = (0.05, 0.5, 0.95)) -> FloatArray:
        """Return percentiles over containers of allocation over demand, shape (levels, R)."""
        return np.asarray(np.quantile(_over(self.allocation, self.demand), levels, axis=0))


def under_time(world: World, allocation: FloatArray) -> FloatArray:
    """Return the share of samples with less than 95 % of demand, shape (R,)."""
    return np.asarray(_under_samples(world, allocation).sum(axis=0) / world.lengths.sum())


def measure(world: World, allocation: FloatArray, restarts: Restarts | None = None) -> Outcome:
    """Measure an allocation.

    Parameters
    ----------
    world
        Containers.
    allocation
        Shape (C, K, R).
    restarts
        What a kill costs; None for the defaults.
    """
    demand, given = world.by_cycle, allocation[:, :, None]
    is_sample = world.is_sample[..., None]
    before, after = allocation[:, :-1], allocation[:, 1:]
    runs = (world.samples[:, 1:] > 0)[..., None]
    is_changed = runs & (np.abs(after - before) > CHANGE * before)
    samples = np.repeat(world.lengths[:, None], len(world.resources), axis=1)
    return Outcome(
        samples=samples,
        days=np.asarray(samples * world.interval_s / SECONDS_PER_DAY, dtype=np.float64),
        demand=demand.sum(axis=(1, 2)),
        allocation=(allocation * world.samples[..., None]).sum(axis=1),
        over=(np.maximum(given - OVER_SHARE * demand, 0.0) * is_sample).sum(axis=(1, 2)),
        under=(np.maximum(UNDER_SHARE * demand - given, 0.0) * is_sample).sum(axis=(1, 2)),
        under_samples=_under_samples(world, allocation),
        changes=is_changed.sum(axis=1),
        harm=harm_of(world, allocation, restarts or Restarts()),
    )


def relative(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole; 1, neither more nor less, where a resource isn't used at all."""
    is_used = whole > 0
    return np.asarray(np.where(is_used, part / np.where(is_used, whole, 1.0), 1.0))


def _under_samples(world: World, allocation: FloatArray) -> IntArray:
    # Demand is 0 after a container's end, so that nothing is under it there.
    is_under = allocation[:, :, None] < UNDER_SHARE * world.by_cycle
    return np.asarray(is_under.sum(axis=(1, 2)), dtype=np.int64)


def _over(part: FloatArray, whole: FloatArray) -> FloatArray:
    return np.asarray(part / np.where(whole > 0, whole, 1.0))
