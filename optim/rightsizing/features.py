"""Features of a container at a moment, and demand that is censored by limits.

An incompressible resource can't be used beyond its limit: a container that tries to is killed, and starts again. If the
series don't record kills, a sample close to the limit counts as a kill if the next sample is below half of the limit.
At a kill only a lower bound of the demand is known: the demand is censored, so its quantiles are Kaplan-Meier
estimates. After a kill, a container's request is at least that of the Vertical Pod Autoscaler: a fifth above the limit,
and for memory at least 100 MiB above it. If a container reaches its limit without a kill, its request is at least the
limit. In both cases the request may exceed the limit.

Features are relative to the container's current level, so that containers of different sizes are comparable; the level itself is
also a feature.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.containers.series import AT_LIMIT, MEMORY, ContainerSeries
from optim.phases.clustering import group_sums
from optim.rightsizing.engine import SECONDS_PER_DAY
from optim.rightsizing.policy import CycleView
from optim.rightsizing.vpa import OOM_FACTOR, OOM_STEP
from optim.rightsizing.world import World

FALL = 0.5
"""A container counts as restarted if its use falls from the limit to less than this share of the limit in the next sample."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Uncensored:
    """Series of S segments and R resources, in which lower bounds of demand replace the samples that limits censored.

    Attributes
    ----------
    series
        The series. The sample at each kill is the insufficient amount, the array `kills` has no unknown values, and
        limits that were reached are NaN (unknown).
    kills
        Shape (S, R): number of kills.
    kills_per_day
        Shape (S, R): number of kills per day, over the time from a segment's first sample to its last.
    minimum
        Shape (S, R): minimum request. After a kill it follows the rule of the Vertical Pod Autoscaler; otherwise it is
        the limit if that was reached, and 0 if not.
    exceeded
        Shape (S, R): largest insufficient amount; 0 without kills.
    limit
        Shape (S, R): original limits; infinite where unknown.
    """

    series: ContainerSeries
    kills: IntArray
    kills_per_day: FloatArray
    minimum: FloatArray
    exceeded: FloatArray
    limit: FloatArray


def uncensor(series: ContainerSeries) -> Uncensored:
    """Return the series with lower bounds of demand where containers reached limits of incompressible resources.

    Kills are those recorded in `ContainerSeries.kills`. Where `kills` is unknown, a sample at the limit counts as a
    kill if the next sample is below half of the limit. The insufficient amount of a kill is the limit, or the peak so
    far if the limit is unknown, but at least the sample.
    """
    shape = (series.num_segments, len(series.resources))
    is_level = np.array([resource.is_level for resource in series.resources])
    limit = (
        np.full(shape, np.inf) if series.limit is None else np.where(np.isfinite(series.limit), series.limit, np.inf)
    )
    bound = np.where(is_level & (limit > 0), limit, np.inf)
    by_row = bound[series.segment]
    is_at = series.values >= AT_LIMIT * by_row
    is_next = series.segment[1:] == series.segment[:-1]
    number = np.zeros(series.values.shape)
    number[:-1] = is_at[:-1] & (series.values[1:] < FALL * by_row[:-1]) & is_next[:, None]
    if series.kills is not None:
        number = np.where(np.isfinite(series.kills), series.kills, number) * is_level
    is_kill = number > 0
    used = np.maximum(np.where(np.isfinite(by_row), by_row, _peaks_so_far(series, is_kill)), series.values)
    used = np.where(is_kill, used, 0.0)
    step = OOM_STEP * np.array([resource == MEMORY for resource in series.resources])
    kills, reached = (np.add.reduceat(events.astype(np.int64), series.starts, axis=0) for events in (number, is_at))
    exceeded = np.maximum.reduceat(used, series.starts, axis=0)
    raised = np.maximum(OOM_FACTOR * exceeded, exceeded + step)
    ends = series.starts + series.lengths - 1
    days = (series.time_s[ends] - series.time_s[series.starts]) / SECONDS_PER_DAY
    is_reached = (reached > 0) | (kills > 0)
    return Uncensored(
        series=replace(
            series,
            values=np.where(is_kill, used, series.values),
            kills=number,
            limit=None if series.limit is None else np.where(is_reached, np.nan, series.limit),
        ),
        kills=kills,
        kills_per_day=np.where(kills > 0, kills / np.where(days > 0, days, 1.0)[:, None], 0.0),
        minimum=np.where(kills > 0, raised, np.where(reached > 0, bound, 0.0)),
        exceeded=exceeded,
        limit=limit,
    )


