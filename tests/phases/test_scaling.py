"""Scaling by its formula, constants and outliers included."""

import numpy as np
import pytest

from optim.phases.preprocessing import Scaling


def test_scores_are_deviations_of_the_logarithm_of_a_hundredth_of_the_mean_more():
    values = np.array([[1.0, 0.0], [2.0, 4.0], [6.0, 8.0]])
    found = Scaling.fit(values, has_logarithm=True)
    moved = np.log(values + 0.01 * values.mean(axis=0))
    assert found.apply(values) == pytest.approx((moved - moved.mean(axis=0)) / moved.std(axis=0))


def test_without_a_logarithm_scores_are_plain_and_cut_at_ten_deviations():
    values = np.array([[1.0], [2.0], [6.0]])
    found = Scaling.fit(values, has_logarithm=False)
    assert found.apply(values) == pytest.approx((values - 3.0) / values.std())
    assert found.apply(np.array([[1e9], [-1e9]])).tolist() == [[10.0], [-10.0]]


@pytest.mark.parametrize("has_logarithm", [True, False])
def test_a_constant_resource_has_deviation_one_and_an_unused_one_too(has_logarithm):
    found = Scaling.fit(np.array([[3.0, 0.0]] * 4), has_logarithm=has_logarithm)
    assert found.deviation.tolist() == [1.0, 1.0]
    assert found.apply(np.array([[3.0, 0.0]])).tolist() == [[0.0, 0.0]]
    used = np.log(2.0) if has_logarithm else 1.0  # of one added to never used resources
    assert found.apply(np.array([[3.0, 1.0]]))[0, 1] == pytest.approx(used)
