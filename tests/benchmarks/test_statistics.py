"""The figures that sum up many records."""

import numpy as np
import pytest

from optim.benchmarks.summary import performance_profile, shifted_geometric_mean


def test_shifted_geometric_mean_of_equal_values_is_the_value():
    assert shifted_geometric_mean([2.5, 2.5, 2.5], shift=1.0) == pytest.approx(2.5)


def test_shift_keeps_values_near_zero_from_ruling_the_mean():
    noise = shifted_geometric_mean([1e-9, 10.0], shift=1.0), shifted_geometric_mean([1e-3, 10.0], shift=1.0)
    assert noise[0] == pytest.approx(noise[1], rel=1e-2)


def test_profile_starts_at_the_share_of_wins_and_ends_at_the_share_solved():
    profile = performance_profile({"a": [1.0, 1.0, 3.0, None], "b": [2.0, 1.0, 1.0, 5.0]})
    np.testing.assert_allclose(profile["a"][0], [1.0, 3.0])
    np.testing.assert_allclose(profile["a"][1], [0.5, 0.75])
    np.testing.assert_allclose(profile["b"][0], [1.0, 2.0])
    np.testing.assert_allclose(profile["b"][1], [0.75, 1.0])


def test_profile_leaves_out_instances_that_nobody_solved():
    assert performance_profile({"a": [1.0, None], "b": [1.0, None]})["a"][1].tolist() == [1.0]
