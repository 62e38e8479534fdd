"""The auction's checker on claims that no solver would state."""

import math
from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.auction.check import check
from optim.models.auction.check.claims import AuctionClaims
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.data import as_floats, as_ints
from optim.models.auction.decision import (
    AuctionPlan,
    AuctionProof,
    CountProof,
    PaymentRule,
    PriceProof,
    TreeNode,
    TreeProof,
    Witness,
    sorted_entries,
)
from optim.models.auction.instance import AuctionInstance
from optim.models.auction.payment import grant_size
from optim.solvers.solve import solve
from tests.support.auction.builders import auction

RIVALS = auction([4], [(4, "machine", 4.0)], [(4, "machine", 3.0)])
"""One of the two wins; without the winner the other one has log 3, so that c = 1 / 3."""


def plan_of(row, placement, grants=None, low=None, high=None, rule=PaymentRule.FLOOR, witnesses=None):
    ones = np.ones(len(row))
    return AuctionPlan(
        row=as_ints(row),
        placement=sorted_entries(placement),
        share_low=as_floats(ones if low is None else low),
        share_high=as_floats(ones if high is None else high),
        rule=rule,
        grants=sorted_entries(placement if grants is None else grants),
        witnesses=witnesses or {},
    )


def solution_of(instance, plan, proof=None, bound=None, **fields):
    objective = None if plan is None else float(instance.weight[plan.row[plan.row >= 0]].sum())
    known = {
        "problem": "auction",
        "instance": instance.name,
        "solver": "by-hand",
        "sense": Sense.MAXIMISE,
        "termination": Termination.COMPLETED,
        "primal": PointStatus.NONE if plan is None else PointStatus.FEASIBLE,
        "dual": PointStatus.NONE if proof is None else PointStatus.FEASIBLE,
        "decision": plan,
        "objective": objective,
        "bound": bound,
        "certificate": None if proof is None else Certificate(kind=CertificateKind.BOUND, statement="", proof=proof),
    }
    return Solution(**known | fields)


def rivals(**changes):
    """Return the honest solution of the two rivals: c = 1 / 3 keeps one of four GPUs."""
    third = 1 / 3
    plan = plan_of(
        [0, -1],
        [(0, 0, 4)],
        grants=[(0, 0, 1)],
        low=[third, 1.0],
        high=[third, 1.0],
        witnesses={0: Witness(row=as_ints([-1, 1]))},
    )
    proof = AuctionProof(welfare=CountProof(), counts_others=True)
    return solution_of(RIVALS, replace(plan, **changes), proof, np.log(4.0))


def names(found):
    return {violation.row.split(" [")[0] for violation in found.violations}


def test_accepts_an_honest_allocation_and_counts_its_certain_grants() -> None:
    found = check(RIVALS, rivals())
    assert found.is_ok
    assert found.objective == pytest.approx(np.log(4.0))
    assert "1 of 1 grants are the same at both ends; the widest interval is 0" in found.proven


def test_an_interval_without_proof_is_told_to_decide_nothing() -> None:
    nothing = solution_of(RIVALS, plan_of([0, -1], [(0, 0, 4)], low=[0.0, 1.0]))
    found = check(RIVALS, nothing)
    assert "0 of 1 grants are the same at both ends; the widest interval is 1" in found.proven


def test_the_upper_end_of_a_share_is_what_its_witness_shows() -> None:
    wide = rivals(share_high=as_floats([1.0, 1.0]), share_low=as_floats([0.0, 1.0]), grants=sorted_entries([(0, 0, 4)]))
    assert names(check(RIVALS, wide)) == {"share"}


@pytest.mark.parametrize("row", [10**6, 2, -7])
def test_a_witness_row_that_is_not_there_is_refused(row) -> None:
    foreign = rivals(witnesses={0: Witness(row=as_ints([-1, row]))})
    assert names(check(RIVALS, foreign)) == {"one bid"}


def test_a_witness_of_a_loser_is_refused() -> None:
    spare = Witness(row=as_ints([0, -1]))
    assert names(check(RIVALS, rivals(witnesses={0: Witness(row=as_ints([-1, 1])), 1: spare}))) == {"witness"}


