"""Bundles against the cluster: rejected bundles and their messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.allocation import check_bundles, check_entries, check_rows, fits, is_unpackable
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.data import Locality, as_ints
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import can_place
from tests.support.auction.strategies import auctions, named_auctions

ONE = auction(
    [(0, [2, 2]), (0, [4]), (1, [4])],
    [(2, "slot", 2.0), (4, "machine", 3.0)],
    [(6, "rack", 4.0)],
    [(8, "cluster", 5.0)],
)
"""Machine 0 of two slots and machine 1 in rack 0, machine 2 in rack 1; slots 0 to 3."""
NAMED = auction([4, 4], [({0: 2, 1: 1}, 2.0)])


def entries(*rows):
    return as_ints(rows).reshape(-1, 3)


@pytest.mark.parametrize(
    ("row", "is_fine"),
    [
        ([0, 2, 3], True),
        ([1, -1, -1], True),
        ([2, -1, -1], False),
        ([-2, -1, -1], False),
        ([0, 1, 3], False),
        ([0, 2, 4], False),
    ],
)
def test_every_app_has_a_row_of_its_own_or_none(row, is_fine):
    assert (check_rows(read_facts(ONE), as_ints(row)) == []) is is_fine


def test_one_row_an_app_is_needed():
    assert [found.row for found in check_rows(read_facts(ONE), as_ints([0, 2]))] == ["one bid"]


@pytest.mark.parametrize(
    ("given", "row"),
    [
        ([(0, 0, 2), (1, 0, 0)], "entries"),
        ([(0, 4, 1)], "entries"),
        ([(0, -1, 1)], "entries"),
        ([(3, 0, 1)], "entries"),
        ([(-1, 0, 1)], "entries"),
        ([(0, 0, 1), (0, 0, 1)], "entries"),
        ([(0, 0, 3)], "capacity [slot 0, machine 0]"),
        ([(0, 1, 2), (1, 1, 1)], "capacity [slot 1, machine 0]"),
        ([(0, 2, 4), (1, 2, 2)], "capacity [slot 2, machine 1]"),
    ],
)
def test_names_what_is_wrong_with_entries(given, row):
    assert [found.row for found in check_entries(read_facts(ONE), entries(*given), "placement")] == [row]


def test_says_by_how_much_a_slot_is_exceeded():
    (found,) = check_entries(read_facts(ONE), entries((0, 2, 4), (1, 2, 2)), "grants")
    assert (found.amount, found.message) == ("2", "6 GPUs are used, 4 are free (grants)")


def test_entries_have_three_columns_and_may_be_none():
    facts = read_facts(ONE)
    assert check_entries(facts, entries(), "placement") == []
    assert check_entries(facts, entries((0, 0, 2), (1, 0, 0)).reshape(-1, 2), "placement")[0].row == "entries"
    assert check_entries(facts, entries((0, 0, 2), (1, 1, 2), (2, 3, 4)), "placement") == []


@pytest.mark.parametrize(
    ("row", "placed", "is_fine"),
    [
        ([0, -1, -1], [(0, 0, 2)], True),
        ([0, -1, -1], [(0, 0, 1), (0, 1, 1)], False),
        ([0, -1, -1], [(0, 0, 1)], False),
        ([1, -1, -1], [(0, 0, 2), (0, 1, 2)], True),
        ([1, -1, -1], [(0, 0, 2), (0, 2, 2)], False),
        ([-1, 2, -1], [(1, 0, 2), (1, 2, 4)], True),
        ([-1, 2, -1], [(1, 2, 4), (1, 3, 2)], False),
        ([-1, -1, 3], [(2, 2, 4), (2, 3, 4)], True),
        ([-1, -1, -1], [(2, 2, 1)], False),
        ([0, -1, -1], [], False),
    ],
)
def test_a_bundle_lies_in_one_place_of_its_locality(row, placed, is_fine):
    assert (check_bundles(read_facts(ONE), as_ints(row), entries(*placed)) == []) is is_fine


@pytest.mark.parametrize(
    ("placed", "is_fine"),
    [([(0, 0, 2), (0, 1, 1)], True), ([(0, 0, 1), (0, 1, 2)], False), ([(0, 0, 3)], False)],
)
def test_a_row_that_names_machines_has_its_gpus_there(placed, is_fine):
    assert (check_bundles(read_facts(NAMED), as_ints([0]), entries(*placed)) == []) is is_fine


def items_of(instance, rows):
    found = []
    for b in rows:
        level = int(instance.bids.locality[b])
        if level == Locality.NAMED:
            mine = np.flatnonzero(instance.bids.named_row == b)
            found += [(level, int(instance.bids.named_gpus[e]), int(instance.bids.named_machine[e])) for e in mine]
        else:
            found.append((level, int(instance.bids.gpus[b]), -1))
    return found


@given(st.one_of(auctions(), named_auctions()), st.data())
def test_no_room_is_claimed_only_and_always_where_there_is_none(instance, data):
    rows = data.draw(st.lists(st.sampled_from(range(len(instance.bids))), unique=True)) if len(instance.bids) else []
    inner = [b for b in rows if instance.bids.locality[b] != Locality.CLUSTER]
    free = instance.cluster.slot_free.tolist()
    assert is_unpackable(read_facts(instance), items_of(instance, inner)) == (not can_place(instance, inner, free))


@given(st.one_of(auctions(), named_auctions()), st.data())
def test_best_fit_finds_room_only_where_there_is_some(instance, data):
    row = [
        data.draw(st.sampled_from([-1, *np.flatnonzero(instance.bids.app == i).tolist()]))
        for i in range(instance.num_apps)
    ]
    found = fits(read_facts(instance), as_ints(row))
    chosen = [b for b in row if b >= 0]
    if found:
        assert can_place(instance, chosen, instance.cluster.slot_free.tolist())
    elif len(chosen) <= 1:  # alone a bundle is always found
        assert not chosen or not can_place(instance, chosen, instance.cluster.slot_free.tolist())


@pytest.mark.parametrize(
    ("machines", "bundles", "is_found"),
    [
        ([4, 4], [(4, "machine"), (4, "machine")], True),
        ([4, 4], [(3, "machine"), (3, "machine"), (2, "machine")], False),
        ([5, 4], [(3, "machine"), (2, "machine"), (4, "machine")], True),
        ([4, (1, [4])], [(4, "rack"), (4, "machine")], True),
        ([4, (0, [2]), (1, [4])], [(5, "rack"), (4, "machine")], True),
        ([4, (0, [2]), (1, [4])], [(5, "rack"), (4, "machine"), (2, "machine")], False),
        ([(0, [2, 2])], [(3, "machine"), (1, "slot")], True),
        ([(0, [2, 2])], [(3, "slot")], False),
        ([(0, [2, 2])], [(2, "slot"), (2, "slot")], True),
        ([(0, [2, 2])], [(2, "slot"), (1, "slot"), (2, "machine")], False),
        ([4, 4], [(7, "cluster"), (1, "slot")], True),
        ([4, 4], [(7, "cluster"), (2, "slot")], False),
        # Half of the first rack is occupied, and one more bundle fills it: the last would need two machines of the
        # second.
        ([(0, [2]), (0, [2]), (1, [3]), (1, [1])], [(2, "rack"), *3 * [(2, "machine")]], False),
        ([(0, [2]), (0, [2]), (1, [3]), (1, [1])], [(2, "rack"), *2 * [(2, "machine")], (1, "slot")], True),
    ],
)
def test_best_fit_by_hand(machines, bundles, is_found):
    instance = auction(machines, *[[(size, level, 2.0)] for size, level in bundles])
    assert fits(read_facts(instance), np.arange(len(bundles))) is is_found


def test_rows_that_name_machines_fit_where_none_is_asked_for_too_much():
    instance = auction([4, 4], [({0: 3}, 2.0), ({1: 4}, 2.0)], [({0: 1}, 3.0), ({0: 2, 1: 1}, 4.0)])
    facts = read_facts(instance)
    assert fits(facts, as_ints([0, 2]))
    assert not fits(facts, as_ints([0, 3]))
    assert fits(facts, as_ints([-1, 3]))
    assert not fits(facts, as_ints([1, 3]))
