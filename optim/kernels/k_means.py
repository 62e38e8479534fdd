"""k-means: Lloyd's iterations, restarted from several k-means++ seeds, in one compiled call."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from optim.core.errors import InvalidOptionError, check_in

FULL = lax.Precision.HIGHEST

_Progress = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
"""State of a restart: centres, labels, distances, number of iterations, and whether a point has changed its cluster."""


class Clusters(NamedTuple):
    """Result of the best restart.

    Attributes
    ----------
    centres
        Shape (k, p): the centres.
    inertia
        Scalar: weighted sum of the points' squared distances to the nearest centre.
    num_iterations
        Scalar int32: number of Lloyd's iterations of the best restart.
    """

    centres: jax.Array
    inertia: jax.Array
    num_iterations: jax.Array


def fit(
    points: jax.Array,
    key: jax.Array,
    *,
    num_clusters: int,
    most_clusters: int | None = None,
    num_restarts: int = 10,
    max_iterations: int = 300,
    weights: jax.Array | None = None,
) -> Clusters:
    """Minimise the weighted sum of squared distances to the nearest of k centres.

    Parameters
    ----------
    points
        Shape (n, p), float32: n points.
    key
        Key of all random draws.
    num_clusters
        Number k of clusters.
    most_clusters
        Maximum number of clusters to compile for, by default k. One compilation serves every k up to this number, with the
        same results.
    num_restarts
        Number of restarts, in sequence on a CPU and in parallel on an accelerator. The clusters with the least inertia are
        returned.
    max_iterations
        Maximum number of iterations per restart; a restart also ends once no point changes its cluster.
    weights
        Shape (n,): weights of the points; None for ones. Points of weight 0 are ignored, so that arrays may be padded.

    Returns
    -------
    Clusters
        A local minimum. A cluster that loses all its points restarts from the point farthest from its centre. If there
        are fewer distinct points than clusters, centres coincide.

    Raises
    ------
    InvalidOptionError
        If a count is below 1, or there are fewer points than clusters.

    References
    ----------
    Arthur and Vassilvitskii (2007). k-means++: the advantages of careful seeding. SODA, section 2.
    """
    counts = {"num_restarts": num_restarts, "max_iterations": max_iterations}
    check_in("[1, inf)", {"num_clusters": num_clusters, **counts})
    if points.ndim != 2 or points.shape[0] < num_clusters:
        raise InvalidOptionError(
            f"points must have shape (n, p) with n at least num_clusters = {num_clusters}, got {points.shape}"
        )
    width = num_clusters if most_clusters is None else min(most_clusters, points.shape[0])
    if width < num_clusters:
        raise InvalidOptionError(f"most_clusters must be at least num_clusters = {num_clusters}, got {most_clusters}")
    clusters = _fit(
        points,
        key,
        jnp.ones(points.shape[0], points.dtype) if weights is None else weights,
        jnp.int32(num_clusters),
        width=width,
        **counts,
    )
    return clusters._replace(centres=clusters.centres[:num_clusters])  # type: ignore[no-any-return]


@partial(jax.jit, static_argnames=("width", "num_restarts", "max_iterations"))
def _fit(
    points: jax.Array,
    key: jax.Array,
    weights: jax.Array,
    num_clusters: jax.Array,
    *,
    width: int,
    num_restarts: int,
    max_iterations: int,
) -> Clusters:
    # With the mean subtracted, the squares of points and centres are small, and their differences lose fewer digits.
    origin = jnp.sum(weights[:, None] * points, axis=0) / jnp.maximum(jnp.sum(weights), 1e-30)
    columns = (points - origin[None, :]).T

    def restart(key: jax.Array) -> Clusters:
        start = plus_plus(columns.T, weights, key, num_clusters, width)
        return _lloyd(columns, weights, start, num_clusters, max_iterations)

    keys = jax.random.split(key, num_restarts)
    fits = lax.map(restart, keys) if jax.default_backend() == "cpu" else jax.vmap(restart)(keys)
    best = jnp.argmin(fits.inertia)
    return Clusters(fits.centres[best] + origin[None, :], fits.inertia[best], fits.num_iterations[best])


@partial(jax.jit)
def assign(centres: jax.Array, points: jax.Array) -> jax.Array:
    """Return the index of each point's nearest centre, the first in a tie; shape (n,), int32."""
    origin = jnp.mean(centres, axis=0)
    return _nearest((points - origin[None, :]).T, centres - origin[None, :])[0]


