"""Statistics of the resource use in each phase, and rules that name the phases."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.models.containers.series import UNKNOWN_PHASE, ContainerSeries, Resource
from optim.phases.clustering import group_moments, group_sums
from optim.phases.sequences import run_numbers

NUM_LEVELS = 201
"""Number of stored quantiles: every half per cent, including the median, quartiles, 95 and 99 %."""

LEVELS = np.linspace(0.0, 1.0, NUM_LEVELS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseStatistics:
    """Statistics of K phases and R resources over samples.

    Attributes
    ----------
    count
        Shape (K,): number of samples.
    mean, deviation
        Shape (K, R): mean and population standard deviation over all samples of a phase.
    within
        Shape (K, R): root mean square of the differences between samples and the mean of their run of equal phases.
    quantiles
        Shape (K, R, 201): quantiles 0, 0.005, ..., 1.
    slope
        Shape (K, R): mean over the windows of the slope of a fitted straight line, in units of the resource per second.
    rising
        Shape (K, R): share of windows with a positive slope.
    window_deviation
        Shape (K, R): mean over the windows of the standard deviation within a window.
    autocorrelation
        Shape (K, R): correlation of successive samples of a run, around the run's mean; 0 for constant samples.
    """

    count: IntArray
    mean: FloatArray
    deviation: FloatArray
    within: FloatArray
    quantiles: FloatArray
    slope: FloatArray
    rising: FloatArray
    window_deviation: FloatArray
    autocorrelation: FloatArray

    @property
    def share(self) -> FloatArray:
        """Share of samples in each phase, shape (K,)."""
        return np.asarray(self.count / max(int(self.count.sum()), 1))

    def quantile(self, level: float) -> FloatArray:
        """Return a quantile of each phase and resource, shape (K, R)."""
        return at_level(self.quantiles, level)

    def merged(self, other: "PhaseStatistics") -> "PhaseStatistics":
        """Return the statistics of both sets of samples together; means and standard deviations are exact, quantiles aren't."""
        total = np.maximum(self.count + other.count, 1)
        share, other_share = (self.count / total)[:, None], (other.count / total)[:, None]
        mean = share * self.mean + other_share * other.mean
        spread = share * (self.deviation**2 + (self.mean - mean) ** 2)
        spread += other_share * (other.deviation**2 + (other.mean - mean) ** 2)
        quantiles = np.empty_like(self.quantiles)
        for phase, resource in np.ndindex(*mean.shape):
            both = np.stack([self.quantiles[phase, resource], other.quantiles[phase, resource]])
            weights = np.array([share[phase, 0], other_share[phase, 0]])
            quantiles[phase, resource] = [mixture_quantile(both, weights, level) for level in LEVELS]
        averaged = {
            name: share * getattr(self, name) + other_share * getattr(other, name)
            for name in ("slope", "rising", "window_deviation", "autocorrelation")
        }
        return replace(
            self,
            count=self.count + other.count,
            mean=mean,
            deviation=np.sqrt(spread),
            within=np.sqrt(share * self.within**2 + other_share * other.within**2),
            quantiles=quantiles,
            **averaged,
        )


def at_level(quantiles: FloatArray, level: float) -> FloatArray:
    """Return a quantile by interpolation in a table, whose last axis has quantiles at equally spaced levels 0, ..., 1."""
    place = level * (quantiles.shape[-1] - 1)
    lower = min(int(place), quantiles.shape[-1] - 2)
    weight = place - lower
    return np.asarray((1 - weight) * quantiles[..., lower] + weight * quantiles[..., lower + 1])


def mixture_quantile(quantiles: FloatArray, weights: FloatArray, level: float) -> float:
    """Return the quantile at `level` of a mixture of distributions.

    Parameters
    ----------
    quantiles
        Shape (K, 201): quantiles of each distribution, see `PhaseStatistics`.
    weights
        Shape (K,): non-negative weights of sum 1.
    level
        Level of the quantile, in [0, 1].
    """
    known = weights > 0
    points = np.unique(quantiles[known])
    below, up_to = np.zeros(len(points)), np.zeros(len(points))
    for weight, distribution in zip(weights[known].tolist(), quantiles[known], strict=True):
        between = np.interp(points, distribution, LEVELS, left=0.0, right=1.0)
        # Where successive quantiles are equal, the distribution function jumps from the first of their levels to the
        # last.
        first, last = (
            np.searchsorted(distribution, points, side="left"),
            np.searchsorted(distribution, points, side="right") - 1,
        )
        is_hit = last >= first
        below += weight * np.where(is_hit, LEVELS[np.minimum(first, NUM_LEVELS - 1)], between)
        up_to += weight * np.where(is_hit, LEVELS[np.maximum(last, 0)], between)
    place = min(int(np.searchsorted(up_to, level - 1e-12)), len(points) - 1)
    if place == 0 or level >= below[place]:
        return float(points[place])
    return float(np.interp(level, [up_to[place - 1], below[place]], points[place - 1 : place + 1]))


