"""What is drawn and read of clusters of GPUs, with every option and field changed, compared with what is kept."""

import json
from pathlib import Path

import numpy as np

from optim.models.cluster.cluster import Cluster
from optim.workloads.cluster.generator import PhillyOptions, draw_jobs, draw_outcomes, status_chances
from optim.workloads.cluster.jobs import Failures, Oversized, Selection, cluster_jobs
from optim.workloads.cluster.themis_apps import ThemisOptions, draw_apps
from optim.workloads.cluster.topology import read_cluster
from optim.workloads.traces.job_table import JobTable
from tests.support import counterexamples
from tests.support.kept import assert_kept, outcome, parts, short
from tests.support.variants import answers, option_variants
from tests.support.varied_tables import with_cells

KEPT = Path(__file__).parent / "kept"


def told(draw):
    drawn = outcome(draw)
    return drawn if isinstance(drawn, str) else short(drawn)


def test_draws_with_every_option_changed(tmp_path):
    found = {}
    for what, given in option_variants(PhillyOptions, jobs=30):
        found[f"philly {what}"] = told(lambda one=given: draw_jobs(PhillyOptions(**one), 3))
    for what, given in [*option_variants(ThemisOptions, apps=8), ("gang", {"apps": 8, "gang": 4})]:
        found[f"themis {what}"] = told(lambda one=given: draw_apps(ThemisOptions(**one), 3))
    gpus, seconds = np.tile([1, 2, 4, 8, 16], 12), np.linspace(1e7, 9e11, 60).astype(np.int64)
    found["outcomes"] = [draw_outcomes(gpus, seconds, seed) for seed in range(3)]
    found["chances"] = status_chances(np.array([0.0, 10.0, 1e3, 1e5, 1e7]))
    found["counterexamples"] = [
        parts(one) for one in vars(counterexamples).values() if isinstance(one, counterexamples.Counterexample)
    ]
    assert_kept(KEPT / "draws.json", found)


def jobs_of_a_trace():
    texts = lambda *values: np.array(values, dtype=object)  # noqa: E731
    return JobTable(
        ids=("a", "b", "c", "d", "e"), submit_s=np.array([50.0, 10.0, 10.0, 90.0, 400.0]), workers=np.array([1, 2, 4, 8, 1]),
        duration_s=np.array([100.0, 2000.0, 30.0, 40_000.0, 0.5]), clock=np.zeros(5, np.int64), rows_read=7, virtual_cluster=texts("x", "", "x", "y", "x"),
        user=texts("u", "v", "u", "v", ""), model=texts("m", "m", "n", "m", ""), status=texts("Pass", "Failed", "Pass", "", "Killed"), app=texts("p", "q", "", "p", ""),
        priority=np.array([4, 3, 2, 1, 0]), least_gpus=np.array([1, 1, 2, 4, 1]), most_gpus=np.array([2, 2, 4, 16, 1]),
        demand=np.array([[0.25, 1.5, 2.0], [1, 4, 16], [1, 4, 16], [1, 0, 0], [0.5, 1, 1]]), busy=np.array([0.5, 1.0, 0.001, 0.25, 1.0]),
        slowdown=np.array([[1, 1.5, 2.0]] * 5), loss=np.array([[1, 0.0]] * 5), failed_s=np.array([np.nan, 2.0, np.nan, np.nan, np.nan]),
    )  # fmt: skip


def test_jobs_of_a_trace_by_every_selection():
    table, clusters = jobs_of_a_trace(), (None, Cluster.grid("2x2"), Cluster.grid("2x8"))
    more = [
        ("first", {"first": 2}),
        ("since", {"since": "60"}),
        *((str(kind), {"oversized": kind}) for kind in Oversized),
    ]
    more += [(f"{kind} {seed}", {"failures": kind, "seed": seed}) for kind in Failures for seed in (0, 1)]
    found = {}
    for what, given in [*option_variants(Selection), *more]:
        for number, cluster in enumerate(clusters):
            drawn = outcome(lambda one=given, world=cluster: cluster_jobs(table, Selection(**one), world))
            found[f"{what} {number}"] = (
                drawn if isinstance(drawn, str) else [short(drawn), drawn.notes, dict(drawn.dropped)]
            )
    assert_kept(KEPT / "jobs.json", found)


def test_topologies_with_one_field_changed(tmp_path):
    path = tmp_path / "cluster.json"

    def said(document):
        path.write_text(json.dumps(document))
        answer = outcome(read_cluster, str(path))
        return answer.replace(str(tmp_path), "") if isinstance(answer, str) else answer

    machines = [
        {"gpus": 8, "count": 3, "kind": "v100", "cpus": 96, "memory_gb": 768},
        {"gpus": 4, "kind": "k80", "rack": 5},
        {"gpus": 8, "kind": "v100"},
    ]
    found = answers({"schema": "optim/cluster/1", "machines": machines, "machines_a_rack": 2}, said, 3)
    switches = [
        ["num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node"],
        [2, 3, 4, 128, 254],
    ]
    nodes = [
        ["sn", "cpu_milli", "memory_mib", "gpu", "model"],
        ["a", 8000, 2048, 2, "T4"],
        ["b", 4000, 1024, 0, ""],
        ["c", 9000, 4096, 8, "P100"],
    ]
    for name, rows in (("switches", switches), ("nodes", nodes)):
        found |= {
            f"{name} {what}": answer
            for what, answer in with_cells(tmp_path / "file.csv", lambda file: read_cluster(str(file)), rows).items()
        }
    found["texts"] = [outcome(read_cluster, text) for text in ("3x4", "1x8", "0x1", "x", "3x", "nothing.csv")]
    assert_kept(KEPT / "topologies.json", found)
