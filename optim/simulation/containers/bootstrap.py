"""Intervals over containers: samples of a container depend on each other, containers don't.

In each resample of the containers every policy is tuned anew to the same risk, so that the interval of a saving holds
the uncertainty of the tuning as well; both policies of a comparison see the same resample.
"""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.metrics import Outcome, measure
from optim.simulation.containers.policy import Plan
from optim.simulation.containers.tuning import tune
from optim.simulation.containers.world import World

NUM_POINTS = 33
"""Multipliers that each policy is measured at; between them risk and allocation are taken as straight lines."""

REACH = 2.0
"""The multipliers span risks from the wanted one divided by this to the wanted one times this."""

INTERVAL = (0.025, 0.975)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskCurve:
    """A policy around the wanted risk, sums by container.

    Attributes
    ----------
    multiplier
        Shape (J, R), rising.
    under_samples, allocation
        Shape (G, J, R): of each container at each multiplier.
    """

    multiplier: FloatArray
    under_samples: FloatArray
    allocation: FloatArray


def risk_curve(world: World, plan: Plan, risk: float) -> RiskCurve:
    """Measure a policy at multipliers around the one that meets the risk."""
    low = tune(world, plan, min(risk * REACH, 1.0)).multiplier
    high = tune(world, plan, risk / REACH).multiplier
    grid = np.linspace(low, np.maximum(high, low), NUM_POINTS)
    return curve_at(world, plan, grid)


def curve_at(world: World, plan: Plan, multiplier: FloatArray) -> RiskCurve:
    """Measure a policy at given multipliers, shape (J, R)."""
    outcomes = [measure(world, plan.allocate(point)) for point in multiplier]
    return RiskCurve(
        multiplier=multiplier,
        under_samples=np.stack([_by_container(world, o.under_samples) for o in outcomes], axis=1),
        allocation=np.stack([_by_container(world, o.allocation) for o in outcomes], axis=1),
    )


def resamples(world: World, number: int, rng: np.random.Generator) -> IntArray:
    """Return how often each container counts in each resample, shape (B, G)."""
    count = int(world.group.max()) + 1
    return np.asarray(rng.multinomial(count, np.full(count, 1.0 / count), size=number), dtype=np.int64)


def resampled_allocation(world: World, curve: RiskCurve, counts: IntArray, risk: float) -> FloatArray:
    """Return the total allocation at the wanted risk in each resample, shape (B, R)."""
    samples = np.bincount(world.group, weights=world.lengths)
    share = np.einsum("bg,gjr->bjr", counts, curve.under_samples) / (counts @ samples)[:, None, None]
    total = np.einsum("bg,gjr->bjr", counts, curve.allocation)
    found = np.empty((len(counts), share.shape[2]))
    for b, r in np.ndindex(*found.shape):
        # Risks fall with the multiplier; np.interp wants them rising, and holds the ends.
        found[b, r] = np.interp(risk, np.minimum.accumulate(share[b, :, r])[::-1], total[b, ::-1, r])
    return found


def interval(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the 95 % intervals of resampled figures, from shape (B, ...) two of shape (...)."""
    low, high = np.quantile(values, INTERVAL, axis=0)
    return low, high


def resampled_demand(world: World, outcome: Outcome, counts: IntArray) -> FloatArray:
    """Return the total demand in each resample, shape (B, R)."""
    return np.asarray(counts @ _by_container(world, outcome.demand))


def _by_container(world: World, values: FloatArray | IntArray) -> FloatArray:
    number = int(world.group.max()) + 1
    return np.stack([np.bincount(world.group, weights=column, minlength=number) for column in values.T], axis=1)
