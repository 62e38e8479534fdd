"""95 % intervals of means (Student's t, clusters, blocks of time), shares (Wilson) and medians, and survival estimates.

Every table that shows an interval names its kind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optim.core.arrays import BoolArray, FloatArray

NORMAL_975 = 1.959963984540054
"""The 97.5 % quantile of the standard normal distribution."""

ENDS = (0.025, 0.975)
"""Probabilities below the lower and the upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and the half-width of its interval."""

    mean: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> "Interval":
        """Return the mean of independent values, at least two, with Student's t interval.

        References
        ----------
        Student, "The Probable Error of a Mean", Biometrika 6 (1908), DOI 10.1093/biomet/6.1.1.
        """
        from scipy.special import stdtrit

        array = np.asarray(values, dtype=np.float64)
        spread = float(array.std(ddof=1)) / math.sqrt(len(array))
        return cls(mean=float(array.mean()), half=spread * float(stdtrit(len(array) - 1, ENDS[1])))

    @classmethod
    def of_clusters(cls, values: Sequence[float] | FloatArray, clusters: Sequence[int]) -> "Interval":
        """Return the mean of values that are dependent within each of at least two independent clusters.

        The interval uses sums of residuals within clusters, and Student's t with one degree of freedom less than the number
        of clusters. With one value per cluster it equals that of `of`.

        References
        ----------
        Liang, Zeger, "Longitudinal Data Analysis Using Generalized Linear Models", Biometrika 73 (1986), DOI
        10.1093/biomet/73.1.13.
        """
        from scipy.special import stdtrit

        array = np.asarray(values, dtype=np.float64)
        _, number = np.unique(np.asarray(clusters), return_inverse=True)
        size = int(number.max()) + 1
        sums = np.bincount(number, array - array.mean(), size)
        spread = math.sqrt(size / (size - 1) * float((sums**2).sum())) / len(array)
        return cls(mean=float(array.mean()), half=spread * float(stdtrit(size - 1, ENDS[1])))

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half


def with_halves(intervals: Mapping[str, Interval]) -> dict[str, float]:
    """Return means by name, each followed by the half-width of its interval, `NAME_half`.

    Examples
    --------
    >>> with_halves({"gain": Interval(mean=2.0, half=0.5)})
    {'gain': 2.0, 'gain_half': 0.5}
    """
    values: dict[str, float] = {}
    for name, interval in intervals.items():
        values |= {name: interval.mean, f"{name}_half": interval.half}
    return values


def wilson(share: ArrayLike, number: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return Wilson's interval of shares, each observed in `number` independent trials (more than none).

    References
    ----------
    Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22 (1927), DOI
    10.1080/01621459.1927.10502953.

    Examples
    --------
    >>> [round(float(end), 3) for end in wilson(0, 20)]
    [0.0, 0.161]
    """
    p, n = np.asarray(share, dtype=np.float64), np.maximum(np.asarray(number, dtype=np.float64), 1e-9)
    z2 = NORMAL_975**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = NORMAL_975 / (1 + z2 / n) * np.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    # The end is exactly 0 without successes, and exactly 1 without failures, independent of rounding.
    return np.where(p <= 0, 0.0, np.clip(middle - half, 0.0, 1.0)), np.where(
        p >= 1, 1.0, np.clip(middle + half, 0.0, 1.0)
    )


def bootstrap(resampled: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the percentile interval of resampled values of shape (resamples, ...), as two arrays of shape (...).

    References
    ----------
    Efron, Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
    """
    low, high = np.quantile(resampled, ENDS, axis=0)
    return low, high


def of_median(values: FloatArray) -> tuple[float, float]:
    """Return the interval of the median of independent values, by order statistics."""
    ordered = np.sort(values)
    half = NORMAL_975 / 2 * np.sqrt(len(ordered))
    low, high = int(np.floor(len(ordered) / 2 - half)), int(np.ceil(len(ordered) / 2 + half))
    return float(ordered[max(0, low)]), float(ordered[min(len(ordered) - 1, high)])


def kaplan_meier(times: FloatArray, is_event: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the distinct times of events, increasing, and the estimated probability of surviving beyond each.

    Parameters
    ----------
    times
        Observed time of each subject; shape (subjects,).
    is_event
        Whether the event occurred then; otherwise the subject was censored; shape (subjects,).

    References
    ----------
    Kaplan, Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958), DOI 10.1080/01621459.1958.10501452.

    Examples
    --------
    >>> times, survival = kaplan_meier(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    >>> times.tolist(), survival.tolist()
    ([1.0, 2.0, 3.0], [0.75, 0.5, 0.0])
    """
    events, ended = np.unique(times[is_event], return_counts=True)
    at_risk = len(times) - np.searchsorted(np.sort(times), events, side="left")
    survival: FloatArray = np.cumprod(1.0 - ended / np.maximum(at_risk, 1), dtype=np.float64)
    return events, survival


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockMean(Interval):
    """A mean over blocks of time, with an infinitely wide interval for too few blocks, and the number of blocks."""

    blocks: int

    @property
    def is_told(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


MIN_BLOCKS = 4
"""Smallest number of blocks of time for a finite interval."""


def block_mean(
    totals: FloatArray,
    counts: FloatArray,
    rng: np.random.Generator,
    *,
    length: int | None = None,
    resamples: int = 2_000,
) -> BlockMean:
    """Return the mean of dependent values by a circular block bootstrap over consecutive blocks of time.

    Parameters
    ----------
    totals, counts
        Sum and number of the values of each block of time (a week), in order; shape (blocks,).
    rng
        Generator of the resamples.
    length
        Number of consecutive blocks of time drawn together; default: the number of blocks to the power of 1/3.
    resamples
        Number of resamples.

    Notes
    -----
    The half-width is the resamples' standard deviation times Student's quantile, with one degree of freedom less than the
    number of drawn blocks. A percentile interval would be too narrow for a few weeks.

    References
    ----------
    Politis, Romano, "A Circular Block-Resampling Procedure for Stationary Data", in Exploring the Limits of Bootstrap (1992).
    """
    from scipy.special import stdtrit

    blocks = len(totals)
    mean = float(totals.sum() / counts.sum())
    length = length or max(1, round(blocks ** (1 / 3)))
    drawn = -(-blocks // length)
    if blocks < MIN_BLOCKS or drawn < 2:
        return BlockMean(mean=mean, half=math.inf, blocks=blocks)
    first = rng.integers(0, blocks, (resamples, drawn))
    place = (first[:, :, None] + np.arange(length)).reshape(resamples, -1)[:, :blocks] % blocks
    number = counts[place].sum(axis=1)
    means = totals[place].sum(axis=1)[number > 0] / number[number > 0]
    half = float(means.std(ddof=1)) * float(stdtrit(drawn - 1, ENDS[1])) * math.sqrt(drawn / (drawn - 1))
    return BlockMean(mean=mean, half=half, blocks=blocks)
