"""Irregular samples become series on a grid; where samples are lacking for too long, a series is split."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.limits import current_limits
from optim.models.containers.series import ContainerSeries, FloatArray, IntArray

CLOCK_TOL = 1e-9
"""Relative error of time stamps that are multiples of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Series on a grid.

    Attributes
    ----------
    series
        The series, with an `interval_s`; a container that was split has several segments.
    row
        Shape (samples given,): row of `series` that each given sample went into.
    """

    series: ContainerSeries
    row: IntArray


def to_grid(series: ContainerSeries, interval_s: float, max_gap_s: float) -> Grid:
    """Put series on a grid of `interval_s`.

    Each sample belongs to the nearest point of its segment's grid, which starts at the segment's first sample. A rate is
    the mean of a point's samples, a level the highest of them, so that no peak is lost; a point without a sample repeats the one before. Where
    neighbouring samples are more than `max_gap_s` apart, a new segment begins.

    Parameters
    ----------
    series
        Any series; those that lie on this grid and have no gap come back as they are.
    interval_s
        Seconds between points.
    max_gap_s
        Longest time over which a sample is held.

    Raises
    ------
    InvalidOptionError
        If the interval isn't positive, or longer than the gap, or leaves more points than `ReadLimits.rows`.
    InvalidProblemError
        If the samples are so far apart that splitting leaves hardly any neighbours.
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
    """Raise where most samples would stand alone."""
    if len(step) and np.median(step) > max_gap_s:
        median = float(np.median(step))
        raise InvalidProblemError(
            f"samples are {median:g} s apart, more than max_gap_s {max_gap_s:g} (interval_s {interval_s:g}); "
            f"give interval_s {median:g} and max_gap_s {4 * median:g}"
        )


def _resampled(series: ContainerSeries, interval_s: float, is_joined: NDArray[np.bool_]) -> Grid:
    """Resample, with a new segment wherever two neighbours aren't joined."""
    begins = np.flatnonzero(np.concatenate([[True], ~is_joined]))
    part = np.cumsum(np.concatenate([[1], (~is_joined).astype(np.int64)])) - 1
    origin = series.time_s[begins]
    last = np.concatenate([begins[1:], [series.num_samples]]) - 1
    with np.errstate(over="ignore"):
        points = float(((series.time_s[last] - origin) / interval_s).sum())
    if points > current_limits().rows:
        raise InvalidOptionError(
            f"interval_s {interval_s:g} leaves {points:.3g} points, at most {current_limits().rows} are taken; give a longer one, "
            "or raise the limit with 'optim --limit rows=N'"
        )
    point = np.rint((series.time_s - origin[part]) / interval_s).astype(np.int64)
    lengths = point[last] + 1
    offset = np.cumsum(lengths) - lengths
    row = offset[part] + point
    total = int(lengths.sum())
    # The last sample of each point, carried on over points without one.
    latest = np.full(total, -1, dtype=np.int64)
    latest[row] = np.arange(series.num_samples)
    source = np.maximum.accumulate(latest)
    counts = np.bincount(row, minlength=total)
    own = np.maximum.accumulate(np.where(counts > 0, np.arange(total), -1))
    first = np.flatnonzero(np.diff(row, prepend=-1))
    values = np.empty((total, len(series.resources)))
    for column, resource in enumerate(series.resources):
        given, of_point = series.values[:, column], np.zeros(total)
        if resource.is_level:
            of_point[row[first]] = np.maximum.reduceat(given, first)
        else:
            of_point = np.bincount(row, weights=given, minlength=total) / np.maximum(counts, 1)
        values[:, column] = of_point[own]
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
        units=series.units,
    )
    return Grid(series=grid, row=row)
