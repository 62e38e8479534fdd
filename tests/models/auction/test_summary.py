"""Figures of auctions and allocations, by hand, and the problem's description of them."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.auction.data import as_floats, as_ints
from optim.models.auction.decision import AuctionPlan, PaymentRule, sorted_entries
from optim.models.auction.problem import PROBLEM
from optim.models.auction.summary import describe, placement_levels, plan_load, rho_paid
from optim.solvers.solve import solve
from tests.support.auction.builders import auction

ONE = auction(
    [(0, [2, 2]), (0, [4]), (1, [4])],
    [(2, "slot", 2.0), (4, "machine", 4.0)],
    [(6, "rack", 8.0)],
    [(2, "cluster", 2.0)],
)
PLAN = AuctionPlan(
    row=as_ints([1, 2, -1]),
    placement=sorted_entries([(0, 0, 2), (0, 1, 2), (1, 2, 4), (1, 3, 2)]),
    share_low=as_floats([0.5, 0.25, 1.0]),
    share_high=as_floats([0.5, 0.75, 1.0]),
    rule=PaymentRule.FLOOR,
    grants=sorted_entries([(0, 0, 2), (1, 2, 4)]),
)


def test_describes_offer_bids_and_contention():
    figures = describe(ONE)
    assert (figures["apps"], figures["gpus"], figures["free_gpus"], figures["allocated_share"]) == (3, 12, 12, 0.0)
    assert (figures["machines"], figures["racks"], figures["slots"], figures["rows"]) == (3, 2, 4, 4)
    assert figures["rows_by_locality"] == {"cluster": 1, "machine": 1, "rack": 1, "slot": 1}
    assert (figures["demand"], figures["contention"]) == (12, 1.0)
    assert figures["gangs"] == {"1": 3}


def test_tells_what_a_plan_awards_charges_and_leaves():
    load = plan_load(ONE, PLAN)
    assert load["welfare"] == pytest.approx(np.log(4) + np.log(8))
    assert load["max_rho"] == 1.0
    assert (load["winners"], load["winner_share"]) == (2, pytest.approx(2 / 3))
    assert (load["awarded_gpus"], load["granted_gpus"], load["idle_gpus"]) == (10, 6, 2)
    assert (load["leftover"], load["leftover_share"]) == (4, pytest.approx(0.4))
    assert load["share"] == {"min": 0.5, "mean": 0.625, "max": 0.75}
    assert load["interval_width"] == {"min": 0.0, "mean": 0.25, "max": 0.5}
    assert load["narrow_intervals"] == 0.5
    assert load["placement_score"] == pytest.approx((4 * 0.75 + 6 * 0.25) / 10)
    assert load["payments"] == {"a0": [0.5, 0.5], "a1": [0.25, 0.75]}
    assert load["grants"] == {"a0": ["machine 0: 2"], "a1": ["machine 1: 4"]}


def test_the_placement_score_is_the_mean_of_gpus():
    """Four GPUs in a machine, six in the cluster, two in a slot."""
    row, placement = as_ints([1, 2, 3]), sorted_entries([*map(tuple, PLAN.placement.tolist()), (2, 3, 2)])
    load = plan_load(ONE, replace(PLAN, row=row, placement=placement))
    assert load["placement_score"] == pytest.approx((4 * 0.75 + 6 * 0.25 + 2 * 1.0) / 12)


def test_fairness_after_payment_is_that_of_the_best_row_which_the_grant_satisfies():
    """The first app keeps its row of two GPUs of one slot, the second none of its bids."""
    load = plan_load(ONE, PLAN)
    assert load["max_rho"] == 1.0
    assert load["max_rho_paid"] == 1.0
    assert load["welfare_paid"] == pytest.approx(np.log(2))
    spread = PLAN.grants.copy()
    spread[0] = (0, 0, 1)  # one GPU satisfies no row
    assert rho_paid(ONE, replace(PLAN, grants=sorted_entries(spread))).tolist() == [1.0, 1.0, 1.0]
    named = auction([4, 4], [({0: 1, 1: 1}, 3.0), (2, "machine", 2.0)])
    for grants, rho in (([(0, 0, 1), (0, 1, 1)], 1 / 3), ([(0, 0, 2)], 1 / 2), ([(0, 1, 1)], 1.0)):
        own = replace(PLAN, row=as_ints([0]), grants=sorted_entries(grants))
        assert rho_paid(named, own).tolist() == [pytest.approx(rho)]


def test_an_empty_plan_awards_nothing():
    nothing = AuctionPlan(
        row=as_ints([-1] * 3), placement=sorted_entries([]), share_low=as_floats([1.0] * 3),
        share_high=as_floats([1.0] * 3), rule=PaymentRule.FLOOR, grants=sorted_entries([]),
    )  # fmt: skip
    load = plan_load(ONE, nothing)
    assert (load["winners"], load["leftover_share"], load["placement_score"], load["share"]) == (0, 0.0, None, None)
    assert (load["idle_gpus"], load["narrow_intervals"], load["payments"]) == (12, 1.0, {})


@pytest.mark.parametrize(
    ("slots", "level"), [([0], 0), ([0, 1], 1), ([0, 2], 2), ([0, 1, 2], 2), ([2, 3], 3), ([0, 1, 3], 3), ([], -1)]
)
def test_the_smallest_locality_that_holds_a_placement(slots, level):
    placed = sorted_entries([(1, s, 1) for s in slots])
    assert placement_levels(ONE.cluster, placed, 3).tolist() == [-1, level, -1]


TWO_BIDS = auction([2], [(2, "machine", 4.0)], [(2, "machine", 2.0)])
"""Two apps that want the same two GPUs."""


def test_tells_what_a_plan_does():
    figures = PROBLEM.decision_figures(TWO_BIDS, solve(TWO_BIDS, "exact").decision)
    assert (figures["winners"], figures["awarded_gpus"], figures["idle_gpus"]) == (1, 2, 0)
    assert figures["max_rho"] == 1.0


def test_verifies_what_holds_and_refuses_what_does_not():
    solution = solve(TWO_BIDS, "exact")
    assert PROBLEM.verify(TWO_BIDS, solution).is_ok
    assert not PROBLEM.verify(TWO_BIDS, replace(solution, objective=solution.objective + 1.0)).is_ok


def test_describes_an_instance():
    assert PROBLEM.describe(TWO_BIDS)["apps"] == 2
