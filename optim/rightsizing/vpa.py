"""The recommender of the Kubernetes Vertical Pod Autoscaler, with its decaying histograms.

CPU uses a decaying histogram of one sample per minute, memory a decaying histogram of daily peaks. The target is the 90th
percentile times a margin, here the multiplier m (1.15 in the source). OOM kills raise the recorded peak.

References
----------
Kubernetes autoscaler, vertical-pod-autoscaler/pkg/recommender: `util/histogram.go`, `util/decaying_histogram.go`,
`util/histogram_options.go`, `model/container.go` (`addMemorySample`, `RecordOOM`), `model/aggregate_container_state.go`
(weights), `logic/recommender.go` (margin, minimum amounts).
"""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.policies import policy
from optim.models.containers.series import Resource
from optim.rightsizing.policy import CycleView, Estimate, Trait
from optim.rightsizing.world import World

GROWTH = 1.05
"""Each bucket is 5 % wider than the previous one."""

EPSILON = 1e-4
"""Weight below which a bucket at either end of the histogram counts as empty."""

HALF_LIFE_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Exponential buckets: bucket n begins at first (1.05^n - 1) / 0.05.

    Attributes
    ----------
    first
        Width of the first bucket.
    cap
        Largest value.
    """

    first: float
    cap: float

    @property
    def count(self) -> int:
        """Number of buckets."""
        return int(np.ceil(np.log(self.cap * (GROWTH - 1) / self.first + 1) / np.log(GROWTH))) + 1

    def find(self, value: FloatArray) -> IntArray:
        """Return the bucket of each value."""
        place = np.floor(np.log(value * (GROWTH - 1) / self.first + 1) / np.log(GROWTH)).astype(np.int64)
        return np.where(value < self.first, 0, np.minimum(place, self.count - 1))

    def begin(self, bucket: IntArray) -> FloatArray:
        """Return the lower end of each bucket."""
        return np.asarray(self.first * (GROWTH**bucket - 1) / (GROWTH - 1))


class DecayingHistograms:
    """Histograms, one per row. Instead of decaying the weights of old samples, later samples get larger weights.

    Parameters
    ----------
    buckets
        Buckets of all rows.
    rows
        Number of histograms.
    """

    def __init__(self, buckets: Buckets, rows: int) -> None:
        self.buckets = buckets
        self.weight = np.zeros((rows, buckets.count))

    def add(self, rows: IntArray, value: FloatArray, weight: float, time_s: float) -> None:
        """Add one sample to the histogram of each given row; the rows must differ."""
        self.weight[rows, self.buckets.find(value)] += weight * decay(time_s)

    def subtract(self, rows: IntArray, value: FloatArray, weight: float, time_s: float) -> None:
        """Remove a sample that was added earlier; weights below `EPSILON` become 0."""
        bucket = self.buckets.find(value)
        remaining = self.weight[rows, bucket] - weight * decay(time_s)
        self.weight[rows, bucket] = np.where(remaining < EPSILON, 0.0, remaining)

    def percentile(self, level: float, count: int) -> FloatArray:
        """Return a percentile of each of the first `count` histograms: the upper end of the percentile's bucket, 0 if empty."""
        weight = self.weight[:count]
        is_full = weight >= EPSILON
        last = self.buckets.count - 1
        lowest, highest = is_full.argmax(axis=1), last - is_full[:, ::-1].argmax(axis=1)
        inner = np.where(np.arange(last + 1) >= lowest[:, None], weight, 0.0)
        reached = np.cumsum(inner, axis=1) >= level * weight.sum(axis=1)[:, None]
        # Below the lowest bucket the sum is 0; a level of 0 must still return the lowest bucket.
        reached &= np.arange(last + 1) >= lowest[:, None]
        bucket = np.where(reached.any(axis=1), np.minimum(reached.argmax(axis=1), highest), highest)
        value = self.buckets.begin(np.minimum(bucket + 1, last))
        return np.where(is_full.any(axis=1), value, 0.0)


def decay(time_s: float) -> float:
    """Return the weight factor of a sample at a given time, which doubles every half-life."""
    return float(2.0 ** (time_s / HALF_LIFE_S))


GIB = 2.0**30

RATE_BUCKETS = Buckets(first=0.01, cap=1000.0)

