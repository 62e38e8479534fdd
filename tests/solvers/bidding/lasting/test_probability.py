"""The compiled distribution of what lasts against the plain one and all outcomes."""

import numpy as np
import pytest

from optim.models.bidding.data import survival_probability
from optim.solvers.bidding.survival import kept, shortfall, stays_of, surviving_capacity
from tests.support.bidding.small_markets import all_footprints, kept_by_outcomes, lasting, varied


def test_is_that_of_all_outcomes_and_of_the_plain_sum():
    for seed in range(15):
        instance = lasting(seed)
        table = all_footprints(instance)[::5]
        found, share = kept(instance, instance.lasting, table)
        assert found == pytest.approx([survival_probability(instance, row) for row in table], abs=1e-12)
        assert found == pytest.approx(kept_by_outcomes(instance, table), abs=1e-12)
        assert (share >= found - 1e-12).all()


def test_the_distribution_adds_up_to_one_whatever_is_held():
    instance = lasting(3)
    stays = stays_of(instance.lasting.shocks)
    for most in (1, 4, 30):
        sizes = np.arange(len(instance.markets)) * 3
        assert surviving_capacity(sizes, stays, most).sum() == pytest.approx(1.0)


def test_more_instances_lower_the_shortfall_and_enough_has_none():
    for seed in range(10):
        instance = lasting(seed)
        most = instance.bids.max_count
        table = np.array([np.minimum(most, step) for step in range(int(most.max(initial=0)) + 1)])
        lack = shortfall(instance, table)
        assert (np.diff(lack) <= 1e-12).all()
        found, _ = kept(instance, instance.lasting, table)
        assert ((lack == 0) == (found >= instance.lasting.probability - 1e-9)).all()
    assert shortfall(varied(0), np.zeros((2, varied(0).num_bids), dtype=np.int64)).tolist() == [0.0, 0.0]
