"""How well two partitions agree: adjusted Rand index, confusion, and F1 after matching."""

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import FloatArray, IntArray


def confusion(truth: IntArray, labels: IntArray) -> IntArray:
    """Return counts of samples by true class (rows) and label (columns).

    Raises
    ------
    InvalidProblemError
        If the lengths differ or a label is negative.
    """
    truth, labels = np.asarray(truth), np.asarray(labels)
    if truth.shape != labels.shape or truth.ndim != 1:
        raise InvalidProblemError(f"labels must be two rows of one length, got shapes {truth.shape} and {labels.shape}")
    if len(truth) == 0:
        return np.zeros((0, 0), dtype=np.int64)
    if min(truth.min(), labels.min()) < 0:
        raise InvalidProblemError("labels must not be negative; leave samples without a phase out")
    width = int(labels.max()) + 1
    counts = np.bincount(truth * width + labels, minlength=(int(truth.max()) + 1) * width)
    return counts.reshape(-1, width).astype(np.int64)


def adjusted_rand_index(truth: IntArray, labels: IntArray) -> float:
    """Return the adjusted Rand index: 1 for equal partitions, 0 in the mean for independent ones.

    References
    ----------
    Hubert and Arabie (1985). Comparing partitions. doi:10.1007/BF01908075, equation 5.
    """
    table = confusion(truth, labels).astype(np.float64)
    together, rows, columns = (float(_pairs(part).sum()) for part in (table, table.sum(axis=1), table.sum(axis=0)))
    every = float(_pairs(np.array([table.sum()]))[0])
    if every == 0:
        return 1.0
    expected = rows * columns / every
    most = (rows + columns) / 2
    # Both all in one, or both all apart: equal partitions.
    return 1.0 if most == expected else (together - expected) / (most - expected)


def adjusted_mutual_information(truth: IntArray, labels: IntArray) -> float:
    """Return mutual information adjusted for chance, over the mean of both entropies: 1 for equal partitions.

    References
    ----------
    Vinh, Epps and Bailey (2010). Information theoretic measures for clusterings comparison. JMLR 11, equation 24a.
    """
    table = confusion(truth, labels)
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    table = table[rows > 0][:, columns > 0]
    rows, columns = rows[rows > 0], columns[columns > 0]
    total = int(rows.sum())
    if len(rows) == len(columns) <= 1:
        return 1.0
    seen = table > 0
    expected_if_apart = np.outer(rows, columns) / total
    shared = float((table[seen] / total * np.log(table[seen] / expected_if_apart[seen])).sum())
    chance = sum(_expected_information(int(a), int(b), total) for a in rows for b in columns)
    middle = sum(float(-(part / total * np.log(part / total)).sum()) for part in (rows, columns)) / 2
    return (shared - chance) / (middle - chance) if middle != chance else 1.0


def _expected_information(row: int, column: int, total: int) -> float:
    """Return what a cell adds in the mean over all tables with these sums; its count is hypergeometric."""
    from scipy.special import gammaln

    count = np.arange(max(1, row + column - total), min(row, column) + 1)
    if not len(count):
        return 0.0
    fixed = gammaln([row + 1, column + 1, total - row + 1, total - column + 1]).sum() - gammaln(total + 1)
    free = gammaln(count + 1) + gammaln(row - count + 1) + gammaln(column - count + 1)
    log_probability = fixed - free - gammaln(total - row - column + count + 1)
    gain = count / total * np.log(total * count / (row * column))
    return float((gain * np.exp(log_probability)).sum())


def matched_f1(truth: IntArray, labels: IntArray) -> FloatArray:
    """Return F1 of each true class after the one-to-one matching of labels to classes with the most samples on it."""
    from scipy.optimize import linear_sum_assignment

    table = confusion(truth, labels)
    scores = np.zeros(table.shape[0])
    for row, column in zip(*linear_sum_assignment(-table), strict=True):
        total = table[row].sum() + table[:, column].sum()
        scores[row] = 2 * table[row, column] / total if total else 0.0
    return scores


def near_change(truth: IntArray, lengths: IntArray, distance: int) -> NDArray[np.bool_]:
    """Tell which samples lie within `distance` samples of a change of their segment's true phase, shape (T,)."""
    segment = np.repeat(np.arange(len(lengths)), lengths)
    is_near = np.zeros(len(truth), dtype=bool)
    for shift in range(1, distance + 1):
        differs = (truth[shift:] != truth[:-shift]) & (segment[shift:] == segment[:-shift])
        is_near[shift:] |= differs
        is_near[:-shift] |= differs
    return is_near


def _pairs(counts: FloatArray) -> FloatArray:
    return counts * (counts - 1) / 2
