"""Everything that small auctions of every form, their plans, bids, markets and documents tell, compared with what is kept."""

import json
from pathlib import Path

import numpy as np
import pytest

from optim.models.auction.codec import bid_columns
from optim.models.auction.fairness import Horizon, ideal_minutes, remaining_minutes, shared_minutes
from optim.models.auction.payment import leftover, share_leftover
from optim.models.auction.problem import PROBLEM
from optim.models.auction.summary import describe, plan_load, rho_paid
from optim.models.auction.tuning import (  # fmt: skip
    classify_trials,
    expected_trial_work,
    fit_loss_curve,
    rung_sizes,
)
from optim.models.auction.welfare import explicit_model
from tests.support.auction.seeded import loose_plan, loose_proof, seeded_auction, seeded_document
from tests.support.kept import assert_kept, by_name, outcome, parts
from tests.support.told_programme import told_programme
from tests.support.variants import answers

KEPT = Path(__file__).parent / "kept"
SEEDS = range(30)
FEW = (0, 4, 7)
"""Of these the programmes are written out, too."""


@pytest.fixture(scope="module")
def auctions():
    """Auctions of every form."""
    return {seed: seeded_auction(seed) for seed in SEEDS}


def test_what_instances_tell(auctions):
    found = []
    for one in auctions.values():
        told = {f"describe {name}": figure for name, figure in describe(one).items()}
        told |= {"columns": bid_columns(one)}
        found.append({**parts(one), **told, "document": PROBLEM.document_from_instance(one)})
    assert_kept(KEPT / "instances.json", by_name(found))


def test_what_plans_and_proofs_tell(auctions):
    found = []
    for seed, one in auctions.items():
        rng = np.random.default_rng(seed)
        plan, proof = loose_plan(one, rng), loose_proof(one, rng)
        documents = [PROBLEM.decision_to_json(one, plan), PROBLEM.proof_to_json(one, proof)]
        plain = json.loads(json.dumps(documents, default=parts))
        left = leftover(one.cluster, plan.grants)
        more = share_leftover(one.cluster, left, [3] * one.num_apps, one.apps.gang, [[0], [], [1], []].__getitem__, rng)
        told = {f"load {name}": figure for name, figure in plan_load(one, plan).items()}
        told |= {"rho": rho_paid(one, plan), "left": left, "more": more, "columns": plan.columns(one)}
        told |= {"picture": plan.picture(), "documents": documents}
        told |= {"plan again": outcome(PROBLEM.decision_from_json, one, plain[0])}
        told |= {"proof again": outcome(PROBLEM.proof_from_json, one, plain[1])}
        found.append({**parts(plan), **told})
    assert_kept(KEPT / "plans.json", by_name(found))


def test_minutes_of_every_profile(auctions):
    found = {}
    for seed, one in auctions.items():
        for app, profile in enumerate(one.profiles):
            if profile is not None:
                shared = [
                    shared_minutes(profile, gpus, level, horizon=horizon, lease_min=10.0, cluster_gpus=11)
                    for horizon in Horizon for gpus in (1, 2, 5) for level in range(4)
                ]  # fmt: skip
                alone = [outcome(remaining_minutes, profile, gpus, 1.5) for gpus in (0, 1, 2, 3, 7)]
                found[f"{seed}.{app}"] = [ideal_minutes(profile, 11), *alone, *shared, profile]
    assert_kept(KEPT / "profiles.json", {"all": list(found.values())})


def test_programmes(auctions):
    found = {}
    for seed in FEW:
        one = auctions[seed]
        found[f"{seed}"] = told_programme(explicit_model(one))
    assert_kept(KEPT / "programmes.json", found)


def test_tuning():
    curves = [[1.0, 0.8, 0.7, 0.66], [2.0, 1.5, 1.3, 1.25], [1.0, 0.5, 0.35, 0.3], [3.0, 2.9, 2.85, 2.82]]
    fits = [fit_loss_curve(one) for one in curves]
    found = {
        "rungs": [rung_sizes(n, eta) for n in (1, 2, 7, 9, 30) for eta in (2, 3, 4)],
        "expected": [expected_trial_work(27, 3, 9.0, rung) for rung in range(3)],
        "fits": [[round(number, 4) for number in (one.limit, one.scale, one.power, one.at(20.0))] for one in fits],
        "classes": [classify_trials(curves, last, good=good, poor=poor) for last in (5, 50) for good, poor in ((0.05, 0.25), (1, 4))],
    }  # fmt: skip
    assert_kept(KEPT / "tuning.json", found)


def test_what_is_said_of_documents_with_one_field_changed():
    def said(document):
        one = outcome(PROBLEM.read_instance, json.dumps(document).encode())
        return one if isinstance(one, str) else [describe(one), one.bids, one.apps]

    assert_kept(KEPT / "documents.json", answers(seeded_document(7), said, 1))
