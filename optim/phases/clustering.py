"""Clusters of embeddings, the choice of their number, and agreement of two partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.containers.series import Resource


def group_sums(values: FloatArray | IntArray, group: IntArray, num_groups: int) -> FloatArray:
    """Return the sum of each group's rows, shape (groups, R), from values of shape (n, R) and each row's group, shape (n,)."""
    return np.stack([np.bincount(group, weights=column, minlength=num_groups) for column in values.T], axis=1)


def group_moments(values: FloatArray, labels: IntArray, num_groups: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation of each group of rows, each of shape (groups, R), NaN for an empty group.

    Rows with a negative label are ignored; the standard deviation is that of a population.
    """
    known = labels >= 0
    rows, group = values[known], labels[known]
    count = np.bincount(group, minlength=num_groups).astype(np.float64)[:, None]
    count[count == 0] = np.nan
    mean = group_sums(rows, group, num_groups) / count
    return mean, np.sqrt(group_sums((rows - mean[group]) ** 2, group, num_groups) / count)


def confusion(truth: IntArray, labels: IntArray) -> IntArray:
    """Return counts of samples by true class (rows) and label (columns).

    Raises
    ------
    InvalidProblemError
        If the lengths differ or a label is negative.
    """
    truth, labels = np.asarray(truth), np.asarray(labels)
    if truth.shape != labels.shape or truth.ndim != 1:
        raise InvalidProblemError(
            f"labels must be two vectors of equal length, got shapes {truth.shape} and {labels.shape}"
        )
    if len(truth) == 0:
        return np.zeros((0, 0), dtype=np.int64)
    if min(truth.min(), labels.min()) < 0:
        raise InvalidProblemError("labels must not be negative; leave samples without a phase out")
    width = int(labels.max()) + 1
    counts = np.bincount(truth * width + labels, minlength=(int(truth.max()) + 1) * width)
    return counts.reshape(-1, width).astype(np.int64)


def adjusted_rand_index(truth: IntArray, labels: IntArray) -> float:
    """Return the adjusted Rand index: 1 for equal partitions, and 0 on average for independent partitions.

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
    max_together = (rows + columns) / 2
    # Both partitions have one cluster, or only clusters of one sample: they are equal.
    return 1.0 if max_together == expected else (together - expected) / (max_together - expected)


def adjusted_mutual_information(truth: IntArray, labels: IntArray) -> float:
    """Return the mutual information, adjusted for chance and relative to the mean of both entropies: 1 for equal partitions.

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
    """Return a cell's expected contribution to the mutual information, over all tables with these margins."""
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
    """Return the F1 score of each true class, after labels are matched one-to-one with classes to match most samples."""
    from scipy.optimize import linear_sum_assignment

    table = confusion(truth, labels)
    scores = np.zeros(table.shape[0])
    for row, column in zip(*linear_sum_assignment(-table), strict=True):
        total = table[row].sum() + table[:, column].sum()
        scores[row] = 2 * table[row, column] / total if total else 0.0
    return scores


def near_change(truth: IntArray, lengths: IntArray, distance: int) -> NDArray[np.bool_]:
    """Return which samples are within `distance` samples of a change of their segment's true phase, shape (T,)."""
    segment = np.repeat(np.arange(len(lengths)), lengths)
    is_near = np.zeros(len(truth), dtype=bool)
    for shift in range(1, distance + 1):
        differs = (truth[shift:] != truth[:-shift]) & (segment[shift:] == segment[:-shift])
        is_near[shift:] |= differs
        is_near[:-shift] |= differs
    return is_near


def _pairs(counts: FloatArray) -> FloatArray:
    return counts * (counts - 1) / 2


MIN_CLUSTERS, MAX_CLUSTERS = 2, 12

MIN_GAIN = 0.02
"""Minimum decrease of the held-out sum of squares from k - 1 to k clusters, relative to the sum of squares of one cluster."""

MIN_STABILITY = 0.8
"""Minimum mean adjusted Rand index of partitions fitted on different halves of the containers."""

