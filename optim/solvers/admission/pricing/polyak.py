"""Polyak's subgradient steps on a Lagrangian bound.

Source: Polyak, "Minimization of unsmooth functionals", 1969, DOI 10.1016/0041-5553(69)90061-5.
"""

import numpy as np

from optim.models.admission.instance import FloatArray

LEAST_PROGRESS = 1e-6
"""A bound that falls by less than this share counts as stalled."""


class PolyakSteps:
    """Steps towards a target bound, shorter and shorter where the bound stalls.

    Rows differ in unit and size: steps are measured in prices of whole rows (p times capacity), so that units don't
    matter.

    Parameters
    ----------
    limit
        Shape (rows,): right-hand sides; prices of rows without capacity stay where they are.
    patience
        Steps without progress after which the step length is halved.
    """

    def __init__(self, limit: FloatArray, patience: int) -> None:
        self._limit, self._patience = limit, patience
        self._scale = np.divide(1.0, limit, out=np.zeros_like(limit), where=limit > 0)
        self._damping, self._stalled = 1.0, 0

    def watch(self, bound: float, best: float) -> None:
        """Compare a point's bound with the best one before it."""
        self._stalled = 0 if bound < best * (1 - LEAST_PROGRESS) else self._stalled + 1
        if self._stalled >= self._patience:
            self._damping, self._stalled = self._damping / 2, 0

    def next(self, point: FloatArray, bound: float, use: FloatArray, goal: float) -> FloatArray | None:
        """Return the point after `point`, at which the best schedules use so much of the rows.

        None if its bound is at the goal already, or no price can lower it.
        """
        gradient = (self._limit - use) * self._scale
        free = (point > 0) | (gradient < 0)
        norm = float(np.sum(gradient[free] ** 2))
        if norm == 0 or bound <= goal:
            return None
        length = self._damping * (bound - goal) / norm
        moved: FloatArray = np.maximum(0.0, point - length * gradient * self._scale)
        return moved
