"""Runs and packing: deterministic, idempotent, and equal to results by hand."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from optim.phases.sequences import pack, runs_of

LABELS = st.lists(st.integers(0, 3), max_size=40)


def changes(labels):
    return [label for place, label in enumerate(labels) if place == 0 or label != labels[place - 1]]


def labels_of(found):
    return np.repeat(found.phase, found.dwell)


def runs(labels, min_dwell=1):
    return runs_of(np.array(labels, dtype=np.int64), np.array([len(labels)]), min_dwell)


def test_run_lengths_collapse_repetitions_and_keep_dwells():
    found = runs([1, 1, 1, 5, 5])
    assert found.phase.tolist() == [1, 5]
    assert found.dwell.tolist() == [3, 2]


def test_samples_without_a_phase_are_left_out():
    found = runs_of(np.array([-1, -1, 2, 2, -1, 0]), np.array([4, 2]))
    assert found.phase.tolist() == [2, 0]
    assert found.offsets.tolist() == [0, 1, 2]


def test_short_runs_join_the_run_before_and_a_first_one_stays():
    found = runs([4, 1, 1, 1, 2, 1, 1, 3, 3], min_dwell=2)
    assert found.phase.tolist() == [4, 1, 3]
    assert found.dwell.tolist() == [1, 6, 2]


@given(LABELS)
def test_runs_without_a_least_dwell_say_the_same_as_the_labels(labels):
    assert labels_of(runs(labels)).tolist() == labels


@given(LABELS, st.integers(1, 4))
def test_absorbing_short_runs_is_idempotent_and_keeps_every_sample(labels, min_dwell):
    once = runs(labels, min_dwell)
    again = runs(labels_of(once).tolist(), min_dwell)
    assert again.phase.tolist() == once.phase.tolist()
    assert again.dwell.tolist() == once.dwell.tolist()
    assert once.dwell.sum() == len(labels)
    assert (once.dwell[1:] >= min_dwell).all()


def test_packs_by_hand_worked_sequences():
    assert pack([0, 1, 2, 1, 2, 1, 2, 3]) == ("0", "(1 2)+", "3")
    assert pack([1, 2, 1, 2, 1]) == ("(1 2)+", "1")
    assert pack([1, 2, 3, 1, 2, 3]) == ("(1 2 3)+",)
    assert pack([1, 2, 1]) == ("1", "2", "1")
    assert pack([1, 2, 1, 2, 3, 1, 2, 1, 2, 3]) == ("((1 2)+ 3)+",)


@given(LABELS)
@example([0, 1, 0, 1, 2, 0, 1, 0, 1, 2, 0])
def test_packing_is_idempotent(labels):
    once = pack(changes(labels))
    assert pack(once) == once


@given(LABELS)
def test_packing_is_a_function_of_the_sequence_alone(labels):
    assert pack(changes(labels)) == pack(tuple(changes(labels)))
    assert pack([str(label) for label in changes(labels)]) == pack(changes(labels))


@given(LABELS)
def test_packing_never_lengthens_and_keeps_first_phase_and_set_of_phases(labels):
    sequence = changes(labels)
    packed = pack(sequence)
    assert len(packed) <= len(sequence)
    digits = [letter for letter in " ".join(packed) if letter.isdigit()]
    assert set(digits) == {str(label) for label in sequence}
    assert digits[:1] == [str(label) for label in sequence[:1]]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True), st.integers(2, 8))
def test_an_alternation_of_any_length_is_one_token(block, repeats):
    assert pack(block * repeats) == (f"({block[0]} {block[1]})+",)
