"""Google Autopilot's recommenders: moving windows, and an ensemble of models that follows the model of least cost.

Usage is aggregated over five minutes: CPU to a histogram of the samples, memory to the peak. Weights have a half-life of 12 h
(CPU) or 48 h (memory). The limit is the weighted average, a percentile of the load-weighted histogram, or the maximum, times a
margin, here the multiplier m. The recommendation is the largest limit of the last hour.

In the ensemble, each model m has a decay d_m and a margin M_m, and the possible limits L form a grid. Let b(x) be the
smallest limit not below sample x. At the end of a cycle the model updates its averages o and u of the numbers of
samples above and below each limit L:

    o(L) <- (1 - d_m) o(L) + d_m #{b(x) > L},    u(L) <- (1 - d_m) u(L) + d_m #{b(x) < L}.

The model's limit is M_m times the L that minimises w_o o(L) + w_u u(L) + w_c [L != previous L], where w_o, w_u and w_c are
weights. With the same weights, the recommender computes each model's smoothed cost of its past limits, and selects the
model for which this cost plus penalties for changes of model and of limit is least. The multiplier is a factor on the
limit. The weights, decays and margins are unpublished, so the values here are assumptions.

References
----------
Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, section 3.2; the ensemble: section 3.2.3, equations
1 to 5. doi:10.1145/3342195.3387524
"""

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.policies import policy
from optim.rightsizing.policy import CycleView, Estimate, scaled_by
from optim.rightsizing.world import World

AGGREGATE_S = 300.0

RATE_HALF_LIFE_S, LEVEL_HALF_LIFE_S = 12 * 3600.0, 48 * 3600.0

NUM_BUCKETS = 400

HOLD_S = 3600.0

HEADROOM = 1.25
"""If a container's limit is unknown, its buckets reach up to this factor times the largest training sample; the last
bucket also counts larger values."""


MEMORY_PERCENTILE = 0.98


def _highest(world: World) -> FloatArray:
    """Return each container's limit, or the training maximum with headroom if it has none, shape (C, R)."""
    known = np.broadcast_to(HEADROOM * world.training.values.max(axis=0), world.limit.shape)
    top = np.where(np.isfinite(world.limit), world.limit, known)
    return np.where(top > 0, top, 1.0)


@policy("autopilot", world="containers", summary="Google Autopilot's moving-window recommender.", is_default=True)
class Autopilot:
    """Autopilot's moving windows with the rules for batch jobs, starting from empty histograms.

    CPU uses the average, memory the 98th percentile.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    """

    def __init__(self, world: World) -> None:
        self._is_level = world.is_level.tolist()
        self._interval_s = world.interval_s
        self._aggregate = max(1, round(AGGREGATE_S / world.interval_s))
        self._width = _highest(world) / NUM_BUCKETS
        shape = world.limit.shape
        # Load-weighted histograms, sums of weights, and weighted sums of usage.
        self._load = np.zeros((*shape, NUM_BUCKETS))
        self._weight, self._total = np.zeros(shape), np.zeros(shape)
        self._seen = 0
        self._recent: list[FloatArray] = []
        self._num_recent = max(1, round(HOLD_S / (world.cycle_samples * world.interval_s)))

    def estimate(self, view: CycleView) -> Estimate:
        """Return the estimate for a cycle."""
        count, end = len(view.past), view.past.shape[1]
        while self._seen < end:
            stop = min(self._seen + self._aggregate, end)
            self._observe(view.past[:, self._seen : stop])
            self._seen = stop
        value = np.stack([self._signal(column, count) for column in range(len(self._is_level))], axis=1)
        self._recent = [*self._recent[-self._num_recent + 1 :], value] if self._num_recent > 1 else [value]
        return scaled_by(np.max([recommended[:count] for recommended in self._recent], axis=0))

    def _observe(self, part: FloatArray) -> None:
        """Add the samples of one aggregation interval, shape (A, samples, R)."""
        count, age_s = len(part), part.shape[1] * self._interval_s
        rows = np.arange(count)[:, None]
        for column, is_level in enumerate(self._is_level):
            fade = 2.0 ** (-age_s / (LEVEL_HALF_LIFE_S if is_level else RATE_HALF_LIFE_S))
            usage = part[:, :, column]
            usage = usage.max(axis=1, keepdims=True) if is_level else usage
            place = np.clip(usage / self._width[:count, column : column + 1], 0, NUM_BUCKETS - 1).astype(np.int64)
            self._load[:count, column] *= fade
            edge = (place + 1) * self._width[:count, column : column + 1]
            np.add.at(self._load[:, column], (rows, place), edge)
            self._weight[:count, column] = fade * self._weight[:count, column] + 1.0
            self._total[:count, column] = fade * self._total[:count, column] + usage.mean(axis=1)

    def _signal(self, column: int, count: int) -> FloatArray:
        """Return the average of a rate, or the percentile of an incompressible resource, shape (A,)."""
        if not self._is_level[column]:
            return np.asarray(self._total[:count, column] / self._weight[:count, column])
        reached = np.cumsum(self._load[:count, column], axis=1)
        place = (reached >= MEMORY_PERCENTILE * reached[:, -1:]).argmax(axis=1)
        return np.asarray((place + 1) * self._width[:count, column])


