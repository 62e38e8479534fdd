"""Clusters by hand: distances, silhouettes, order, and centres that move."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import CPU, MEMORY
from optim.phases import clustering
from optim.phases.clustering import (
    _silhouette,
    assign,
    choose_count,
    cluster_order,
    fit_clusters,
    squared_distances,
    updated_centres,
)

RNG = np.random.default_rng(0)


def test_distances_are_those_of_each_pair_and_never_negative():
    codes, centres = 100 + RNG.normal(size=(9, 3)), 100 + RNG.normal(size=(4, 3))
    expected = ((codes[:, None] - centres[None]) ** 2).sum(axis=2)
    assert squared_distances(codes, centres) == pytest.approx(expected)
    assert (squared_distances(codes, codes) >= 0).all()
    assert assign(np.zeros((1, 1)), np.array([[1.0], [-1.0]])).tolist() == [0]


def test_the_silhouette_compares_the_own_cluster_with_the_nearest_other():
    codes = np.array([[0.0], [1.0], [5.0], [7.0], [20.0]])
    labels = np.array([0, 0, 1, 1, 2])
    scores = []
    for place, (code, label) in enumerate(zip(codes[:, 0], labels, strict=True)):
        others = [k for k in np.flatnonzero(labels == label) if k != place]
        if not others:
            scores.append(0.0)
            continue
        inner = np.abs(codes[others, 0] - code).mean()
        outer = min(np.abs(codes[labels == other, 0] - code).mean() for other in range(3) if other != label)
        scores.append((outer - inner) / max(outer, inner))
    assert _silhouette(codes, labels) == pytest.approx(np.mean(scores))
    assert _silhouette(codes, np.zeros(5, int)) == 0.0


def test_centres_move_to_the_mean_of_all_they_have_had():
    centres, weights = updated_centres(
        np.array([[0.0, 0.0], [10.0, 10.0], [50.0, 50.0]]),
        np.array([2.0, 0.0, 5.0]),
        np.array([[3.0, 0.0], [9.0, 9.0]]),
    )
    assert centres.tolist() == [[1.0, 0.0], [9.0, 9.0], [50.0, 50.0]]
    assert weights.tolist() == [3.0, 1.0, 5.0]


def test_order_counts_levels_before_rates_whatever_their_columns():
    values = np.array([[5.0, 1.0], [1.0, 2.0], [1.0, 1.0]])
    assert cluster_order(values, np.arange(3), 3, (MEMORY, CPU)).tolist() == [2, 1, 0]
    assert cluster_order(values, np.arange(3), 3, (CPU, MEMORY)).tolist() == [2, 0, 1]


def test_what_clusters_leave_is_a_share_of_what_the_mean_leaves(monkeypatch):
    """Far from 0.

    From the mean, 103, the held-out samples are 4, 2 and 4 away: 36 squared; from 100 and 106 it is 1, 1 and 1.
    """
    monkeypatch.setattr(clustering, "fit_clusters", lambda *given, **more: np.array([[100.0], [106.0]]))
    training = np.array([[99.0], [101.0], [105.0], [107.0]])
    _, (row,) = choose_count(training, np.arange(4), np.array([[99.0], [105.0], [107.0]]), 0, candidates=[2])
    assert row.held_out == pytest.approx(3 / 36)
    assert row.gain == pytest.approx(33 / 36)


def test_fewer_windows_than_phases_are_refused():
    with pytest.raises(InvalidProblemError, match="2 windows can't make 3 phases"):
        fit_clusters(np.zeros((2, 1)), 3, 0)