@pytest.mark.parametrize("value", [10**10, 10**15])
def test_a_tree_that_asks_for_more_bundles_than_gpus_has_no_room(value) -> None:
    prices = PriceProof(
        kinds=as_ints([]).reshape(-1, 3), row_price=as_floats([]), supply_price=as_floats([]), is_counted=True
    )
    nodes = (TreeNode(level=1, size=4, value=value, low=1, high=2), TreeNode(proof=prices), TreeNode(is_full=True))
    proof = AuctionProof(welfare=TreeProof(nodes=nodes), counts_others=True)
    given = rivals()
    assert check(RIVALS, replace(given, certificate=replace(given.certificate, proof=proof))).is_ok


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (TreeNode(),),
        (TreeNode(is_full=True),),
        (TreeNode(level=1, size=4, value=0, low=1, high=1), TreeNode()),
        (TreeNode(level=1, size=4, value=0, low=1, high=7), TreeNode()),
        (TreeNode(level=9, size=4, value=0, low=1, high=2), TreeNode(is_full=True), TreeNode(is_full=True)),
        (TreeNode(row=5, low=1, high=2), TreeNode(is_full=True), TreeNode(is_full=True)),
        (TreeNode(row=0, value=1, low=1, high=2), TreeNode(is_full=True), TreeNode(is_full=True)),
        (TreeNode(proof=PriceProof(kinds=as_ints([]).reshape(-1, 3), row_price=as_floats([]), supply_price=as_floats([]))), TreeNode()),
    ],
    ids=["empty", "no prices", "no room", "twice", "missing", "locality", "row", "row's value", "unreached"],
)  # fmt: skip
def test_a_tree_that_is_none_is_refused(nodes) -> None:
    given = rivals()
    proof = AuctionProof(welfare=TreeProof(nodes=nodes), counts_others=True)
    assert "tree" in names(check(RIVALS, replace(given, certificate=replace(given.certificate, proof=proof))))


@pytest.mark.parametrize("price", [np.nan, np.inf, 1e308])
def test_a_price_that_is_none_is_refused(price) -> None:
    given = rivals()
    kinds = as_ints([[1, 4, -1]])
    welfare = PriceProof(kinds=kinds, row_price=as_floats([price]), supply_price=as_floats([0.0]))
    proof = AuctionProof(welfare=welfare, counts_others=True)
    assert "prices" in names(check(RIVALS, replace(given, certificate=replace(given.certificate, proof=proof))))


def test_a_share_of_any_size_is_refused_without_a_traceback() -> None:
    for share in (1e308, np.nan, -1.0, np.inf):
        assert names(check(RIVALS, rivals(share_high=as_floats([share, 1.0])))) == {"share"}


@pytest.mark.parametrize("grants", [[(0, 0, 2)], [(0, 0, 4)], []])
def test_a_grant_that_the_rule_does_not_give_is_refused(grants) -> None:
    assert names(check(RIVALS, rivals(grants=sorted_entries(grants)))) == {"grant"}


def test_a_grant_outside_the_bundle_is_refused() -> None:
    two = auction([4, 4], [(4, "machine", 4.0)])
    moved = plan_of([0], [(0, 0, 4)], grants=[(0, 1, 4)], low=[0.0])
    assert names(check(two, solution_of(two, moved))) == {"grant"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("winners", 2.0), ("exact_payments", 0.0), ("decided_grants", 0.0), ("widest_interval", 0.5), ("gap_log", 0.1)],
)
def test_counters_that_tell_of_the_plan_are_recomputed(name, value) -> None:
    given = rivals()
    honest = {
        "winners": 1.0,
        "exact_payments": 1.0,
        "decided_grants": 1.0,
        "widest_interval": 0.0,
        "gap_log": 0.0,
        "moves": 3.0,
    }
    assert check(RIVALS, replace(given, stats=replace(given.stats, counts=honest))).is_ok
    lying = replace(given, stats=replace(given.stats, counts=honest | {name: value}))
    assert names(check(RIVALS, lying)) == {"counts"}


