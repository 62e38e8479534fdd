"""Arbitrary prices and trees bound every allocation: against all choices of bids and all their placements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.auction.check.bounds import CountBound, PriceBound, Supply, check_form, evaluate_tree
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.data import Locality, as_floats, as_ints
from optim.models.auction.decision import PriceProof, TreeNode, TreeProof
from tests.support.auction.builders import auction
from tests.support.auction.enumeration import can_place, optimum
from tests.support.auction.strategies import auctions, named_auctions

NOTHING = {}
SEEDS = st.integers(0, 2**32 - 1)


def kinds_of(instance):
    bids = instance.bids
    plain = {
        (level, size, -1)
        for level, size in zip(bids.locality.tolist(), bids.gpus.tolist(), strict=True)
        if level != Locality.NAMED
    }
    return sorted(plain | {(int(Locality.NAMED), 1, machine) for machine in bids.named_machine.tolist()})


def prices(kinds, row_price, supply_price=None, *, is_counted=False):
    return PriceProof(
        kinds=as_ints(kinds).reshape(-1, 3),
        row_price=as_floats(row_price),
        supply_price=as_floats(row_price if supply_price is None else supply_price),
        is_counted=is_counted,
    )


@given(st.one_of(auctions(), named_auctions()), SEEDS)
def test_any_prices_bound_the_optimum_with_and_without_each_app(instance, seed):
    rng = np.random.default_rng(seed)
    facts, kinds = read_facts(instance), kinds_of(instance)
    bound = PriceBound(facts)
    for is_counted in (False, True):
        proof = prices(kinds, rng.exponential(0.5, len(kinds)), is_counted=is_counted)
        for without in (None, *range(instance.num_apps)):
            value, terms = bound.evaluate(proof, without, NOTHING)
            assert value >= optimum(instance, without)
            assert terms >= abs(value) * (1 - 1e-9)


@given(auctions(), SEEDS)
def test_a_tree_bounds_the_optimum_whatever_splits_it(instance, seed):
    rng = np.random.default_rng(seed)
    facts, kinds = read_facts(instance), kinds_of(instance)
    if not kinds:
        return
    level, size, _ = kinds[int(rng.integers(len(kinds)))]
    leaf = [prices(kinds, rng.exponential(0.5, len(kinds)), rng.exponential(0.5, len(kinds))) for _ in range(3)]
    row = int(rng.integers(len(instance.bids)))
    tree = TreeProof(
        nodes=(
            TreeNode(level=level, size=size, value=int(rng.integers(0, 3)), low=1, high=2),
            TreeNode(proof=leaf[0]),
            TreeNode(row=row, low=3, high=4),
            TreeNode(proof=leaf[1]),
            TreeNode(proof=leaf[2]),
        )
    )
    value, _, wrong = evaluate_tree(PriceBound(facts), facts, tree, None)
    assert not wrong
    assert value >= optimum(instance)


@given(st.one_of(auctions(), named_auctions()), SEEDS)
def test_a_tree_over_two_rows_bounds_the_optimum_with_and_without_each_app(instance, seed):
    rng = np.random.default_rng(seed)
    facts, kinds = read_facts(instance), kinds_of(instance)
    if len(instance.bids) < 2:
        return
    first, second = rng.choice(len(instance.bids), 2, replace=False).tolist()
    for is_counted in (False, True):
        drawn = [rng.exponential(0.5, len(kinds)) * rng.integers(0, 2) for _ in range(3)]
        leaf = [TreeNode(proof=prices(kinds, price, is_counted=is_counted)) for price in drawn]
        nodes = (TreeNode(row=first, low=1, high=2), leaf[0], TreeNode(row=second, low=3, high=4), leaf[1], leaf[2])
        for without in (None, *range(instance.num_apps)):
            value, _, wrong = evaluate_tree(PriceBound(facts), facts, TreeProof(nodes=nodes), without)
            assert not wrong
            assert value >= optimum(instance, without)


def test_a_leaf_that_awards_more_gpus_than_there_are_holds_nothing():
    """Bundles of 3 and 2 of four GPUs exclude each other: a tree without prices proves the value of the better one."""
    leaf = TreeNode(proof=prices([], [], is_counted=True))
    tree = TreeProof(nodes=(TreeNode(row=0, low=1, high=2), leaf, TreeNode(row=1, low=3, high=4), leaf, leaf))
    for size, bound in ((2, np.log(4)), (1, np.log(12))):
        facts = read_facts(auction([4], [(3, "machine", 4.0)], [(size, "machine", 3.0)]))
        value, _, wrong = evaluate_tree(PriceBound(facts), facts, tree, None)
        assert not wrong
        assert value == pytest.approx(bound)


def test_prices_of_nothing_let_every_app_have_its_best_row():
    two = auction([4], [(4, "machine", 4.0), (2, "machine", 2.0)], [(4, "machine", 3.0)])
    bound = PriceBound(read_facts(two))
    assert bound.evaluate(prices([], []), None, NOTHING)[0] == pytest.approx(np.log(12))
    assert bound.evaluate(prices([], []), 0, NOTHING)[0] == pytest.approx(np.log(3))


def test_prices_count_rows_and_supply():
    """Bundles of 4 GPUs cost 1: the apps gain log 4 - 1 and log 3 - 1, and the machine supplies one bundle."""
    two = auction([4], [(4, "machine", 4.0)], [(4, "machine", 3.0)])
    bound = PriceBound(read_facts(two))
    proof = prices([(1, 4, -1)], [1.0])
    assert bound.evaluate(proof, None, NOTHING)[0] == pytest.approx(np.log(12) - 2 + 1)
    assert bound.evaluate(proof, 1, NOTHING)[0] == pytest.approx(np.log(4))


def test_a_gap_between_the_two_prices_counts_with_the_number_that_a_tree_allows():
    two = auction([8], [(4, "machine", 4.0)], [(4, "machine", 3.0)])
    bound = PriceBound(read_facts(two))
    proof = prices([(1, 4, -1)], [1.0], [0.25])
    at_most_one = {(1, 4): (0, 1)}
    assert bound.evaluate(proof, None, at_most_one)[0] == pytest.approx(np.log(12) - 2 + 2 * 0.25 + 0.75)
    assert bound.evaluate(proof, None, NOTHING)[0] == np.inf
    cheap = prices([(1, 4, -1)], [0.25], [1.0])
    at_least_one = {(1, 4): (1, np.inf)}
    assert bound.evaluate(cheap, None, at_least_one)[0] == pytest.approx(np.log(12) - 0.5 + 2 * 1.0 - 0.75)


def test_a_row_that_a_tree_fixes_gains_alone_and_one_that_it_forbids_gains_nothing():
    two = auction([4], [(4, "machine", 4.0), (2, "machine", 2.0)], [(4, "machine", 3.0)])
    bound = PriceBound(read_facts(two))
    free = prices([], [])
    assert bound.evaluate(free, None, {(-1, 1): (1, 1)})[0] == pytest.approx(np.log(2) + np.log(3))
    assert bound.evaluate(free, None, {(-1, 0): (0, 0)})[0] == pytest.approx(np.log(2) + np.log(3))
    counted = prices([], [], is_counted=True)
    assert bound.evaluate(counted, None, NOTHING)[0] == pytest.approx(np.log(4))
    assert bound.evaluate(counted, None, {(-1, 1): (1, 1)})[0] == pytest.approx(np.log(2))


def test_the_gpus_of_a_row_that_a_tree_fixes_are_taken_from_the_count_once():
    halves = auction([4], [(2, "machine", 2.0)], [(2, "machine", 3.0)], [(1, "machine", 1.5)])
    bound, counted = PriceBound(read_facts(halves)), prices([], [], is_counted=True)
    assert bound.evaluate(counted, None, {(-1, 0): (1, 1)})[0] == pytest.approx(np.log(2) + np.log(3))
    assert bound.evaluate(counted, 1, {(-1, 0): (1, 1)})[0] == pytest.approx(np.log(2) + np.log(1.5))


@given(auctions())
def test_counts_alone_are_the_knapsack_over_all_choices(instance):
    facts = read_facts(instance)
    bound = CountBound(facts)
    options = [
        [(0, 0.0)]
        + [
            (int(instance.bids.gpus[b]), float(facts.weight[b]))
            for b in np.flatnonzero((instance.bids.app == i) & facts.useful).tolist()
        ]
        for i in range(instance.num_apps)
    ]

    def best(chosen):
        totals = {0: 0.0}
        for rows in chosen:
            totals = {
                used + k: max(worth + w for u, worth in totals.items() for kk, w in rows if u + kk == used + k)
                for used in totals
                for k, _ in rows
                if used + k <= facts.num_free
            }
        return max(totals.values())

    assert bound.welfare() == pytest.approx(best(options))
    for i in range(instance.num_apps):
        others = options[:i] + options[i + 1 :]
        assert bound.without(i) == pytest.approx(best(others))
        assert bound.welfare(i) == pytest.approx(best(others))


@given(auctions())
def test_the_checkers_weights_are_the_instances_and_no_useful_row_is_lost(instance):
    facts = read_facts(instance)
    np.testing.assert_allclose(facts.weight, instance.weight, rtol=1e-12)
    kept = [w if useful else -1.0 for w, useful in zip(facts.weight.tolist(), facts.useful.tolist(), strict=True)]
    assert optimum(instance, worth=kept) == pytest.approx(optimum(instance))


@pytest.mark.parametrize(
    ("kind", "is_one"),
    [
        *(((level, 2, -1), True) for level in range(4)),
        *(((level, 2, -1), False) for level in (-1, 5)),
        ((1, 0, -1), False),
        ((1, 2, 0), False),
        *(((4, 1, machine), True) for machine in range(2)),
        *(((4, 1, machine), False) for machine in (-1, 2)),
        ((4, 2, 0), False),
    ],
)
def test_prices_are_of_bundles_within_a_locality_or_of_the_gpus_of_one_machine(kind, is_one):
    """A type is (locality, GPUs, -1) with a value of `Locality`, or a single GPU of a machine with its number."""
    facts = read_facts(auction([4, 4], [(4, "machine", 4.0)]))
    wrong = check_form(facts, prices([kind], [1.0]))
    assert (wrong is None) == is_one
    assert is_one or "is not a bundle type" in wrong.message


def test_a_kind_has_one_price():
    facts = read_facts(auction([4, 4], [(4, "machine", 4.0)]))
    wrong = check_form(facts, prices([(1, 4, -1), (1, 4, -1)], [1.0, 2.0]))
    assert (wrong.row, wrong.message) == ("prices", "a bundle type is listed twice")


SLOT, MACHINE, RACK, CLUSTER, NAMED = Locality


def most(machines, prices, *apps):
    return Supply(read_facts(auction(machines, *apps))).most(prices)


def test_equal_racks_and_machines_count_each():
    racks = [(rack, [4]) for rack in (0, 0, 1, 1, 2, 2)]
    assert most(racks, {(MACHINE, 3, -1): 1.0}) == 6.0
    assert most(racks, {(RACK, 5, -1): 1.0}) == 3.0
    assert most(racks, {(CLUSTER, 5, -1): 1.0}) == pytest.approx(24 / 5)


def test_the_best_mix_of_bundles_is_found():
    assert most([8], {(SLOT, 5, -1): 3.0, (SLOT, 4, -1): 2.0, (SLOT, 3, -1): 1.5}) == 4.5
    assert most([(0, [4, 4])], {(SLOT, 5, -1): 3.0, (MACHINE, 5, -1): 2.0, (SLOT, 3, -1): 0.5}) == 2.5


def test_bundles_within_a_rack_use_what_machines_leave():
    rack = [(0, [4]), (0, [4])]
    assert most(rack, {(MACHINE, 3, -1): 1.0, (RACK, 2, -1): 0.5}) == 2.5
    assert most(rack, {(MACHINE, 3, -1): 1.0, (RACK, 3, -1): 0.5}) == 2.0


def test_named_machines_have_prices_of_their_own():
    bids = [({0: 1}, 2.0)], [({1: 1}, 2.0)]
    assert most([3, 2], {(NAMED, 1, 0): 1.0, (NAMED, 1, 1): 0.25}, *bids) == 3.5


def test_negative_prices_count_as_nothing():
    assert most([4], {(SLOT, 1, -1): -1.0}) == 0.0


@given(auctions(), st.lists(st.integers(1, 16).map(lambda v: v / 4), min_size=12, max_size=12), st.integers(0, 63))
def test_no_set_of_bundles_that_fits_is_worth_more(instance, drawn, subset):
    bids = instance.bids
    rows = [b for b in range(min(6, len(bids))) if subset >> b & 1]
    kinds = sorted(set(zip(bids.locality.tolist(), bids.gpus.tolist(), strict=True)))
    price = {(level, size, -1): p for (level, size), p in zip(kinds, drawn, strict=False)}
    if can_place(instance, rows, instance.cluster.slot_free.tolist()):
        worth = sum(price[int(bids.locality[b]), int(bids.gpus[b]), -1] for b in rows)
        assert Supply(read_facts(instance)).most(price) >= worth - 1e-9


def test_a_row_alone_attains_the_supply():
    instance = auction([4, 2], [(4, "slot", 2.0)])
    found = Supply(read_facts(instance)).most({(SLOT, 4, -1): 1.5})
    assert found == 1.5
    assert np.isfinite(found)
