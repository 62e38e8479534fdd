"""Everything that small instances of every trait, their plans, programmes and documents tell, compared with what is kept."""

import json
from pathlib import Path

import numpy as np
import pytest
from optim_studies.packing_programme import Level, enumerate_schedules, packing_dual, packing_model

from optim.models.admission.compact_programme import CompactIndex, compact_model, compact_size
from optim.models.admission.decision import trimmed_plan
from optim.models.admission.earliest_completion import earliest_completion, most_workers
from optim.models.admission.forecast import Forecast, read_forecast, without_jobs
from optim.models.admission.instance import merge_days, take_jobs
from optim.models.admission.problem import PROBLEM
from optim.models.admission.summary import describe, plan_load
from tests.support.admission.plans import greedy_plan
from tests.support.admission.seeded import loose_prices, loose_tree, seeded_document, seeded_instance
from tests.support.kept import assert_kept, by_name, outcome, parts
from tests.support.told_programme import told_programme
from tests.support.variants import answers

KEPT = Path(__file__).parent / "kept"
SEEDS = range(32)
FEW = (0, 9, 30)
"""Of these the programmes are written out, too."""


@pytest.fixture(scope="module")
def instances():
    """Every combination of five traits."""
    return {seed: seeded_instance(seed) for seed in SEEDS}


def test_what_instances_tell(instances):
    found = [
        {**parts(one), "first": earliest_completion(one), "most": most_workers(one), "variables": compact_size(one)}
        | {f"describe {name}": figure for name, figure in describe(one).items()}
        for one in instances.values()
    ]
    assert_kept(KEPT / "instances.json", by_name(found))


def test_what_plans_and_proofs_tell(instances):
    found = []
    for seed, instance in instances.items():
        rng = np.random.default_rng(seed)
        plan, proofs = greedy_plan(instance), (loose_prices(instance, rng), loose_tree(instance, rng, 1))
        documents = [
            PROBLEM.decision_to_json(instance, plan),
            *(PROBLEM.proof_to_json(instance, one) for one in proofs),
        ]
        read = [PROBLEM.proof_from_json(instance, one) for one in json.loads(json.dumps(documents[1:], default=parts))]
        again = PROBLEM.decision_from_json(instance, json.loads(json.dumps(documents[0], default=parts)))
        told = {
            "columns": plan.columns(instance), "picture": plan.picture(), "documents": documents, "read": [read, again],
            "figures": PROBLEM.decision_figures(instance, plan),
        }  # fmt: skip
        found.append({**parts(plan), **parts(plan_load(instance, plan)), **told})
    assert_kept(KEPT / "plans.json", by_name(found))


def test_plans_trimmed_from_any_counts(instances):
    found = []
    for seed, instance in instances.items():
        rng = np.random.default_rng(seed)
        sides = instance.worker_servers, instance.ps_servers
        counts = [
            {
                (job, slot, server): int(rng.integers(3))
                for job in range(3)
                for slot in range(4)
                for server in range(side.num_servers)
            }
            for side in sides
        ]
        found.append(trimmed_plan(instance, workers=counts[0], ps=counts[1]))
    assert_kept(KEPT / "trimmed.json", by_name(found))


def test_schedules_and_programmes(instances):
    found = {}
    for seed in FEW:
        instance = instances[seed]
        classes = enumerate_schedules(instance, level=Level.CLASSES, limit=3000)
        models = (
            compact_model(instance), packing_model(instance, classes, is_integer=True),
            packing_dual(instance, classes),
        )  # fmt: skip
        found[f"{seed}"] = {
            "classes": classes, "servers": outcome(enumerate_schedules, instance, limit=500),
            "index": CompactIndex.of(instance), "models": [told_programme(model) for model in models],
        }  # fmt: skip
    assert_kept(KEPT / "programmes.json", found)


@pytest.mark.parametrize("seed", [6, 25])
def test_what_is_said_of_documents_with_one_field_changed(seed):
    def said(document):
        instance = outcome(PROBLEM.read_instance, json.dumps(document).encode())
        return instance if isinstance(instance, str) else [describe(instance), instance.jobs, instance.worker_servers]

    assert_kept(KEPT / f"documents-{seed}.json", answers(seeded_document(seed), said, 1))


def test_forecasts_and_jobs_of_several_days(instances, tmp_path):
    found, path = {}, tmp_path / "forecast.json"
    for seed in (0, 4, 9):
        cluster = instances[seed]
        proof = loose_prices(cluster, np.random.default_rng(seed))
        forecast = Forecast(
            cluster=without_jobs(cluster), days=(cluster, cluster), fill=0.75, worker_price=proof.worker_price,
            ps_price=proof.ps_price,
        )  # fmt: skip
        forecast.save(path)
        joined = merge_days([cluster.jobs, take_jobs(cluster.jobs, np.array([2, 0]))], cluster)
        found[f"{seed}"] = {"read": read_forecast(path), "joined": joined, "file": path.read_text()}
    other = [
        outcome(
            lambda day: Forecast(
                cluster=cluster, days=(day,), fill=1.0, worker_price=proof.worker_price, ps_price=proof.ps_price
            ),
            instances[seed],
        )
        for seed in (0, 1, 9)
    ]
    assert_kept(KEPT / "forecasts.json", {**found, "other days": other})