def test_values_from_one_end_of_the_doubles_to_the_other_are_weighed() -> None:
    far = auction([4], [(4, "machine", 1e300)])
    far = replace(
        far, apps=replace(far.apps, empty_rho=as_floats([1e300])), bids=replace(far.bids, rho=as_floats([1e-300]))
    )
    assert far.weight[0] == pytest.approx(600 * np.log(10))
    assert check(far, solution_of(far, plan_of([0], [(0, 0, 4)], low=[0.0]))).is_ok


def test_bids_are_for_whole_gangs() -> None:
    with pytest.raises(InvalidProblemError, match=r"apps\[0\].bids must be for complete gangs of 2 GPUs, got 3"):
        auction([4], [(2, "machine", 4.0), (3, "machine", 5.0)], gangs=[2])


@pytest.mark.parametrize("low", [1 / 3 + 1e-6, 0.5, 1.0])
def test_the_lower_end_of_a_share_is_no_higher_than_its_bound_shows(low) -> None:
    assert names(check(RIVALS, rivals(share_low=as_floats([low, 1.0])))) == {"share"}


def test_a_lower_end_below_its_bound_is_true_and_leaves_the_grant_open() -> None:
    found = check(RIVALS, rivals(share_low=as_floats([0.0, 1.0])))
    assert found.is_ok
    assert "0 of 1 grants are the same at both ends; the widest interval is 0.333333" in found.proven


@pytest.mark.parametrize("rule", ["ceil", "lottery"])
def test_a_share_of_nothing_buys_nothing(rule) -> None:
    """Two apps want the same GPUs, and an app without GPUs has value 0: the winner's share is exactly 0."""
    instance = auction_of_two(8, 0.6, empty_value="zero", gangs={"a": 8, "b": 8})
    honest = solve(instance, "exact", options={"rule": rule})
    assert check(instance, honest).is_ok
    assert honest.decision.granted_gpus(2).tolist() == [0, 0]
    assert names(check(instance, forged(honest, 1e-9, 8))) >= {"share"}


def test_a_share_that_is_off_by_less_than_a_billionth_buys_no_gpu() -> None:
    """30,000 - 5e-5 GPUs are rounded down to 29,999; a share that is larger by a factor of 1 + 9e-10 would give 30,000."""
    instance = auction_of_two(90_000, 2 * (30_000 - 5e-5) / 90_000)
    honest = solve(instance, "exact", options={"rule": "floor"})
    share = float(honest.decision.share_high[0])
    assert check(instance, honest).is_ok
    assert honest.decision.granted_gpus(2).tolist() == [29_999, 0]
    assert grant_size(PaymentRule.FLOOR, share * (1 + 9e-10), 90_000) == 30_000
    assert "share" in names(check(instance, forged(honest, share * (1 + 2e-9), 30_000)))
    assert "grant" in names(check(instance, forged(honest, share * (1 + 9e-10), 30_000)))
    assert check(instance, forged(honest, share * (1 + 9e-10), 29_999)).is_ok


def test_a_half_is_one_however_it_was_rounded() -> None:
    """Logarithms of shares are added in one order by a solver, and in another by the checker."""
    below = math.nextafter(0.5, 0.0)
    for rule in (PaymentRule.FLOOR, PaymentRule.NEAREST):
        assert grant_size(rule, below, 1) == grant_size(rule, 0.5, 1) == 1
        assert grant_size(rule, 0.4999, 1) == 0
    servers = [(0, [3, 1]), (0, [3, 1]), (1, [3, 1])]
    small, large, near = (1, "slot", 3.0), (2, "slot", 3.0), (2, "rack", 3.0)
    instance = auction(
        servers, [large], [small], [large], [small], [(3, "slot", 3.0), (1, "slot", 1.5)], [small], [near]
    )
    for solver in ("exact", "greedy"):
        assert check(instance, solve(instance, solver)).is_ok, solver


