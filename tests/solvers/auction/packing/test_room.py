"""Whether bundles can be placed together, by hand: every slot, machine and rack holds what it has and no more."""

import numpy as np
import pytest

from optim.models.auction.data import Locality
from optim.solvers.auction.packing import PlacementSearch
from tests.support.auction.builders import auction

SLOT, MACHINE, RACK, NAMED = Locality.SLOT, Locality.MACHINE, Locality.RACK, Locality.NAMED


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
    """The larger bundle comes first, and must not stop at the named machine of two that are alike otherwise."""
    room = PlacementSearch(auction([(0, [2]), (0, [2])], [(1, "slot", 2.0)]))
    items = tuple(sorted([(int(MACHINE), 2, -1), (int(NAMED), 1, 0)]))
    assert room.places(items) == (1, 0)
    assert room.fits(tuple(sorted((*items, (int(NAMED), 1, 1))))) is False


def is_possible(items, slots, machine_rack, rack):
    """Tell whether items have room, by trying every place for one after the other; `slots` are lists by machine."""
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
