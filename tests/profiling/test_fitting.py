"""Fits compared with the coefficients that generated the data, envelopes with their definition, designs with all designs."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.profiling.fitting import concave_envelope, fit_times, synchronous_terms, update_terms
from optim.profiling.timing import choose_points

NOISE = 0.1
REPEATS = 9


def noisy(seconds, seed, repeats=REPEATS):
    """Medians of repeated timings with 10 % noise."""
    rng = np.random.default_rng(seed)
    return np.median(seconds[:, None] * np.exp(NOISE * rng.standard_normal((len(seconds), repeats))), axis=1)


GRID = np.array([(w, p) for w in (1, 2, 4, 8, 16, 32) for p in (1, 2, 4, 8)], dtype=float)
CASES = {
    "synchronous": (synchronous_terms(GRID[:, 0], GRID[:, 1], 64.0), [0.05, 0.3, 0.2, 0.05, 0.1]),
    "update": (
        update_terms(*np.array([(w, b) for w in (1, 2, 4, 8, 16) for b in 4.0 ** np.arange(7, 13)]).T),
        [9e-6, 2e-6, 5e-11, 2e-11],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_recovers_what_made_the_times_within_a_tenth_of_each_prediction(name):
    terms, truth = CASES[name]
    fit = fit_times(terms, noisy(terms @ truth, seed=1))
    assert np.abs(fit.predict(terms) / (terms @ truth) - 1).max() < 0.1
    assert fit.error < 0.1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_recovers_each_coefficient_of_each_speed_function_within_a_tenth(name, seed):
    """From timings with 10 % noise each, if there are many: the constant of a step is a small part of any."""
    terms, truth = CASES[name]
    fit = fit_times(terms, noisy(terms @ truth, seed, repeats=400))
    assert fit.coefficients == pytest.approx(np.array(truth), rel=0.1)
    assert fit.error < 0.1


@pytest.mark.parametrize("seed", range(5))
def test_recovers_coefficients_that_each_matter_within_a_tenth(seed):
    rng = np.random.default_rng(seed)
    terms = np.array([(1.0, 100.0 * n, 10.0 * m) for n in range(8) for m in range(8)])
    truth = np.array([5.0, 0.02, 0.1]) * rng.uniform(0.5, 2.0, size=3)
    fit = fit_times(terms, noisy(terms @ truth, seed))
    np.testing.assert_allclose(fit.coefficients, truth, rtol=0.1)
    assert (fit.low <= fit.coefficients).all()
    assert (fit.coefficients <= fit.high).all()


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    terms = np.array([(1.0, float(n)) for n in range(1, 25)])
    truth = np.array([2.0, 1.0])
    held = np.array(
        [
            (fit.low <= truth) & (truth <= fit.high)
            for fit in (fit_times(terms, noisy(terms @ truth, s)) for s in range(60))
        ]
    )
    assert held.mean() > 0.85


def test_exact_times_give_exact_coefficients_and_no_error():
    terms, truth = CASES["synchronous"]
    fit = fit_times(terms, terms @ truth)
    np.testing.assert_allclose(fit.coefficients, truth, rtol=1e-8)
    assert fit.error < 1e-9


def test_no_coefficient_is_negative_even_where_times_fall():
    fit = fit_times(np.array([(1.0, n) for n in range(1, 6)]), np.array([5.0, 4.0, 3.0, 2.0, 1.0]))
    assert (fit.coefficients >= 0).all()
    assert fit.coefficients[1] == 0


@pytest.mark.parametrize(
    ("seconds", "cause"),
    [([], "need measurements, got none"), ([1.0, 0.0, 1.0], "positive"), ([1.0, np.nan, 1.0], "positive")],
)
def test_refuses_what_cannot_be_fitted(seconds, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        fit_times(np.ones((len(seconds), 2)), np.array(seconds))


def test_fits_what_can_be_told_apart_and_names_the_rest():
    one_server = synchronous_terms(np.array([1.0, 2, 3, 4]), np.ones(4), 8.0)  # w/p is w, and p is 1
    fit = fit_times(one_server, one_server @ np.array([0.05, 0.3, 0.2, 0.05, 0.1]))
    assert fit.unidentifiable == (3, 4)
    assert fit.coefficients == pytest.approx([0.05, 0.4, 0.25, 0, 0], rel=1e-8)
    assert fit.predict(one_server[:1]) == pytest.approx([8 * 0.05 + 0.4 + 0.25])
    single = fit_times(one_server[:1], np.array([3.0]))
    assert single.unidentifiable == (1, 2, 3, 4)
    assert single.predict(one_server[:1]) == pytest.approx([3.0])
    assert not np.isfinite(single.error), "nothing is left to judge it by"


def test_the_design_is_nearly_as_good_as_the_best_of_all():
    terms = synchronous_terms(*np.array([(w, p) for w in (1, 2, 4, 8) for p in (1, 2, 3)], dtype=float).T, 1.0)[:, 1:]
    seconds = terms @ np.array([1.0, 0.5, 0.1, 0.1])
    relative = terms / seconds[:, None]

    def volume(rows):
        picked = relative[list(rows)]
        return np.linalg.slogdet(picked.T @ picked)[1]

    best = max(volume(rows) for rows in combinations(range(len(terms)), 6))
    assert volume(choose_points(terms, seconds, 6)) >= best - 0.2


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12))
def test_the_envelope_is_concave_rises_and_lies_on_no_point_it_need_not(heights):
    x = np.arange(1.0, len(heights) + 1)
    corners, values = concave_envelope(x, np.array(heights))
    at = np.interp(x, [0.0, *corners], [0.0, *values])
    assert (at >= np.array(heights) - 1e-9).all()
    slopes = np.diff([0.0, *values]) / np.diff([0.0, *corners])
    assert (np.diff(slopes) <= 1e-9).all()
    # Each corner is a measured point, or the highest one carried on.
    for corner, value in zip(corners, values, strict=True):
        assert value == heights[int(corner) - 1] or value == max(heights)
