"""Conversion of irregular samples to scaled windows: grid, scaling, windows of segments of different lengths."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.limits import current_limits
from optim.models.containers.series import ContainerSeries, Segmented

CLOCK_TOL = 1e-9
"""Relative tolerance with which time stamps count as multiples of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Series on a grid of equidistant times.

    Attributes
    ----------
    series
        The series, with an `interval_s`; a container with gaps has several segments.
    row
        Shape (given samples,): row of `series` for each given sample.
    """

    series: ContainerSeries
    row: IntArray


def to_grid(series: ContainerSeries, interval_s: float, max_gap_s: float) -> Grid:
    """Convert series to a grid of times `interval_s` apart.

    Each sample belongs to the nearest point of its segment's grid, which starts at the segment's first sample. A rate
    is the mean of a point's samples, an incompressible resource their maximum, so that peaks remain. A point without a
    sample repeats the previous point. A new segment begins where successive samples are more than `max_gap_s` apart.

    Parameters
    ----------
    series
        Any series; series that are already on this grid, without gaps, are returned unchanged.
    interval_s
        Seconds between points.
    max_gap_s
        Longest time for which a sample is repeated.

    Raises
    ------
    InvalidOptionError
        If the interval isn't positive, is longer than `max_gap_s`, or gives more points than `ReadLimits.rows`.
    InvalidProblemError
        If most successive samples are more than `max_gap_s` apart.
    """
    if not 0 < interval_s <= max_gap_s:
        raise InvalidOptionError(
            f"need 0 < interval_s <= max_gap_s, got interval_s {interval_s:g} and max_gap_s {max_gap_s:g}"
        )
    step = np.diff(series.time_s)
    is_inner = np.ones(len(step), dtype=bool)
    is_inner[series.starts[1:] - 1] = False
    if np.allclose(step[is_inner], interval_s, rtol=CLOCK_TOL, atol=CLOCK_TOL * interval_s):
        return Grid(series=_on_grid(series, interval_s), row=np.arange(series.num_samples))
    _require_neighbours(step[is_inner], interval_s, max_gap_s)
    return _resampled(series, interval_s, is_inner & (step <= max_gap_s))


def _on_grid(series: ContainerSeries, interval_s: float) -> ContainerSeries:
    return series if series.interval_s == interval_s else replace(series, interval_s=interval_s)


def _require_neighbours(step: FloatArray, interval_s: float, max_gap_s: float) -> None:
    """Raise InvalidProblemError if most segments would have a single sample."""
    if len(step) and np.median(step) > max_gap_s:
        median = float(np.median(step))
        raise InvalidProblemError(
            f"samples are {median:g} s apart, more than max_gap_s {max_gap_s:g} (interval_s {interval_s:g}); "
            f"give interval_s {median:g} and max_gap_s {4 * median:g}"
        )


def _resampled(series: ContainerSeries, interval_s: float, is_joined: NDArray[np.bool_]) -> Grid:
    """Resample; a new segment begins wherever `is_joined` is false for two successive samples."""
    begins = np.flatnonzero(np.concatenate([[True], ~is_joined]))
    part = np.cumsum(np.concatenate([[1], (~is_joined).astype(np.int64)])) - 1
    origin = series.time_s[begins]
    last = np.concatenate([begins[1:], [series.num_samples]]) - 1
    with np.errstate(over="ignore"):
        points = float(((series.time_s[last] - origin) / interval_s).sum())
    if points > current_limits().rows:
        raise InvalidOptionError(
            f"interval_s {interval_s:g} gives {points:.3g} points, above the limit of {current_limits().rows}; "
            "give a longer interval, or raise the limit with 'optim --limit rows=N'"
        )
    point = np.rint((series.time_s - origin[part]) / interval_s).astype(np.int64)
    lengths = point[last] + 1
    offset = np.cumsum(lengths) - lengths
    row = offset[part] + point
    total = int(lengths.sum())
    # The last sample of each point, repeated for points without a sample.
    latest = np.full(total, -1, dtype=np.int64)
    latest[row] = np.arange(series.num_samples)
    source = np.maximum.accumulate(latest)
    counts = np.bincount(row, minlength=total)
    last_sampled = np.maximum.accumulate(np.where(counts > 0, np.arange(total), -1))
    first = np.flatnonzero(np.diff(row, prepend=-1))
    values = np.empty((total, len(series.resources)))
    for column, resource in enumerate(series.resources):
        samples, of_point = series.values[:, column], np.zeros(total)
        if resource.is_level:
            of_point[row[first]] = np.maximum.reduceat(samples, first)
        else:
            of_point = np.bincount(row, weights=samples, minlength=total) / np.maximum(counts, 1)
        values[:, column] = of_point[last_sampled]
    old = series.segment[begins]
    local = np.arange(total) - np.repeat(offset, lengths)
    grid = ContainerSeries(
        resources=series.resources,
        containers=tuple(series.containers[k] for k in old.tolist()),
        lengths=lengths,
        values=values,
        time_s=np.repeat(origin, lengths) + local * interval_s,
        interval_s=interval_s,
        phase=None if series.phase is None else series.phase[source],
        phase_names=series.phase_names,
        limit=None if series.limit is None else series.limit[old],
        kills=None if series.kills is None else _summed(series.kills, row, total),
        units=series.units,
    )
    return Grid(series=grid, row=row)


def _summed(kills: FloatArray, row: IntArray, total: int) -> FloatArray:
    """Return the number of kills at each grid point, NaN where it is unknown for all of its samples; shape (total, R)."""
    is_known = np.isfinite(kills)
    number, known = (
        np.stack([np.bincount(row, column, total) for column in amounts.T], axis=1)
        for amounts in (np.where(is_known, kills, 0.0), is_known)
    )
    return np.where(known > 0, number, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaledSeries(Segmented):
    """Scaled samples of S segments, with R resources.

    Attributes
    ----------
    values
        Shape (T, R): scaled samples.
    lengths
        Shape (S,): number of samples per segment.
    """

    values: FloatArray
    lengths: IntArray

    def padded(self, num_delays: int) -> "ScaledSeries":
        """Return the series with the first sample of each segment repeated `num_delays` times before it."""
        repeats = np.where(self.place == 0, 1 + num_delays, 1)
        return ScaledSeries(values=np.repeat(self.values, repeats, axis=0), lengths=self.lengths + num_delays)

    def sampled(self, size: int, rng: np.random.Generator) -> "ScaledSeries":
        """Return at most `size` random segments, in their order."""
        if len(self.lengths) <= size:
            return self
        is_chosen = np.zeros(len(self.lengths), dtype=bool)
        is_chosen[rng.permutation(len(self.lengths))[:size]] = True
        return ScaledSeries(values=self.values[np.repeat(is_chosen, self.lengths)], lengths=self.lengths[is_chosen])

    def random_crops(self, max_samples: int, rng: np.random.Generator) -> "ScaledSeries":
        """Return a random crop of at most `max_samples` samples of each segment."""
        lengths = np.minimum(self.lengths, max_samples)
        first = (rng.random(len(lengths)) * (self.lengths - lengths + 1)).astype(np.int64)
        is_inside = (self.place >= first[self.segment]) & (self.place < (first + lengths)[self.segment])
        return ScaledSeries(values=self.values[is_inside], lengths=lengths)


def split_containers(
    series: ContainerSeries, share: float, rng: np.random.Generator, min_samples: int = 1
) -> tuple[IntArray, IntArray]:
    """Split the containers at random, and return the segments of both parts; the second has a share `share` of the units.

    All segments of a container, and all containers of a unit (a pod), are in one part. Units whose segments are all shorter
    than `min_samples` are never in the second part, as they have no embedding. If only one unit has a longer segment, both
    parts have all containers.
    """
    owner = series.unit_index
    eligible = np.unique(owner[series.lengths >= min_samples])
    number = len(eligible)
    if number <= 1:
        everything = np.arange(series.num_segments)
        return everything, everything
    held_out = eligible[rng.permutation(number)[: min(max(1, round(share * number)), number - 1)]]
    is_held_out = np.isin(owner, held_out)
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)


MIN_SHARE = 0.01
"""Offset added before the logarithm, as a share of a resource's mean; it suppresses differences between smaller values."""

