"""Google Autopilot's recommender that learns: a set of windows, of which the one that would have cost least is followed.

Each model m has a decay d_m and a margin M_m. Samples are told by the least limit b(x) that holds them: at the end of a cycle
the numbers of samples above and below each limit L are

    o(L) <- (1 - d) o(L) + d #{b(x) > L},    u(L) <- (1 - d) u(L) + d #{b(x) < L},

and the model's limit is M_m times the L that minimises w_o o(L) + w_u u(L) + w_c [L != L before]. Of the models the one is followed
whose smoothed cost, w_o, w_u and w_c over its own limits, is least, with a penalty for another model than before and for
another limit. The multiplier is a factor on the limit.

References
----------
Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, section 3.2.3, equations 1 to 5. Weights, decays and margins
aren't published; these are ours. doi:10.1145/3342195.3387524
"""

import numpy as np

from optim.models.containers.series import FloatArray, IntArray
from optim.simulation.containers.autopilot import ROOM
from optim.simulation.containers.policy import CycleView, Estimate, NamedPolicy, scaled_by
from optim.simulation.containers.world import World

DECAYS = np.array([0.1, 0.3, 0.6, 0.9])
MARGINS = np.array([1.0, 1.1, 1.25])
NUM_LIMITS = 100
OVERRUN, UNDERRUN, CHANGE = 8.0, 1.0, 0.1
"""Weights of samples above a limit, below it (as shares of a cycle), and of a change."""

SMOOTHING = 0.3


class AutopilotLearning:
    """The recommender above for all containers of a world, begun with nothing known.

    Parameters
    ----------
    world
        Containers.
    """

    def __init__(self, world: World) -> None:
        known = np.broadcast_to(ROOM * world.training.values.max(axis=0), world.limit.shape)
        top = np.where(np.isfinite(world.limit), world.limit, known)
        steps = (np.arange(NUM_LIMITS) + 1.0) / NUM_LIMITS
        self._limits = np.where(top > 0, top, 1.0)[..., None] * steps
        decay, margin = np.meshgrid(DECAYS, MARGINS, indexing="ij")
        self._decay, self._margin = decay.ravel()[:, None, None, None], margin.ravel()[:, None, None]
        shape = (decay.size, *world.limit.shape)
        self._over, self._under = np.zeros((*shape, NUM_LIMITS)), np.zeros((*shape, NUM_LIMITS))
        self._place: IntArray = np.full(shape, -1, dtype=np.int64)
        self._cost, self._model = np.zeros(shape), np.full(world.limit.shape, -1, dtype=np.int64)

    def estimate(self, view: CycleView) -> Estimate:
        """Answer for a cycle."""
        running = np.s_[:, : len(view.past)]
        limits = self._limits[: len(view.past)]
        above = (view.previous[..., None] > limits[:, None]).mean(axis=1)
        below = np.zeros_like(above)
        below[..., 1:] = 1.0 - above[..., :-1]  # what the next lower limit holds, too
        for counts, seen in ((self._over, above), (self._under, below)):
            counts[running] = (1.0 - self._decay) * counts[running] + self._decay * seen
        costs = OVERRUN * self._over[running] + UNDERRUN * self._under[running]
        before = self._place[running]
        costs = costs + CHANGE * (np.arange(NUM_LIMITS) != before[..., None])
        place = np.argmin(costs, axis=3)
        is_changed = place != before
        self._place[running] = place  # `before` is a view of it
        limit = self._margin * np.take_along_axis(limits[None], place[..., None], axis=3)[..., 0]
        self._follow(view, limit, is_changed)
        model = self._model[: len(view.past)]
        return scaled_by(np.take_along_axis(limit, model[None], axis=0)[0])

    def _follow(self, view: CycleView, limit: FloatArray, is_changed: np.ndarray) -> None:
        """Choose each container's model, by what their limits would have cost."""
        count = len(view.past)
        over = (view.previous[None] > limit[:, :, None]).mean(axis=2)
        under = np.maximum(limit[:, :, None] - view.previous[None], 0.0).mean(axis=2)
        # Who uses next to nothing is measured by the least limit: else one idle cycle would outweigh all that comes after.
        level = np.maximum(view.previous.mean(axis=1), self._limits[:count, :, 0])
        fresh = OVERRUN * over + UNDERRUN * under / level + CHANGE * is_changed
        cost = self._cost[:, :count]
        cost[:] = (1.0 - SMOOTHING) * cost + SMOOTHING * fresh
        models = np.arange(len(cost))[:, None, None]
        penalty = CHANGE * (models != self._model[:count]) + CHANGE * is_changed
        self._model[:count] = np.argmin(cost + penalty, axis=0)


AUTOPILOT_LEARNING = NamedPolicy("autopilot-ml", AutopilotLearning)
