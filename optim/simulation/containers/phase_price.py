"""A price on risk, and what comes next by phase: both learned on training containers.

For moments of the training containers the demand of the cycle that follows is divided by the container's own level at
the moment. The distribution of this ratio by phase says how a phase goes on, its growth and its ends included, without
mixing containers of different sizes. A container of level v in phase z gets the y that minimises

    y + m s P(0.95 v ratio > y | z),

s the mean demand of the training containers and m the multiplier: risk is taken where it saves most. With a single
phase the same rule shows what phases add.
"""

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray, IntArray
from optim.phases.runs import run_numbers
from optim.simulation.containers.engine import views
from optim.simulation.containers.metrics import UNDER_SHARE
from optim.simulation.containers.phase_policies import TINY, own_mean
from optim.simulation.containers.policy import require_phases
from optim.simulation.containers.world import World

STRIDE = 4
"""Every so manieth sample is a moment that ratios are taken from; neighbours hardly differ."""

LEVELS = np.linspace(0.0, 1.0, 201)


class PricedPlan:
    """The rule above on a world.

    The level is the mean since the phase began (without phases, of the last cycle), of a held resource the last sample.

    Parameters
    ----------
    world
        Containers.
    has_phases
        Whether ratios are kept by phase.
    """

    def __init__(self, world: World, *, has_phases: bool = True) -> None:
        self._world = world
        training, width = world.training, world.cycle_samples
        if has_phases:
            labels, number = require_phases(world.training_phase), world.num_phases
            level = run_level(training, labels)
        else:
            labels, number = np.zeros(training.num_samples, dtype=np.int64), 1
            level = cycle_level(training, width)
        level = np.where(world.is_level, training.values, level)
        self._ratio = next_ratios(training, labels, level, width, number)
        self._scale = training.values.mean(axis=0)
        self._phase, self._level = _moments(world, has_phases=has_phases)

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R); of equally good ones the largest."""
        world, last = self._world, len(LEVELS) - 1
        value = np.zeros(self._level.shape)
        runs = world.samples > 0
        phase = self._phase[runs]
        for column in range(len(world.resources)):
            given = UNDER_SHARE * self._level[runs, column][:, None] * self._ratio[phase, column]
            priced = given + multiplier[column] * self._scale[column] * (1.0 - LEVELS)
            best = last - np.argmin(priced[:, ::-1], axis=1)
            own = np.take_along_axis(given, best[:, None], axis=1)[:, 0]
            value[runs, column] = np.where(phase >= 0, own, world.first[column])
        value[:, 0] = world.first
        value = np.minimum(value, world.limit[:, None])
        value[~runs] = 0.0
        return value


def _moments(world: World, *, has_phases: bool) -> tuple[IntArray, FloatArray]:
    """Return phase, shape (C, K), and level, shape (C, K, R), of each container as a cycle begins."""
    phase = np.zeros(world.samples.shape, dtype=np.int64)
    level = np.zeros((*phase.shape, len(world.resources)))
    for view in views(world, level):
        place = np.s_[: len(view.past), view.cycle]
        if has_phases:
            phase[place] = view.phase_now
        mean = own_mean(view.past, view.phases) if has_phases else view.previous.mean(axis=1)
        level[place] = np.where(world.is_level, view.past[:, -1], mean)
    return phase, level


def next_ratios(
    series: ContainerSeries, labels: IntArray, level: FloatArray, width: int, num_phases: int
) -> FloatArray:
    """Return quantiles of demand in the next `width` samples over the level now, by phase, shape (K, R, 201).

    A phase that no moment was in gets the quantiles of all phases together; without any moment all are 1.
    """
    place = series.place
    left = np.repeat(series.lengths, series.lengths) - 1 - place
    now = np.flatnonzero((place % STRIDE == STRIDE - 1) & (left > 0) & (labels >= 0))
    ahead = np.arange(1, width + 1)
    is_there = ahead <= left[now, None]
    rows = np.where(is_there, now[:, None] + ahead, 0)
    found = np.ones((num_phases, len(series.resources), len(LEVELS)))
    for column in range(len(series.resources)):
        ratio = series.values[rows, column] / np.maximum(level[now, column], TINY)[:, None]
        for phase in range(num_phases):
            own = labels[now] == phase
            chosen = ratio[own][is_there[own]] if own.any() else ratio[is_there]
            if len(chosen):
                found[phase, column] = np.quantile(chosen, LEVELS)
    return found


def run_level(series: ContainerSeries, labels: IntArray) -> FloatArray:
    """Return the mean since the present run began, at each sample, shape (T, R)."""
    run = run_numbers(labels, series.segment)
    first = np.concatenate([[0], np.flatnonzero(np.diff(run)) + 1])[run]
    return _mean_since(series, first)


def cycle_level(series: ContainerSeries, width: int) -> FloatArray:
    """Return the mean of the last `width` samples of the own segment, at each sample, shape (T, R)."""
    first = np.arange(series.num_samples) + 1 - width
    return _mean_since(series, np.maximum(first, series.starts[series.segment]))


def _mean_since(series: ContainerSeries, first: IntArray) -> FloatArray:
    total = np.concatenate([np.zeros((1, len(series.resources))), np.cumsum(series.values, axis=0)])
    now = np.arange(series.num_samples)
    return np.asarray((total[now + 1] - total[first]) / (now + 1 - first)[:, None])