MAX_SCORE = 10.0
"""Scaled values are clipped at this number of standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """Scaling of R resources.

    Attributes
    ----------
    offset
        Shape (R,): offset added before the logarithm; NaN for a resource without logarithm.
    mean, deviation
        Shape (R,) each: mean and standard deviation of the training samples, after the logarithm.
    """

    offset: FloatArray
    mean: FloatArray
    deviation: FloatArray

    @classmethod
    def fit(cls, values: FloatArray, *, has_logarithm: bool) -> "Scaling":
        """Return the scaling fitted to training samples, shape (T, R); a constant resource gets standard deviation 1."""
        width = values.shape[1]
        average = values.mean(axis=0)
        offset = np.where(average > 0, MIN_SHARE * average, 1.0) if has_logarithm else np.full(width, np.nan)
        moved = _logarithm(values, offset)
        deviation = moved.std(axis=0)
        is_constant = deviation <= 1e-12 * np.maximum(np.abs(moved).max(axis=0), 1.0)
        return cls(offset=offset, mean=moved.mean(axis=0), deviation=np.where(is_constant, 1.0, deviation))

    def apply(self, values: FloatArray) -> FloatArray:
        """Return scaled samples, shape (T, R)."""
        score = (_logarithm(values, self.offset) - self.mean) / self.deviation
        return np.clip(score, -MAX_SCORE, MAX_SCORE)

    def scaled(self, series: ContainerSeries) -> ScaledSeries:
        """Return series with scaled samples, in the same segments."""
        return ScaledSeries(values=self.apply(series.values), lengths=series.lengths)


def _logarithm(values: FloatArray, offset: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isnan(offset), values, np.log(values + offset)))
