"""The compiled distribution of surviving capacity against all outcomes, and covers that every feasible footprint meets."""

import numpy as np
import pytest

from optim.models.bidding.check.tree import checked_covers
from optim.models.bidding.data import survival_probability
from optim.solvers.bidding.survival import CoverPool, shortfall, stays_of, survival_figures, surviving_capacity
from tests.support.bidding.small_markets import (
    all_footprints,
    footprints_that_keep_enough,
    kept_by_outcomes,
    varied,
    with_survival,
)


def test_is_that_of_all_outcomes_and_of_the_plain_sum():
    for seed in range(15):
        instance = with_survival(seed)
        table = all_footprints(instance)[::5]
        found, share = survival_figures(instance, instance.survival, table)
        assert found == pytest.approx([survival_probability(instance, row) for row in table], abs=1e-12)
        assert found == pytest.approx(kept_by_outcomes(instance, table), abs=1e-12)
        assert (share >= found - 1e-12).all()


def test_the_distribution_adds_up_to_one_whatever_is_held():
    instance = with_survival(3)
    stays = stays_of(instance.survival.shocks)
    for most in (1, 4, 30):
        sizes = np.arange(len(instance.markets)) * 3
        assert surviving_capacity(sizes, stays, most).sum() == pytest.approx(1.0)


def test_more_instances_lower_the_shortfall_and_enough_has_none():
    for seed in range(10):
        instance = with_survival(seed)
        most = instance.bids.max_count
        table = np.array([np.minimum(most, step) for step in range(int(most.max(initial=0)) + 1)])
        lack = shortfall(instance, table)
        assert (np.diff(lack) <= 1e-12).all()
        found, _ = survival_figures(instance, instance.survival, table)
        assert ((lack == 0) == (found >= instance.survival.probability - 1e-9)).all()
    assert shortfall(varied(0), np.zeros((2, varied(0).num_bids), dtype=np.int64)).tolist() == [0.0, 0.0]


def test_a_row_is_the_checkers_and_cuts_its_counts_off():
    added = 0
    for seed in range(80):
        instance, rng = with_survival(seed), np.random.default_rng(seed)
        pool = CoverPool(instance)
        counts = rng.uniform(0, 1, instance.num_bids) * instance.bids.max_count
        number = pool.missed(counts)
        if number is None:
            continue
        added += 1
        gain, need = pool.rows.gain[number], pool.rows.need[number]
        assert gain @ counts < need
        checked = checked_covers(instance, tuple(pool.covers))
        assert gain == pytest.approx(checked.gain[number], abs=1e-8)
        assert need == pytest.approx(checked.need[number], abs=1e-7)
        table = footprints_that_keep_enough(instance)
        assert (table @ gain >= need - 1e-9).all(), seed
        assert pool.missed(counts) == number  # it is known already
    assert added > 20


def test_no_footprint_that_keeps_enough_has_less_than_the_least_counts():
    raised = 0
    for seed in range(60):
        instance = with_survival(seed)
        pool, high = CoverPool(instance), instance.bids.max_count
        table = footprints_that_keep_enough(instance)
        if not pool.keeps(high[None])[0]:
            assert not len(table)
            continue
        for bid, least in pool.min_counts(0 * high, high):
            raised += 1
            assert 1 <= least <= high[bid]
            assert not len(table) or table[:, bid].min() >= least
            fewer = high.copy()
            fewer[bid] = least
            assert pool.keeps(fewer[None])[0]
            fewer[bid] -= 1
            assert not pool.keeps(fewer[None])[0]
    assert raised > 10


def test_a_box_is_split_where_counts_fall_short():
    instance = with_survival(
        next(
            seed
            for seed in range(99)
            if CoverPool(with_survival(seed)).keeps(with_survival(seed).bids.max_count[None])[0]
        )
    )
    pool, high = CoverPool(instance), instance.bids.max_count
    bid, at = pool.choose(0.0 * high, 0 * high, high)
    assert at == 0
    assert high[bid] > 0
    assert pool.choose(high.astype(float), 0 * high, high) is None


def test_nothing_is_known_where_nothing_must_last():
    instance = varied(0)
    pool, high = CoverPool(instance), instance.bids.max_count
    assert pool.missed(0.0 * high) is None
    assert pool.min_counts(0 * high, high) == []
    assert pool.choose(0.0 * high, 0 * high, high) is None
    assert pool.keeps(high[None]).all()
