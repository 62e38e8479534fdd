"""k-means against all partitions of tiny sets, and Lloyd's conditions on larger ones."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optim.core.errors import InvalidOptionError
from optim.kernels import k_means

MOST = {"most_clusters": 9}
"""Sets of one shape share a compilation for all numbers of clusters."""


def within(points, labels):
    groups = [points[labels == label] for label in np.unique(labels)]
    return sum(np.sum((group - group.mean(axis=0)) ** 2) for group in groups)


def least_inertia(points, num_clusters):
    labels = np.array([(0, *rest) for rest in itertools.product(range(num_clusters), repeat=len(points) - 1)])
    belongs = labels[:, None, :] == np.arange(num_clusters)[None, :, None]
    count = belongs.sum(axis=2)
    mean = belongs @ points.astype(float) / np.maximum(count, 1)[:, :, None]
    # By the law of König and Huygens: over all points, the sum of squares is the same for every partition.
    return (points.astype(float) ** 2).sum() - (count * (mean**2).sum(axis=2)).sum(axis=1).max()


@pytest.mark.parametrize("num_clusters", [1, 2, 3])
def test_finds_the_best_of_all_partitions_of_tiny_sets(num_clusters):
    for seed in range(8):
        points = np.random.default_rng(seed).standard_normal((8, 2)).astype(np.float32)
        counts = {"num_clusters": num_clusters, "most_clusters": 3, "num_restarts": 20}
        found = k_means.fit(jnp.asarray(points), jax.random.key(seed), **counts)
        assert float(found.inertia) == pytest.approx(least_inertia(points, num_clusters), rel=1e-4)


def test_ends_where_centres_are_means_and_every_point_is_with_its_nearest():
    points = np.random.default_rng(1).standard_normal((50, 2)).astype(np.float32) + 100.0
    found = k_means.fit(jnp.asarray(points), jax.random.key(0), num_clusters=6, **MOST)
    labels = np.asarray(k_means.assign(found.centres, jnp.asarray(points)))
    distances = np.sum((points[:, None, :].astype(float) - np.asarray(found.centres)[None]) ** 2, axis=2)
    chosen = distances[np.arange(50), labels]
    np.testing.assert_allclose(chosen, distances.min(axis=1), rtol=1e-3, atol=1e-4)
    means = [points[labels == label].mean(axis=0, dtype=float) for label in range(6)]
    np.testing.assert_allclose(found.centres, means, atol=1e-3)
    assert float(found.inertia) == pytest.approx(within(points.astype(float), labels), rel=1e-4)
    assert float(k_means.inertia(found.centres, jnp.asarray(points))) == pytest.approx(float(found.inertia), rel=1e-4)


def test_first_centres_are_drawn_by_weight_and_then_by_weight_times_squared_distance():
    points, weights, number = jnp.asarray([[0.0], [1.0], [3.0]]), jnp.asarray([2.0, 1.0, 1.0]), 20_000
    keys = jax.random.split(jax.random.key(0), number)
    draw = jax.jit(jax.vmap(lambda key: k_means.plus_plus(points, weights, key, 2, 2)))
    drawn = np.asarray(draw(keys))[:, :, 0]
    pairs = {(0, 1): 2 * 1 / 10, (0, 3): 2 * 9 / 10, (1, 0): 2 / 6, (1, 3): 4 / 6, (3, 0): 18 / 22, (3, 1): 4 / 22}
    for pair, share in pairs.items():
        expected = share / 4
        found = np.mean((drawn == pair).all(axis=1))
        assert abs(found - expected) < 5 * np.sqrt(expected / number), pair


def test_points_of_weight_zero_do_not_count():
    points = np.random.default_rng(2).standard_normal((8, 2)).astype(np.float32)
    junk = jnp.asarray(np.concatenate([points, np.full((42, 2), 50.0, np.float32)]))
    weights = jnp.asarray([1.0] * 8 + [0.0] * 42)
    found = k_means.fit(junk, jax.random.key(0), weights=weights, num_clusters=3, **MOST)
    assert float(found.inertia) == pytest.approx(least_inertia(points, 3), rel=1e-4)
    assert np.abs(np.asarray(found.centres)).max() < 5


def test_an_empty_cluster_goes_on_from_the_farthest_point():
    columns = jnp.asarray([[0.0, 1.0, 2.0, 9.0]])
    start = jnp.asarray([[1.0], [100.0]])
    found = jax.jit(k_means._lloyd, static_argnums=4)(columns, jnp.ones(4), start, 2, 10)
    assert sorted(np.asarray(found.centres)[:, 0].tolist()) == [1.0, 9.0]


def test_fewer_distinct_points_than_clusters_give_no_inertia():
    points = jnp.asarray([[1.0, 2.0]] * 25 + [[3.0, 4.0]] * 25)
    found = k_means.fit(points, jax.random.key(0), num_clusters=4, **MOST)
    assert float(found.inertia) == pytest.approx(0.0, abs=1e-9)
    assert np.isfinite(np.asarray(found.centres)).all()


def test_the_same_key_gives_the_same_centres():
    points = jnp.asarray(np.random.default_rng(3).standard_normal((50, 2)), jnp.float32)
    one, two = (k_means.fit(points, jax.random.key(5), num_clusters=4, **MOST) for _ in range(2))
    np.testing.assert_array_equal(one.centres, two.centres)


@pytest.mark.parametrize("num_clusters", [*(pytest.param(number, marks=pytest.mark.prove) for number in (1, 3)), 7])
def test_compiled_for_more_clusters_it_finds_the_same(num_clusters):
    points = jnp.asarray(np.random.default_rng(4).standard_normal((50, 2)), jnp.float32)
    own = k_means.fit(points, jax.random.key(1), num_clusters=num_clusters)
    wide = k_means.fit(points, jax.random.key(1), num_clusters=num_clusters, **MOST)
    np.testing.assert_allclose(wide.centres, own.centres, atol=1e-5)
    assert float(wide.inertia) == pytest.approx(float(own.inertia), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_clusters": 0}, "num_clusters must be at least 1"),
        ({"num_clusters": 9}, "at least num_clusters = 9"),
        ({"num_clusters": 3, "most_clusters": 2}, "most_clusters must be at least num_clusters = 3, got 2"),
    ],
)
def test_refuses_impossible_counts(options, words):
    with pytest.raises(InvalidOptionError, match=words):
        k_means.fit(jnp.zeros((5, 2)), jax.random.key(0), **options)
