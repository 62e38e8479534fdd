"""Loss curves: l(k) = 1 / (b0 k + b1) + b2 fitted to the losses reported so far, and what it foretells.

References
----------
Peng, Bao, Chen, Wu, Guo, "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018,
section 3.1.
"""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.world import FloatArray

LEAST_POINTS = 3
"""Fewer losses say nothing about three coefficients."""

FLOORS = 200
"""Values of b2 that are tried between 0 and the least loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCurve:
    """Coefficients, all at least 0."""

    b0: float
    b1: float
    b2: float

    def at(self, step: float) -> float:
        """Return the loss at a step."""
        return 1 / (self.b0 * step + self.b1) + self.b2


def fit_loss(losses: FloatArray) -> LossCurve | None:
    """Fit a curve to the losses at steps 0, 1, ...; None where they are too few or don't fall.

    For each of some values of b2 the other two are found by linear least squares of 1 / (l - b2), weighted so that errors of l
    count alike; the best is taken.
    """
    count = len(losses)
    if count < LEAST_POINTS or losses[-1] >= losses[0] or losses.min() <= 0:
        return None
    steps = np.arange(count, dtype=float)
    b2 = losses.min() * (1 - np.geomspace(1e-4, 1, FLOORS))[:, None]
    rest = losses - b2
    weight = rest**4  # squared, of 1 / rest, to first order
    zeroth, first, second = weight.sum(axis=1), weight @ steps, weight @ steps**2
    target, slope = (weight / rest).sum(axis=1), (weight / rest) @ steps
    determinant = zeroth * second - first**2
    with np.errstate(divide="ignore", invalid="ignore"):
        b0, b1 = (zeroth * slope - first * target) / determinant, (second * target - first * slope) / determinant
        error = ((1 / (b0[:, None] * steps + b1[:, None]) + b2 - losses) ** 2).sum(axis=1)
    error = np.where((b0 > 0) & (b1 > 0) & np.isfinite(error), error, np.inf)
    best = int(error.argmin())
    if not np.isfinite(error[best]):
        return None
    return LossCurve(b0=float(b0[best]), b1=float(b1[best]), b2=float(b2[best, 0]))
