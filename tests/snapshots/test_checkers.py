"""Checkers' answers to changed or random plans, payments, proofs and logs, most of them wrong: the violated rows."""

from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest

from optim.core.solution import Certificate, CertificateKind, PointStatus, Sense, Solution, Termination
from optim.models.admission.check import check as check_admission
from optim.models.auction.check import check as check_auction
from optim.models.bidding.check import check as check_bidding
from optim.models.bidding.check.exact_instance import VerifierContext, footprint_value
from optim.models.bidding.decision import FootprintPlan
from optim.models.cluster.check import check_runs, replay
from tests.support.admission.plans import greedy_plan, proven_by, raw_plan, solution_of, tampered_rows
from tests.support.admission.seeded import loose_prices, loose_tree, seeded_instance
from tests.support.auction.seeded import loose_plan, loose_proof, seeded_auction
from tests.support.bidding.random_proofs import random_tree
from tests.support.bidding.small_markets import varied, with_survival
from tests.support.logged_runs import logged_records
from tests.support.snapshots import answer, assert_snapshot, line

COLUMNS = ("time_us", "kind", "job", "machine", "gpus", "slot")


def rows_of(found):
    """Return the number of violations of each row, and the proven bound."""
    rows = Counter(one.row.split("[")[0].strip() for one in found.violations)
    return [
        ", ".join(f"{row} x{count}" for row, count in sorted(rows.items())) or "holds",
        found.objective,
        found.bound,
    ]


def test_admission():
    plans, proofs = [], []
    for seed in range(0, 32, 6):
        instance = seeded_instance(seed)
        plan = greedy_plan(instance)
        rows, rng = (plan.workers.tolist(), plan.ps.tolist()), np.random.default_rng(seed)
        for what, *changed in [("honest", *rows), *tampered_rows(rng, instance, *rows)]:
            claimed = solution_of(instance, raw_plan(*changed), objective=plan.objective(instance))
            plans.append(line(f"{seed} {what}", *rows_of(check_admission(instance, claimed))))
        for name, proof in (
            ("prices", loose_prices(instance, np.random.default_rng([seed, 0]), 0)),
            ("prices and cuts", loose_prices(instance, np.random.default_rng([seed, 1]), 2)),
            ("tree", loose_tree(instance, np.random.default_rng(seed))),
        ):
            said = check_admission(instance, solution_of(instance, None, **proven_by(proof, 20.0)))
            proofs.append(line(f"{seed} {name}", *rows_of(said)))
    assert_snapshot("checkers", "admission: a plan with one row changed", plans)
    assert_snapshot("checkers", "admission: drawn proofs of a bound of 20", proofs)


def test_auction():
    lines = []
    for seed in range(32):
        instance, rng = seeded_auction(seed), np.random.default_rng([seed, 0])
        plan, proof = loose_plan(instance, rng), loose_proof(instance, rng)
        claimed = Solution(
            problem="auction", instance=instance.name, solver="by-hand", sense=Sense.MAXIMISE,
            termination=Termination.COMPLETED, decision=plan, objective=plan.welfare(instance), primal=PointStatus.FEASIBLE,
            dual=PointStatus.FEASIBLE, bound=1.0, certificate=Certificate(kind=CertificateKind.BOUND, statement="", proof=proof),
        )  # fmt: skip
        lines.append(line(f"seed {seed}", *rows_of(check_auction(instance, claimed)), width=8))
    assert_snapshot("checkers", "auction: drawn plans and proofs", lines)


def test_bidding():
    lines = []
    for seed in range(32):
        instance = (with_survival if seed % 2 else varied)(seed)
        rng, facts = np.random.default_rng(seed), VerifierContext(instance=instance)
        counts = rng.integers(0, 3, instance.num_bids)
        cost, work = footprint_value(facts, counts.tolist())
        claimed = Solution(
            problem="bidding", instance=instance.name, solver="by-hand", sense=Sense.MINIMISE,
            termination=Termination.COMPLETED, decision=FootprintPlan.of(counts), objective=cost / work if work > 0 else 0.5,
            primal=PointStatus.FEASIBLE, dual=PointStatus.FEASIBLE, bound=9.0,
            certificate=Certificate(kind=CertificateKind.BOUND, statement="", proof=random_tree(facts, rng)),
        )  # fmt: skip
        lines.append(line(f"seed {seed}", *rows_of(check_bidding(instance, claimed)), width=8))
    assert_snapshot("checkers", "bidding: drawn footprints and proofs", lines)


@pytest.fixture(scope="module")
def records():
    """Runs by name."""
    return logged_records()


def test_cluster_logs(records):
    lines = []
    for name, record in records.items():
        for number, run in enumerate(record.runs):
            for column in COLUMNS:
                said, values = Counter(), getattr(run.log, column)
                for at in range(number, len(values), 4 if name != "troubled" else 20):
                    for step in (-1, 1, 2000) if column == "time_us" else (-1, 1):
                        changed = values.astype(np.int64)
                        changed[at] += step
                        log = answer(replace, run.log, **{column: changed})
                        found = (
                            log if isinstance(log, str) else answer(replay, record.jobs, record.cluster, log, run.rules)
                        )
                        said["not a log" if isinstance(found, str) else "refused" if found[1] else "holds"] += 1
                lines.append(line(f"{name} {number} {column}", dict(sorted(said.items()))))
    assert_snapshot("checkers", "cluster: logs with one number changed", lines)


def test_cluster_claims(records):
    run = records["planned-5"].runs[0]
    lines = []
    for figure, value in asdict(run.metrics).items():
        other = replace(run, metrics=replace(run.metrics, **{figure: value + 1 if value is not None else 1.0}))
        claimed = replace(records["planned-5"], runs=(other,), bounds={})
        lines += [line(figure, *rows_of(one)[:1]) for _, one in check_runs(claimed)]
    assert_snapshot("checkers", "cluster: claims with one figure changed", lines)
