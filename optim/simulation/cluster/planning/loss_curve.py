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

FLOORS = 40
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
    steps = np.arange(count)
    best, found = np.inf, None
    for b2 in losses.min() * (1 - np.geomspace(1e-4, 1, FLOORS)):
        rest = losses - b2
        weight = rest**2  # of 1 / rest, to first order
        design = np.stack([steps, np.ones(count)], axis=1) * weight[:, None]
        (b0, b1), *_ = np.linalg.lstsq(design, weight / rest, rcond=None)
        if b0 <= 0 or b1 <= 0:
            continue
        error = float(((1 / (b0 * steps + b1) + b2 - losses) ** 2).sum())
        if error < best:
            best, found = error, LossCurve(b0=float(b0), b1=float(b1), b2=float(b2))
    return found
