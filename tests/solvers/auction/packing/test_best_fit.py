"""Counts turned into GPUs: narrow bundles first, wide ones where most is left, the first of equals."""

import numpy as np
import pytest

from optim.solvers.auction.packing import CLUSTER, MACHINE, RACK, SLOT, materialise

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
