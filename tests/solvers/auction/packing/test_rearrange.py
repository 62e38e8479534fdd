"""Which machines are alike, and loads that racks pass on: never with more overflow; what is found is tested with `packer`."""

import numpy as np
import pytest

from optim.solvers.auction.packing import _has_shifted, _kinds


@pytest.mark.parametrize(
    ("load", "shift", "after"),
    [
        ((5, 1), 2, (3, 3)),  # what flows over finds room
        ((5, 3), 1, (4, 4)),  # it flows over elsewhere
        ((5, 4), 1, (4, 5)),  # both flow over, before and after, by as much in all
        ((4, 5), 1, (3, 6)),
        ((3, 5), -1, (4, 4)),  # the other way
        ((3, 3), 1, None),  # nothing flows over
        ((5, 3), 3, None),  # 2, then 3
        ((2, 5), -5, None),  # 2, then 4
    ],
)
def test_load_is_shifted_unless_the_overflow_grows(load, shift, after):
    """From the first rack of 3 to the second; an overflow is what loads exceed them by, added up."""
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
    """A kind is told by the first machine of it."""
    slot_machine = np.repeat(np.arange(len(machines)), [len(slots) for slots in machines])
    kind, first = _kinds(slot_machine, np.concatenate(machines), len(machines))
    assert kind.tolist() == kinds
    assert np.diff(first).tolist() == [len(slots) for slots in machines]
