"""Names of phases by rule: what a phase does, never a name by hand."""

from collections import Counter
from collections.abc import Sequence

from optim.models.containers.series import FloatArray, Resource
from optim.phases.statistics import PhaseStatistics

RISING_SHARE = 0.6
"""Share of windows in which a level rises (or, for a release, falls) above which the phase is named after it."""

LEAST_CHANGE = 0.01
"""Mean change of a level in a minute, as a share of its mean, below which it counts as constant."""

BURST_VARIATION = 0.4
"""Deviation within runs over the mean above which a rate comes in bursts."""

IDLE_SHARE = 0.5
"""Below this share of the mean over all phases, a phase's use of every resource is small."""


def phase_names(statistics: PhaseStatistics, resources: Sequence[Resource]) -> tuple[str, ...]:
    """Return a name for each phase; equal names are numbered in the order of the phases.

    In this order: ``growth`` if a level rises in more than 60 % of windows, and by more than 1 % of its mean in a minute on
    average, ``release`` if it falls likewise,
    ``idle`` if all resources are below half their mean, ``burst`` if a rate's deviation within runs is above 0.4 of its
    mean, else ``stable``; ``unseen`` without samples.
    """
    overall = statistics.share @ statistics.mean
    plain = [_name(statistics, resources, overall, phase) for phase in range(len(statistics.count))]
    counts, used, names = Counter(plain), Counter[str](), []
    for name in plain:
        used[name] += 1
        names.append(name if counts[name] == 1 else f"{name}-{used[name]}")
    return tuple(names)


def _name(statistics: PhaseStatistics, resources: Sequence[Resource], overall: FloatArray, phase: int) -> str:
    if statistics.count[phase] == 0:
        return "unseen"
    levels = [place for place, resource in enumerate(resources) if resource.is_level]
    rates = [place for place, resource in enumerate(resources) if not resource.is_level]
    rising, mean = statistics.rising[phase], statistics.mean[phase]
    change = 60.0 * statistics.slope[phase] / mean.clip(min=1e-12)
    if any(rising[place] > RISING_SHARE and change[place] > LEAST_CHANGE for place in levels):
        return "growth"
    if any(rising[place] < 1 - RISING_SHARE and change[place] < -LEAST_CHANGE for place in levels):
        return "release"
    if (mean < IDLE_SHARE * overall).all():
        return "idle"
    if any(statistics.within[phase, place] > BURST_VARIATION * mean[place] for place in rates):
        return "burst"
    return "stable"
