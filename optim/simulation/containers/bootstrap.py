"""Intervals over containers: samples of a container depend on each other, containers don't.

Policies keep the multipliers that they were tuned to on other containers, so that an interval is that of the tuned policy on
fresh containers; both policies of a comparison see the same resample. What tuning adds shows between seeds.
"""

import numpy as np

from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.world import World


def resamples(world: World, number: int, rng: np.random.Generator) -> IntArray:
    """Return how often each unit counts in each resample, shape (B, G)."""
    count = num_units(world)
    return np.asarray(rng.multinomial(count, np.full(count, 1.0 / count), size=number), dtype=np.int64)


def num_units(world: World) -> int:
    """Return G, the number of units."""
    return int(world.group.max()) + 1


def by_unit(world: World, values: FloatArray | IntArray) -> FloatArray:
    """Return sums over the series of each unit, shape (G, R), from shape (C, R)."""
    number = num_units(world)
    return np.stack([np.bincount(world.group, weights=column, minlength=number) for column in values.T], axis=1)


def resampled(world: World, values: FloatArray | IntArray, counts: IntArray) -> FloatArray:
    """Return the sums over all containers in each resample, shape (B, R), from shape (C, R)."""
    return np.asarray(counts @ by_unit(world, values))
