"""Policies by phase: the paper's rule, its variants, and a price on risk learned by phase.

The paper's rule takes absolute statistics over all containers and so gives small and large ones the same.

References
----------
HotCloud 2020 (AI4DL), section 4: phase.rule.

For moments of the training containers the demand of the cycle that follows is divided by the container's own level at
the moment. The distribution of this ratio by phase says how a phase goes on, its growth and its ends included, without
mixing containers of different sizes. A container of level v in phase z gets the y that minimises

    y + m s P(0.95 v ratio > y | z),

s the mean demand of the training containers and m the multiplier: risk is taken where it saves most. With a single
phase the same rule shows what phases add.
"""

from enum import StrEnum
from functools import partial

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.containers.series import ContainerSeries
from optim.phases.clustering import group_moments
from optim.phases.forecasting import ForecastMethod, PhaseForecaster
from optim.phases.sequences import run_numbers, runs_of
from optim.rightsizing.engine import UNDER_SHARE, views
from optim.rightsizing.policy import CycleView, Estimate, NamedPolicy, Rule, require_phases
from optim.rightsizing.world import World

TINY = 1e-12
"""Demand below this counts as none when one divides by it."""

MIN_DWELL = 2
"""Runs of a single sample are noise of the labels."""


class Size(StrEnum):
    """What a container's demand is relative to in the phase rule."""

    ONE = "one"
    """Nothing: the paper's rule, absolute statistics."""
    MAXIMUM = "maximum"
    """The container's maximum so far."""
    LIMIT = "limit"
    """The container's limit; its maximum so far where the limit is unknown."""

    def of(self, maximum: FloatArray, limit: FloatArray) -> FloatArray:
        """Return the sizes of containers with these maxima and limits, all of one shape."""
        if self is Size.ONE:
            return np.ones_like(maximum)
        return np.where(np.isfinite(limit), limit, maximum) if self is Size.LIMIT else maximum


def phase_rule(world: World, *, size: Size = Size.ONE, has_floor: bool = False) -> Rule:
    """Return the rule that gives the mean of the present phase over all containers plus m standard deviations.

    Parameters
    ----------
    world
        Its training containers give the moments.
    size
        Demand is relative to it.
    has_floor
        Whether incompressible resources, as memory, get at least their present use.
    """
    training, labels = world.training, require_phases(world.training_phase)
    limit = np.full_like(training.values, np.nan) if training.limit is None else training.limit[training.segment]
    relative = training.values / np.maximum(size.of(running_maximum(training), limit), TINY)
    mean, deviation = group_moments(relative, labels, world.num_phases)
    floored = world.is_level & has_floor

    def estimate(view: CycleView) -> Estimate:
        scale, phase = size.of(view.past.max(axis=1), view.limit), view.phase_now
        return Estimate(
            base=scale * of_phase(mean, phase),
            spread=scale * of_phase(deviation, phase),
            floor=np.where(floored, view.past[:, -1], 0.0),
        )

    return Rule(estimate)


def phase_shift(world: World) -> Rule:
    """Return the rule that gives the own mean since the phase began plus m deviations within runs of that phase."""
    training = world.training
    within = deviation_within_runs(training, require_phases(world.training_phase), world.num_phases)

    def estimate(view: CycleView) -> Estimate:
        return Estimate(base=phase_run_mean(view.past, view.phases), spread=of_phase(within, view.phase_now))

    return Rule(estimate)


def phase_forecast(world: World, *, method: ForecastMethod) -> Rule:
    """Return the rule that gives mean plus m deviations of the mixture of phases that is expected in the cycle.

    Each phase has the moments of demand over the container's own maximum so far, as in the scaled rule.

    Parameters
    ----------
    world
        Whose training containers the moments, changes and dwells are of.
    method
        How phases are forecast; one that looks at the present phase and its dwell only.
    """
    training, labels = world.training, require_phases(world.training_phase)
    relative = training.values / np.maximum(running_maximum(training), TINY)
    mean, deviation = map(np.nan_to_num, group_moments(relative, labels, world.num_phases))
    square = deviation**2 + mean**2
    forecaster = PhaseForecaster(runs_of(labels, training.lengths, MIN_DWELL), world.num_phases)
    known: dict[tuple[int, int], FloatArray] = {}

    def shares(phases: IntArray, num_steps: int) -> FloatArray:
        """Return the share of each phase in the coming cycle, NaN where no phase is known yet."""
        runs = runs_of(phases, np.array([len(phases)]), MIN_DWELL)
        if not len(runs.phase):
            return np.full(world.num_phases, np.nan)
        key = (int(runs.phase[-1]), int(runs.dwell[-1]))
        if key not in known:
            known[key] = forecaster.forecast(runs.phase, key[1], num_steps, method).mean(axis=0)
        return known[key]

    def estimate(view: CycleView) -> Estimate:
        share = np.stack([shares(phases, view.cycle_samples) for phases in view.phases])
        size, expected = view.past.max(axis=1), share @ mean
        spread = np.sqrt(np.maximum(share @ square - expected**2, 0.0))
        return Estimate(base=size * expected, spread=size * spread)

    return Rule(estimate)


