"""What the checker says of kept runs with one number of a log, a claim or a proof changed: all of it is kept."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from optim.models.cluster.check import check_runs, replay
from optim.models.cluster.check.bounds import min_makespan, min_mean_completion, min_slowdown
from optim.models.cluster.check.utility import check_worth, max_earned
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import IntervalProof, LoadProof, PriceProof, Worth
from optim.models.cluster.workload import US
from tests.support.kept import assert_kept, outcome, verdict
from tests.support.logged_runs import kept_records
from tests.support.small_clusters import workload

KEPT = Path(__file__).parent / "kept"
COLUMNS = ("time_us", "kind", "job", "machine", "gpus", "slot")
STEP = 4
"""Every fourth number of a column is changed."""


@pytest.fixture(scope="module")
def records():
    """Runs by name."""
    return kept_records()


def test_replays_of_logs_with_one_number_changed(records):
    found = {}
    for name, record in records.items():
        for number, run in enumerate(record.runs):
            found[f"{name} {number}"] = replay(record.jobs, record.cluster, run.log, run.rules)
            for column in COLUMNS:
                values = getattr(run.log, column)
                said = []
                for at in range(number, len(values), STEP if name != "troubled" else 5 * STEP):
                    for step in (-1, 1, 2000) if column == "time_us" else (-1, 1):
                        changed = values.astype(np.int64)
                        changed[at] += step
                        log = outcome(replace, run.log, **{column: changed})
                        said.append(
                            log
                            if isinstance(log, str)
                            else outcome(replay, record.jobs, record.cluster, log, run.rules)
                        )
                found[f"{name} {number} {column}"] = said
    assert_kept(KEPT / "replays.json", found)


def test_claims_with_one_figure_changed(records):
    found = {}
    for name, record in records.items():
        found[name] = [[who, verdict(one)] for who, one in check_runs(record)]
        if name == "planned-5":
            run = record.runs[0]
            for figure, value in asdict(run.metrics).items():
                other = replace(run, metrics=replace(run.metrics, **{figure: value + 1 if value is not None else 1.0}))
                claimed = replace(record, runs=(other,), bounds={})
                found[f"{name} {figure}"] = [verdict(one) for _, one in outcome(check_runs, claimed)]
    assert_kept(KEPT / "claims.json", found)


def test_bounds_of_any_proof(records):
    found = {}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        rows = zip(
            np.sort(rng.integers(0, 40, 5)) * (1 + seed), rng.integers(1, 4, 5), rng.integers(1, 60, 5), strict=True
        )
        jobs, cluster = workload([*rows]), Cluster.grid("2x2")
        last = int((jobs.submit_us + jobs.duration_us).max())
        prices = [
            PriceProof.of_equal_slots(slot_us=max(US, last // 4 + 1), price=rng.integers(0, 9, 6) / 16)
            for _ in range(3)
        ]
        times = [int(rng.integers(0, last)) for _ in range(4)]
        intervals = [(time // 2, time, slow) for time in times for slow in (1.0, 1.5, 3.0)]
        worth = [
            Worth(
                theta=rng.integers(0, 9, (5, 3)) / 2, slot_us=last // 5 + 1, price=rng.integers(0, 5, 8) / 8, utility=3.0,
                bound=40.0,
            )
            for _ in range(2)
        ]  # fmt: skip
        found[f"{seed}"] = [
            [min_mean_completion(jobs, cluster, one) for one in prices],
            [outcome(min_makespan, jobs, cluster, LoadProof(from_us=time)) for time in times],
            [min_slowdown(jobs, cluster, IntervalProof(slowdown=slow, from_us=begin, to_us=end)) for begin, end, slow in intervals],
            [max_earned(jobs, cluster, one) for one in worth],
        ]  # fmt: skip
    for name, record in records.items():
        run, count = record.runs[0], len(record.jobs)
        replayed, _ = replay(record.jobs, record.cluster, run.log, run.rules)
        theta = np.tile([4.0, 0.5, 2.0], (count, 1))
        worth = Worth(
            theta=theta,
            slot_us=2 * max(3000, int(record.jobs.duration_us.max()) // 20),
            price=np.full(4, 0.25),
            utility=3.0,
            bound=40.0,
        )
        said = [
            check_worth(record.jobs, record.cluster, replayed, worth, "any"),
            max_earned(record.jobs, record.cluster, worth),
        ]
        found[name] = [*said, record.bounds, [[who, verdict(one)] for who, one in check_runs(replace(record, runs=()))]]
    assert_kept(KEPT / "bounds.json", found)