@partial(jax.jit)
def inertia(centres: jax.Array, points: jax.Array) -> jax.Array:
    """Return the sum of squared distances of points to their nearest centres."""
    difference = points - centres[assign(centres, points)]
    return jnp.sum(difference * difference)


def plus_plus(
    points: jax.Array, weights: jax.Array, key: jax.Array, num_clusters: int | jax.Array, width: int
) -> jax.Array:
    """Draw k points, each with probability proportional to weight times squared distance to the nearest point drawn before.

    Parameters
    ----------
    points, weights, key, num_clusters
        As for `fit`.
    width
        Number of rows of the result, at least k.

    Returns
    -------
    jax.Array
        The points, shape (width, p), and zeros after the k-th row. Once all distinct points are drawn, points repeat.
    """
    first = points[jax.random.categorical(jax.random.fold_in(key, 0), jnp.log(weights))]
    centres = jnp.zeros((width, points.shape[1]), points.dtype).at[0].set(first)
    nearest = jnp.sum(jnp.square(points - first[None, :]), axis=1)

    def draw(index: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        centres, nearest = carry
        mass = weights * nearest
        mass = jnp.where(jnp.sum(mass) > 0, mass, weights)
        chosen = points[jax.random.categorical(jax.random.fold_in(key, index), jnp.log(mass))]
        distance = jnp.sum(jnp.square(points - chosen[None, :]), axis=1)
        return centres.at[index].set(chosen), jnp.minimum(nearest, distance)

    return lax.fori_loop(1, num_clusters, draw, (centres, nearest))[0]


def _nearest(
    columns: jax.Array, centres: jax.Array, num_clusters: jax.Array | int | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return for each point (column) the index of the nearest of the first `num_clusters` centres and its squared distance."""
    squares = jnp.sum(centres * centres, axis=1)
    if num_clusters is not None:
        squares = jnp.where(jnp.arange(centres.shape[0]) < num_clusters, squares, jnp.inf)
    score = squares[:, None] - 2.0 * jnp.matmul(centres, columns, precision=FULL)
    label = jnp.argmin(score, axis=0).astype(jnp.int32)
    distance = jnp.min(score, axis=0) + jnp.sum(columns * columns, axis=0)
    return label, jnp.maximum(distance, 0.0)


def _lloyd(
    columns: jax.Array, weights: jax.Array, centres: jax.Array, num_clusters: jax.Array | int, max_iterations: int
) -> Clusters:
    """Move the first `num_clusters` centres to the means of their points until no point changes its cluster."""
    index = jnp.arange(centres.shape[0], dtype=jnp.int32)

    def is_going_on(carry: _Progress) -> jax.Array:
        *_, number, has_moved = carry
        return has_moved & (number < max_iterations)

    def iterate(carry: _Progress) -> _Progress:
        centres, label, distance, number, _ = carry
        share = jnp.where(label[None, :] == index[:, None], weights[None, :], 0.0)
        mass = jnp.sum(share, axis=1)
        mean = jnp.matmul(share, columns.T, precision=FULL) / jnp.maximum(mass, 1e-30)[:, None]
        _, farthest = lax.top_k(jnp.where(weights > 0, distance, -1.0), centres.shape[0])
        is_empty = (mass <= 0) & (index < num_clusters)
        instead = columns.T[farthest[jnp.maximum(jnp.cumsum(is_empty) - 1, 0)]]
        centres = jnp.where(is_empty[:, None], instead, mean)
        moved, distance = _nearest(columns, centres, num_clusters)
        return centres, moved, distance, number + 1, jnp.any((moved != label) & (weights > 0))

    label, distance = _nearest(columns, centres, num_clusters)
    start = (centres, label, distance, jnp.zeros((), jnp.int32), jnp.ones((), bool))
    centres, label, _, number, _ = lax.while_loop(is_going_on, iterate, start)
    difference = columns - centres.T[:, label]
    return Clusters(centres, jnp.sum(weights * jnp.sum(difference * difference, axis=0)), number)
