"""Whether bundles find room together: by all ways to place them, and by the checker's two short cuts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.allocation import fits, is_unpackable
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.data import Locality, as_ints
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import can_place
from tests.support.auction.strategies import auctions, named_auctions


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
        # Half of the first rack is gone, and one bundle more fills it: the last would need two machines of the second.
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
