"""What an allocation does on a world: violations, and metrics.

An incompressible resource (memory) kills: a cycle with any sample above its allocation is a kill, at the first such sample. The
work since the last checkpoint is done again after a start-up, and both are charged; the series isn't replayed, so that a
cycle has one kill at most. A rate (CPU) throttles: a sample above its allocation is throttled, and what lies
above it is work that is delayed. Neither has a tolerance.

The first cycle is given to all policies, so that only what comes after it, the post-warm-up part, says anything about them.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.phases.clustering import group_sums
from optim.rightsizing.world import World

SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """What a kill costs.

    Attributes
    ----------
    checkpoint_s
        Seconds between checkpoints, counted from a container's start; what was done since the last one is lost. Half an hour:
        by Young's rule about what a start-up of minutes and a kill a day ask for.
    startup_s
        Seconds until a container that was killed works again: scheduling, image, reading the checkpoint.
    """

    checkpoint_s: float = 1800.0
    startup_s: float = 120.0

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("(0, inf)", self, "checkpoint_s")
        check_in("[0, inf)", self, "startup_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Violations:
    """What an allocation did to each container.

    Attributes
    ----------
    kills
        Shape (C, R): cycles with a kill, 0 for rates.
    throttled
        Shape (C, R): samples throttled, 0 for incompressible resources.
    delayed
        Shape (C, R): demand above the allocation of rates, summed over samples.
    post_warmup
        Shape (C, R): share of the cycles after the first with a kill, or of the samples after the first cycle that were throttled; 0 where nothing was
        decided.
    restart_s
        Shape (C,): seconds of start-ups and of work done again.
    charge
        Shape (C, R): allocation, times samples, held during restarts: what was allocated, and of an incompressible resource at least
        what was used at the sample of the kill; what the cycle would have used later doesn't count.
    """

    kills: IntArray
    throttled: IntArray
    delayed: FloatArray
    post_warmup: FloatArray
    restart_s: FloatArray
    charge: FloatArray


def violations_of(world: World, allocation: FloatArray, restarts: Restarts) -> Violations:
    """Return the harm of an allocation, shape (C, K, R)."""
    demand, levels = world.by_cycle, world.is_level
    exceeds = demand > allocation[:, :, None]
    killed = exceeds.any(axis=2) & levels
    throttled = np.where(levels, 0, exceeds.sum(axis=2))
    fatal = np.asarray((exceeds & levels).any(axis=3))
    first = fatal.argmax(axis=2)
    begins = np.arange(world.num_cycles) * world.cycle_samples
    restart = np.where(fatal.any(axis=2), restart_samples(first + begins, world.interval_s, restarts), 0.0)
    at_kill = np.take_along_axis(demand, first[:, :, None, None], axis=2)[:, :, 0]
    occupied = np.where(levels, np.maximum(allocation, at_kill), allocation)
    return Violations(
        kills=killed.sum(axis=1),
        throttled=throttled.sum(axis=1),
        delayed=np.where(levels, 0.0, np.maximum(demand - allocation[:, :, None], 0.0).sum(axis=(1, 2))),
        post_warmup=(np.where(levels, killed, throttled)[:, 1:] * post_warmup_weight(world)[:, None]).sum(axis=1),
        restart_s=restart.sum(axis=1) * world.interval_s,
        charge=(occupied * restart[..., None]).sum(axis=1),
    )


def post_warmup_weight(world: World) -> FloatArray:
    """Return what a kill, or a throttled sample, of the post-warm-up part counts, shape (C, R); 0 where nothing is decided.

    All series of a unit share one weight: a unit's harm lies in [0, 1] whatever its number of series.
    """
    samples = world.samples[:, 1:]
    cycles, counts = (samples > 0).sum(axis=1), samples.sum(axis=1)
    of_unit = by_unit(world, np.stack([counts, cycles], axis=1))[world.group][:, world.is_level.astype(np.int64)]
    return np.asarray(np.where(of_unit > 0, 1.0 / np.maximum(of_unit, 1), 0.0))


def by_unit(world: World, values: FloatArray | IntArray) -> FloatArray:
    """Return sums over the series of each unit, shape (G, R), from shape (C, R)."""
    return group_sums(values, world.group, world.num_units)


def restart_samples(sample: IntArray, interval_s: float, restarts: Restarts) -> FloatArray:
    """Return what kills at these samples of a container's life cost, in samples."""
    return np.asarray((np.mod(sample * interval_s, restarts.checkpoint_s) + restarts.startup_s) / interval_s)


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
    violations
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
    violations: Violations

    @property
    def under_time(self) -> FloatArray:
        """Share of samples with less than 95 % of demand, shape (R,)."""
        return np.asarray(self.under_samples.sum(axis=0) / self.samples.sum(axis=0))

    @property
    def total_allocation(self) -> FloatArray:
        """Sum of allocations over samples, shape (R,)."""
        return np.asarray(self.allocation.sum(axis=0))

    def summary(self) -> dict[str, FloatArray | IntArray]:
        """Return the figures of a policy, by name, shape (R,) each.

        `under_time`; `allocation_over_demand`; `over_share` and `under_share`, what is above 105 % and lacks to 95 % of
        demand, over demand; `kills`, `throttled_time`, `delayed_share` (demand above the allocation of rates, over demand) and `changes`.
        """
        demand = self.demand.sum(axis=0)
        return {
            "under_time": self.under_time,
            "allocation_over_demand": relative(self.total_allocation, demand),
            "over_share": _over(self.over.sum(axis=0), demand),
            "under_share": _over(self.under.sum(axis=0), demand),
            "kills": self.violations.kills.sum(axis=0),
            "delayed_share": _over(self.violations.delayed.sum(axis=0), demand),
            "throttled_time": self.violations.throttled.sum(axis=0) / self.samples.sum(axis=0),
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
    demand, allocated = world.by_cycle, allocation[:, :, None]
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
        over=(np.maximum(allocated - OVER_SHARE * demand, 0.0) * is_sample).sum(axis=(1, 2)),
        under=(np.maximum(UNDER_SHARE * demand - allocated, 0.0) * is_sample).sum(axis=(1, 2)),
        under_samples=_under_samples(world, allocation),
        changes=is_changed.sum(axis=1),
        violations=violations_of(world, allocation, restarts or Restarts()),
    )


def relative(part: FloatArray, total: FloatArray) -> FloatArray:
    """Return part / whole; 1, neither more nor less, where a resource isn't used at all."""
    is_used = total > 0
    return np.asarray(np.where(is_used, part / np.where(is_used, total, 1.0), 1.0))


def _under_samples(world: World, allocation: FloatArray) -> IntArray:
    # Demand is 0 after a container's end, so that nothing is under it there.
    is_under = allocation[:, :, None] < UNDER_SHARE * world.by_cycle
    return np.asarray(is_under.sum(axis=(1, 2)), dtype=np.int64)


def _over(part: FloatArray, total: FloatArray) -> FloatArray:
    return np.asarray(part / np.where(total > 0, total, 1.0))
