"""Branch and bound over bundle types against enumeration: value, bound, proof, limits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.driver import Monitor, run_iteration
from optim.core.solution import Termination
from optim.core.stopping import GapLimit, IterationLimit, TimeLimit
from optim.models.auction.decision import PriceProof, TreeProof
from optim.solvers.auction.bundle_type_lp import BundleTypeLP, count_with_prices
from optim.solvers.auction.bundle_type_tree import Tree
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.tables import Tables
from tests.support.auction.builders import auction, fractional
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions, named_auctions


def searched(instance, known=0.0, monitor=None, **limits):
    tree = Tree(BundleTypeLP(Tables.build(instance)), Packer(instance), known, **limits)
    return run_iteration(tree, monitor or Monitor()), tree


@given(instance=st.one_of(auctions(), named_auctions()), apart=st.sampled_from([1.0, 5e-5, 1e-7]))
def test_an_allocation_a_little_better_than_the_known_one_is_found_and_proven(instance, apart):
    best = optimum(instance)
    found, tree = searched(instance, max(0.0, best - apart), node_limit=2_000)
    assert found.reached == pytest.approx(best, abs=2e-8)
    assert found.bound >= best - 1e-9
    if not tree.unplaced:
        assert found.bound <= best + 1e-7
    assert (found.witness is None) == (found.reached == max(0.0, best - apart))


@given(instance=auctions())
def test_without_an_app_the_others_optimum_is_found(instance):
    for i in range(instance.num_apps):
        found, _ = searched(instance, absent=i, node_limit=2_000)
        assert found.reached == pytest.approx(optimum(instance, absent=i), abs=2e-8)
        if found.witness is not None:
            assert found.witness.row[i] == -1


def test_a_tree_states_its_splits_and_a_root_alone_its_prices():
    found, tree = searched(fractional(), node_limit=2_000)
    assert tree.solved > 1
    assert isinstance(found.proof, TreeProof)
    root, _ = searched(auction([4], [(4, "slot", 3.0)]))
    assert isinstance(root.proof, PriceProof)
    assert root.bound == pytest.approx(math.log(3.0))


def test_a_kind_is_split_before_rows_that_name_machines():
    """At the root parts of both are awarded: the number of bundles of a type concerns many rows, a row only itself."""
    instance = auction(
        [3, 4, 5],
        [(2, "machine", 2.875), (3, "machine", 3.625), ({0: 2}, 4.25)],
        [(1, "machine", 4.0), (4, "machine", 2.375), ({1: 3}, 4.375)],
        [(2, "machine", 3.625), (1, "machine", 2.125), ({2: 3}, 2.375)],
        [(1, "machine", 1.125), (4, "machine", 2.125), ({1: 2}, 2.25)],
    )
    tables = Tables.build(instance)
    awarded = BundleTypeLP(tables).solve({}).chosen
    assert ((awarded > 0.1) & (awarded < 0.9) & (tables.kind < 0)).any()
    found, _ = searched(instance)
    assert (found.proof.nodes[0].row, found.proof.nodes[0].size) == (-1, 4)


def test_a_gpu_costs_nothing_where_some_are_left_over_and_else_what_the_next_app_would_pay():
    """Each machine of 3 holds one pair, and a third GPU of no use: two pairs have value log 4, though six GPUs make three pairs."""
    pairs = BundleTypeLP(Tables.build(auction([3, 3], *[[(2, "machine", 2.0)]] * 3)))
    point = pairs.solve({})
    assert point.gpu_price == 0.0
    assert count_with_prices(pairs, point, {}, -1).bound == pytest.approx(math.log(4.0))
    scarce = BundleTypeLP(Tables.build(auction([2], *[[(1, "cluster", value)] for value in (1.25, 1.75, 1.5)]))).solve(
        {}
    )
    assert math.log(1.25) - 1e-9 <= scarce.gpu_price <= math.log(1.5) + 1e-9


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limit_of_programmes_leaves_a_bound_that_holds(limit):
    found, tree = searched(fractional(), node_limit=limit)
    assert tree.solved >= limit
    assert tree.solved <= limit + 1
    assert found.reached - 1e-9 <= optimum(fractional()) <= found.bound + 1e-9


def test_without_time_the_root_is_solved_all_the_same():
    monitor = Monitor(TimeLimit(0.0))
    found, tree = searched(fractional(), monitor=monitor)
    assert monitor.reason is Termination.TIME_LIMIT
    assert tree.solved >= 1
    assert math.isfinite(found.bound)


def test_a_tree_of_all_apps_tells_its_gap_and_one_without_an_app_its_programmes_alone():
    _, tree = searched(fractional(), known=1.0, node_limit=3)
    tree.earlier = 4
    standing = tree.standing()
    assert standing.iterations == tree.solved + 4
    assert 1.0 <= standing.objective <= optimum(fractional()) + 1e-9 <= standing.bound + 2e-9
    tighter, looser = (searched(fractional(), proven=standing.bound + by, node_limit=3)[1] for by in (-1e-3, 1e-3))
    assert (tighter.standing().bound, looser.standing().bound) == (standing.bound - 1e-3, standing.bound)
    _, without = searched(fractional(), absent=0, node_limit=3)
    assert (without.standing().objective, without.standing().bound) == (None, None)
    assert without.standing().iterations == without.solved


@pytest.mark.parametrize("limit", [IterationLimit(4), GapLimit(0.01)])
def test_a_tree_hears_limits_of_programmes_and_of_the_gap(limit):
    monitor = Monitor(limit)
    found, tree = searched(fractional(), monitor=monitor, proven=6.25, node_limit=2_000)
    whole, all_of_it = searched(fractional(), proven=6.25, node_limit=2_000)
    assert monitor.reason in (Termination.ITERATION_LIMIT, Termination.GAP_LIMIT)
    assert tree.solved < all_of_it.solved
    assert found.reached <= whole.reached + 1e-9 <= found.bound + 2e-9


def test_bounds_that_ask_for_more_than_there_is_leave_nothing():
    lp = BundleTypeLP(
        Tables.build(auction([4, 4], [(3, "machine", 3.0)], [(3, "machine", 2.0)], [(3, "machine", 2.5)]))
    )
    assert lp.solve({}).value == pytest.approx(math.log(3.0) + math.log(2.5))
    assert lp.solve({0: (3, 3)}).value == -math.inf
    assert lp.solve({0: (0, 1)}).value == pytest.approx(math.log(3.0))
    assert lp.solve({}, 0).value == pytest.approx(math.log(2.0) + math.log(2.5))
    assert lp.solve({}).value == pytest.approx(math.log(3.0) + math.log(2.5))
