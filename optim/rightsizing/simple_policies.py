"""Policies that use the previous cycle, a window, or no history, and reference policies that know the coming cycle.

References
----------
Berral, Wang, Youssef, "AI4DL: Mining Behaviors of Deep Learning Workloads for Resource
Management", HotCloud 2020, section 4: prev.step.max, prev.step.rules, current.step.max, current.step.rules.
"""

import numpy as np

from optim.core.arrays import FloatArray
from optim.core.policies import policy
from optim.rightsizing.policy import AffinePlan, CycleView, Estimate, Rule, Trait, scaled_by
from optim.rightsizing.world import World

QUANTILE_WINDOW_S = 1800.0


@policy(
    "prev-step-max",
    world="containers",
    summary="Maximum of the previous cycle (HotCloud 2020, AI4DL).",
    is_default=True,
)
def previous_maximum(world: World) -> Rule:
    """Return the rule that allocates m times the maximum of the previous cycle."""
    del world
    return Rule(lambda view: scaled_by(view.previous.max(axis=1)))


@policy(
    "prev-step-rules",
    world="containers",
    summary="Mean of the previous cycle plus a multiple of its standard deviation (HotCloud 2020, AI4DL).",
    is_default=True,
)
def previous_rules(world: World) -> Rule:
    """Return the rule that allocates the mean of the previous cycle plus m standard deviations."""
    del world
    return Rule(lambda view: Estimate(base=view.previous.mean(axis=1), spread=view.previous.std(axis=1)))


@policy("running-max", world="containers", summary="Maximum of all past samples.", is_default=True)
def running_maximum(world: World) -> Rule:
    """Return the rule that allocates m times the maximum so far."""
    del world
    return Rule(lambda view: scaled_by(view.past.max(axis=1)))


@policy("static", world="containers", summary="Constant quantile of all training samples.", is_default=True)
def static(world: World) -> Rule:
    """Return the rule that always allocates m times the first cycle's allocation."""

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.broadcast_to(world.first, view.limit.shape))

    return Rule(estimate)


@policy("quantile-95", world="containers", summary="95 % quantile of the last half hour.", is_default=True)
def recent_quantile(world: World, *, level: float = 0.95) -> Rule:
    """Return the rule that allocates m times a quantile of the last half hour, `level` in (0, 1)."""
    window = max(1, round(QUANTILE_WINDOW_S / world.interval_s))

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.quantile(view.past[:, -window:], level, axis=1))

    return Rule(estimate)


LEVEL_GAIN, TREND_GAIN = 0.5, 0.3


@policy("holt", world="containers", summary="Holt's exponential smoothing of the peaks per cycle.", is_default=True)
def exponential_smoothing(world: World) -> Rule:
    """Return the rule that allocates Holt's forecast of the next cycle's peak plus m times its mean absolute error.

    level <- a x + (1 - a)(level + trend), trend <- b (level - previous level) + (1 - b) trend, with x the peak of the previous
    cycle; the absolute errors of earlier forecasts are smoothed with the same a.

    References
    ----------
    Holt, "Forecasting seasonals and trends by exponentially weighted moving averages", 1957, reprinted 2004.
    doi:10.1016/j.ijforecast.2003.09.015
    """
    level, trend, error = (np.zeros(world.limit.shape) for _ in range(3))

    def estimate(view: CycleView) -> Estimate:
        peak, running = view.previous.max(axis=1), np.s_[: len(view.past)]
        if view.cycle == 1:
            level[running], error[running] = peak, view.previous.std(axis=1)
        else:
            expected = level[running] + trend[running]
            error[running] += LEVEL_GAIN * (np.abs(peak - expected) - error[running])
            fresh = expected + LEVEL_GAIN * (peak - expected)
            trend[running] += TREND_GAIN * (fresh - level[running] - trend[running])
            level[running] = fresh
        return Estimate(base=level[running] + trend[running], spread=error[running].copy())

    return Rule(estimate)


@policy(
    "current-step-max",
    world="containers",
    summary="Maximum of the coming cycle, clairvoyant (HotCloud 2020, AI4DL).",
    is_default=True,
    is_reference=True,
    traits=(Trait.PLAN,),
)
def current_maximum(world: World) -> AffinePlan:
    """Return the plan that allocates m times the maximum of the current cycle."""
    peak = world.by_cycle.max(axis=2)
    return _plan(world, np.zeros_like(peak), peak)


@policy(
    "current-step-rules",
    world="containers",
    summary="Mean of the coming cycle plus a multiple of its standard deviation, clairvoyant (HotCloud 2020, AI4DL).",
    is_default=True,
    is_reference=True,
    traits=(Trait.PLAN,),
)
def current_rules(world: World) -> AffinePlan:
    """Return the plan that allocates mean plus m standard deviations of the current cycle."""
    count = np.maximum(world.samples, 1)[..., None]
    mean = world.by_cycle.sum(axis=2) / count
    away = np.where(world.is_sample[..., None], world.by_cycle - mean[:, :, None], 0.0)
    return _plan(world, mean, np.sqrt((away**2).sum(axis=2) / count))


@policy(
    "oracle-static",
    world="containers",
    summary="Maximum of the container's entire run, clairvoyant.",
    is_default=True,
    is_reference=True,
    traits=(Trait.PLAN,),
)
def whole_maximum(world: World) -> AffinePlan:
    """Return the plan that always allocates m times the maximum of the container's entire run."""
    peak = world.values.max(axis=1)[:, None] * (world.samples > 0)[..., None]
    return _plan(world, np.zeros_like(peak), peak)


def _plan(world: World, base: FloatArray, spread: FloatArray) -> AffinePlan:
    """Return the plan that allocates base + m spread in all cycles after the first."""
    base, spread = base.copy(), spread.copy()
    base[:, 0], spread[:, 0] = world.first, 0.0
    return AffinePlan(world, Estimate(base=base, spread=spread))
