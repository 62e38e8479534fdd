"""Policies that look back a cycle, a while, or not at all.

References
----------
Berral, Wang, Youssef, "AI4DL: Mining Behaviors of Deep Learning Workloads for Resource
Management", HotCloud 2020, section 4: prev.step.max, prev.step.rules.
"""

from functools import partial

import numpy as np

from optim.simulation.containers.policy import CycleView, Estimate, NamedPolicy, Rule, memoryless, scaled_by
from optim.simulation.containers.world import World

QUANTILE_WINDOW_S = 1800.0


def previous_maximum(view: CycleView) -> Estimate:
    """Return the maximum of the cycle before, times m."""
    return scaled_by(view.previous.max(axis=1))


def previous_rules(view: CycleView) -> Estimate:
    """Return the mean of the cycle before plus m standard deviations."""
    return Estimate(base=view.previous.mean(axis=1), spread=view.previous.std(axis=1))


def running_maximum(view: CycleView) -> Estimate:
    """Return the maximum so far, times m."""
    return scaled_by(view.past.max(axis=1))


def static(world: World) -> Rule:
    """Return the rule that gives what all get in the first cycle, times m, for ever."""

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.broadcast_to(world.first, view.limit.shape))

    return Rule(estimate)


def recent_quantile(world: World, *, level: float) -> Rule:
    """Return the rule that gives a quantile, `level` in (0, 1), of the last half hour, times m."""
    window = max(1, round(QUANTILE_WINDOW_S / world.interval_s))

    def estimate(view: CycleView) -> Estimate:
        return scaled_by(np.quantile(view.past[:, -window:], level, axis=1))

    return Rule(estimate)


def smoothing(world: World, *, half_life_min: float) -> Rule:
    """Return the rule that gives the exponentially weighted mean plus m deviations.

    mean <- (1 - g) mean + g x and s2 <- (1 - g)(s2 + g (x - mean)^2), with the mean before, begun at each container's
    first sample; after `half_life_min` minutes a sample counts half.
    """
    gain = 1.0 - 2.0 ** (-world.interval_s / (60.0 * half_life_min))
    means, squares = np.zeros(world.limit.shape), np.zeros(world.limit.shape)

    def estimate(view: CycleView) -> Estimate:
        mean, square = means[: len(view.past)], squares[: len(view.past)]
        if view.cycle == 1:
            mean[:] = view.past[:, 0]
        for place in range(view.cycle_samples):
            away = view.previous[:, place] - mean
            square[:] = (1 - gain) * (square + gain * away**2)
            mean += gain * away
        return Estimate(base=mean.copy(), spread=np.sqrt(square))

    return Rule(estimate)


LEVEL_GAIN, TREND_GAIN = 0.5, 0.3


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
        peak, own = view.previous.max(axis=1), np.s_[: len(view.past)]
        if view.cycle == 1:
            level[own], error[own] = peak, view.previous.std(axis=1)
        else:
            expected = level[own] + trend[own]
            error[own] += LEVEL_GAIN * (np.abs(peak - expected) - error[own])
            fresh = expected + LEVEL_GAIN * (peak - expected)
            trend[own] += TREND_GAIN * (fresh - level[own] - trend[own])
            level[own] = fresh
        return Estimate(base=level[own] + trend[own], spread=error[own].copy())

    return Rule(estimate)


STEP_POLICIES = (
    memoryless("prev-step-max", previous_maximum),
    memoryless("prev-step-rules", previous_rules),
    NamedPolicy("static", static),
    NamedPolicy("holt", exponential_smoothing),
    memoryless("running-max", running_maximum),
    *(NamedPolicy(f"ewma-{minutes}", partial(smoothing, half_life_min=minutes)) for minutes in (2, 5, 10)),
    *(NamedPolicy(f"quantile-{100 * level:g}", partial(recent_quantile, level=level)) for level in (0.90, 0.95, 0.99)),
)
