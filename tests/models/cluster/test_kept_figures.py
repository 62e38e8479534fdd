"""Everything that kept runs, their jobs, clusters and files tell, compared with what is kept."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from optim.core.archives import read_arrays, write_arrays
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import (
    app_fairness,
    localities,
    measure,
    placement_score,
    rho_of_apps,
)
from optim.models.cluster.philly import FAILURES, bucket_of, classify_log
from optim.models.cluster.rules import Retries, Rules, tries_of, useful_us
from optim.models.cluster.run_file import load_run, save_run
from optim.models.cluster.time_shares import ShareProblem, worst_ratio
from optim.models.cluster.waiting import down_change, held_change, held_gpus, last_times, quotas, waiting
from tests.support.kept import assert_kept, by_name, outcome, parts, short
from tests.support.logged_runs import FOLDER, as_run, kept_records

KEPT = Path(__file__).parent / "kept"


@pytest.fixture(scope="module")
def records():
    """Runs by name."""
    return kept_records()


def test_what_runs_tell(records):
    found = []
    for record in records.values():
        jobs, cluster = record.jobs, record.cluster
        for number in range(len(record.runs)):
            run = as_run(record, number)
            log, until = run.log, last_times(run.log, len(jobs))
            told = {
                "metrics": measure(jobs, cluster, run), "rho": rho_of_apps(jobs, cluster, run),
                "score": placement_score(cluster, run), "localities": localities(cluster, log), "until": until,
                "apps": outcome(app_fairness, jobs, cluster, run),
                "quotas": quotas(jobs, cluster, Rules(knows_quotas=True)), "waits": waiting(jobs, cluster, log, until, run.rules), "shares": waiting(jobs, cluster, log, until, run.rules).shares(),
                "by quota": waiting(jobs, cluster, log, until, replace(run.rules, knows_quotas=True, quotas=(1.0,) * len(jobs.groups))), "held": held_gpus(cluster, log),
                "change": held_change(log), "down": down_change(cluster, log), "rows": log.rows(),
                "tries": [[tries_of(jobs, rule), useful_us(jobs, rule)] for kind in Retries for rule in [replace(run.rules, retries=int(kind), most_retries=1)]],
            }  # fmt: skip
            found.append({**parts(log), **parts(run), **told})
    assert_kept(KEPT / "runs.json", by_name(found))


def test_what_jobs_and_clusters_tell(records):
    found = []
    for record in records.values():
        jobs, cluster = record.jobs, record.cluster
        small = Cluster(gpus=np.array([2, 1]), cpus=np.array([1.0, 0.5]), memory_gb=np.array([64.0, 8.0]))
        told = {
            "fits": [outcome(jobs.check_fits, one, on_one_machine=alone) for one in (cluster, small) for alone in (False, True)],
            "strains": [jobs.strains_hosts(one, number) for one in (cluster, small) for number in (1, 2)],
            "room": [outcome(jobs.room_on, one, job) for one in (cluster, small) for job in range(len(jobs))],
            "graph": sorted(map(str, cluster.to_networkx().edges(data=True))), "size": len(jobs),
        }  # fmt: skip
        found.append({**parts(jobs), **parts(cluster), **told})
    grids = [
        outcome(Cluster.grid, text) for text in ("2x4", "3x1+1x8", "2x4/2", "4x2:a+2x2:b", "x", "0x3", "2x", "1x2x3")
    ]
    assert_kept(KEPT / "jobs.json", {**by_name(found), "grids": grids})


def test_files_without_one_part(records, tmp_path):
    save_run(records["troubled"], tmp_path / "again.npz")
    found = {"arrays": read_arrays(tmp_path / "again.npz", "a run", "")}
    arrays = read_arrays(FOLDER / "planned-5.npz", "a run", "")

    header = json.loads(bytes(arrays["header"]))
    for name in header:
        other = {key: value for key, value in header.items() if key != name}
        write_arrays(tmp_path / "other.npz", {**arrays, "header": np.frombuffer(json.dumps(other).encode(), np.uint8)})
        record = outcome(load_run, tmp_path / "other.npz")
        found[f"header without {name}"] = "refused" if isinstance(record, str) else short(record)
    for name in sorted(arrays):
        if name != "header":
            other = {key: values for key, values in arrays.items() if key != name}
            write_arrays(tmp_path / "other.npz", other)
            record = outcome(load_run, tmp_path / "other.npz")
            found[f"without {name}"] = "refused" if isinstance(record, str) else short(record)
    assert_kept(KEPT / "files.json", found)


def test_tables_rules_and_logs():
    lines = [
        "CUDA out of memory", "ImportError: no module named x", "Segmentation fault", "NCCL error", "loss is nan", "killed",
        "KeyboardInterrupt", "permission denied", "No such file or directory", "Traceback", "", "SyntaxError: invalid syntax",
    ]  # fmt: skip
    problem = ShareProblem(
        throughput=np.array([[4.0, 1.0], [2.0, 2.0], [0.0, 3.0]]), width=np.array([1, 2, 1]), gpus=np.array([2, 3]),
        elapsed_s=np.array([10.0, 0.0, 5.0]), left=np.array([100.0, 40.0, 7.0]), isolated_s=np.array([5.0, 0.0, 1.0]),
    )  # fmt: skip
    found = {
        "reasons": [outcome(classify_log, line) for line in lines], "both": outcome(classify_log, lines),
        "table": {name: [reason, reason.log_normal] for name, reason in FAILURES.items()},
        "buckets": [bucket_of(gpus) for gpus in (1, 2, 4, 5, 8, 9, 64)], "shares": problem,
        "worst": [worst_ratio(problem, np.array(share)) for share in ([[0.5, 0.0], [0.5, 0.5], [0.0, 1.0]], [[0.1, 0.1]] * 3)],
        "rules": [outcome(Rules, **{name: value}) for name in ("restart_us", "jobs_a_gpu", "neighbour_ppm", "is_shared", "retries") for value in (-1, 0, 1, True, 3, 65, 10**6, 0.5)],
    }  # fmt: skip
    assert_kept(KEPT / "tables.json", found)
