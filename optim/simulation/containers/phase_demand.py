"""What containers consume in each phase, from labelled training samples."""

from dataclasses import dataclass

import numpy as np

from optim.models.containers.series import ContainerSeries, FloatArray, IntArray
from optim.phases.runs import run_numbers

TINY = 1e-12
"""Demand below this counts as none when one divides by it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseDemand:
    """Moments of each phase, shape (K, R) all; NaN for a phase without samples.

    Attributes
    ----------
    mean, deviation
        Over all samples of a phase, of all containers together; the deviation is that of a population.
    within
        Deviation from the mean of the own run.
    """

    mean: FloatArray
    deviation: FloatArray
    within: FloatArray


def phase_demand(values: FloatArray, labels: IntArray, segment: IntArray, num_phases: int) -> PhaseDemand:
    """Return the moments of labelled samples.

    Parameters
    ----------
    values
        Shape (T, R).
    labels
        Shape (T,); samples with a negative label don't count.
    segment
        Shape (T,): series of each sample, neighbours in time being neighbours.
    num_phases
        K.
    """
    mean, deviation = moments(values, labels, num_phases)
    run = run_numbers(labels, segment)
    own, _ = moments(values, run, int(run[-1]) + 1)
    square, _ = moments((values - own[run]) ** 2, labels, num_phases)
    return PhaseDemand(mean=mean, deviation=deviation, within=np.sqrt(square))


def moments(values: FloatArray, labels: IntArray, num_groups: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and deviation of each group of rows, shape (groups, R), NaN for an empty group."""
    known = labels >= 0
    rows, group = values[known], labels[known]
    count = np.bincount(group, minlength=num_groups).astype(np.float64)[:, None]
    count[count == 0] = np.nan
    mean = _sums(rows, group, num_groups) / count
    return mean, np.sqrt(_sums((rows - mean[group]) ** 2, group, num_groups) / count)


def running_maximum(series: ContainerSeries) -> FloatArray:
    """Return the maximum of each segment up to and with each sample, shape (T, R)."""
    most = series.values.copy()
    for rows in series.segments():
        np.maximum.accumulate(most[rows], axis=0, out=most[rows])
    return most


def _sums(values: FloatArray, group: IntArray, num_groups: int) -> FloatArray:
    return np.stack([np.bincount(group, weights=column, minlength=num_groups) for column in values.T], axis=1)
