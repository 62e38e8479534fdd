"""The exact solver and the count relaxation against enumeration, and against worked examples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.stopping import GapLimit, IterationLimit
from optim.models.auction.data import EmptyValue
from optim.models.auction.decision import CountProof, PaymentRule
from optim.models.auction.payment import grant_size
from optim.models.files import verify
from optim.solvers.auction import bundle_type_lp, packing
from optim.solvers.auction.counting import CountRelaxation
from optim.solvers.auction.packing import Packer
from optim.solvers.auction.tables import Tables
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.auction.builders import auction, fractional, linear
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions, named_auctions

TOL = 1e-9
"""Sums of a few logarithms."""


def shares(solution):
    return [
        (float(low), float(high))
        for low, high in zip(solution.decision.share_low, solution.decision.share_high, strict=True)
    ]


def check_against_enumeration(instance, solver, **options):
    solution = solve(instance, solver, options=options)
    assert verify(instance, solution).is_ok
    best = optimum(instance)
    assert solution.objective <= best + TOL <= solution.bound + 2 * TOL
    plan = solution.decision
    for i in np.flatnonzero(plan.row >= 0).tolist():
        others = solution.objective - float(instance.weight[plan.row[i]])
        share = math.exp(others - optimum(instance, absent=i))
        if share <= 1:  # for an allocation that isn't optimal, a better use of the leftover may exist
            assert plan.share_low[i] - TOL <= share <= plan.share_high[i] + TOL
    return solution, best


def test_a_bundle_goes_past_machines_that_others_name():
    """Two equal machines, the first named by a row: a placement of all was thought impossible, and the proof rejected."""
    instance = auction(
        [(0, [5]), (0, [5]), (1, [5])],
        [({0: 3, 1: 1}, 2.4)], [({2: 4}, 3.2)], [(3, "rack", 2.3)], [(4, "machine", 2.9)],
    )  # fmt: skip
    solution, best = check_against_enumeration(instance, "exact", payments="closed")
    assert solution.objective == pytest.approx(best, abs=TOL)


def test_no_bundle_moves_to_a_machine_that_lacks_its_slot():
    """Two machines have one occupied slot and one with 4 free GPUs, one machine has only 4: equal free totals, but not by slot."""
    instance = auction(
        [(0, [0, 4]), (1, [4]), (1, [0, 4])],
        [(3, "slot", 3.0)], [(3, "rack", 3.0)], [(4, "slot", 3.0)], [(2, "slot", 3.0)],
    )  # fmt: skip
    solution, best = check_against_enumeration(instance, "exact")
    assert solution.objective == pytest.approx(best, abs=TOL)
    assert solution.decision.awarded_gpus(4).tolist() == [3, 3, 4, 2]


def test_a_leaf_that_awards_more_than_there_is_needs_no_proof():
    """Without the third, a leaf awards 4 GPUs of the first and 8 of the last, which is never priced: no better award is there."""
    instance = auction([5, 5], [({0: 2, 1: 2}, 3.24)], [(4, "machine", 2.52)], [({0: 5}, 2.66)], [({0: 4, 1: 4}, 3.59)])
    solution, best = check_against_enumeration(instance, "exact", payments="closed")
    assert solution.objective == pytest.approx(best, abs=TOL)


def test_a_tree_that_proves_no_more_than_the_counts_leaves_the_counts_as_proof():
    """Two of three equal apps are served: the tree determines which two, but no more can be by numbers of GPUs alone."""
    instance = auction([2, 5, 3], [(5, "slot", 3.0)], [(4, "machine", 3.0)], [(4, "rack", 3.0)])
    solution = solve(instance, "exact")
    assert solution.stats.iterations > 0
    assert solution.objective == solution.bound == pytest.approx(2 * math.log(3.0))
    assert solution.certificate.proof.welfare == CountProof()


@given(auctions())
def test_exact_finds_the_optimum_and_every_payment(instance):
    solution, best = check_against_enumeration(instance, "exact", payments="closed")
    assert solution.objective == pytest.approx(best, abs=TOL)
    assert np.abs(solution.decision.share_high - solution.decision.share_low).max(initial=0.0) <= 1e-6


@given(st.one_of(auctions(), named_auctions()), st.sampled_from(list(PaymentRule)))
def test_grants_that_are_decided_are_those_of_exact_payments(instance, rule):
    """By enumeration: for all widths of intervals, every app keeps the grant of its true share."""
    solution, best = check_against_enumeration(instance, "exact", rule=rule.value)
    assert solution.stats.counts["decided_grants"] == solution.decision.num_winners
    assert verify(instance, solution).is_ok
    plan, granted = solution.decision, solution.decision.granted_gpus(instance.num_apps)
    for i in np.flatnonzero(plan.row >= 0).tolist():
        share = math.exp(min(0.0, best - float(instance.weight[plan.row[i]]) - optimum(instance, absent=i)))
        if rule is PaymentRule.LOTTERY:
            assert plan.share_low[i] - TOL <= share <= plan.share_high[i] + TOL
        elif abs(share * plan.awarded_gpus(instance.num_apps)[i] * 2 % 1) > 1e-6:  # off the steps of every rule
            assert granted[i] == grant_size(rule, share, int(instance.bids.gpus[plan.row[i]]))


@given(named_auctions())
def test_exact_treats_bids_that_name_their_machines(instance):
    solution, best = check_against_enumeration(instance, "exact")
    assert solution.objective == pytest.approx(best, abs=TOL)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_identical_apps_with_linear_values_keep_the_closed_forms_share(number):
    """n equal apps, one divisible resource, values proportional: c = (1 - 1/n)^(n-1)."""
    gpus = number * (number - 1) * 4
    instance = auction([gpus], *[linear(gpus, 1000.0) for _ in range(number)])
    solution = solve(instance, "exact", options={"payments": "closed"})
    expected = (1 - 1 / number) ** (number - 1)
    assert shares(solution) == [pytest.approx((expected, expected))] * number


def test_two_apps_on_four_gpus_get_two_each_keep_one_and_leave_two():
    solution = solve(auction([4], linear(4, 100.0), linear(4, 100.0)), "exact")
    plan = solution.decision
    assert plan.awarded_gpus(2).tolist() == [2, 2]
    assert plan.granted_gpus(2).tolist() == [1, 1]


def test_a_bid_that_keeps_nobody_out_costs_nothing():
    assert shares(solve(auction([4], [(4, "slot", 3.0)]), "exact")) == [(1.0, 1.0)]


def test_removing_a_loser_can_only_raise_the_others_shares():
    """One GPU, values (.2, 1) and (.2, .5) relative to the empty row: c = .4, and 1 without the rival."""
    with_rival = solve(auction([1], [(1, "slot", 5.0)], [(1, "slot", 2.5)]), "exact", options={"payments": "closed"})
    assert shares(with_rival)[0] == pytest.approx((0.4, 0.4))
    assert shares(solve(auction([1], [(1, "slot", 5.0)]), "exact")) == [(1.0, 1.0)]


def test_three_bundles_of_five_do_not_fit_on_two_machines_of_eight():
    """Total capacity alone would admit them."""
    instance = auction([8, 8], *[[(5, "machine", 4.0)]] * 3)
    exact = solve(instance, "exact")
    assert exact.objective == pytest.approx(2 * math.log(4.0))
    assert exact.bound == pytest.approx(exact.objective)
    assert CountRelaxation.of(Tables.build(instance)).bound == pytest.approx(3 * math.log(4.0))


def test_where_nothing_is_worth_nothing_as_many_apps_as_possible_are_served():
    """Two GPUs: one large value against two small ones."""
    bids = [[(2, "slot", 50.0)], [(1, "slot", 1.1)], [(1, "slot", 1.1)]]
    positive = solve(auction([2], *bids), "exact").decision
    zero = solve(auction([2], *bids, empty_value="zero"), "exact").decision
    assert positive.row.tolist() == [0, -1, -1]
    assert zero.row.tolist() == [-1, 1, 2]


def test_an_app_whose_presence_keeps_another_out_keeps_nothing_under_the_zero_convention():
    instance = auction([1], [(1, "slot", 5.0)], [(1, "slot", 4.0)], empty_value="zero")
    assert instance.empty_value is EmptyValue.ZERO
    assert shares(solve(instance, "exact", options={"payments": "closed"}))[0] == (0.0, 0.0)


@pytest.mark.parametrize("gangs", ["elastic", "mixed"])
def test_sizes_that_divide_one_another_always_pack(gangs):
    for seed in range(8):
        options = GeneratorOptions(num_apps=24, num_gpus=128, num_machines=16, sizes="dividing", gangs=gangs)
        instance = generate(options, seed)
        tables = Tables.build(instance)
        assert Packer(instance).place(tables.chosen_rows(CountRelaxation.of(tables).choice())) is not None


@pytest.mark.parametrize("allocated_share", [0.0, 0.3])
def test_generated_auctions_are_solved_to_optimality_with_all_payments(allocated_share):
    options = GeneratorOptions(num_apps=24, num_gpus=96, num_machines=12, allocated_share=allocated_share)
    for seed in range(3):
        instance = generate(options, seed)
        solution = solve(instance, "exact")
        assert solution.termination == "optimal"
        assert verify(instance, solution).is_ok


def test_a_tree_is_needed_and_verified_where_numbers_of_bundles_are_fractional():
    instance = fractional()
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert solution.termination == "optimal"
    assert solution.objective == pytest.approx(optimum(instance))
    assert solution.stats.iterations > 10


def test_one_programme_a_tree_leaves_a_bound_and_payments_that_hold():
    instance = fractional()
    solution = solve(instance, "exact", options={"main_nodes": 1, "payment_nodes": 1})
    assert verify(instance, solution).is_ok
    assert solution.objective <= optimum(instance) + TOL <= solution.bound + 2 * TOL
    assert solution.termination == "node_limit"


@pytest.mark.parametrize("reach", ["decided", "closed"])
@pytest.mark.parametrize("main_nodes", [1, 3])
def test_a_limit_of_as_many_programmes_as_a_run_makes_cuts_nothing(main_nodes, reach):
    options = {"main_nodes": main_nodes, "payment_nodes": 3, "payments": reach}
    free = solve(fractional(), "exact", options=options)
    limited = solve(fractional(), "exact", options=options, stop=IterationLimit(free.stats.iterations))
    assert free.termination == limited.termination == "node_limit"
    assert limited.stats.iterations == free.stats.iterations
    assert (limited.objective, limited.bound, *shares(limited)) == (free.objective, free.bound, *shares(free))


@pytest.mark.parametrize("most", range(1, 19))
def test_a_limit_of_programmes_is_heard_in_the_tree_of_all_apps_and_after_it(most):
    """A step solves at most two programmes, and one more programme prices the others without each winner."""
    instance = fractional()
    solution = solve(instance, "exact", stop=IterationLimit(most))
    assert verify(instance, solution).is_ok
    assert solution.termination == "iteration_limit"
    assert solution.stats.iterations <= most + 2
    assert solution.objective <= optimum(instance) + TOL <= solution.bound + 2 * TOL


def test_trees_of_payments_count_the_programmes_of_the_run():
    options = {"main_nodes": 3, "payments": "closed"}
    whole = solve(fractional(), "exact", options=options)
    for most in range(4, whole.stats.iterations):
        limited = solve(fractional(), "exact", options=options, stop=IterationLimit(most))
        assert (limited.termination, limited.stats.iterations) == ("iteration_limit", most)


@pytest.mark.parametrize("gap", [0.1, 0.01])
def test_a_gap_that_is_small_enough_ends_the_search(gap):
    instance = fractional()
    whole, ended = solve(instance, "exact"), solve(instance, "exact", stop=GapLimit(gap))
    assert verify(instance, ended).is_ok
    assert ended.termination == "gap_limit"
    assert 0 < ended.gap <= gap
    assert ended.stats.iterations < whole.stats.iterations


def test_a_tree_that_ends_with_leaves_of_which_nobody_knows_is_complete(monkeypatch):
    """Only the number of GPUs counts, and no search shows that three bundles of 5 don't fit on two machines of 8."""
    instance = auction([8, 8], *[[(5, "machine", 4.0)]] * 3)
    monkeypatch.setattr(bundle_type_lp, "MOST_PATTERNS", 0)
    monkeypatch.setattr(packing, "MOST_LOOKED", 0)
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert solution.stats.counts["unplaced"] > 0
    assert solution.termination == "completed"
    assert solution.objective == pytest.approx(2 * math.log(4.0))
    assert solution.bound == pytest.approx(3 * math.log(4.0))
