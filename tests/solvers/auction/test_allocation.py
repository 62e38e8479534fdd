"""Allocations on concrete GPUs: grants, returns, fillings and exchanges keep them valid."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.allocation import check_bundles, check_entries
from optim.models.auction.check.exact_instance import read_facts
from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.tables import Tables
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions, named_auctions


def check(instance, tables, allocation):
    """Check that every bundle fits where it is placed, and that the free GPUs are those that no app has."""
    row = tables.chosen_rows(allocation.choice)
    facts = read_facts(instance)
    assert not check_entries(facts, allocation.placement, "placement")
    assert not check_bundles(facts, row, allocation.placement)
    assert (allocation.free + allocation.allocated.sum(axis=0) == instance.cluster.slot_free).all()
    assert tables.welfare(allocation.choice) <= optimum(instance) + 1e-9


@given(instance=st.one_of(auctions(), named_auctions()), seed=st.integers(0, 100))
def test_every_way_to_an_allocation_is_sound(instance, seed):
    tables = Tables.build(instance)
    allocator = Allocator(tables)
    repaired = allocator.repaired(CountRelaxation.of(tables).choice())
    filled = allocator.filled(allocator.empty())
    improved = allocator.improved(filled, seed=seed, moves=5)
    for allocation in (repaired, filled, improved):
        check(instance, tables, allocation)
    assert tables.welfare(improved.choice) >= tables.welfare(filled.choice)
    again = allocator.from_placement(tables.chosen_rows(filled.choice), filled.placement)
    assert (again.choice == filled.choice).all()
    assert (again.allocated == filled.allocated).all()
    assert (again.free == filled.free).all()


@given(instance=auctions())
def test_what_an_app_leaves_goes_to_the_others_alone(instance):
    tables = Tables.build(instance)
    allocator = Allocator(tables)
    filled = allocator.filled(allocator.empty())
    for i in range(instance.num_apps):
        others = allocator.without(filled, i)
        check(instance, tables, others)
        assert others.choice[i] == -1
        kept = filled.choice.copy()
        kept[i] = -1
        assert tables.welfare(others.choice) >= tables.welfare(kept) - 1e-12
        assert allocator.repaired(filled.choice, i).choice.shape == filled.choice.shape


def test_the_largest_gain_a_gpu_is_taken_first():
    """Values per GPU: 1.10, .80, .46."""
    instance = auction([4], [(1, "slot", 3.0)], [(2, "slot", 5.0)], [(3, "slot", 4.0)])
    allocator = Allocator(Tables.build(instance))
    assert allocator.filled(allocator.empty()).choice.tolist() == [0, 1, -1]


def test_a_bundle_goes_where_least_room_is_left():
    places = [(0, [3]), (0, [2]), (1, [4])]
    instance = auction(places, [(2, "slot", 3.0)])
    allocator = Allocator(Tables.build(instance))
    assert allocator.filled(allocator.empty()).placement.tolist() == [[0, 1, 2]]
    instance = auction(places, [(5, "rack", 3.0)])
    allocator = Allocator(Tables.build(instance))
    assert allocator.filled(allocator.empty()).placement.tolist() == [[0, 0, 3], [0, 1, 2]]
    instance = auction(places, [(3, "cluster", 3.0)])  # small remainders first, so that complete machines stay free
    allocator = Allocator(Tables.build(instance))
    assert allocator.filled(allocator.empty()).placement.tolist() == [[0, 0, 1], [0, 1, 2]]


def test_rows_of_one_app_follow_their_machines():
    instance = auction([2, 2], [({0: 1, 1: 2}, 3.0)], [({0: 1}, 2.0)])
    tables = Tables.build(instance)
    found = Allocator(tables).repaired(np.array([0, 1]))
    assert found.placement.tolist() == [[0, 0, 1], [0, 1, 2], [1, 0, 1]]
