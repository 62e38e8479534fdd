"""What the checker says of many plans, payments and proofs, most of them wrong: every violated row, amount and value is kept."""

from pathlib import Path

import numpy as np
import pytest

from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.auction.check import check
from optim.models.auction.check.allocation import check_bundles, check_entries, check_rows, fits, is_unpackable
from optim.models.auction.check.bounds import CountBound, PriceBound, Supply, check_form, evaluate_tree
from optim.models.auction.check.claims import AuctionClaims
from optim.models.auction.check.exact_instance import read_facts
from optim.models.auction.check.payments import check_grants, check_shares, decided_grants
from tests.support.auction.seeded import loose_plan, loose_prices, loose_proof, loose_tree, seeded_auction
from tests.support.kept import assert_kept, by_name, outcome, verdict

KEPT = Path(__file__).parent / "kept"
SEEDS = range(40)


@pytest.fixture(scope="module")
def auctions():
    """Auctions of every form."""
    return {seed: seeded_auction(seed) for seed in SEEDS}


def claimed(instance, plan, proof):
    """Return a solution that claims whatever it is given."""
    certificate = Certificate(kind=CertificateKind.BOUND, statement="", proof=proof)
    return Solution(
        problem="auction", instance=instance.name, solver="by-hand", sense=Sense.MAXIMISE,
        termination=Termination.COMPLETED, decision=plan, objective=plan.welfare(instance), primal=PointStatus.FEASIBLE,
        dual=PointStatus.FEASIBLE, bound=1.0, certificate=certificate,
    )  # fmt: skip


def test_facts_of_every_form(auctions):
    assert_kept(KEPT / "facts.json", by_name(read_facts(one) for one in auctions.values()))


def test_verdicts_on_plans_and_proofs(auctions):
    found = {}
    for seed, instance in auctions.items():
        for draw in range(2):
            rng = np.random.default_rng([seed, draw])
            plan, proof = loose_plan(instance, rng), loose_proof(instance, rng)
            found[f"{seed}.{draw}"] = verdict(check(instance, claimed(instance, plan, proof)))
    assert_kept(KEPT / "verdicts.json", found)


def test_every_part_of_the_checker_by_itself(auctions):
    found = []
    for seed, instance in auctions.items():
        rng, facts = np.random.default_rng([seed, 9]), read_facts(instance)
        plan, prices, tree = loose_plan(instance, rng), loose_prices(instance, rng), loose_tree(instance, rng, 3)
        whom, bound, counts = (None, *range(instance.num_apps)), PriceBound(facts), CountBound(facts)
        items = [(int(rng.integers(4)), int(rng.integers(1, 4)), int(rng.integers(-1, 2))) for _ in range(4)]
        sold = {(int(rng.integers(4)), int(rng.integers(1, 4)), -1): float(rng.integers(1, 9)) / 4 for _ in range(5)}
        wrong_shares, shares = check_shares(facts, plan, lambda app: 1.5 + app)
        told = {
            "rows": check_rows(facts, plan.row), "bundles": check_bundles(facts, plan.row, plan.placement),
            "entries": check_entries(facts, plan.placement + rng.integers(2, size=plan.placement.shape), "placement"),
            "shares": wrong_shares, "grants": check_grants(facts, plan, shares),
            "decided": decided_grants(facts, plan, shares), "fits": fits(facts, plan.row), "form": check_form(facts, prices),
            "room": [is_unpackable(facts, [(a, b, c if a == 4 else -1) for a, b, c in items[:k]]) for k in range(5)],
            "counts": [[counts.welfare(app), app is not None and counts.without(app)] for app in whom],
            "prices": [outcome(bound.evaluate, prices, app, {}) for app in whom],
            "tree": [outcome(evaluate_tree, bound, facts, tree, app) for app in whom[:2]],
            "supply": Supply(facts).most(sold), "sentences": AuctionClaims(facts, claimed(instance, plan, None)).figures(),
        }  # fmt: skip
        found.append(told)
    assert_kept(KEPT / "parts.json", by_name(found))
