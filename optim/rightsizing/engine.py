"""Violations and metrics of an allocation on a world.

An incompressible resource (memory) causes kills: a cycle with any sample above its allocation has a kill at the first
such sample. After a start-up the container repeats the work since its last checkpoint, and both times are charged. The
rest of the cycle isn't simulated again, so a cycle has at most one kill. A rate (CPU) is throttled: demand above the
allocation is delayed work. Any excess counts, however small.

All policies have the same first cycle, so that only the later cycles, the post-warm-up part, distinguish them.
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
    """Cost of a kill.

    Attributes
    ----------
    checkpoint_s
        Seconds between checkpoints, from a container's start on; a kill loses the work since the last checkpoint. The
        default of half an hour is near Young's rule for start-ups of minutes and one kill per day.
    startup_s
        Seconds until a killed container works again: scheduling, image pull, reading the checkpoint.
    """

    checkpoint_s: float = 1800.0
    startup_s: float = 120.0

    def __post_init__(self) -> None:
        """Check ranges."""
        check_in("(0, inf)", self, "checkpoint_s")
        check_in("[0, inf)", self, "startup_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Violations:
    """Violations of an allocation, for C containers and R resources.

    Attributes
    ----------
    kills
        Shape (C, R): number of cycles with a kill, 0 for rates.
    throttled
        Shape (C, R): number of throttled samples, 0 for incompressible resources.
    delayed
        Shape (C, R): demand above the allocation of rates, summed over samples.
    post_warmup
        Shape (C, R): fraction of the cycles with a kill, or of the throttled samples, after the first cycle; 0 if there
        are no later cycles. It is relative to all cycles or samples of the container's unit.
    restart_s
        Shape (C,): seconds of start-ups and of repeated work.
    charge
        Shape (C, R): allocation during restarts, summed over samples; for an incompressible resource at least the
        demand at the time of the kill.
    """

    kills: IntArray
    throttled: IntArray
    delayed: FloatArray
    post_warmup: FloatArray
    restart_s: FloatArray
    charge: FloatArray


def violations_of(world: World, allocation: FloatArray, restarts: Restarts) -> Violations:
    """Return the violations of `allocation`, which has shape (C, K, R) with K cycles."""
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
    """Return the weight of one kill or throttled sample after the first cycle, shape (C, R); 0 without later cycles.

    All series of a unit share one weight, so that a unit's violations lie in [0, 1] for any number of series.
    """
    samples = world.samples[:, 1:]
    cycles, counts = (samples > 0).sum(axis=1), samples.sum(axis=1)
    of_unit = by_unit(world, np.stack([counts, cycles], axis=1))[world.group][:, world.is_level.astype(np.int64)]
    return np.asarray(np.where(of_unit > 0, 1.0 / np.maximum(of_unit, 1), 0.0))


def by_unit(world: World, values: FloatArray | IntArray) -> FloatArray:
    """Return the sums over the series of each of G units, shape (G, R), from values of shape (C, R)."""
    return group_sums(values, world.group, world.num_units)


def restart_samples(sample: IntArray, interval_s: float, restarts: Restarts) -> FloatArray:
    """Return the length, in samples, of start-up and repeated work after a kill at each given sample of a container's run."""
    return np.asarray((np.mod(sample * interval_s, restarts.checkpoint_s) + restarts.startup_s) / interval_s)


OVER_SHARE = 1.05

UNDER_SHARE = 0.95
"""Minimum share of demand at which an allocation isn't too small. Allocations within 5 % of demand count as neither too
small nor too large, as in HotCloud 2020."""

CHANGE = 0.05
"""Minimum relative change of an allocation that counts as a change."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Metrics of C containers and R resources; each array has shape (C, R).

    Attributes
    ----------
    samples, days
        Number of samples, and their duration in days.
    demand, allocation
        Sums of the demand and of the allocation over samples.
    over, under
        Sums of the allocation above 105 % of demand, and of the shortage below 95 % of demand.
    under_samples
        Number of samples with an allocation below 95 % of demand.
    changes
        Number of changes of the allocation by more than 5 %.
    violations
        Kills, throttling and cost of restarts.
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
        """Fraction of samples with less than 95 % of demand, shape (R,)."""
        return np.asarray(self.under_samples.sum(axis=0) / self.samples.sum(axis=0))

    @property
    def total_allocation(self) -> FloatArray:
        """Sum of allocations over samples, shape (R,)."""
        return np.asarray(self.allocation.sum(axis=0))

    def summary(self) -> dict[str, FloatArray | IntArray]:
        """Return the metrics of a policy by name, each of shape (R,).

        The names are fields of `TradePoint`, which describes them: `under_time`, `allocation_over_demand`,
        `over_share`, `under_share`, `kills`, `throttled_time`, `delayed_share` and `changes`.
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
        """Return percentiles, over the containers, of the ratio of allocation to demand; shape (levels, R)."""
        return np.asarray(np.quantile(_over(self.allocation, self.demand), levels, axis=0))


def under_time(world: World, allocation: FloatArray) -> FloatArray:
    """Return the fraction of samples with less than 95 % of demand, shape (R,)."""
    return np.asarray(_under_samples(world, allocation).sum(axis=0) / world.lengths.sum())


def measure(world: World, allocation: FloatArray, restarts: Restarts | None = None) -> Outcome:
    """Return the metrics of an allocation.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    allocation
        Shape (C, K, R): allocation of each container and resource in each of K cycles.
    restarts
        Cost of a kill; None for the defaults.
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
    """Return part / total; 1 if the resource isn't used."""
    is_used = total > 0
    return np.asarray(np.where(is_used, part / np.where(is_used, total, 1.0), 1.0))


def _under_samples(world: World, allocation: FloatArray) -> IntArray:
    # Demand is 0 after a container's end, so no sample there counts as under.
    is_under = allocation[:, :, None] < UNDER_SHARE * world.by_cycle
    return np.asarray(is_under.sum(axis=(1, 2)), dtype=np.int64)


def _over(part: FloatArray, total: FloatArray) -> FloatArray:
    return np.asarray(part / np.where(total > 0, total, 1.0))
