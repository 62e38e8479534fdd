"""From codes to labels: order of clusters, and a majority over the last few labels."""

import numpy as np

from optim.models.containers.series import FloatArray, IntArray, Resource
from optim.phases.groups import group_moments


def cluster_order(values: FloatArray, labels: IntArray, num_clusters: int, resources: tuple[Resource, ...]) -> IntArray:
    """Return the clusters in their final order: by mean level (memory), then by mean rate (CPU) of their samples.

    Clusters without samples come last.
    """
    means, _ = group_moments(values, labels, num_clusters)
    means = np.where(np.isnan(means), np.inf, means)
    places = sorted(range(len(resources)), key=lambda place: not resources[place].is_level)
    # The last key of lexsort counts first.
    return np.asarray(np.lexsort([means[:, place] for place in reversed(places)]), dtype=np.int64)


def majority(labels: IntArray, lengths: IntArray, size: int, num_labels: int) -> IntArray:
    """Return the most frequent of each segment's last `size` labels, at each sample; never a later one.

    Parameters
    ----------
    labels
        Shape (n,), all known; segments one after the other.
    lengths
        Labels of each segment, zeros allowed.
    size
        How many count; among equals the sample's own label wins, then the lowest.
    num_labels
        K.
    """
    if size <= 1 or not len(labels):
        return labels
    begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
    row = np.arange(len(labels))
    hits = np.zeros((len(labels) + 1, num_labels), dtype=np.int64)
    hits[row + 1, labels] = 1
    sums = hits.cumsum(axis=0)
    votes = 2 * (sums[row + 1] - sums[np.maximum(begin, row - size + 1)])
    votes[row, labels] += 1
    return np.asarray(votes.argmax(axis=1), dtype=np.int64)