LEVEL_BUCKETS = Buckets(first=1e7 / GIB, cap=1e12 / GIB)

RATE_WEIGHT = 0.1

LEVEL_WEIGHT = 1.0

PEAK_WINDOW_S = 86_400.0

SAMPLE_S = 60.0

PERCENTILE = 0.9

MIN_RATE, MIN_LEVEL = 0.025, 250.0 / 1024.0

OOM_FACTOR, OOM_STEP = 1.2, 100.0 / 1024.0


@policy(
    "vpa",
    world="containers",
    summary="Recommender of the Kubernetes Vertical Pod Autoscaler: decaying histograms, with peaks raised by kills.",
    is_default=True,
    traits=(Trait.FEEDBACK,),
)
class VerticalPodAutoscaler:
    """Kubernetes' recommender, with a histogram of samples (rates) or daily peaks (incompressible) per container.

    Parameters
    ----------
    world
        The simulated containers (see `World`); each gets at least 25 milli-cores and 250 MiB.
    """

    def __init__(self, world: World) -> None:
        self._resources = world.resources
        self._interval_s = world.interval_s
        self._step = samples_a_minute(world.interval_s)
        self._begin_s = (self._step - 1) * world.interval_s
        self._floor = np.where(world.is_level, MIN_LEVEL, MIN_RATE)
        self._rows = np.arange(world.num_containers)
        self._peak = np.zeros(world.limit.shape)
        self._window = -1
        self._seen = 0
        self._histograms = [
            DecayingHistograms(_buckets(resource), world.num_containers) for resource in world.resources
        ]

    def estimate(self, view: CycleView) -> Estimate:
        """Return the estimate for a cycle."""
        count, end = len(view.past), view.past.shape[1]
        for place in range(self._seen, end):
            if place % self._step == self._step - 1:
                self._observe(view.past[:, place], place * self._interval_s)
        self._seen = end
        self._record_kills(view)
        value = np.stack([histogram.percentile(PERCENTILE, count) for histogram in self._histograms], axis=1)
        return Estimate(base=np.zeros_like(value), spread=value, floor=self._floor)

    def _observe(self, value: FloatArray, time_s: float) -> None:
        """Add one sample of each running container, shape (A, R)."""
        rows = self._rows[: len(value)]
        # The first window begins at the first sample.
        window = int((time_s - self._begin_s) // PEAK_WINDOW_S)
        if window != self._window:
            self._window = window
            self._peak[:] = 0.0
        for column, (resource, histogram) in enumerate(zip(self._resources, self._histograms, strict=True)):
            if resource.is_level:
                self._raise_peak(column, rows, value[:, column])
            else:
                histogram.add(rows, value[:, column], RATE_WEIGHT, time_s)

    def _raise_peak(self, column: int, rows: IntArray, value: FloatArray) -> None:
        """Replace the current window's peak in rows where the value is larger; a peak counts at the end of its window."""
        end_s = self._begin_s + (self._window + 1) * PEAK_WINDOW_S
        old = self._peak[rows, column]
        is_larger = value > old
        had = rows[is_larger & (old > 0)]
        self._histograms[column].subtract(had, self._peak[had, column], LEVEL_WEIGHT, end_s)
        larger = rows[is_larger]
        self._histograms[column].add(larger, value[is_larger], LEVEL_WEIGHT, end_s)
        self._peak[larger, column] = value[is_larger]

    def _record_kills(self, view: CycleView) -> None:
        """Record a raised peak for each incompressible resource that caused a kill in the previous cycle."""
        for column, resource in enumerate(self._resources):
            if not resource.is_level:
                continue
            allocated = view.allocation[:, column]
            killed = np.flatnonzero((view.previous[:, :, column] > allocated[:, None]).any(axis=1))
            used = np.maximum(allocated[killed], self._peak[killed, column])
            self._raise_peak(column, killed, np.maximum(used + OOM_STEP, used * OOM_FACTOR))


def samples_a_minute(interval_s: float) -> int:
    """Return the number of samples per run of the recommender, which runs every minute; at least 1."""
    return max(1, round(SAMPLE_S / interval_s))


def _buckets(resource: Resource) -> Buckets:
    return LEVEL_BUCKETS if resource.is_level else RATE_BUCKETS
