"""What the checker says a cluster can supply: by hand, and never less than what enumeration places."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.bounds import Supply
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.data import Locality
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import can_place
from tests.support.auction.strategies import auctions

SLOT, MACHINE, RACK, CLUSTER, NAMED = Locality


def most(machines, prices, *apps):
    return Supply(read_facts(auction(machines, *apps))).most(prices)


def test_equal_racks_and_machines_count_each():
    racks = [(rack, [4]) for rack in (0, 0, 1, 1, 2, 2)]
    assert most(racks, {(MACHINE, 3, -1): 1.0}) == 6.0
    assert most(racks, {(RACK, 5, -1): 1.0}) == 3.0
    assert most(racks, {(CLUSTER, 5, -1): 1.0}) == pytest.approx(24 / 5)


def test_the_best_mix_of_bundles_is_found():
    assert most([8], {(SLOT, 5, -1): 3.0, (SLOT, 4, -1): 2.0, (SLOT, 3, -1): 1.5}) == 4.5
    assert most([(0, [4, 4])], {(SLOT, 5, -1): 3.0, (MACHINE, 5, -1): 2.0, (SLOT, 3, -1): 0.5}) == 2.5


def test_bundles_within_a_rack_use_what_machines_leave():
    rack = [(0, [4]), (0, [4])]
    assert most(rack, {(MACHINE, 3, -1): 1.0, (RACK, 2, -1): 0.5}) == 2.5
    assert most(rack, {(MACHINE, 3, -1): 1.0, (RACK, 3, -1): 0.5}) == 2.0


def test_named_machines_have_prices_of_their_own():
    bids = [({0: 1}, 2.0)], [({1: 1}, 2.0)]
    assert most([3, 2], {(NAMED, 1, 0): 1.0, (NAMED, 1, 1): 0.25}, *bids) == 3.5


def test_negative_prices_count_as_nothing():
    assert most([4], {(SLOT, 1, -1): -1.0}) == 0.0


@given(auctions(), st.lists(st.integers(1, 16).map(lambda v: v / 4), min_size=12, max_size=12), st.integers(0, 63))
def test_no_set_of_bundles_that_fits_is_worth_more(instance, drawn, subset):
    bids = instance.bids
    rows = [b for b in range(min(6, len(bids))) if subset >> b & 1]
    kinds = sorted(set(zip(bids.locality.tolist(), bids.gpus.tolist(), strict=True)))
    price = {(level, size, -1): p for (level, size), p in zip(kinds, drawn, strict=False)}
    if can_place(instance, rows, instance.cluster.slot_free.tolist()):
        worth = sum(price[int(bids.locality[b]), int(bids.gpus[b]), -1] for b in rows)
        assert Supply(read_facts(instance)).most(price) >= worth - 1e-9


def test_a_row_alone_attains_the_supply():
    instance = auction([4, 2], [(4, "slot", 2.0)])
    found = Supply(read_facts(instance)).most({(SLOT, 4, -1): 1.5})
    assert found == 1.5
    assert np.isfinite(found)
