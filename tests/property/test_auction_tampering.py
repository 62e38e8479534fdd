"""The checker rejects every change of an honest solution of an auction."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Termination
from optim.models.auction.data import as_floats, as_ints
from optim.models.auction.decision import (
    AuctionProof,
    CountProof,
    PaymentRule,
    PriceProof,
    TreeNode,
    TreeProof,
    Witness,
    sorted_entries,
)
from optim.models.files import verify
from optim.solvers.solve import solve
from optim.workloads.auction.generator import GeneratorOptions, generate
from tests.support.auction.builders import auction


@cache
def instance():
    """An auction whose bound is a tree and some of whose payments are large."""
    return generate(
        GeneratorOptions(num_apps=8, num_gpus=32, num_machines=4, gangs="any", widest="machine", network_share=1.0), 7
    )


@cache
def honest():
    return solve(instance(), "exact")


def with_plan(**changes):
    return replace(honest(), decision=replace(honest().decision, **changes))


def with_proof(proof):
    certificate = honest().certificate
    return replace(honest(), certificate=replace(certificate, proof=proof))


def moved(entries, change):
    table = np.array(entries)
    change(table)
    return sorted_entries(table)


def other_row(row):
    changed = np.array(row)
    i = int(np.flatnonzero(changed >= 0)[0])
    changed[i] = changed[i] + 1 if instance().bids.app[changed[i] + 1] == i else changed[i] - 1
    return as_ints(changed)


def winner():
    return int(np.flatnonzero(honest().decision.row >= 0)[0])


def raised(values, amount):
    changed = np.array(values)
    changed[winner()] += amount
    return as_floats(np.clip(changed, 0, 1))


def set_count(table):
    table[0, 2] += 1


def set_slot(table):
    table[0, 1] = 10**6


def cheaper(proof):
    """Lower all prices of a proof."""
    if isinstance(proof, TreeProof):
        return TreeProof(
            nodes=tuple(
                node if node.proof is None else replace(node, proof=cheaper(node.proof)) for node in proof.nodes
            )
        )
    return PriceProof(kinds=proof.kinds, row_price=proof.row_price * 0.9, supply_price=proof.supply_price * 0.9)


TAMPERINGS = {
    "problem": lambda: replace(honest(), problem="admission"),
    "instance": lambda: replace(honest(), instance="another"),
    "sense": lambda: replace(honest(), sense=Sense.MINIMISE),
    "objective": lambda: replace(honest(), objective=honest().objective + 1e-6),
    "bound": lambda: replace(honest(), bound=honest().objective - 1e-3),
    "bound without proof": lambda: with_proof(None),
    "primal": lambda: replace(honest(), primal=PointStatus.NEARLY_FEASIBLE),
    "dual": lambda: replace(honest(), dual=PointStatus.NONE),
    "termination": lambda: replace(honest(), termination=Termination.INFEASIBLE),
    "kind": lambda: replace(honest(), certificate=Certificate(kind=CertificateKind.FEASIBLE_ONLY, statement="")),
    "decision": lambda: replace(honest(), decision=None),
    "another's row": lambda: with_plan(row=as_ints(np.roll(honest().decision.row, 1))),
    "another row": lambda: with_plan(row=other_row(honest().decision.row)),
    "one GPU more": lambda: with_plan(placement=moved(honest().decision.placement, set_count)),
    "another slot": lambda: with_plan(placement=moved(honest().decision.placement, set_slot)),
    "nothing placed": lambda: with_plan(placement=sorted_entries([])),
    "share too high": lambda: with_plan(share_low=raised(honest().decision.share_low, 1e-3)),
    "share too low": lambda: with_plan(share_high=raised(honest().decision.share_high, -1e-3)),
    "no witness": lambda: with_plan(witnesses={}),
    "witness with the app": lambda: with_plan(witnesses={winner(): Witness(row=honest().decision.row)}),
    "grant of more": lambda: with_plan(grants=honest().decision.placement),
    "grant of less": lambda: with_plan(grants=sorted_entries([])),
    "another rule": lambda: with_plan(rule=PaymentRule.CEIL),
    "proof of nothing": lambda: with_proof(AuctionProof(welfare=honest().certificate.proof.welfare)),
    "a weaker proof": lambda: with_proof(AuctionProof(welfare=CountProof(), counts_others=True)),
    "an empty tree": lambda: with_proof(AuctionProof(welfare=TreeProof(nodes=()))),
    "a tree that claims no room": lambda: with_proof(AuctionProof(welfare=TreeProof(nodes=(TreeNode(is_full=True),)))),
    "a tree without leaves": lambda: with_proof(AuctionProof(welfare=TreeProof(nodes=(TreeNode(low=0, high=0),)))),
    "a foreign proof": lambda: with_proof("trust me"),
}


def test_the_honest_solution_is_accepted():
    assert honest().termination is Termination.OPTIMAL
    assert isinstance(honest().certificate.proof.welfare, TreeProof)
    assert verify(instance(), honest()).is_ok


@pytest.mark.parametrize("name", TAMPERINGS)
def test_what_was_tampered_with_is_refused(name):
    assert not verify(instance(), TAMPERINGS[name]()).is_ok


def test_lower_prices_prove_a_worse_bound():
    solution = solve(auction([8, 8], *[[(5, "machine", 4.0)]] * 3), "exact")
    proof = solution.certificate.proof
    assert not isinstance(proof.welfare, CountProof)
    certificate = replace(solution.certificate, proof=replace(proof, welfare=cheaper(proof.welfare)))
    found = verify(auction([8, 8], *[[(5, "machine", 4.0)]] * 3), replace(solution, certificate=certificate))
    assert not found.is_ok


def test_a_leaf_without_room_is_shown_by_going_through_all_placements():
    """Three bundles of 20 GPUs within racks of 32 and 16: one fits, which prices alone can't prove."""
    bids = [[(20, "rack", 4.0)]] * 3
    places = [*[(0, [8])] * 4, *[(1, [8])] * 2]
    one = auction(places, *bids)
    solution = solve(one, "exact")
    assert verify(one, solution).is_ok
    assert solution.termination is Termination.OPTIMAL
    assert solution.decision.num_winners == 1


@pytest.mark.parametrize("seed", range(4))
def test_every_bound_that_is_verified_holds_for_the_programme_that_shares_no_code(seed):
    from optim.solvers.lp.highs import CompiledModel, solve_with_highs
    from tests.support.auction.patterns import pattern_model

    options = GeneratorOptions(num_apps=8, num_gpus=32, num_machines=4, allocated_share=0.3, gangs="any")
    drawn = generate(options, seed)
    found = verify(drawn, solve(drawn, "greedy"))
    best = solve_with_highs(CompiledModel(pattern_model(drawn)), options={"mip_abs_gap": 1e-9, "mip_rel_gap": 0.0})
    assert found.objective <= best.objective + 1e-6
    assert found.bound >= best.objective - 1e-6
