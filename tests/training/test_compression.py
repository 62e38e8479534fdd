"""Quantised pushes: as near as a level, right in the mean, and the same wherever they are computed."""

import numpy as np

from optim.training.pushing import quantise_int8

GRADIENT = np.random.default_rng(0).normal(size=400).astype(np.float32)
LEVEL = np.abs(GRADIENT).max() / 127


def test_no_entry_is_further_off_than_a_level_and_there_are_255():
    found = quantise_int8(GRADIENT, 3, 7)
    assert found.dtype == np.float32
    assert np.abs(found - GRADIENT).max() <= LEVEL * (1 + 1e-6)
    assert len(np.unique(found)) <= 255
    assert np.allclose(np.round(found / LEVEL), found / LEVEL, atol=1e-3)


def test_partition_and_clock_say_all_about_the_draws():
    assert np.array_equal(quantise_int8(GRADIENT, 3, 7), quantise_int8(GRADIENT.copy(), 3, 7))
    assert not np.array_equal(quantise_int8(GRADIENT, 3, 7), quantise_int8(GRADIENT, 3, 8))
    assert not np.array_equal(quantise_int8(GRADIENT, 3, 7), quantise_int8(GRADIENT, 4, 7))


def test_the_mean_over_draws_is_the_gradient():
    mean = np.mean([quantise_int8(GRADIENT, 0, clock) for clock in range(300)], axis=0)
    # A draw's deviation is half a level at most: five of the mean's standard errors.
    assert np.abs(mean - GRADIENT).max() <= 5 * LEVEL / 2 / np.sqrt(300)


def test_zeros_stay_zeros():
    assert not quantise_int8(np.zeros(5, np.float32), 0, 0).any()
