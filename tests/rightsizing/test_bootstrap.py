"""Resampled sums against plain loops."""

import numpy as np
import pytest

from optim.rightsizing.comparison import resampled
from optim.statistics import bootstrap
from tests.support.containers.worlds import world_of


def test_resamples_add_up_units_not_series():
    world = world_of([np.ones(6), np.ones(9), np.ones(3)])
    object.__setattr__(world, "group", np.array([1, 0, 1]))
    values = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
    counts = np.array([[2, 1], [0, 3]])
    assert resampled(world, values, counts).tolist() == [[2 * 2 + 5, 2 * 20 + 50], [15.0, 150.0]]


def test_intervals_hold_the_middle_95_per_cent():
    low, high = bootstrap(np.column_stack([np.arange(1001.0), np.zeros(1001)]))
    assert (low.tolist(), high.tolist()) == ([25.0, 0.0], [975.0, 0.0])
    assert low[0] == pytest.approx(1000 - high[0])