NUM_HALVES = 10

SAMPLE = 10_000
"""Maximum number of windows in `choose_count`; more would add time without changing the result."""

RESTARTS, RULE_RESTARTS = 10, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """Criteria of `choose_count` for one number of clusters.

    Attributes
    ----------
    num_clusters
        Number of clusters k.
    held_out
        Held-out sum of squares, relative to the held-out sum of squares of one cluster.
    gain
        Decrease of `held_out` from k - 1 to k clusters.
    stability
        Mean adjusted Rand index of partitions fitted on random halves of the containers.
    silhouette
        Mean silhouette of at most 1,000 held-out windows.
    passes
        Whether gain and stability both suffice.
    """

    num_clusters: int
    held_out: float
    gain: float
    stability: float
    silhouette: float
    passes: bool


def fit_clusters(
    embeddings: FloatArray,
    num_clusters: int,
    seed: int,
    restarts: int = RESTARTS,
    weights: FloatArray | None = None,
    most_clusters: int | None = None,
) -> FloatArray:
    """Return the centres (k, width) of k-means with k-means++ seeds, the best of `restarts` runs.

    With `most_clusters` the arrays are padded, so that one compilation serves every k up to this number. Without it,
    each k is compiled separately, but runs faster.

    Raises
    ------
    InvalidProblemError
        If there are fewer embeddings than clusters.
    """
    import jax
    import jax.numpy as jnp

    from optim.kernels import k_means

    if len(embeddings) < num_clusters:
        raise InvalidProblemError(
            f"{len(embeddings)} windows can't make {num_clusters} phases; give longer series or fewer phases"
        )
    counts = np.ones(len(embeddings)) if weights is None else weights
    clusters = k_means.fit(
        jnp.asarray(embeddings, jnp.float32),
        jax.random.key(seed),
        num_clusters=num_clusters,
        most_clusters=most_clusters,
        num_restarts=restarts,
        weights=jnp.asarray(counts, jnp.float32),
    )
    return np.asarray(clusters.centres, np.float64)


def assign(embeddings: FloatArray, centres: FloatArray) -> IntArray:
    """Return the index of the centre nearest to each embedding, the first in a tie."""
    return np.asarray(np.argmin(squared_distances(embeddings, centres), axis=1), dtype=np.int64)


def squared_distances(embeddings: FloatArray, centres: FloatArray) -> FloatArray:
    """Return the squared distance of each embedding to each centre, shape (n, k)."""
    origin = centres.mean(axis=0)
    moved, middle = embeddings - origin, centres - origin
    product = moved @ middle.T
    squares = (moved**2).sum(axis=1)[:, None] + (middle**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(squares - 2 * product, 0.0))


def choose_count(
    training: FloatArray, owner: IntArray, held_out: FloatArray, seed: int, candidates: Sequence[int] | None = None
) -> tuple[int, tuple[CountRow, ...]]:
    """Return the largest number of clusters that fits well enough and is stable (2 if none is), and the criteria.

    Parameters
    ----------
    training
        Embeddings to fit on.
    owner
        Container of each training embedding; halves are drawn by container.
    held_out
        Embeddings of other containers.
    seed
        Seed of k-means and of the halves.
    candidates
        Numbers to try, 2 to 12 by default.
    """
    rng = np.random.default_rng(seed)
    training, owner = _sampled(rng, training, owner)
    (held_out,) = _sampled(rng, held_out)
    alone = float(((held_out - training.mean(axis=0)) ** 2).sum())
    halves = _halves(owner, rng)
    rows: list[CountRow] = []
    before = 1.0
    for count in candidates or range(MIN_CLUSTERS, MAX_CLUSTERS + 1):
        if count > len(training):
            break
        centres = fit_clusters(training, count, seed, RULE_RESTARTS, most_clusters=max(count, MAX_CLUSTERS))
        share = float(squared_distances(held_out, centres).min(axis=1).sum()) / max(alone, 1e-300)
        stability = _stability(training, halves, held_out, count, seed)
        gain = before - share
        rows.append(
            CountRow(
                num_clusters=count,
                held_out=share,
                gain=gain,
                stability=stability,
                silhouette=_silhouette(held_out[:1000], assign(held_out[:1000], centres)),
                passes=gain >= MIN_GAIN and stability >= MIN_STABILITY,
            )
        )
        before = share
    passing = [row.num_clusters for row in rows if row.passes]
    return max(passing, default=MIN_CLUSTERS), tuple(rows)


