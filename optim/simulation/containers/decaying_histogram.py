"""The histograms of the Kubernetes Vertical Pod Autoscaler: exponential buckets, weights that decay.

References
----------
Kubernetes autoscaler, vertical-pod-autoscaler/pkg/recommender/util: `histogram.go`, `decaying_histogram.go`,
`histogram_options.go`.
"""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import FloatArray, IntArray

GROWTH = 1.05
"""A bucket is 5 % wider than the one before."""

EPSILON = 1e-4
"""A bucket with less weight is empty at either end of the histogram."""

HALF_LIFE_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """Exponential buckets: bucket n begins at first (1.05^n - 1) / 0.05.

    Attributes
    ----------
    first
        Width of the first one.
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
        """Return where buckets begin."""
        return np.asarray(self.first * (GROWTH**bucket - 1) / (GROWTH - 1))


class DecayingHistograms:
    """One histogram a row; weights are relative to time zero, so that only samples' own weights grow with time.

    Parameters
    ----------
    buckets
        Of all rows.
    rows
        Number of histograms.
    initial
        Shape (buckets,): weights that all begin with, or None.
    """

    def __init__(self, buckets: Buckets, rows: int, initial: FloatArray | None = None) -> None:
        self.buckets = buckets
        self.weight = np.zeros((rows, buckets.count))
        if initial is not None:
            self.weight += initial

    def add(self, rows: IntArray, value: FloatArray, weight: float, time_s: float) -> None:
        """Add a sample to each of some rows, each row once."""
        self.weight[rows, self.buckets.find(value)] += weight * decay(time_s)

    def subtract(self, rows: IntArray, value: FloatArray, weight: float, time_s: float) -> None:
        """Take back a sample that was added; what is left below the threshold of emptiness vanishes."""
        bucket = self.buckets.find(value)
        left = self.weight[rows, bucket] - weight * decay(time_s)
        self.weight[rows, bucket] = np.where(left < EPSILON, 0.0, left)

    def percentile(self, level: float, count: int) -> FloatArray:
        """Return a percentile of the first `count` rows, shape (count,): the end of its bucket, 0 of an empty row."""
        weight = self.weight[:count]
        is_full = weight >= EPSILON
        last = self.buckets.count - 1
        lowest, highest = is_full.argmax(axis=1), last - is_full[:, ::-1].argmax(axis=1)
        inner = np.where(np.arange(last + 1) >= lowest[:, None], weight, 0.0)
        reached = np.cumsum(inner, axis=1) >= level * weight.sum(axis=1)[:, None]
        # Below the lowest bucket the sum is 0; a level of 0 still answers with the lowest one.
        reached &= np.arange(last + 1) >= lowest[:, None]
        bucket = np.where(reached.any(axis=1), np.minimum(reached.argmax(axis=1), highest), highest)
        value = self.buckets.begin(np.minimum(bucket + 1, last))
        return np.where(is_full.any(axis=1), value, 0.0)


def decay(time_s: float) -> float:
    """Return the factor on the weight of a sample at a time; later ones weigh more."""
    return float(2.0 ** (time_s / HALF_LIFE_S))
