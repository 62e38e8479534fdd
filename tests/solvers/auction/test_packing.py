"""Placing bundles: every placement is sound, searches agree with enumeration, and no slot, machine or rack holds more than it has."""

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
from optim.solvers.auction.packing import (
    CLUSTER,
    Packer,
    PlacementSearch,
    _has_shifted,
    _kinds,
    materialise,
)
from optim.solvers.auction.tables import Tables
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import can_place, optimum
from tests.support.auction.strategies import auctions, named_auctions

SLOT, MACHINE, RACK, NAMED = Locality.SLOT, Locality.MACHINE, Locality.RACK, Locality.NAMED


def some_choice(instance, numbers):
    """Return a row for each app, by random numbers."""
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
    room = Packer(instance).placement_search.fits(tuple(inner))
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
    """A bundle on the second slot of a machine finds no such slot on a machine of one slot."""
    row = np.arange(4)
    found = Packer(LIKE_BUT_FOR_A_HELD_SLOT, seed).search(row)
    assert found is None or not check_bundles(read_facts(LIKE_BUT_FOR_A_HELD_SLOT), row, found)
    placement = Packer(LIKE_BUT_FOR_A_HELD_SLOT, seed).place(row, is_thorough=True)
    assert not check_bundles(read_facts(LIKE_BUT_FOR_A_HELD_SLOT), row, placement)


@pytest.mark.parametrize(
    "machines", [[5, 4], [(0, [3, 1]), (0, [5])]]
)  # best fit places the first, exchange the second
def test_places_that_hold_less_than_is_placed_there_are_no_room(machines, monkeypatch):
    """Every placement method counts occupied GPUs, and reports no bundle as placed that isn't."""
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


SLOT_MACHINE, MACHINE_RACK = np.array([0, 0, 1, 1]), np.array([0, 0])


@pytest.mark.parametrize(
    ("bundles", "free", "entries"),
    [
        ([(MACHINE, 3, 1)], [2, 2, 2, 2], [(0, 2, 2), (0, 3, 1)]),
        ([(MACHINE, 3, 1)], [2, 2, 1, 2], [(0, 3, 2), (0, 2, 1)]),
        ([(SLOT, 1, 3)], [2, 2, 2, 2], [(0, 3, 1)]),
        ([(CLUSTER, 3, 0)], [2, 2, 2, 2], [(0, 0, 2), (0, 2, 1)]),  # then machine 1 has most left
        ([(RACK, 3, 0)], [1, 1, 1, 2], [(0, 3, 2), (0, 0, 1)]),
        ([(CLUSTER, 2, 0), (SLOT, 2, 0)], [2, 1, 0, 1], [(1, 0, 2), (0, 1, 1), (0, 3, 1)]),
        ([(CLUSTER, 2, 0), (SLOT, 2, 0)], [2, 1, 0, 0], []),
    ],
)
def test_bundles_take_the_fullest_room_and_of_equal_rooms_the_first(bundles, free, entries):
    level, size, place = (np.array(column) for column in zip(*bundles, strict=True))
    found = materialise(level, size, place, SLOT_MACHINE, MACHINE_RACK, np.array(free))
    assert [tuple(entry) for entry in found.tolist()] == entries


@pytest.mark.parametrize(
    ("load", "shift", "after"),
    [
        ((5, 1), 2, (3, 3)),  # the overflow finds capacity
        ((5, 3), 1, (4, 4)),  # it flows over elsewhere
        ((5, 4), 1, (4, 5)),  # both flow over, before and after, by as much in all
        ((4, 5), 1, (3, 6)),
        ((3, 5), -1, (4, 4)),  # the other way
        ((3, 3), 1, None),  # no overflow
        ((5, 3), 3, None),  # 2, then 3
        ((2, 5), -5, None),  # 2, then 4
    ],
)
def test_load_is_shifted_unless_the_overflow_grows(load, shift, after):
    """From the first rack of 3 to the second; an overflow is the total excess of loads over the racks."""
    loads = np.array(load)
    assert _has_shifted(loads, np.array([3, 3]), 0, 1, shift) is (after is not None)
    assert tuple(loads.tolist()) == (after or load)