def phase_statistics(series: ContainerSeries, labels: IntArray, num_phases: int, num_delays: int) -> PhaseStatistics:
    """Return the statistics of labelled samples.

    Parameters
    ----------
    series
        Series on a grid.
    labels
        Shape (T,): phase of each sample; samples with a negative phase are ignored.
    num_phases
        Number of phases K.
    num_delays
        Number of earlier samples in a window.
    """

    def mean_of(values: FloatArray, phase: IntArray) -> FloatArray:
        """Return the mean of each phase, shape (K, R), zeros without samples."""
        return np.nan_to_num(group_moments(values, phase, num_phases)[0])

    values = series.values
    mean, deviation = map(np.nan_to_num, group_moments(values, labels, num_phases))
    run = run_numbers(labels, series.segment)
    around = values - group_moments(values, run, int(run[-1]) + 1)[0][run]
    slope, spread = _window_shape(series, num_delays)
    window_labels = np.where(np.isfinite(slope[:, 0]), labels, UNKNOWN_PHASE)
    quantiles = np.zeros((*mean.shape, NUM_LEVELS))
    for phase in np.unique(labels[labels >= 0]).tolist():
        quantiles[phase] = np.quantile(values[labels == phase], LEVELS, axis=0).T
    return PhaseStatistics(
        count=np.bincount(labels[labels >= 0], minlength=num_phases).astype(np.int64),
        mean=mean,
        deviation=deviation,
        within=np.sqrt(mean_of(around**2, labels)),
        quantiles=quantiles,
        slope=mean_of(slope, window_labels),
        rising=mean_of((slope > 0).astype(np.float64), window_labels),
        window_deviation=mean_of(spread, window_labels),
        autocorrelation=_autocorrelation(values, around, run, labels, num_phases),
    )


def _autocorrelation(
    values: FloatArray, around: FloatArray, run: IntArray, labels: IntArray, num_phases: int
) -> FloatArray:
    """Return the correlation of successive samples of a run, around the run's mean, for each phase; shape (K, R)."""
    known, follows = np.flatnonzero(labels >= 0), np.flatnonzero((run[1:] == run[:-1]) & (labels[1:] >= 0))
    product = group_sums(around[follows] * around[follows + 1], labels[follows], num_phases)
    square, size = (group_sums(part[known] ** 2, labels[known], num_phases) for part in (around, values))
    # Constant samples differ from their mean by rounding errors only.
    varies = square > 1e-18 * size
    return np.where(varies, product / np.where(varies, square, 1.0), 0.0)


def demand_quantiles(statistics: PhaseStatistics, shares: FloatArray, level: float) -> FloatArray:
    """Return the quantile at `level` of the demand of a mixture of phases.

    Parameters
    ----------
    statistics
        Statistics of K phases and R resources; a phase without samples is ignored.
    shares
        Shape (S, K): share of each phase, in S mixtures; NaN in an unknown mixture.
    level
        Level of the quantile, in [0, 1].

    Returns
    -------
    numpy.ndarray
        Quantile of each mixture and resource, in units of the resource, NaN for an unknown mixture; shape (S, R).

    Raises
    ------
    InvalidOptionError
        If the level is out of its range.
    """
    check_in("[0, 1]", {"level": level})
    num_resources = statistics.quantiles.shape[1]
    demand = np.full((len(shares), num_resources), np.nan)
    seen = statistics.count > 0
    for row in np.flatnonzero(np.isfinite(shares[:, 0])).tolist():
        weights = np.where(seen, shares[row], 0.0)
        for place in range(num_resources):
            demand[row, place] = mixture_quantile(statistics.quantiles[:, place], weights / weights.sum(), level)
    return demand


def _window_shape(series: ContainerSeries, num_delays: int) -> tuple[FloatArray, FloatArray]:
    """Return slope (per second) and standard deviation of the window that ends at each sample, NaN without history."""
    interval_s = series.interval_s if series.interval_s is not None else 1.0
    ends, windows = series.ends(num_delays), series.windows(num_delays)
    clock = (np.arange(num_delays + 1) - num_delays / 2) * interval_s
    slope, spread = np.full(series.values.shape, np.nan), np.full(series.values.shape, np.nan)
    slope[ends] = np.einsum("t,ntr->nr", clock, windows) / max(float(clock @ clock), 1e-300)
    spread[ends] = windows.std(axis=1)
    return slope, spread


RISING_SHARE = 0.6
"""A phase is named growth (release) if an incompressible resource rises (falls) in more than this share of windows."""

MIN_CHANGE = 0.01
"""An incompressible resource counts as constant if its mean change per minute is below this share of its mean."""

BURST_VARIATION = 0.4
"""A rate is bursty if its standard deviation within runs (`within`) is above this share of its mean."""

IDLE_SHARE = 0.5
"""A phase's use of a resource is small if it is below this share of the mean over all phases."""


def phase_names(statistics: PhaseStatistics, resources: Sequence[Resource]) -> tuple[str, ...]:
    """Return a name for each phase; equal names are numbered in the order of the phases.

    The first rule that applies gives the name. ``unseen``: no samples. ``growth``: an incompressible resource rises in
    more than 60 % of windows, and by more than 1 % of its mean per minute on average. ``release``: it falls in the same
    way. ``idle``: all resources are below half their mean over all phases. ``burst``: a rate's standard deviation within
    runs is above 0.4 of its mean. Otherwise ``stable``.
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
    if any(rising[place] > RISING_SHARE and change[place] > MIN_CHANGE for place in levels):
        return "growth"
    if any(rising[place] < 1 - RISING_SHARE and change[place] < -MIN_CHANGE for place in levels):
        return "release"
    if (mean < IDLE_SHARE * overall).all():
        return "idle"
    if any(statistics.within[phase, place] > BURST_VARIATION * mean[place] for place in rates):
        return "burst"
    return "stable"
