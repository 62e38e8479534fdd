"""Sums and moments of rows by group."""

import numpy as np

from optim.models.containers.series import FloatArray, IntArray


def group_sums(values: FloatArray, group: IntArray, num_groups: int) -> FloatArray:
    """Return the sum of each group's rows, shape (groups, R), from values (n, R) and the group of each row (n,)."""
    return np.stack([np.bincount(group, weights=column, minlength=num_groups) for column in values.T], axis=1)


def group_moments(values: FloatArray, labels: IntArray, num_groups: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and deviation of each group of rows, shape (groups, R), NaN for an empty group.

    Rows with a negative label don't count; the deviation is that of a population.
    """
    known = labels >= 0
    rows, group = values[known], labels[known]
    count = np.bincount(group, minlength=num_groups).astype(np.float64)[:, None]
    count[count == 0] = np.nan
    mean = group_sums(rows, group, num_groups) / count
    return mean, np.sqrt(group_sums((rows - mean[group]) ** 2, group, num_groups) / count)
