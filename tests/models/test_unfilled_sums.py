"""Sums of whatever memory holds warn nobody, however often and deep they are called."""

import warnings

import numpy as np
import pytest

from optim.models.programmes import unfilled_sums

UNFILLED = np.array([np.inf, -np.inf, 1e308, 1e308])


@unfilled_sums
def summed(depth):
    return summed(depth - 1) if depth else float(np.sum(UNFILLED))


def test_nothing_is_said_of_infinities_of_both_signs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(np.isnan(summed(depth)) for depth in (0, 2, 0))
        with pytest.raises(RuntimeWarning, match="invalid value"):
            np.sum(UNFILLED)
