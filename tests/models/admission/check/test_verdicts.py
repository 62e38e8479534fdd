"""What the checker says of many plans and proofs, most of them wrong: every violated row, amount, value and bound is kept."""

from pathlib import Path

import numpy as np
import pytest

from optim.models.admission.check import check
from optim.models.admission.check.exact_instance import read_exact_instance
from tests.support.admission.plans import greedy_plan, proven_by, raw_plan, solution_of, tampered_rows
from tests.support.admission.seeded import loose_prices, loose_tree, seeded_instance
from tests.support.kept import assert_kept, by_name, verdict

KEPT = Path(__file__).parent / "kept"
SEEDS = range(32)


@pytest.fixture(scope="module")
def instances():
    """Every combination of five traits."""
    return {seed: seeded_instance(seed) for seed in SEEDS}


def test_facts_of_every_trait(instances):
    exact = [read_exact_instance(one) for one in instances.values()]
    errors = [[1e15 * job.worth_error for job in one.jobs] for one in exact]
    assert_kept(KEPT / "facts.json", {**by_name(exact), "errors of worth": errors})


def test_verdicts_on_plans_with_one_row_changed(instances):
    found = {}
    for seed, instance in instances.items():
        plan = greedy_plan(instance)
        rows, rng = (plan.workers.tolist(), plan.ps.tolist()), np.random.default_rng(seed)
        earned = plan.objective(instance)
        for what, *changed in [("honest", *rows), *tampered_rows(rng, instance, *rows)]:
            answer = verdict(check(instance, solution_of(instance, raw_plan(*changed), objective=earned)))
            found.setdefault(f"{what} {seed}", []).append(answer)
    assert_kept(KEPT / "plans.json", found)


def test_verdicts_on_prices_with_cuts(instances):
    found = {}
    for seed, instance in instances.items():
        for draw in range(2):
            proof = loose_prices(instance, np.random.default_rng([seed, draw]), 2 * draw)
            found[f"{seed}.{draw}"] = verdict(check(instance, solution_of(instance, None, **proven_by(proof, 20.0))))
    assert_kept(KEPT / "prices.json", found)


def test_verdicts_on_trees(instances):
    found = {}
    for seed, instance in instances.items():
        proof = loose_tree(instance, np.random.default_rng(seed))
        found[f"{seed}"] = verdict(check(instance, solution_of(instance, None, **proven_by(proof, 20.0))))
    assert_kept(KEPT / "trees.json", found)
