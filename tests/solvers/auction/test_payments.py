"""Payments that are computed at once: when an interval decides a grant, and when it must be narrowed."""

import math

import numpy as np
import pytest

from optim.core.progress import SilentProgress
from optim.models.auction.decision import PaymentRule
from optim.models.files import verify
from optim.solvers.auction.payments import Payments, PaymentState
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.auction.builders import auction

TOL = 1e-9
"""Sums of a few logarithms."""


def claim(low, high, *, bundle=8, gang=1):
    """Return a claim of a winner whose share is between two ends."""
    return PaymentState(
        app=0, bundle=bundle, gang=gang, others=0.0, bound=-math.log(low), reached=-math.log(high)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "rule", "gang", "is_settled"),
    [
        ((0.51, 0.61), "floor", 1, True),  # 4.08 and 4.88 GPUs
        ((0.51, 0.63), "floor", 1, False),  # 4.08 and 5.04
        ((0.51, 0.63), "floor", 4, True),  # one gang
        ((0.51, 0.61), "nearest", 1, False),
        ((0.51, 0.61), "ceil", 1, True),
        ((0.49, 0.61), "ceil", 1, False),
        ((0.51, 0.61), "lottery", 1, False),
        ((0.01, 0.99), "none", 1, True),
        ((0.5, 0.5), "lottery", 1, True),
    ],
)
def test_a_claim_is_settled_where_both_ends_grant_the_same(ends, rule, gang, is_settled):
    own = claim(*ends, gang=gang)
    assert own.is_settled(PaymentRule(rule), Payments.DECIDED, own.reached, own.bound) is is_settled
    assert own.is_settled(PaymentRule(rule), Payments.CLOSED, own.reached, own.bound) is (ends[0] == ends[1])


@pytest.mark.parametrize(("apart", "is_settled"), [(0.0, True), (0.9e-9, True), (1.1e-9, False), (1e-4, False)])
def test_a_claim_that_is_to_be_closed_is_settled_where_its_ends_meet(apart, is_settled):
    own = claim(0.5, 0.5)
    assert own.is_settled(PaymentRule.FLOOR, Payments.CLOSED, own.reached, own.reached + apart) is is_settled


def test_only_what_is_better_is_kept():
    own = claim(0.2, 0.8)
    own.lower(own.bound + 1.0, None)
    own.improve(own.reached - 1.0, lambda: pytest.fail("no app asks for a worse allocation"))
    own.improve(own.reached + 0.1, lambda: None)
    assert (own.bound, own.reached) == (-math.log(0.2), -math.log(0.8))


def test_what_serves_without_one_winner_serves_without_its_equals():
    """Six apps that look equal: one programme of another type settles all payments."""
    alike = [(3, "machine", 4.0), (5, "machine", 4.9)]
    instance = auction([8, 8, 8], *[alike] * 6, [(2, "slot", 2.0)])
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert solution.stats.counts["decided_grants"] == solution.decision.num_winners


class Told(SilentProgress):
    """Records how many payments are decided."""

    def __init__(self):
        self.goal, self.done, self.is_on = None, [], False

    def start(self, task, total=None):
        self.is_on = task == "payments"
        self.goal = total if self.is_on else self.goal

    def update(self, completed, values=None):
        del values
        if self.is_on:
            self.done.append(completed)

    def finish(self):
        self.is_on = False


def test_it_is_told_how_many_payments_are_decided():
    instance = auction([8, 8, 8], *[[(3, "machine", 4.0), (5, "machine", 4.9)]] * 6, [(2, "slot", 2.0)])
    told = Told()
    solution = solve(instance, "exact", progress=told)
    assert told.goal == solution.decision.num_winners > 0
    assert told.done == sorted(told.done)
    assert told.done[-1] == told.goal


def test_the_prices_of_one_programme_spare_winners_a_tree():
    """Machines of 3 for bundles of 3 and of 2: by number, three small ones fit after the large one, but only two can be placed."""
    instance = auction([3, 3], [(3, "machine", 20.0)], *[[(2, "machine", 3.0)]] * 3)
    solution = solve(instance, "exact", options={"payments": "closed"})
    assert verify(instance, solution).is_ok
    assert solution.certificate.proof.others is not None
    assert solution.stats.counts["by_tree"] == 0
    assert solution.decision.share_low[:2] == pytest.approx([3.0 * 3.0 / (3.0 * 3.0 * 3.0), 1 / 3])
    assert solution.decision.share_high[:2] == pytest.approx(solution.decision.share_low[:2])


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.prove)])
@pytest.mark.parametrize("fields", [{"allocated_share": 0.4}, {"gangs": "any", "network_share": 1.0}])
def test_decided_payments_grant_what_closed_ones_do(seed, fields):
    instance = generate(GeneratorOptions(num_apps=30, num_gpus=96, num_machines=12, **fields), seed)
    decided, closed = (solve(instance, "exact", options={"payments": reach}) for reach in ("decided", "closed"))
    for solution in (decided, closed):
        assert verify(instance, solution).is_ok
        assert solution.stats.counts["decided_grants"] == solution.decision.num_winners
    if decided.decision.row.tolist() == closed.decision.row.tolist():
        assert decided.decision.grants.tolist() == closed.decision.grants.tolist()
    assert (decided.decision.share_low <= closed.decision.share_high + TOL).all()
    assert (decided.decision.share_high >= closed.decision.share_low - TOL).all()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_passed_on_from_winner_to_winner_is_an_allocation(seed):
    """Many equal bundles on full machines: the checker places every witness again."""
    options = GeneratorOptions(num_apps=40, num_gpus=160, num_machines=20, gangs="any", widest="machine")
    instance = generate(options, seed)
    solution = solve(instance, "exact")
    assert verify(instance, solution).is_ok
    assert len(solution.decision.witnesses) > 0
    assert (np.bincount(solution.decision.placement[:, 1], solution.decision.placement[:, 2]) <= 8).all()


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "fields",
    [
        {"num_apps": 256, "num_gpus": 1024, "num_machines": 128, "allocated_share": 0.3},
        {"num_apps": 512, "num_gpus": 4096, "num_machines": 512, "gangs": "any", "network_share": 1.0},
    ],
)
def test_every_grant_of_large_auctions_is_decided_and_proven(fields, seed):
    instance = generate(GeneratorOptions(**fields), seed)
    solution = solve(instance, "exact")
    assert solution.termination == "optimal"
    assert solution.stats.counts["decided_grants"] == solution.decision.num_winners
    assert verify(instance, solution).is_ok
