"""Intervals of means and shares, beside SciPy's."""

import numpy as np
import pytest
from scipy import stats

from optim.benchmarks.intervals import Interval, wilson


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.5, 0.7, 0.2, 0.9], list(range(10))])
def test_an_interval_is_students(values):
    found = Interval.of(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert (found.mean - found.half, found.mean + found.half) == (
        pytest.approx(low, rel=2e-3),
        pytest.approx(high, rel=2e-3),
    )


@pytest.mark.parametrize(("hits", "count"), [(0, 12), (3, 12), (12, 12)])
def test_a_share_has_wilsons_interval(hits, count):
    known = stats.binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert wilson(hits, count) == pytest.approx((known.low, known.high), abs=1e-4)
