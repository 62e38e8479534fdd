"""Multipliers at equal risk: as small as the allowed under-provisioned time permits, by bisection."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.models.containers.series import FloatArray
from optim.simulation.containers.metrics import under_time
from optim.simulation.containers.policy import Plan
from optim.simulation.containers.world import World

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
        Shape (R,): whether the risk is met; if not, the largest multiplier is used and the risk is what it is.
    """

    multiplier: FloatArray
    is_reached: NDArray[np.bool_]


def tune(world: World, plan: Plan, risk: float | FloatArray) -> Tuned:
    """Return the smallest multipliers, at least 0, whose under-provisioned time is at most `risk`.

    Under-provisioned time falls in the multiplier, as allocations grow. With feedback (kills raise later estimates) it
    need not fall everywhere; then the multiplier meets the risk still, and one a hair smaller doesn't.

    Parameters
    ----------
    world, plan
        Containers, and a policy on them.
    risk
        Share of samples, the same for each resource or one each.
    """

    def meets(multiplier: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(under_time(world, plan.allocate(multiplier)) <= risk)

    high = np.where(meets(np.zeros(len(world.resources))), 0.0, 1.0)
    is_reached = meets(high)
    while not is_reached.all() and high.max() < MOST:
        high = np.where(is_reached, high, 2 * high)
        is_reached = meets(high)
    low = np.where(is_reached, np.where(high > 1, high / 2, 0.0), high)
    for _ in range(NUM_HALVINGS):
        if (high - low <= TOL * high).all():
            break
        middle = (low + high) / 2
        is_met = meets(middle)
        high = np.where(is_met & is_reached, middle, high)
        low = np.where(is_met, low, middle)
    return Tuned(multiplier=high, is_reached=is_reached)
