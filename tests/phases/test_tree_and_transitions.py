"""Tree, prototypes, graph and the model of changes on sequences small enough to count by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.phases.sequences import (
    END,
    START,
    PhaseRuns,
    change_transitions,
    choose_order,
    fit_changes,
    packed_sequences,
    prefix_tree,
    prototypes,
    runs_of,
    sample_transitions,
    transition_graph,
)

SEQUENCES = [("0", "1")] * 6 + [("0", "2")] * 3 + [("3",)]


def runs(*segments):
    labels = np.concatenate([np.array(segment) for segment in segments])
    return runs_of(labels, np.array([len(segment) for segment in segments]))


def test_tree_counts_prefixes_and_ends():
    tree = prefix_tree(SEQUENCES)
    assert tree.nodes[()]["count"] == 10
    assert tree.nodes[("0",)] == {"token": "0", "count": 9, "ends": 0}
    assert tree.nodes[("0", "1")]["ends"] == 6
    assert sorted(tree.successors(("0",))) == [("0", "1"), ("0", "2")]


def test_prototypes_are_the_fewest_paths_that_cover_enough():
    found = prototypes(SEQUENCES)
    assert found.paths == (("0", "1"), ("0", "2"))
    assert found.coverage == pytest.approx((0.6, 0.9, 1.0))
    assert found.share_covered([("0", "1"), ("3",), ("9",), ("0", "2")]) == 0.5
    assert len(prototypes(SEQUENCES, 0.6).paths) == 1
    with pytest.raises(InvalidOptionError, match="coverage"):
        prototypes(SEQUENCES, 0.0)


@given(st.lists(st.lists(st.sampled_from("012"), min_size=1, max_size=3), min_size=1, max_size=12))
def test_ends_of_the_tree_are_the_sequences(sequences):
    tree = prefix_tree(sequences)
    assert sum(data["ends"] for _, data in tree.nodes(data=True)) == len(sequences)
    for node in tree:
        below = sum(tree.nodes[child]["count"] for child in tree.successors(node))
        assert tree.nodes[node]["count"] == below + tree.nodes[node]["ends"]


def test_packed_sequences_of_runs():
    assert packed_sequences(runs([0, 0, 1, 2, 1, 2], [-1, 3])) == [("0", "(1 2)+"), ("3",)]


def test_transitions_by_sample_and_by_change_are_smoothed_counts():
    found = runs([0, 0, 0, 1, 1], [1, 0])
    by_sample = sample_transitions(found, 2)
    assert by_sample == pytest.approx(np.array([[2.5, 1.5], [1.5, 1.5]]) / np.array([[4.0], [3.0]]))
    assert change_transitions(found, 2).tolist() == [[0, 1], [1, 0]]


def test_graph_has_borders_counts_and_probabilities():
    graph = transition_graph(runs([0, 1], [0, 1], [0, 2]), ["a", "b", "c"])
    assert graph.edges[(START,), (0,)] == {"count": 3, "probability": 1.0}
    assert graph.edges[(0,), (1,)]["probability"] == pytest.approx(2 / 3)
    assert graph.edges[(1,), (END,)]["count"] == 2
    assert graph.nodes[(1,)]["label"] == "b"


def test_graph_of_order_two_keeps_contexts_seen_often_enough():
    graph = transition_graph(runs(*[[0, 1, 0]] * 5, [0, 2]), ["a", "b", "c"], order=2)
    assert (0, 1) in graph
    assert (0, 2) not in graph
    assert graph.edges[(START, 0), (0, 1)]["probability"] == pytest.approx(5 / 6)


def test_departures_of_the_first_order_graph_sum_to_one():
    graph = transition_graph(runs([0, 1, 2, 0], [2, 1], [1]), ["a", "b", "c"])
    for node in graph:
        if node != (END,):
            assert sum(edge["probability"] for *_, edge in graph.out_edges(node, data=True)) == pytest.approx(1.0)


def test_interpolates_contexts_by_witten_and_bell():
    model = fit_changes(runs([0, 1], [0, 1], [0, 2]), 3, order=1)
    lower = np.array([3, 2, 1, 3]) + 0.5
    lower = lower / lower.sum()
    expected = 3 / 5 * np.array([0, 2 / 3, 1 / 3, 0]) + 2 / 5 * lower
    expected[0] = 0.0
    assert model.probabilities([0]) == pytest.approx(expected / expected.sum())


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8), st.integers(1, 4))
def test_probabilities_are_a_distribution_after_any_history(segments, order):
    found = runs(*segments)
    model = fit_changes(found, 3, order)
    for phase, _ in found.sequences():
        probability = model.probabilities(phase.tolist())
        assert probability.sum() == pytest.approx(1.0)
        assert (probability >= 0).all()
        assert probability[phase[-1]] == 0


def test_order_two_is_chosen_where_the_next_phase_depends_on_the_last_two():
    rng = np.random.default_rng(0)
    segments = []
    for _ in range(60):
        phases = [0, 1]
        while len(phases) < 30:
            # From any phase, nine times in ten not back to the phase before it.
            back, other = phases[-2], 3 - phases[-1] - phases[-2]
            phases.append(other if rng.random() < 0.9 else back)
        segments.append(phases)
    chosen, likelihoods = choose_order(runs(*segments[:40]), runs(*segments[40:]), 3)
    assert likelihoods[1] > likelihoods[0] + 0.2
    assert chosen == 2


def test_joined_runs_are_the_runs_of_both():
    both = runs([0, 1], [2]).joined(runs([1, 1]))
    assert both == PhaseRuns(phase=both.phase, dwell=both.dwell, offsets=both.offsets)
    assert both == runs([0, 1], [2], [1, 1])
    assert both != runs([0, 1], [2], [1, 2])
    assert both.offsets.tolist() == [0, 2, 3, 4]
    assert both.dwell.tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("num_phases", [1, 2, 3])
def test_the_phase_that_is_left_has_no_probability_also_where_it_is_the_only_one(num_phases):
    model = fit_changes(runs([0] * 5, [0] * 3), num_phases, order=1)
    found = model.probabilities([0])
    assert found[0] == 0.0
    assert found.sum() == pytest.approx(1.0)
    if num_phases == 1:
        assert found.tolist() == [0.0, 1.0]
