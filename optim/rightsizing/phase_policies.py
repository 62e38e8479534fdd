"""Policies by phase: a rule of HotCloud 2020, and a rule that puts a price on the risk of a shortage.

The rule of HotCloud 2020 uses absolute statistics over all containers, so that it allocates the same to small and large
containers.

For the other rule, at sampled times of the training containers, the demand of the next cycle is divided by the
container's current level. The distribution of this ratio per phase describes how a phase continues, including its
growth and end, independently of the container's size. A container of level v in phase z gets the allocation y that
minimises

    y + m s P(0.95 v ratio > y | z),

where s is the mean demand of the training containers and m the multiplier, so that risk is taken where it saves most. The
variant with a single phase, `level-price`, shows the benefit of phases.

References
----------
HotCloud 2020 (AI4DL), section 4: phase.rule.
"""

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.policies import policy
from optim.models.containers.series import ContainerSeries
from optim.phases.clustering import group_moments
from optim.phases.sequences import run_numbers
from optim.rightsizing.engine import UNDER_SHARE
from optim.rightsizing.policy import Estimate, Rule, Trait, require_phases, views
from optim.rightsizing.world import World

TINY = 1e-12
"""Demand below this is treated as zero in divisions."""


@policy(
    "phase-rule",
    world="containers",
    summary="Mean of the phase plus a multiple of its standard deviation (HotCloud 2020, AI4DL).",
    is_default=True,
    traits=(Trait.PHASES,),
)
def phase_rule(world: World) -> Rule:
    """Return the rule that allocates mean plus m standard deviations of the phase's samples in all training series."""
    mean, deviation = group_moments(world.training.values, require_phases(world.training_phase), world.num_phases)
    return Rule(lambda view: Estimate(base=of_phase(mean, view.phase_now), spread=of_phase(deviation, view.phase_now)))


def of_phase(table: FloatArray, phase: IntArray) -> FloatArray:
    """Return the table's row for the phase of each of A containers, shape (A, R), NaN where the phase is unknown."""
    return np.where((phase >= 0)[:, None], table[phase], np.nan)


def phase_run_mean(past: FloatArray, phase: IntArray) -> FloatArray:
    """Return each container's mean demand since its current phase began, shape (A, R)."""
    differs = phase[:, ::-1] != phase[:, -1:]
    length = np.where(differs.any(axis=1), differs.argmax(axis=1), phase.shape[1])
    is_own = np.arange(phase.shape[1])[::-1] < length[:, None]
    return np.asarray((past * is_own[..., None]).sum(axis=1) / length[:, None])


STRIDE = 4
"""Ratios are taken at every STRIDE-th sample, since adjacent samples hardly differ."""

LEVELS = np.linspace(0.0, 1.0, 201)


@policy(
    "phase-price",
    world="containers",
    summary="Minimise allocation plus priced risk, with the distribution of the next demand per phase.",
    is_default=True,
    traits=(Trait.PHASES, Trait.PLAN),
)
@policy(
    "level-price",
    world="containers",
    summary="As `phase-price`, without phases.",
    is_default=True,
    traits=(Trait.PLAN,),
    has_phases=False,
)
class PricedPlan:
    """The plan of the rule with a price on risk.

    The level of a rate is the mean since the phase began, or of the last cycle without phases; the level of an incompressible
    resource is the last sample.

    Parameters
    ----------
    world
        The simulated containers, divided into cycles (see `World`).
    has_phases
        Whether ratios are grouped by phase.
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
        """Return allocations, shape (C, K, R); of equally good amounts, the largest."""
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
    """Return phase, shape (C, K), and level, shape (C, K, R), of each container at the beginning of each cycle."""
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
    """Return quantiles of the ratio of the next `width` samples to the current level, by phase, shape (K, R, 201).

    A phase without samples has the quantiles of all phases together; without any samples all quantiles are 1.
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
    """Return at each sample the mean demand since its run of equal phases began, shape (T, R)."""
    run = run_numbers(labels, series.segment)
    first = np.concatenate([[0], np.flatnonzero(np.diff(run)) + 1])[run]
    return _mean_since(series, first)


def cycle_level(series: ContainerSeries, width: int) -> FloatArray:
    """Return at each sample the mean demand of the segment's last `width` samples, shape (T, R)."""
    first = np.arange(series.num_samples) + 1 - width
    return _mean_since(series, np.maximum(first, series.starts[series.segment]))


def _mean_since(series: ContainerSeries, first: IntArray) -> FloatArray:
    total = np.concatenate([np.zeros((1, len(series.resources))), np.cumsum(series.values, axis=0)])
    now = np.arange(series.num_samples)
    return np.asarray((total[now + 1] - total[first]) / (now + 1 - first)[:, None])
