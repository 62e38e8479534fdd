"""Placing bundles: every placement is sound, and both searches through all placements agree with enumeration."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.allocation import check_bundles, check_entries, fits, is_unpackable
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.data import Locality
from optim.solvers.auction import packing
from optim.solvers.auction.bundle_type_lp import BundleTypeLP, patterns, rack_classes
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.tables import Tables
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import can_place, optimum
from tests.support.auction.strategies import auctions, named_auctions


def some_choice(instance, numbers):
    """Return a row for each app, by numbers drawn."""
    row = np.full(instance.num_apps, -1, dtype=np.int64)
    for i in range(instance.num_apps):
        rows = np.flatnonzero(instance.bids.app == i)
        if len(rows):
            row[i] = rows[numbers[i] % len(rows)]
    return row


def items_of(instance, row):
    chosen = row[row >= 0]
    levels, sizes = instance.bids.locality[chosen].tolist(), instance.bids.gpus[chosen].tolist()
    return tuple(sorted((lv, size, -1) for lv, size in zip(levels, sizes, strict=True)))


draws = st.lists(st.integers(0, 9), min_size=4, max_size=4)


@given(st.one_of(auctions(most_apps=4), named_auctions()), draws)
def test_what_is_placed_fits_and_what_can_be_placed_is_found(instance, numbers):
    row = some_choice(instance, numbers)
    placement = Packer(instance).place(row, is_thorough=True)
    facts = read_facts(instance)
    if placement is not None:
        assert not check_entries(facts, placement, "placement")
        assert not check_bundles(facts, row, placement)
    if not (instance.bids.locality == Locality.NAMED).any():
        free = instance.cluster.slot_free.tolist()
        assert (placement is not None) == can_place(instance, row[row >= 0].tolist(), free)


@given(auctions(most_apps=4), draws)
def test_what_is_said_to_have_no_room_has_none(instance, numbers):
    row = some_choice(instance, numbers)
    items = items_of(instance, row)
    if is_unpackable(read_facts(instance), items):
        assert not can_place(instance, row[row >= 0].tolist(), instance.cluster.slot_free.tolist())
    inner = [item for item in items if item[0] != Locality.CLUSTER]
    room = Packer(instance).room.fits(tuple(inner))
    assert room is None or room != is_unpackable(read_facts(instance), inner)


@given(auctions(most_apps=4), draws)
def test_the_checkers_best_fit_finds_room_only_where_there_is_some(instance, numbers):
    row = some_choice(instance, numbers)
    if fits(read_facts(instance), row):
        assert can_place(instance, row[row >= 0].tolist(), instance.cluster.slot_free.tolist())
    assert Packer(instance).fits_first(row[row >= 0]) == fits(read_facts(instance), row)


@given(auctions())
def test_both_relaxations_bound_the_optimum(instance):
    tables = Tables.build(instance)
    best = optimum(instance)
    assert CountRelaxation.of(tables).bound >= best - 1e-9
    assert BundleTypeLP(tables).solve({}).value >= best - 1e-7


def test_racks_filled_to_the_last_gpu_are_found():
    """Four racks of 64: 40+16+8, 32+32, 32+20+12 and 17+16+13+10+8, which best fit doesn't find."""
    sizes = [40, 32, 32, 32, 20, 17, 16, 16, 13, 12, 10, 8, 8]
    places = [(rack, [8]) for rack in range(4) for _ in range(8)]
    instance = auction(places, *[[(size, "rack" if size > 8 else "slot", 2.0)] for size in sizes])
    row = np.arange(len(sizes))
    placement = Packer(instance).place(row)
    assert placement is not None
    assert not check_bundles(read_facts(instance), row, placement)


LIKE_BUT_FOR_A_HELD_SLOT = auction(
    [(0, [0, 4]), (1, [4]), (1, [0, 4])],
    [(3, "slot", 3.0)], [(3, "rack", 3.0)], [(4, "slot", 3.0)], [(2, "slot", 3.0)],
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_loads_move_between_machines_with_equal_slots_only(seed):
    """A bundle that lies on the second slot of a machine finds none on a machine of one slot."""
    row = np.arange(4)
    found = Packer(LIKE_BUT_FOR_A_HELD_SLOT, seed).search(row)
    assert found is None or not check_bundles(read_facts(LIKE_BUT_FOR_A_HELD_SLOT), row, found)
    placement = Packer(LIKE_BUT_FOR_A_HELD_SLOT, seed).place(row, is_thorough=True)
    assert not check_bundles(read_facts(LIKE_BUT_FOR_A_HELD_SLOT), row, placement)


@pytest.mark.parametrize(
    "machines", [[5, 4], [(0, [3, 1]), (0, [5])]]
)  # best fit places the first, exchange the second
def test_places_that_hold_less_than_is_placed_there_are_no_room(machines, monkeypatch):
    """Whoever finds places, what they hold counts: nothing is stated as placed that isn't."""
    instance = auction(machines, [(4, "machine", 2.0)], [(5, "machine", 2.0)])
    row = np.arange(2)
    assert Packer(instance).place(row) is not None
    assert Packer(instance).search(row) is not None
    monkeypatch.setattr(packing, "materialise", lambda level, *_: np.empty((len(level) - 1, 3), dtype=np.int64))
    for is_thorough in (False, True):
        assert Packer(instance).place(row, is_thorough=is_thorough) is None
    assert Packer(instance).search(row) is None


def test_nothing_has_room_everywhere():
    placement = Packer(auction([1], [(1, "slot", 2.0)])).place(np.array([-1]))
    assert placement.shape == (0, 3)


def test_equal_racks_are_one_class():
    tables = Tables.build(generate(GeneratorOptions(num_apps=4, num_gpus=256, num_machines=32), 0))
    (rack,) = rack_classes(tables)
    assert (rack.count, rack.free, len(rack.machines)) == (4, 64, 1)


def test_patterns_of_slots_leave_out_those_that_others_contain():
    assert patterns((2, 2), (2,), (4,)) == ((2, 0), (0, 1))
    assert patterns((3,), (2,), ()) == ((1,),)
    assert len(patterns((8,), tuple(range(1, 9)), ())) == 22


def test_dominated_rows_are_left_out():
    instance = auction([4], [(2, "slot", 3.0), (3, "slot", 3.0), (2, "rack", 2.0), (4, "slot", 4.0), (5, "slot", 9.0)])
    assert Tables.build(instance).row.tolist() == [0, 2, 3]
