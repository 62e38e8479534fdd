"""Adjusted Rand index and mutual information against counting pairs, averaging permutations, and worked values."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.phases.clustering import adjusted_mutual_information, adjusted_rand_index, confusion, matched_f1, near_change

PARTITIONS = st.integers(2, 12).flatmap(
    lambda size: st.tuples(*(st.lists(st.integers(0, 3), min_size=size, max_size=size) for _ in range(2)))
)


def pair_index(truth, labels):
    """The index by counting pairs one at a time."""
    pairs = list(combinations(range(len(truth)), 2))
    both = sum(truth[a] == truth[b] and labels[a] == labels[b] for a, b in pairs)
    rows = sum(truth[a] == truth[b] for a, b in pairs)
    columns = sum(labels[a] == labels[b] for a, b in pairs)
    expected = rows * columns / len(pairs)
    most = (rows + columns) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


@given(PARTITIONS)
def test_rand_index_equals_a_count_of_pairs(parts):
    truth, labels = map(np.array, parts)
    assert adjusted_rand_index(truth, labels) == pytest.approx(pair_index(*parts), abs=1e-12)


@given(PARTITIONS)
def test_indices_are_symmetric_and_blind_to_names(parts):
    truth, labels = map(np.array, parts)
    for index in (adjusted_rand_index, adjusted_mutual_information):
        assert index(truth, labels) == pytest.approx(index(labels, truth), abs=1e-9)
        assert index(truth, 3 - labels) == pytest.approx(index(truth, labels), abs=1e-9)


def mutual(truth, labels):
    total = 0.0
    for a in set(truth):
        for b in set(labels):
            both = np.mean([x == a and y == b for x, y in zip(truth, labels, strict=True)])
            if both:
                total += both * np.log(both / (np.mean(truth == a) * np.mean(labels == b)))
    return total


def entropy(labels):
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return -(shares * np.log(shares)).sum()


def test_mutual_information_is_adjusted_by_its_mean_over_all_permutations():
    truth, labels = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 1, 2])
    chance = np.mean([mutual(truth, labels[list(order)]) for order in permutations(range(6))])
    expected = (mutual(truth, labels) - chance) / ((entropy(truth) + entropy(labels)) / 2 - chance)
    assert adjusted_mutual_information(truth, labels) == pytest.approx(expected, abs=1e-9)


def test_equal_partitions_have_index_one():
    labels = np.array([0, 0, 1, 2, 2])
    assert adjusted_rand_index(labels, labels) == 1.0
    assert adjusted_mutual_information(labels, labels) == pytest.approx(1.0)
    assert adjusted_rand_index(np.zeros(4, int), np.zeros(4, int)) == 1.0


def test_f1_is_taken_after_the_best_matching():
    truth, labels = np.array([0, 0, 0, 1, 1, 2]), np.array([2, 2, 0, 0, 0, 1])
    assert confusion(truth, labels).tolist() == [[1, 0, 2], [2, 0, 0], [0, 1, 0]]
    assert matched_f1(truth, labels).tolist() == pytest.approx([4 / 5, 4 / 5, 1.0])


def test_samples_near_a_change_are_found_within_segments_only():
    truth = np.array([0, 0, 0, 1, 1, 1, 0, 0])
    near = near_change(truth, np.array([6, 2]), 1)
    assert near.tolist() == [False, False, True, True, False, False, False, False]


def test_negative_labels_are_refused():
    with pytest.raises(InvalidProblemError, match="negative"):
        adjusted_rand_index(np.array([0, 1]), np.array([-1, 0]))
