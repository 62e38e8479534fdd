"""From intervals of payments to shares, grants and statuses, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given

from optim.core.driver import Monitor
from optim.core.solution import CertificateKind, Termination
from optim.models.auction.data import as_ints
from optim.models.auction.decision import CountProof, PaymentRule, sorted_entries
from optim.models.auction.instance import AuctionInstance
from optim.models.files import verify
from optim.solvers.auction.allocation import Allocator
from optim.solvers.auction.payments import bounded_award
from optim.solvers.auction.settlement import AbstractAuctionSolver, Award, Interval, PaymentOptions, make_plan
from optim.solvers.auction.tables import Tables
from optim.solvers.solve import solve
from tests.support.auction.builders import auction, fractional
from tests.support.auction.enumeration import optimum
from tests.support.auction.strategies import auctions

ONE = auction([6], [(4, "slot", 4.0)], [(2, "slot", 3.0)], [(2, "slot", 2.0)])
AWARD = Award(
    row=as_ints([0, 1, -1]),
    placement=sorted_entries([(0, 0, 4), (1, 0, 2)]),
    bound=math.log(12.0),
    proof=CountProof(),
    without={
        0: Interval(reached=math.log(6.0), bound=math.log(8.0)),
        1: Interval(reached=math.log(4.0), bound=math.log(4.0)),
    },
)


def test_a_share_is_the_others_welfare_beside_a_winner_over_that_without_it():
    plan = make_plan(ONE, AWARD, PaymentRule.FLOOR, 0)
    assert plan.share_high.tolist() == pytest.approx([3.0 / 6.0, 1.0, 1.0])
    assert plan.share_low.tolist() == pytest.approx([3.0 / 8.0, 1.0, 1.0])
    assert plan.granted_gpus(3).tolist() == [2, 2, 0]  # the upper end is rounded
    assert plan.welfare(ONE) == pytest.approx(math.log(12.0))


def test_a_share_never_exceeds_one():
    award = Award(
        row=AWARD.row, placement=AWARD.placement, bound=AWARD.bound, proof=AWARD.proof,
        without={0: Interval(reached=0.0, bound=0.0), 1: Interval(reached=0.0, bound=9.0)},
    )  # fmt: skip
    plan = make_plan(ONE, award, PaymentRule.NONE, 0)
    assert plan.share_high.tolist() == [1.0, 1.0, 1.0]
    assert plan.share_low.tolist() == pytest.approx([1.0, 4.0 * math.exp(-9.0), 1.0])


def test_optimal_is_said_where_objective_and_bound_agree():
    closed = solve(ONE, "exact")
    assert closed.termination is Termination.OPTIMAL
    assert closed.certificate.kind is CertificateKind.OPTIMALITY
    assert closed.stats.counts["exact_payments"] == closed.stats.counts["winners"] == 2
    opened = solve(fractional(), "greedy", options={"moves": 0})
    assert opened.certificate.kind is CertificateKind.BOUND
    assert opened.termination is Termination.COMPLETED
    assert opened.stats.counts["gap_log"] > 1e-4


def test_what_is_complete_is_not_called_cut_though_its_time_is_over():
    free, hurried = (solve(fractional(), "greedy", options={"moves": 0}, time_limit_s=limit) for limit in (None, 0.0))
    assert free.gap > 1e-4
    assert hurried.termination is free.termination is Termination.COMPLETED
    assert hurried.decision.grants.tolist() == free.decision.grants.tolist()


class Awarding(AbstractAuctionSolver[PaymentOptions]):
    """Award the single app its single bid, with a bound above it by a given amount."""

    def __init__(self, apart):
        self.apart = apart

    def award(self, instance, options, monitor, seed):
        bound = float(instance.weight[0]) + self.apart
        placement = sorted_entries([(0, 0, int(instance.bids.gpus[0]))])
        return Award(row=as_ints([0]), placement=placement, bound=bound, proof=CountProof(), without={})


@pytest.mark.parametrize(
    ("value", "apart", "is_optimal"),
    [
        (math.exp(8.0), 4e-7, True),
        (math.exp(8.0), 6e-7, False),  # relative to the objective it would do
        (math.exp(0.01), 4e-9, True),
        (math.exp(0.01), 6e-9, False),  # in log units it would do
    ],
)
def test_optimal_is_said_of_gaps_that_are_small_in_log_units_and_beside_the_objective(value, apart, is_optimal):
    instance = auction([4], [(4, "slot", value)])
    outcome = Awarding(apart).run(instance, PaymentOptions(), Monitor(), 0)
    assert outcome.objective == pytest.approx(math.log(value))
    assert outcome.is_optimal is is_optimal


@given(instance=auctions())
def test_a_heuristics_bounds_hold_for_all_and_without_each_winner(instance):
    tables = Tables.build(instance)
    allocator = Allocator(tables)
    award = bounded_award(tables, allocator, allocator.filled(allocator.empty()))
    assert award.bound >= optimum(instance) - 1e-7
    assert sorted(award.without) == np.flatnonzero(award.row >= 0).tolist()
    for i, part in award.without.items():
        assert part.reached - 1e-9 <= optimum(instance, absent=i) <= part.bound + 1e-9
        assert part.witness.row[i] == -1


@pytest.mark.parametrize("solver", ["exact", "greedy"])
def test_a_lotterys_small_share_is_decided_only_where_its_ends_meet(solver):
    """With an app without GPUs, whose value is almost 0, shares are small: a billionth is a large part of them."""
    bids = {
        "A": [(11, "cluster", 0.5)],
        **{n: [(5, "machine", rho)] for n, rho in (("B", 1.0), ("C", 1.1), ("D", 1.2))},
    }
    instance = AuctionInstance.from_bids([8, 8], bids, empty_rho=1e12)
    found = solve(instance, solver, options={"rule": "lottery"})
    assert verify(instance, found).is_ok