def _peaks_so_far(series: ContainerSeries, is_kill: NDArray[np.bool_]) -> FloatArray:
    """Return the running maximum in segments with a kill, and the samples in other segments."""
    peaks = series.values.copy()
    for segment in np.unique(series.segment[is_kill.any(axis=1)]).tolist():
        rows = series.rows(segment)
        peaks[rows] = np.maximum.accumulate(series.values[rows], axis=0)
    return peaks


STRIDE = 4
"""Examples are taken at every STRIDE-th sample of a training series, since adjacent samples hardly differ."""

MAX_EXAMPLES = 20_000
"""Approximate maximum number of examples; for long training series the stride is larger."""

MAX_AFTER = 40

TINY = 1e-9

FLOOR = 0.02
"""Minimum of a container's level as a share of its maximum so far; otherwise an idle container would seem to grow a
thousandfold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """Features of containers at N moments, with R resources.

    Attributes
    ----------
    values
        Shape (N, F): F features per moment.
    level
        Shape (N, R): positive level to which demands are relative: for a rate the mean of the last cycle, for an incompressible
        resource the last sample.
    """

    values: FloatArray
    level: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examples:
    """N moments in the series of training containers, and the demand of R resources in the cycle after each moment.

    Attributes
    ----------
    features
        Features at the moments.
    after
        Shape (N, n', R): logarithm of the ratio of demand to the level, in n' evenly spaced samples (at most MAX_AFTER)
        of the next cycle.
    is_there
        Shape (N, n'): whether the container still ran at each sample; it did at one or more samples of each example.
    peak
        Shape (N, R): logarithm of the ratio of the next cycle's peak to the level.
    is_censored
        Shape (N, R): whether `peak` is a lower bound because the cycle contains a kill.
    share
        Shape (N, R): weight of a violation in one sample of the next cycle. It is 1 / s for a rate and 1 / (c k) for an
        incompressible resource. Here s and c are the unit's numbers of samples and of cycles after the first cycle, and
        k is the number of samples in the next cycle.
    """

    features: Features
    after: FloatArray
    is_there: NDArray[np.bool_]
    peak: FloatArray
    is_censored: NDArray[np.bool_]
    share: FloatArray


def examples_of(world: World, *, has_phases: bool, is_whole: bool = False) -> Examples:
    """Return examples of the training containers: moments with a complete past cycle and at least one later sample.

    In a series shorter than a cycle, the first moment is the series' middle, so that the past is shorter than a cycle.

    Parameters
    ----------
    world
        World with the training containers.
    has_phases
        Whether phases are among the features.
    is_whole
        Whether a complete cycle must follow each moment; needed if series may end before their containers do.

    Raises
    ------
    InvalidProblemError
        If no training series is long enough.
    """
    training, width = world.training, world.cycle_samples
    features, after, is_there, peak, is_censored, share = [], [], [], [], [], []
    is_kill = np.zeros(training.values.shape, np.bool_) if training.kills is None else training.kills > 0
    decided = post_warmup_parts(training, width)
    stride = max(STRIDE, -(-training.num_samples // MAX_EXAMPLES))
    sampled = np.unique(np.linspace(0, width - 1, min(width, MAX_AFTER)).astype(np.int64))
    for segment, rows in enumerate(training.segments()):
        length = rows.stop - rows.start
        now = np.arange(min(width, max(1, length // 2)), length - (width - 1 if is_whole else 0), stride)
        if not len(now):
            continue
        values = training.values[rows]
        phase = None if not has_phases or world.training_phase is None else world.training_phase[rows]
        now_features = features_at(values, now, world, phase)
        ahead = now[:, None] + np.arange(width)
        there = ahead < length
        next_values = values[np.minimum(ahead, length - 1)]
        features.append(now_features)
        relative = np.log(np.maximum(next_values, TINY * now_features.level[:, None]) / now_features.level[:, None])
        after.append(relative[:, sampled])
        is_there.append(there[:, sampled])
        peak.append(np.where(there[..., None], relative, -np.inf).max(axis=1))
        is_censored.append((is_kill[rows][np.minimum(ahead, length - 1)] & there[..., None]).any(axis=1))
        samples, cycles = decided[segment]
        share.append(np.where(world.is_level, 1.0 / (cycles * there.sum(axis=1)[:, None]), 1.0 / samples))
    if not features:
        raise InvalidProblemError(
            f"no training series has {2 * width if is_whole else 2} samples or more; give longer series, or name other policies"
        )
    return Examples(
        features=joined(features),
        after=np.concatenate(after),
        is_there=np.concatenate(is_there),
        peak=np.concatenate(peak),
        is_censored=np.concatenate(is_censored),
        share=np.concatenate(share),
    )


def post_warmup_parts(series: ContainerSeries, width: int) -> IntArray:
    """Return the numbers of samples and cycles after the first cycle in each segment's unit, at least 1 each; shape (S, 2)."""
    samples, unit = np.maximum(series.lengths - width, 0), series.unit_index
    of_unit = group_sums(np.stack([samples, -(-samples // width)], axis=1), unit, int(unit.max()) + 1)
    return np.maximum(of_unit[unit], 1).astype(np.int64)


def view_features(view: CycleView, world: World, *, has_phases: bool) -> Features:
    """Return the features at the beginning of a cycle, one row per running container."""
    now = np.array([view.past.shape[1]])
    parts = [
        features_at(values, now, world, view.phases[place] if has_phases else None)
        for place, values in enumerate(view.past)
    ]
    return joined(parts)


def joined(parts: Sequence[Features]) -> Features:
    """Concatenate features."""
    return Features(
        values=np.concatenate([part.values for part in parts]), level=np.concatenate([part.level for part in parts])
    )


def features_at(values: FloatArray, now: IntArray, world: World, phase: IntArray | None = None) -> Features:
    """Return the features of one container before each of the samples `now`.

    Parameters
    ----------
    values
        Shape (samples, R): all samples; the features use only the samples before each moment.
    now
        Shape (N,): indices of the samples at the moments, at least 1.
    world
        World with cycle length and resources.
    phase
        Shape (samples,): phases, if they are features.
    """
    width = world.cycle_samples
    rows = np.maximum(now[:, None] - width + np.arange(width), 0)
    window = values[rows]
    earlier = values[np.maximum(rows - width, 0)]
    maximum = np.maximum.accumulate(values, axis=0)[now - 1]
    level = np.where(world.is_level, window[:, -1], window.mean(axis=1))
    level = np.maximum(np.maximum(level, FLOOR * maximum), TINY)
    quarter = max(1, width // 4)
    numbers = [
        np.log(level),
        np.log(np.maximum(maximum, TINY) / level),
        window.std(axis=1) / level,
        window.max(axis=1) / level,
        window.min(axis=1) / level,
        (window[:, -quarter:].mean(axis=1) - window[:, :quarter].mean(axis=1)) / level,
        window[:, -quarter:].std(axis=1) / level,
        earlier.mean(axis=1) / level,
    ]
    features = np.concatenate([*(np.minimum(ratio, CLIP) for ratio in numbers), np.log1p(now)[:, None]], axis=1)
    if phase is not None:
        features = np.concatenate([features, _phase_features(phase, now, world.num_phases)], axis=1)
    return Features(values=features, level=level)


CLIP = 10.0
"""Maximum of the ratios among the features; larger ratios are clipped."""


def _phase_features(phase: IntArray, now: IntArray, num_phases: int) -> FloatArray:
    """Return indicators of the current phase, and the logarithm of its duration so far (plus 1); shape (N, K + 1)."""
    change = np.flatnonzero(np.diff(phase, prepend=phase[0] - 1))
    begun = change[np.searchsorted(change, now - 1, side="right") - 1]
    current = (phase[now - 1, None] == np.arange(num_phases)).astype(np.float64)
    return np.concatenate([current, np.log1p(now - begun)[:, None]], axis=1)