def auction_of_two(gpus, rho, **fields):
    """Two apps that request all GPUs of the only machine: `a` bids rho = 0.5, `b` bids `rho`."""
    bids = {"a": [(gpus, "slot", 0.5)], "b": [(gpus, "slot", rho)]}
    return AuctionInstance.from_bids([gpus], bids, empty_rho=2.0, **fields)


def forged(solution, share, granted):
    """Return a solution whose winner has another share and another number of granted GPUs."""
    plan = solution.decision
    shares = as_floats(np.where(plan.row >= 0, share, 1.0))
    grants = sorted_entries([(app, slot, granted) for app, slot, _ in plan.placement.tolist()])
    stats = replace(solution.stats, counts={})
    return replace(solution, decision=replace(plan, share_low=shares, share_high=shares, grants=grants), stats=stats)


def test_a_lower_end_of_next_to_nothing_needs_a_proof() -> None:
    unproven = solution_of(RIVALS, plan_of([0, -1], [(0, 0, 4)], low=[5e-10, 1.0]))
    assert names(check(RIVALS, unproven)) == {"share"}


def test_the_terms_of_a_bound_are_the_largest_weights_of_the_apps() -> None:
    instance = auction([4], [(4, "slot", 4.0), (2, "slot", 2.0)], [(4, "slot", 3.0)])
    claims = AuctionClaims(read_facts(instance), solution_of(instance, plan_of([-1, -1], [])))
    assert claims.max_terms() == pytest.approx(math.log(4.0) + math.log(3.0))


def test_apps_without_a_bid_pay_nothing() -> None:
    assert names(check(RIVALS, rivals(share_high=as_floats([1 / 3, 0.5])))) == {"share"}
    assert names(check(RIVALS, rivals(share_low=as_floats([1 / 3])))) == {"share"}


def stating(sentence, **changes):
    """Return the rivals' solution under a certificate with a claim."""
    solution = rivals(**changes)
    return replace(solution, certificate=replace(solution.certificate, statement=sentence))


def test_a_mechanism_that_never_charges_can_not_say_that_its_grants_are_certain():
    """Shares in [0, 1] with the entire bundle granted: a valid interval, but it determines no grant."""
    free = {"share_low": as_floats([0.0, 1.0]), "share_high": as_floats([1.0, 1.0]), "witnesses": {}}
    free["grants"] = sorted_entries([(0, 0, 4)])
    words = "no allocation has a log welfare above {}; {} of 1 grants are certain"
    bound = str(float(np.log(4.0)))
    assert check(RIVALS, stating(words.format(bound, 0), **free)).is_ok
    assert names(check(RIVALS, stating(words.format(bound, 1), **free))) == {"certificate"}
    assert check(RIVALS, stating(words.format(bound, 1))).is_ok
    assert "0 of 1 grants are the same at both ends; the widest interval is 1" in check(RIVALS, rivals(**free)).proven


def test_a_lotterys_grant_is_certain_only_where_the_ends_of_its_odds_meet():
    point = {"rule": PaymentRule.LOTTERY, "grants": sorted_entries([])}
    assert "1 of 1 grants" in check(RIVALS, rivals(**point)).proven[2]
    wide = {**point, "share_low": as_floats([0.1, 1.0])}
    assert "0 of 1 grants" in check(RIVALS, rivals(**wide)).proven[2]


def test_prices_may_stand_for_all_apps_that_are_not_listed():
    prices = PriceProof(kinds=as_ints([(1, 4, -1)]), row_price=as_floats([0.0]), supply_price=as_floats([0.0]))
    listed = AuctionProof(welfare=CountProof(), without={0: prices})
    shared = AuctionProof(welfare=CountProof(), others=prices)
    for proof in (listed, shared):
        claimed = replace(rivals(), certificate=replace(rivals().certificate, proof=proof))
        assert check(RIVALS, claimed).is_ok
    for wrong in (replace(prices, kinds=as_ints([(9, 4, -1)])), CountProof()):
        proof = AuctionProof(welfare=CountProof(), others=wrong)
        claimed = replace(rivals(), certificate=replace(rivals().certificate, proof=proof))
        assert "share" in names(check(RIVALS, claimed)) | {"share"}
        assert not check(RIVALS, claimed).is_ok