PHASE_POLICIES = tuple(
    NamedPolicy(name, start, needs_phases=True)
    for name, start in (
        ("phase-rule", phase_rule),
        ("phase-max", partial(phase_rule, has_floor=True)),
        ("phase-rule-scaled", partial(phase_rule, size=Size.MAXIMUM)),
        ("phase-rule-limit", partial(phase_rule, size=Size.LIMIT)),
        ("phase-shift", phase_shift),
        ("phase-markov", partial(phase_forecast, method=ForecastMethod.MARKOV)),
        ("phase-semi-markov", partial(phase_forecast, method=ForecastMethod.SEMI_MARKOV)),
    )
)


def of_phase(table: FloatArray, phase: IntArray) -> FloatArray:
    """Return the row of each phase, shape (A, R), NaN where the phase is unknown."""
    return np.where((phase >= 0)[:, None], table[phase], np.nan)


def phase_run_mean(past: FloatArray, phase: IntArray) -> FloatArray:
    """Return each container's mean since its present phase began, shape (A, R)."""
    differs = phase[:, ::-1] != phase[:, -1:]
    length = np.where(differs.any(axis=1), differs.argmax(axis=1), phase.shape[1])
    is_own = np.arange(phase.shape[1])[::-1] < length[:, None]
    return np.asarray((past * is_own[..., None]).sum(axis=1) / length[:, None])


def running_maximum(series: ContainerSeries) -> FloatArray:
    """Return the maximum of each segment up to and with each sample, shape (T, R)."""
    maximum = series.values.copy()
    for rows in series.segments():
        np.maximum.accumulate(maximum[rows], axis=0, out=maximum[rows])
    return maximum


def deviation_within_runs(series: ContainerSeries, labels: IntArray, num_phases: int) -> FloatArray:
    """Return each phase's deviation from the mean of the own run, shape (K, R); NaN for a phase without samples."""
    run = run_numbers(labels, series.segment)
    mean, _ = group_moments(series.values, run, int(run[-1]) + 1)
    square, _ = group_moments((series.values - mean[run]) ** 2, labels, num_phases)
    return np.sqrt(square)


STRIDE = 4
"""Every STRIDE-th sample is a moment that ratios are taken from; neighbours hardly differ."""

LEVELS = np.linspace(0.0, 1.0, 201)


class PricedPlan:
    """The rule above on a world.

    The level is the mean since the phase began (without phases, of the last cycle), of an incompressible resource the last sample.

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
        self._phase, self._level = _phase_and_level(world, has_phases=has_phases)

    def allocate(self, multiplier: FloatArray) -> FloatArray:
        """Return allocations, shape (C, K, R); of equally good ones the largest."""
        world, last = self._world, len(LEVELS) - 1
        value = np.zeros(self._level.shape)
        runs = world.samples > 0
        phase = self._phase[runs]
        for column in range(len(world.resources)):
            amounts = UNDER_SHARE * self._level[runs, column][:, None] * self._ratio[phase, column]
            priced = amounts + multiplier[column] * self._scale[column] * (1.0 - LEVELS)
            best = last - np.argmin(priced[:, ::-1], axis=1)
            chosen = np.take_along_axis(amounts, best[:, None], axis=1)[:, 0]
            value[runs, column] = np.where(phase >= 0, chosen, world.first[column])
        value[:, 0] = world.first
        value = np.minimum(value, world.limit[:, None])
        value[~runs] = 0.0
        return value


def _phase_and_level(world: World, *, has_phases: bool) -> tuple[IntArray, FloatArray]:
    """Return phase, shape (C, K), and level, shape (C, K, R), of each container as a cycle begins."""
    phase = np.zeros(world.samples.shape, dtype=np.int64)
    level = np.zeros((*phase.shape, len(world.resources)))
    for view in views(world, level):
        place = np.s_[: len(view.past), view.cycle]
        if has_phases:
            phase[place] = view.phase_now
        mean = phase_run_mean(view.past, view.phases) if has_phases else view.previous.mean(axis=1)
        level[place] = np.where(world.is_level, view.past[:, -1], mean)
    return phase, level


def next_ratios(
    series: ContainerSeries, labels: IntArray, level: FloatArray, width: int, num_phases: int
) -> FloatArray:
    """Return quantiles of demand in the next `width` samples over the level now, by phase, shape (K, R, 201).

    A phase that no moment was in gets the quantiles of all phases together; without any moment all are 1.
    """
    place = series.place
    remaining = np.repeat(series.lengths, series.lengths) - 1 - place
    now = np.flatnonzero((place % STRIDE == STRIDE - 1) & (remaining > 0) & (labels >= 0))
    ahead = np.arange(1, width + 1)
    is_there = ahead <= remaining[now, None]
    rows = np.where(is_there, now[:, None] + ahead, 0)
    ratios = np.ones((num_phases, len(series.resources), len(LEVELS)))
    for column in range(len(series.resources)):
        sampled = series.values[rows, column] / np.maximum(level[now, column], TINY)[:, None]
        for phase in range(num_phases):
            is_phase = labels[now] == phase
            chosen = sampled[is_phase][is_there[is_phase]] if is_phase.any() else sampled[is_there]
            if len(chosen):
                ratios[phase, column] = np.quantile(chosen, LEVELS)
    return ratios


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
