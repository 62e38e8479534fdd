"""Policies that look back a cycle, a while, or not at all, and references that know the cycle that begins.

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

HOTCLOUD = "HotCloud 2020 (AI4DL)."

QUANTILE_WINDOW_S = 1800.0


@policy("prev-step-max", world="containers", summary=HOTCLOUD, is_default=True)
def previous_maximum(world: World) -> Rule:
    """Return the rule that gives the maximum of the cycle before, times m."""
    del world
    return Rule(lambda view: scaled_by(view.previous.max(axis=1)))


@policy("prev-step-rules", world="containers", summary=HOTCLOUD, is_default=True)
def previous_rules(world: World) -> Rule:
    """Return the rule that gives the mean of the cycle before plus m standard deviations."""
    del world
    return Rule(lambda view: Estimate(base=view.previous.mean(axis=1), spread=view.previous.std(axis=1)))


@policy("running-max", world="containers", summary="The maximum so far.", is_default=True)
def running_maximum(world: World) -> Rule:
    """Return the rule that gives the maximum so far, times m."""
    del world
    return Rule(lambda view: scaled_by(view.past.max(axis=1)))


@policy("static", world="containers", summary="A quantile of all training samples, for ever.", is_default=True)
def static(world: World) -> Rule:
    """Return the rule that gives what all get in the first cycle, times m, for ever."""

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.broadcast_to(world.first, view.limit.shape))

    return Rule(estimate)


@policy("quantile-95", world="containers", summary="The 95 % quantile of the last half hour.", is_default=True)
def recent_quantile(world: World, *, level: float = 0.95) -> Rule:
    """Return the rule that gives a quantile, `level` in (0, 1), of the last half hour, times m."""
    window = max(1, round(QUANTILE_WINDOW_S / world.interval_s))

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.quantile(view.past[:, -window:], level, axis=1))

    return Rule(estimate)


LEVEL_GAIN, TREND_GAIN = 0.5, 0.3


@policy("holt", world="containers", summary="Holt's exponential smoothing of the cycles' peaks.", is_default=True)
def exponential_smoothing(world: World) -> Rule:
    """Return the rule that gives the next cycle's peak, by Holt's exponential smoothing, plus m mean absolute errors of it.

    level <- a x + (1 - a)(level + trend), trend <- b (level - level before) + (1 - b) trend, x the peak of the cycle before; the
    errors of the forecasts of earlier cycles are smoothed with the same a.

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
    "current-step-max", world="containers", summary=HOTCLOUD, is_default=True, is_reference=True, traits=(Trait.PLAN,)
)
def current_maximum(world: World) -> AffinePlan:
    """Return the plan m max(x) of each cycle."""
    peak = world.by_cycle.max(axis=2)
    return _plan(world, np.zeros_like(peak), peak)


@policy(
    "current-step-rules", world="containers", summary=HOTCLOUD, is_default=True, is_reference=True, traits=(Trait.PLAN,)
)
def current_rules(world: World) -> AffinePlan:
    """Return the plan mean + m standard deviations of each cycle."""
    count = np.maximum(world.samples, 1)[..., None]
    mean = world.by_cycle.sum(axis=2) / count
    away = np.where(world.is_sample[..., None], world.by_cycle - mean[:, :, None], 0.0)
    return _plan(world, mean, np.sqrt((away**2).sum(axis=2) / count))


@policy(
    "oracle-static",
    world="containers",
    summary="The maximum of the container's whole life.",
    is_default=True,
    is_reference=True,
    traits=(Trait.PLAN,),
)
def whole_maximum(world: World) -> AffinePlan:
    """Return the plan m max(x) of each container's whole life."""
    peak = world.values.max(axis=1)[:, None] * (world.samples > 0)[..., None]
    return _plan(world, np.zeros_like(peak), peak)


def _plan(world: World, base: FloatArray, spread: FloatArray) -> AffinePlan:
    """Return the plan base + m spread, after the first cycle."""
    base, spread = base.copy(), spread.copy()
    base[:, 0], spread[:, 0] = world.first, 0.0
    return AffinePlan(world, Estimate(base=base, spread=spread))