DECAYS = np.array([0.1, 0.3, 0.6, 0.9])

MARGINS = np.array([1.0, 1.1, 1.25])

NUM_LIMITS = 100

OVERRUN, UNDERRUN, CHANGE = 8.0, 1.0, 0.1
"""Weights of the fraction of a cycle's samples above a limit, of the fraction below it, and of a change."""

SMOOTHING = 0.3


@policy(
    "autopilot-ml",
    world="containers",
    summary="Google Autopilot's ensemble of windows, which follows the window with the lowest past cost.",
    is_default=True,
)
class AutopilotLearning:
    """Autopilot's ensemble recommender for all containers of a world, starting without data.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    """

    def __init__(self, world: World) -> None:
        steps = (np.arange(NUM_LIMITS) + 1.0) / NUM_LIMITS
        self._limits = _highest(world)[..., None] * steps
        decay, margin = np.meshgrid(DECAYS, MARGINS, indexing="ij")
        self._decay, self._margin = decay.ravel()[:, None, None, None], margin.ravel()[:, None, None]
        shape = (decay.size, *world.limit.shape)
        self._over, self._under = np.zeros((*shape, NUM_LIMITS)), np.zeros((*shape, NUM_LIMITS))
        self._place: IntArray = np.full(shape, -1, dtype=np.int64)
        self._cost, self._model = np.zeros(shape), np.full(world.limit.shape, -1, dtype=np.int64)

    def estimate(self, view: CycleView) -> Estimate:
        """Return the estimate for a cycle."""
        running = np.s_[:, : len(view.past)]
        limits = self._limits[: len(view.past)]
        above = (view.previous[..., None] > limits[:, None]).mean(axis=1)
        below = np.zeros_like(above)
        below[..., 1:] = 1.0 - above[..., :-1]  # b(x) < L_k if x <= L_(k-1)
        for counts, seen in ((self._over, above), (self._under, below)):
            counts[running] = (1.0 - self._decay) * counts[running] + self._decay * seen
        costs = OVERRUN * self._over[running] + UNDERRUN * self._under[running]
        before = self._place[running]
        costs = costs + CHANGE * (np.arange(NUM_LIMITS) != before[..., None])
        place = np.argmin(costs, axis=3)
        is_changed = place != before
        self._place[running] = place  # after the last use of `before`, which is a view of this array
        limit = self._margin * np.take_along_axis(limits[None], place[..., None], axis=3)[..., 0]
        self._follow(view, limit, is_changed)
        model = self._model[: len(view.past)]
        return scaled_by(np.take_along_axis(limit, model[None], axis=0)[0])

    def _follow(self, view: CycleView, limit: FloatArray, is_changed: np.ndarray) -> None:
        """Select each container's model by the smoothed costs of the models' past limits."""
        count = len(view.past)
        over = (view.previous[None] > limit[:, :, None]).mean(axis=2)
        under = np.maximum(limit[:, :, None] - view.previous[None], 0.0).mean(axis=2)
        # The unused amount is relative to usage, but at least to the smallest limit: otherwise one idle cycle would
        # dominate all later costs.
        level = np.maximum(view.previous.mean(axis=1), self._limits[:count, :, 0])
        fresh = OVERRUN * over + UNDERRUN * under / level + CHANGE * is_changed
        cost = self._cost[:, :count]
        cost[:] = (1.0 - SMOOTHING) * cost + SMOOTHING * fresh
        models = np.arange(len(cost))[:, None, None]
        penalty = CHANGE * (models != self._model[:count]) + CHANGE * is_changed
        self._model[:count] = np.argmin(cost + penalty, axis=0)