@pytest.mark.parametrize(
    ("machines", "kinds"),
    [
        ([[4], [4], [3]], [0, 0, 2]),
        ([[0, 4], [4], [0, 4]], [0, 1, 0]),
        ([[4, 0], [0, 4], [4, 0]], [0, 1, 0]),
        ([[1, 0], [0, 1009], [1, 0, 0]], [0, 1, 2]),
        ([[2, 3], [2, 4], [2, 3, 1], [2, 4]], [0, 1, 2, 1]),
    ],
)
def test_machines_are_of_one_kind_where_slot_by_slot_as_much_is_free(machines, kinds):
    """A type of machine is identified by its first machine."""
    slot_machine = np.repeat(np.arange(len(machines)), [len(slots) for slots in machines])
    kind, first = _kinds(slot_machine, np.concatenate(machines), len(machines))
    assert kind.tolist() == kinds
    assert np.diff(first).tolist() == [len(slots) for slots in machines]


@pytest.mark.parametrize(
    ("machines", "items", "places"),
    [
        ([(0, [2, 2])], [(SLOT, 2), (SLOT, 2)], {(0, 1)}),
        ([(0, [2, 2])], [(SLOT, 1), (SLOT, 2), (SLOT, 1)], {(0, 1, 1)}),
        ([(0, [3, 1])], [(SLOT, 2), (SLOT, 2)], None),  # four GPUs, but not two and two
        ([(0, [2]), (0, [2])], [(MACHINE, 2), (MACHINE, 2)], {(0, 1)}),
        ([(0, [2]), (0, [2])], [(MACHINE, 3)], None),
        ([(0, [2]), (0, [2]), (1, [3])], [(RACK, 4), (MACHINE, 3)], {(0, 2)}),
        ([(0, [2]), (0, [2]), (1, [3])], [(RACK, 4), (RACK, 4)], None),
    ],
)
def test_items_lie_where_there_is_room_for_them_all(machines, items, places):
    room = PlacementSearch(auction(machines, [(1, "slot", 2.0)]))
    given = tuple(sorted((int(level), size, -1) for level, size in items))
    assert room.fits(given) is (places is not None)
    found = room.places(given)
    assert (found is None) if places is None else (found in places)


def test_named_machines_keep_their_room_for_those_who_name_them():
    """The larger bundle comes first, and must not take the named machine of two that are otherwise equal."""
    room = PlacementSearch(auction([(0, [2]), (0, [2])], [(1, "slot", 2.0)]))
    items = tuple(sorted([(int(MACHINE), 2, -1), (int(NAMED), 1, 0)]))
    assert room.places(items) == (1, 0)
    assert room.fits(tuple(sorted((*items, (int(NAMED), 1, 1))))) is False


def is_possible(items, slots, machine_rack, rack):
    """Return whether items fit, by trying all assignments; `slots` are lists by machine."""
    if not items:
        return True
    (level, size, target), rest = items[0], items[1:]
    if level == RACK:
        options = [(r, None, None) for r in range(len(rack))]
    else:
        machines = [target] if level == NAMED else range(len(slots))
        numbers = [(m, s) for m in machines for s in (range(len(slots[m][1])) if level == SLOT else [None])]
        options = [(machine_rack[m], m, s) for m, s in numbers]
    for r, m, s in options:
        left, racks = [(room, list(free)) for room, free in slots], list(rack)
        racks[r] -= size
        if m is not None:
            left[m] = (left[m][0] - size, left[m][1])
        if s is not None:
            left[m][1][s] -= size
        is_within = min(racks) >= 0 and all(room >= 0 and min(free) >= 0 for room, free in left)
        if is_within and is_possible(rest, left, machine_rack, racks):
            return True
    return False


def test_says_what_trying_every_place_says():
    rng = np.random.default_rng(0)
    answers = []
    for _ in range(300):
        free = [(r, [int(rng.choice([2, 3]))] * int(rng.integers(1, 3))) for r in (0, 0, 1)]
        items = []
        for _ in range(int(rng.integers(3, 6))):
            level = [SLOT, MACHINE, RACK, NAMED][rng.integers(4)]
            items.append((int(level), int(rng.integers(1, 4)), int(rng.integers(3)) if level == NAMED else -1))
        room = [sum(slots) for _, slots in free]
        expected = is_possible(
            items, [(sum(slots), slots) for _, slots in free], [0, 0, 1], [room[0] + room[1], room[2]]
        )
        assert PlacementSearch(auction(free, [(1, "slot", 2.0)])).fits(tuple(sorted(items))) is expected
        answers.append(expected)
    assert 50 < sum(answers) < 250  # both answers are common
