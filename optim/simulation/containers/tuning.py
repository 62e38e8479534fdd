"""Multipliers as small as a requirement permits, by bisection."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.models.containers.series import FloatArray
from optim.simulation.containers.policy import Plan

IsMet = Callable[[FloatArray], NDArray[np.bool_]]
"""Tells of an allocation, shape (C, K, R), whether each resource meets what is required, shape (R,)."""

MOST = 1024.0
"""Largest multiplier that is tried."""

TOL = 1e-9
"""Relative width of the interval that bisection stops at: far less than any two samples differ by."""

NUM_HALVINGS = 60
"""Never more; a multiplier of zero has no relative width."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """A multiplier a resource.

    Attributes
    ----------
    multiplier
        Shape (R,).
    is_reached
        Shape (R,): whether the requirement is met; if not, the largest multiplier is used and the risk is what it is.
    """

    multiplier: FloatArray
    is_reached: NDArray[np.bool_]


def tune(plan: Plan, is_met: IsMet, num_resources: int) -> Tuned:
    """Return the smallest multipliers, at least 0, whose allocation is met.

    What is required must be met by all larger allocations as well. With feedback (kills raise later estimates) allocations
    need not grow with the multiplier everywhere; then the multiplier meets what is required still, and one a hair smaller
    doesn't.

    Parameters
    ----------
    plan
        A policy on a world.
    is_met
        What is required.
    num_resources
        R.
    """

    def meets(multiplier: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(is_met(plan.allocate(multiplier)))

    high = np.where(meets(np.zeros(num_resources)), 0.0, 1.0)
    is_reached = meets(high)
    while not is_reached.all() and high.max() < MOST:
        high = np.where(is_reached, high, 2 * high)
        is_reached = meets(high)
    low = np.where(is_reached, np.where(high > 1, high / 2, 0.0), high)
    for _ in range(NUM_HALVINGS):
        if (high - low <= TOL * high).all():
            break
        middle = (low + high) / 2
        is_met_there = meets(middle)
        high = np.where(is_met_there & is_reached, middle, high)
        low = np.where(is_met_there, low, middle)
    return Tuned(multiplier=high, is_reached=is_reached)
