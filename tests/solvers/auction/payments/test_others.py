"""What the others can have without a winner: between both ends lies what trying everything finds."""

import math

import pytest
from hypothesis import given

from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.payments import LeaveOneOut
from optim.solvers.auction.tables import Tables
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions


def others_of(instance, *, has_main):
    """Return the others of an auction, with an allocation to start from or without one."""
    tables = Tables.build(instance)
    allocator = Allocator(tables)
    main = allocator.filled(allocator.empty()) if has_main else None
    return LeaveOneOut(tables, Packer(instance), allocator, CountRelaxation.of(tables), lambda: main)


@given(instance=auctions())
def test_both_ends_enclose_the_optimum_without_an_app(instance):
    for has_main in (False, True):
        others = others_of(instance, has_main=has_main)
        for app in range(instance.num_apps):
            found, best = others.without(app), optimum(instance, absent=app)
            assert found.reached - 1e-9 <= best <= found.bound + 1e-9


@pytest.mark.parametrize("has_main", [False, True])
def test_what_is_counted_and_has_no_room_is_repaired(has_main):
    """Without the first, three bundles of 2 are counted on two machines of 3, of which two fit, any two."""
    instance = auction([3, 3], [(3, "machine", 20.0)], *[[(2, "machine", 3.0)]] * 3)
    found = others_of(instance, has_main=has_main).without(0)
    assert found.bound == pytest.approx(3 * math.log(3.0))
    assert found.reached == pytest.approx(2 * math.log(3.0))


def test_the_better_of_the_repair_and_of_what_was_there_is_kept():
    """One slot that the main allocation gave to the greedy first; counted without the third, the second has it."""
    instance = auction(
        [3, 3], [(3, "machine", 20.0)], [(2, "machine", 3.0)], [(2, "machine", 4.0)], [(2, "machine", 5.0)]
    )
    found = others_of(instance, has_main=True).without(0)
    assert found.reached == pytest.approx(math.log(4.0) + math.log(5.0))
