"""What is known at a moment, as numbers, and what came next: the same of a container at work and of training containers.

Numbers are relative to a container's own level now, so that containers of different sizes teach each other; the level itself is one
of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries, FloatArray, IntArray
from optim.simulation.containers.policy import CycleView
from optim.simulation.containers.world import World

STRIDE = 4
"""Every so manieth sample of a training series is a moment; neighbours hardly differ."""

MOST_LESSONS = 20_000
"""Training series of many samples have moments further apart, so that there are hardly more than this."""

MOST_AFTER = 40
TINY = 1e-9
FLOOR = 0.02
"""A level is at least this share of the most so far: an idle container isn't one whose demand grows a thousandfold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Moments of containers.

    Attributes
    ----------
    features
        Shape (N, F).
    level
        Shape (N, R): what needs are relative to, above 0: of a rate the mean of the last cycle, of a resource that is held
        the last sample.
    """

    features: FloatArray
    level: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lessons:
    """Moments of training containers, and the cycle that followed.

    Attributes
    ----------
    moments
        N moments.
    after
        Shape (N, n', R): logarithm of demand in samples of the next cycle over the level, in MOST_AFTER evenly spread ones at most.
    is_there
        Shape (N, n'): whether there was such a sample; one at least.
    peak
        Shape (N, R): logarithm of the largest demand in the next cycle over the level.
    share
        Shape (N, R): what harm in a sample of the next cycle counts: of a rate one over its unit's decided samples, of a resource that
        is held one over its decided cycles and the samples of this one.
    """

    moments: Moments
    after: FloatArray
    is_there: NDArray[np.bool_]
    peak: FloatArray
    share: FloatArray


def lessons_of(world: World, *, has_phases: bool, is_whole: bool = False) -> Lessons:
    """Return all moments of the training containers that have a whole cycle behind them and a sample before them.

    A series that is shorter than a cycle has its moments from its middle on, with a shorter past.

    Parameters
    ----------
    world
        Whose training containers.
    has_phases
        Whether phases are among the numbers.
    is_whole
        Whether a whole cycle must follow on a moment: where a series' end isn't its container's.

    Raises
    ------
    InvalidProblemError
        If no training series is long enough.
    """
    training, width = world.training, world.cycle_samples
    features, level, after, is_there, peak, share = [], [], [], [], [], []
    decided = decided_parts(training, width)
    stride = max(STRIDE, -(-training.num_samples // MOST_LESSONS))
    kept = np.unique(np.linspace(0, width - 1, min(width, MOST_AFTER)).astype(np.int64))
    for segment, rows in enumerate(training.segments()):
        length = rows.stop - rows.start
        now = np.arange(min(width, max(1, length // 2)), length - (width - 1 if is_whole else 0), stride)
        if not len(now):
            continue
        values = training.values[rows]
        phase = None if not has_phases or world.training_phase is None else world.training_phase[rows]
        own = moments_at(values, now, world, phase)
        ahead = now[:, None] + np.arange(width)
        there = ahead < length
        next_values = values[np.minimum(ahead, length - 1)]
        features.append(own.features)
        level.append(own.level)
        relative = np.log(np.maximum(next_values, TINY * own.level[:, None]) / own.level[:, None])
        after.append(relative[:, kept])
        is_there.append(there[:, kept])
        peak.append(np.where(there[..., None], relative, -np.inf).max(axis=1))
        samples, cycles = decided[segment]
        share.append(np.where(world.is_level, 1.0 / (cycles * there.sum(axis=1)[:, None]), 1.0 / samples))
    if not features:
        raise InvalidProblemError(
            f"policies that learn need a training series of {2 * width if is_whole else 2} samples or more"
        )
    moments = Moments(features=np.concatenate(features), level=np.concatenate(level))
    return Lessons(
        moments=moments,
        after=np.concatenate(after),
        is_there=np.concatenate(is_there),
        peak=np.concatenate(peak),
        share=np.concatenate(share),
    )


def decided_parts(series: ContainerSeries, width: int) -> IntArray:
    """Return the samples and the cycles after the first one of each segment's unit, shape (S, 2), at least 1 each."""
    samples = np.maximum(series.lengths - width, 0)
    unit = series.unit_index
    whole = [np.bincount(unit, weights=own) for own in (samples, -(-samples // width))]
    return np.maximum(np.stack(whole, axis=1)[unit], 1).astype(np.int64)


def moments_of(view: CycleView, world: World, *, has_phases: bool) -> Moments:
    """Return the moments at which a cycle begins, one of each container that runs."""
    now = np.array([view.past.shape[1]])
    parts = [
        moments_at(own, now, world, view.phases[place] if has_phases else None) for place, own in enumerate(view.past)
    ]
    return joined(parts)


def joined(parts: Sequence[Moments]) -> Moments:
    """Return moments one after the other."""
    return Moments(
        features=np.concatenate([part.features for part in parts]), level=np.concatenate([part.level for part in parts])
    )


def moments_at(values: FloatArray, now: IntArray, world: World, phase: IntArray | None = None) -> Moments:
    """Return the moments before samples `now`, each at least 1, of one container.

    Parameters
    ----------
    values
        Shape (samples, R): of all samples, only those before a moment count for it.
    now
        Shape (N,).
    world
        Whose cycles and resources.
    phase
        Shape (samples,): its phases, where they are to be known.
    """
    width = world.cycle_samples
    rows = np.maximum(now[:, None] - width + np.arange(width), 0)
    window = values[rows]
    earlier = values[np.maximum(rows - width, 0)]
    most = np.maximum.accumulate(values, axis=0)[now - 1]
    level = np.where(world.is_level, window[:, -1], window.mean(axis=1))
    level = np.maximum(np.maximum(level, FLOOR * most), TINY)
    quarter = max(1, width // 4)
    numbers = [
        np.log(level),
        np.log(np.maximum(most, TINY) / level),
        window.std(axis=1) / level,
        window.max(axis=1) / level,
        window.min(axis=1) / level,
        (window[:, -quarter:].mean(axis=1) - window[:, :quarter].mean(axis=1)) / level,
        window[:, -quarter:].std(axis=1) / level,
        earlier.mean(axis=1) / level,
    ]
    features = np.concatenate([*(np.minimum(own, CLIP) for own in numbers), np.log1p(now)[:, None]], axis=1)
    if phase is not None:
        features = np.concatenate([features, _phase_features(phase, now, world.num_phases)], axis=1)
    return Moments(features=features, level=level)


CLIP = 10.0
"""Ratios above this say no more than it."""

PHASE_WEIGHT = 2.0
"""Moments of different phases are this many deviations apart, at least."""


def _phase_features(phase: IntArray, now: IntArray, num_phases: int) -> FloatArray:
    """Return which phase it is, and how long it has lasted, shape (N, K + 1)."""
    change = np.flatnonzero(np.diff(phase, prepend=phase[0] - 1))
    begun = change[np.searchsorted(change, now - 1, side="right") - 1]
    current = np.where(phase[now - 1, None] == np.arange(num_phases), PHASE_WEIGHT, 0.0)
    return np.concatenate([current, np.log1p(now - begun)[:, None]], axis=1)
