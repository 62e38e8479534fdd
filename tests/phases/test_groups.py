"""Sums and moments by group against plain loops."""

import numpy as np
import pytest

from optim.phases.clustering import group_moments, group_sums


def test_sums_and_moments_are_those_of_each_groups_rows():
    rng = np.random.default_rng(0)
    values, labels = rng.random((30, 3)), rng.integers(-1, 3, 30)
    mean, deviation = group_moments(values, labels, 4)
    for group in range(3):
        own = values[labels == group]
        assert mean[group] == pytest.approx(own.mean(axis=0))
        assert deviation[group] == pytest.approx(own.std(axis=0))
    assert np.isnan(mean[3]).all()
    assert np.isnan(deviation[3]).all()
    sums = group_sums(values[labels >= 0], labels[labels >= 0], 4)
    assert sums[:3] == pytest.approx(np.stack([values[labels == group].sum(axis=0) for group in range(3)]))
    assert sums[3].tolist() == [0.0, 0.0, 0.0]
