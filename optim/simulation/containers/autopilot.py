"""Google Autopilot's recommender by moving windows.

Usage is aggregated over five minutes: of CPU a histogram of the samples, of memory the peak. With weights that halve
after h = 12 h (CPU) or 48 h (memory), the limit is the weighted average, a percentile of the histogram weighted by
load, or the maximum; times a margin, here the multiplier m; and of the last hour's recommendations the largest counts.

References
----------
Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, section 3.2. doi:10.1145/3342195.3387524
"""

from enum import StrEnum
from functools import partial

import numpy as np

from optim.models.containers.series import FloatArray
from optim.simulation.containers.policy import CycleView, Estimate, NamedPolicy, scaled_by
from optim.simulation.containers.world import World

AGGREGATE_S = 300.0
RATE_HALF_LIFE_S, LEVEL_HALF_LIFE_S = 12 * 3600.0, 48 * 3600.0
NUM_BUCKETS = 400
HOLD_S = 3600.0
ROOM = 1.25
"""Where no limit is known, buckets go up to the largest training sample times this; more is in the last one."""


class Workload(StrEnum):
    """What Autopilot's rules distinguish."""

    BATCH = "batch"
    """CPU by the average; memory by the 98th percentile."""
    SERVING = "serving"
    """CPU by the 95th percentile; memory by the maximum."""


CPU_PERCENTILE, MEMORY_PERCENTILE = 0.95, 0.98


class Autopilot:
    """Autopilot by moving windows, begun with empty histograms.

    Parameters
    ----------
    world
        Containers.
    workload
        Which rules.
    """

    def __init__(self, world: World, workload: Workload = Workload.BATCH) -> None:
        self._workload = workload
        self._levels = world.is_level.tolist()
        self._interval_s = world.interval_s
        self._aggregate = max(1, round(AGGREGATE_S / world.interval_s))
        known = np.broadcast_to(ROOM * world.training.values.max(axis=0), world.limit.shape)
        top = np.where(np.isfinite(world.limit), world.limit, known)
        self._width = np.where(top > 0, top, 1.0) / NUM_BUCKETS
        shape = world.limit.shape
        # Load-adjusted histograms, and sums of weights, of weighted averages; and the maximum.
        self._load = np.zeros((*shape, NUM_BUCKETS))
        self._weight, self._total, self._most = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self._seen = 0
        self._held: list[FloatArray] = []
        self._num_held = max(1, round(HOLD_S / (world.cycle_samples * world.interval_s)))

    def estimate(self, view: CycleView) -> Estimate:
        """Answer for a cycle."""
        count, end = len(view.past), view.past.shape[1]
        while self._seen < end:
            stop = min(self._seen + self._aggregate, end)
            self._observe(view.past[:, self._seen : stop])
            self._seen = stop
        value = np.stack([self._signal(column, count) for column in range(len(self._levels))], axis=1)
        self._held = [*self._held[-self._num_held + 1 :], value] if self._num_held > 1 else [value]
        return scaled_by(np.max([own[:count] for own in self._held], axis=0))

    def _observe(self, part: FloatArray) -> None:
        """Take an aggregate of the containers that run, shape (A, samples, R)."""
        count, age_s = len(part), part.shape[1] * self._interval_s
        rows = np.arange(count)[:, None]
        for column, is_level in enumerate(self._levels):
            fade = 2.0 ** (-age_s / (LEVEL_HALF_LIFE_S if is_level else RATE_HALF_LIFE_S))
            own = part[:, :, column]
            own = own.max(axis=1, keepdims=True) if is_level else own
            place = np.clip(own / self._width[:count, column : column + 1], 0, NUM_BUCKETS - 1).astype(np.int64)
            self._load[:count, column] *= fade
            edge = (place + 1) * self._width[:count, column : column + 1]
            np.add.at(self._load[:, column], (rows, place), edge)
            self._weight[:count, column] = fade * self._weight[:count, column] + 1.0
            self._total[:count, column] = fade * self._total[:count, column] + own.mean(axis=1)
            np.maximum(self._most[:count, column], own.max(axis=1), out=self._most[:count, column])

    def _signal(self, column: int, count: int) -> FloatArray:
        """Return the average, percentile or maximum that the rules ask for, shape (A,)."""
        is_level = self._levels[column]
        if is_level and self._workload is Workload.SERVING:
            return np.asarray(self._most[:count, column].copy())
        if not is_level and self._workload is Workload.BATCH:
            return np.asarray(self._total[:count, column] / self._weight[:count, column])
        level = MEMORY_PERCENTILE if is_level else CPU_PERCENTILE
        reached = np.cumsum(self._load[:count, column], axis=1)
        place = (reached >= level * reached[:, -1:]).argmax(axis=1)
        return np.asarray((place + 1) * self._width[:count, column])


AUTOPILOT_POLICIES = (
    NamedPolicy("autopilot", Autopilot),
    NamedPolicy("autopilot-serving", partial(Autopilot, workload=Workload.SERVING)),
)
