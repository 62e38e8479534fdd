"""Earlier runs and what follows from them, against plain slices."""

import numpy as np
import pytest

from optim.rightsizing.packing.recurring_jobs import RequestSizing, earlier_runs, requests

RNG = np.random.default_rng(4)
VALUES = RNG.random((23, 2))


def test_without_an_error_earlier_runs_are_the_run_itself():
    for run in earlier_runs(VALUES, 3, 0.0, RNG):
        assert run.tolist() == VALUES.tolist()


def test_runs_differ_by_one_factor_in_length_and_one_a_resource_in_level():
    (run,) = earlier_runs(VALUES, 1, 0.2, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    length = round(23 * np.exp(0.2 * rng.normal()))
    factors = np.exp(0.2 * rng.normal(size=2))
    assert len(run) == length != 23
    for place in range(length):
        assert run[place] == pytest.approx(VALUES[place * 23 // length] * factors)


def test_requests_are_peaks_quantiles_and_quantiles_near_the_slot():
    runs = [VALUES, 2 * VALUES[:9]]
    whole = np.concatenate(runs)
    assert requests(runs, RequestSizing.PEAK, 5).tolist() == [whole.max(axis=0).tolist()] * 5
    assert requests(runs, RequestSizing.FLAT, 5) == pytest.approx(np.tile(np.quantile(whole, 0.95, axis=0), (5, 1)))
    found = requests(runs, RequestSizing.SLOT, 5)
    for slot, (begin, end) in enumerate([(0, 10), (0, 15), (5, 20), (10, 23), (15, 23)]):
        near = np.concatenate([VALUES[begin:end], 2 * VALUES[:9][begin:end]])
        assert found[slot] == pytest.approx(np.quantile(near, 0.95, axis=0))