def cluster_order(values: FloatArray, labels: IntArray, num_clusters: int, resources: tuple[Resource, ...]) -> IntArray:
    """Return the clusters in their final order: by mean use of incompressible resources (memory), then of rates (CPU).

    Clusters without samples come last.
    """
    means, _ = group_moments(values, labels, num_clusters)
    means = np.where(np.isnan(means), np.inf, means)
    places = sorted(range(len(resources)), key=lambda place: not resources[place].is_level)
    # lexsort sorts by its last key first.
    return np.asarray(np.lexsort([means[:, place] for place in reversed(places)]), dtype=np.int64)


def updated_centres(centres: FloatArray, weights: FloatArray, embeddings: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Move each centre to the mean of its previous embeddings and of the further embeddings nearest to it.

    Parameters
    ----------
    centres
        Shape (K, width): the centres.
    weights
        Shape (K,): number of previous embeddings of each centre.
    embeddings
        Shape (n, width): further embeddings.

    Returns
    -------
    tuple of numpy.ndarray
        New centres and weights, with the shapes of the arguments.
    """
    count = len(centres)
    labels = assign(embeddings, centres)
    number = np.bincount(labels, minlength=count).astype(np.float64)
    sums = group_sums(embeddings, labels, count)
    total = np.maximum(weights + number, 1.0)
    return centres + (sums - number[:, None] * centres) / total[:, None], weights + number


def _sampled(rng: np.random.Generator, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the same random rows of all arrays, in their order."""
    size = len(arrays[0])
    if size <= SAMPLE:
        return arrays
    rows = np.sort(rng.permutation(size)[:SAMPLE])
    return tuple(array[rows] for array in arrays)


def _halves(owner: IntArray, rng: np.random.Generator) -> list[FloatArray]:
    """Return weights (0 or 1) that select random halves of the containers or, if there is only one, of its embeddings."""
    groups = np.unique(owner)
    if len(groups) < 2:
        owner = groups = np.arange(len(owner))
    return [
        np.isin(owner, rng.permutation(groups)[: max(len(groups) // 2, 1)]).astype(np.float64)
        for _ in range(NUM_HALVES)
    ]


def _stability(embeddings: FloatArray, halves: list[FloatArray], held_out: FloatArray, count: int, seed: int) -> float:
    """Return the mean adjusted Rand index, on held-out embeddings, over all pairs of partitions fitted on the halves."""
    labels = [
        assign(
            held_out,
            fit_clusters(embeddings, count, seed + 1 + place, RULE_RESTARTS, weights, max(count, MAX_CLUSTERS)),
        )
        for place, weights in enumerate(halves)
    ]
    return float(np.mean([adjusted_rand_index(*pair) for pair in combinations(labels, 2)]))


def _silhouette(embeddings: FloatArray, labels: IntArray) -> float:
    """Return the mean silhouette; 0 for a single cluster."""
    clusters = np.unique(labels)
    if len(clusters) < 2:
        return 0.0
    distance = np.sqrt(squared_distances(embeddings, embeddings))
    member = labels[:, None] == clusters[None, :]
    sums, sizes = distance @ member, member.sum(axis=0)
    cluster = member.argmax(axis=1)
    rows = np.arange(len(embeddings))
    inner = sums[rows, cluster] / np.maximum(sizes[cluster] - 1, 1)
    others = np.where(member, np.inf, sums / sizes)
    outer = others.min(axis=1)
    score = np.where(sizes[cluster] > 1, (outer - inner) / np.maximum(np.maximum(outer, inner), 1e-300), 0.0)
    return float(score.mean())
