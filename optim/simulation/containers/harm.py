"""What too small an allocation does: containers killed for lack of memory, and slowed down for lack of CPU.

A resource that is held (memory) kills: a cycle with any sample above its allocation is a kill, at the first such sample. The
work since the last checkpoint is done again after a start-up, and both are charged; the series isn't replayed, so that a
cycle has one kill at most. A resource that is a rate (CPU) throttles: a sample above its allocation is throttled, and what lies
above it is work that is delayed. Neither has a tolerance.

The first cycle is given to all policies, so that only what comes after it, the decided part, says anything about them.
"""

from dataclasses import dataclass

import numpy as np

from optim.core.ranges import check_in
from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.world import World

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
class Harm:
    """What an allocation did to each container.

    Attributes
    ----------
    kills
        Shape (C, R): cycles with a kill, 0 for rates.
    throttled
        Shape (C, R): samples throttled, 0 for resources that are held.
    delayed
        Shape (C, R): demand above the allocation of rates, summed over samples.
    decided
        Shape (C, R): share of the decided cycles with a kill, or of the decided samples that were throttled; 0 where nothing was
        decided.
    restart_s
        Shape (C,): seconds of start-ups and of work done again.
    charge
        Shape (C, R): allocation, times samples, held during restarts: what was allocated, and of a resource that is held at least
        what was used at the sample of the kill; what the cycle would have used later doesn't count.
    """

    kills: IntArray
    throttled: IntArray
    delayed: FloatArray
    decided: FloatArray
    restart_s: FloatArray
    charge: FloatArray


def harm_of(world: World, allocation: FloatArray, restarts: Restarts) -> Harm:
    """Return the harm of an allocation, shape (C, K, R)."""
    demand, levels = world.by_cycle, world.is_level
    exceeds = demand > allocation[:, :, None]
    killed = exceeds.any(axis=2) & levels
    throttled = np.where(levels, 0, exceeds.sum(axis=2))
    fatal = np.asarray((exceeds & levels).any(axis=3))
    first = fatal.argmax(axis=2)
    begins = np.arange(world.num_cycles) * world.cycle_samples
    again = np.where(fatal.any(axis=2), restart_samples(first + begins, world.interval_s, restarts), 0.0)
    at_kill = np.take_along_axis(demand, first[:, :, None, None], axis=2)[:, :, 0]
    held = np.where(levels, np.maximum(allocation, at_kill), allocation)
    return Harm(
        kills=killed.sum(axis=1),
        throttled=throttled.sum(axis=1),
        delayed=np.where(levels, 0.0, np.maximum(demand - allocation[:, :, None], 0.0).sum(axis=(1, 2))),
        decided=(np.where(levels, killed, throttled)[:, 1:] * decided_weight(world)[:, None]).sum(axis=1),
        restart_s=again.sum(axis=1) * world.interval_s,
        charge=(held * again[..., None]).sum(axis=1),
    )


def decided_weight(world: World) -> FloatArray:
    """Return what a kill, or a throttled sample, of the decided part counts, shape (C, R); 0 where nothing is decided.

    All series of a unit share one weight: a unit's harm lies in [0, 1] whatever its number of series.
    """
    samples = world.samples[:, 1:]
    cycles, counts = (samples > 0).sum(axis=1), samples.sum(axis=1)
    number = int(world.group.max()) + 1
    whole = np.stack([np.bincount(world.group, weights=own, minlength=number) for own in (counts, cycles)], axis=1)
    own = whole[world.group][:, world.is_level.astype(np.int64)]
    return np.asarray(np.where(own > 0, 1.0 / np.maximum(own, 1), 0.0))


def restart_samples(sample: IntArray, interval_s: float, restarts: Restarts) -> FloatArray:
    """Return what kills at these samples of a container's life cost, in samples."""
    return np.asarray((np.mod(sample * interval_s, restarts.checkpoint_s) + restarts.startup_s) / interval_s)
