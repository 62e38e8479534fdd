"""Alarms against a walk along the samples, thresholds that keep their false alarms, and scores counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optim_studies.alarms import SLACK, accumulated, alarms, score_alarms, threshold_for

from optim.core.errors import InvalidOptionError, InvalidProblemError

SCORES = st.lists(st.one_of(st.just(float("nan")), st.integers(-3, 9).map(float)), min_size=1, max_size=12)
SERIES = st.lists(SCORES, min_size=1, max_size=4)


def flat(parts):
    return np.concatenate([np.array(part) for part in parts]), np.array([len(part) for part in parts])


@given(SERIES, st.integers(-2, 8), st.integers(0, 4))
def test_alarms_are_those_of_a_walk_that_keeps_silent_after_each(parts, threshold, mute):
    expected = []
    for part in parts:
        silent = 0
        for score in part:
            is_raised = silent == 0 and score > threshold
            expected.append(is_raised)
            silent = mute if is_raised else max(0, silent - 1)
    assert alarms(*flat(parts), threshold, mute).tolist() == expected


@given(SERIES, st.floats(-2, 5), st.floats(0.5, 3))
def test_sums_are_those_of_a_walk(parts, mean, deviation):
    expected = []
    for part in parts:
        total = 0.0
        for score in part:
            total = max(0.0, total + (0.0 if np.isnan(score) else (score - mean) / deviation - SLACK))
            expected.append(total)
    assert accumulated(*flat(parts), mean, deviation) == pytest.approx(expected, abs=1e-9)


@given(SERIES.filter(lambda parts: any(np.isfinite(score) for part in parts for score in part)), st.integers(1, 5))
def test_a_threshold_keeps_its_false_alarms(parts, number):
    scores, lengths = flat(parts)
    per_day = number * 86400.0 / (len(scores) * 15.0)
    threshold = threshold_for(scores, lengths, per_day, 15.0)
    assert alarms(scores, lengths, threshold, 40).sum() <= number
    assert threshold in scores


def test_a_threshold_is_no_larger_than_it_must_be():
    scores = np.array([5.0, 1.0, 9.0, 2.0, 7.0, 3.0])
    one_sample_each = np.ones(6, dtype=int)
    days = 6 * 15.0 / 86400.0
    found = [threshold_for(scores, one_sample_each, number / days, 15.0) for number in (0.5, 1, 2, 5)]
    assert found == [9.0, 7.0, 5.0, 1.0]
    with pytest.raises(InvalidProblemError, match="no sample has a score"):
        threshold_for(np.array([np.nan]), np.array([1]), 1.0, 15.0)
    with pytest.raises(InvalidOptionError, match="per_day must be positive"):
        threshold_for(scores, one_sample_each, 0.0, 15.0)


def test_figures_counted_by_hand():
    lengths = np.array([8, 6, 4])
    raised = np.zeros(18, dtype=bool)
    raised[[1, 5, 7, 9, 17]] = True  # the first segment: one before its fault, two within; the others: one each
    onset, end = np.array([4, 3, -1]), np.array([8, 5, -1])
    found = score_alarms(raised, lengths, onset, end, 60.0)
    assert (found.recall, found.precision, found.delay_min) == (0.5, 2 / 5, 1.0)
    assert found.false_per_day == pytest.approx(3 / (12 * 60 / 86400))
    none = score_alarms(np.zeros(18, dtype=bool), lengths, onset, end, 60.0)
    assert (none.recall, none.precision, none.delay_min, none.false_per_day) == (0.0, None, None, 0.0)
