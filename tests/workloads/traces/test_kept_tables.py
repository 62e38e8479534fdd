"""What readers of traces make of small tables in every form, with each cell of a row changed, compared with what is kept."""

import gzip
import json
from datetime import datetime
from pathlib import Path

import pytest

from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.gavel import read_throughputs
from optim.workloads.traces.job_table import ReadOptions, read_times, seconds_of
from optim.workloads.traces.pollux_workload import read_curve, read_step_times
from optim.workloads.traces.summaries import (
    read_quotas,
    read_samples,
    read_summaries,
)
from tests.support.kept import assert_kept, outcome, short
from tests.support.trace_files import GAVEL, MERGED, NODES, PODS, POLLUX, alibaba_file, gavel_file, pod
from tests.support.variants import answers
from tests.support.varied_tables import with_cells

KEPT = Path(__file__).parent / "kept"
NUMBERS = range(8)
PHILLY = [MERGED, *([f"application_{n}", 500 * n, 1 + n % 4, 2000 + 400 * n, f"vc{n % 2}"] for n in NUMBERS)]
TABLES = {
    "philly": PHILLY,
    "pollux": [POLLUX, *([f"2017-10-03 00:{n}0:00", 3000 + 100 * n, 1 + n % 4, 1, "philly"] for n in range(6))],
    "gavel": [GAVEL, *([f"vc{n % 2}", n, ("A", "B (batch size 2)")[n % 3 == 2], 4000 + 100 * n, 300 * n, (1, 4, 2)[n % 3]] for n in NUMBERS)],
    "alibaba": [PODS, *(pod(f"p{n}", n % 3, 1000 if n % 2 else 500, (200 * n, 200 * n + 5000, 200 * n + 60), ("Running", "Failed", "Succeeded")[n % 3]) for n in NUMBERS)],
    "csv": [
        ("id", "submit", "gpus", "duration", "vc", "user", "model", "status", "app", "priority", "min_gpus", "max_gpus", "cpus", "memory_gb", "gpu_util"),
        *((f"j{n}", 60 * n, 1 + n % 4, 500 + n, "v", f"u{n % 2}", "m", "COMPLETED", f"a{n // 2}", n, 1, 4, 2.5, 16, 50) for n in NUMBERS),
    ],
    "helios": [
        ("job_id", "user", "vc", "submit_time", "gpu_num", "cpu_num", "node_num", "state", "duration", "start_time", "end_time"),
        *((f"j{n}", "u", "v", f"2020-04-01 00:{n}0:00", n % 3, 4, 1, "COMPLETED", 100 + n, f"2020-04-01 00:{n}1:00", f"2020-04-01 01:{n}1:00") for n in range(6)),
    ],
}  # fmt: skip
SACCT = [
    ("JobID", "User", "Partition", "Submit", "ElapsedRaw", "AllocTRES", "State"),
    *((f"{n}", "ada", "gpu", f"2024-01-02T00:0{n}:00", 60 + n, f"cpu=4;mem=16G;gres/gpu={1 + n}".replace(";", ","), ("COMPLETED", "FAILED", "RUNNING")[n % 3]) for n in range(6)),
]  # fmt: skip


def told(call, folder):
    answer = outcome(call)
    return answer.replace(str(folder), "") if isinstance(answer, str) else short(answer)


@pytest.mark.prove
def test_tables_with_one_cell_changed(tmp_path):
    gavel_file(tmp_path, [])
    alibaba_file(tmp_path, [])
    found = {}
    for form, rows in {**TABLES, "sacct": SACCT}.items():
        separator = "|" if form == "sacct" else ","
        said = with_cells(
            tmp_path / "jobs.csv", lambda path, kind=form: read_jobs(path, kind, ReadOptions()), rows, separator
        )
        found |= {f"{form} {what}": answer for what, answer in said.items()}
        for options in ({"virtual_cluster": "vc1"}, {"virtual_cluster": "none"}, {"gpu_type": "k80"}, {"run_s": 50.0}):
            path = tmp_path / "jobs.csv"
            path.write_text("\n".join(separator.join(map(str, row)) for row in rows) + "\n")
            found[f"{form} {options}"] = told(
                lambda kind=form, given=options, path=path: read_jobs(path, kind, ReadOptions(**given)), tmp_path
            )
    assert_kept(KEPT / "tables.json", found)


def test_other_tables_with_one_cell_changed(tmp_path):
    names = "id,gpu_job_num,avg_run_time_gpu,med_run_time_gpu,avg_que_time_gpu,med_que_time_gpu,avg_gpu_num,med_gpu_num,complete_rate_gpu,cancel_rate_gpu,fail_rate_gpu,complete_gpu_time,cancel_gpu_time,fail_gpu_time"
    cases = {
        "summaries": (read_summaries, [names.split(","), ["A", "5", "10", "2", "3", "1", "1.5", "1", ".6", ".2", ".2", "50", "30", "20"], ["B", "5", "10", "2", "3", "1", "1.5", "1", "", "", "", "", "", ""], ["C", "5", "10", "2", "3", "1", "1.5", "1", "0", "0", "0", "0", "0", "0"]]),
        "quotas": (read_quotas, [("vc", "node num"), ("a", 64), ("b", 8)]),
        "samples": (read_samples, [("duration_s", "num_gpus"), (5, 2), (7, 1)]), "service": (read_samples, [("duration",), (5,), (7,)]),
        "times": (lambda path: read_times(path, "t"), [("t", "x"), (5, 1), (7, 1)]), "dates": (lambda path: read_times(path, "t", 1000.0), [("t", "x"), ("2017-10-03 00:00:09", 1), ("2017-10-03T00:01:00", 1)]),
        "steps": (lambda path: read_step_times(path.parent), [("placement", "local_bsz", "step_time", "sync_time"), (2, 10, 1.0, 0), (11, 10, 1.5, 0), (4, 10, 1.0, 0), (1111, 10, 2, 0)]),
        "curve": (lambda path: read_curve(path.parent, 30), [("progress", "iteration", "metric"), (1, 50, 0.4), (2, 100, 0.8)]),
    }  # fmt: skip
    found = {}
    with gzip.open(tmp_path / "scalability.csv.gz", "wt") as file:
        file.write("num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,8,10,4.0,0\n2,8,10,2.0,0\n")
    for name, (read, rows) in cases.items():
        plain = {"steps": "placements.csv.gz", "curve": "validation-30.csv.gz"}.get(name, "table.csv")
        found |= {f"{name} {what}": answer for what, answer in with_cells(tmp_path / plain, read, rows).items()}
    found["clock"] = [
        outcome(seconds_of, begin, text)
        for begin in (None, datetime(2017, 10, 3))
        for text in ("60", "2017-10-03 01:00:00", "x")
    ]
    assert_kept(KEPT / "others.json", found)


def test_logs_and_rates_with_one_field_changed(tmp_path):
    def attempt(start, end, *gpus):
        machines = [{"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(count)]} for n, count in enumerate(gpus)]
        return {"start_time": start, "end_time": end, "detail": machines}

    first = attempt("2017-10-03 00:01:00", "2017-10-03 00:01:20", 1)
    log = [
        {"jobid": "a", "submitted_time": "2017-10-03 00:00:00", "status": "Pass", "vc": "v", "user": "u", "attempts": [first, attempt("2017-10-03 00:05:00", "2017-10-03 00:06:00", 2, 2)]},
        {"jobid": "b", "submitted_time": "2017-10-03 00:02:00", "status": "Failed", "vc": "w", "user": "u", "attempts": [attempt("2017-10-03 00:02:00", "2017-10-03 00:02:05", 1)]},
    ]  # fmt: skip
    rates = {
        "v100": {
            "('A', 1)": {"null": 2.0, "('A', 1)": [1.0, 1.5]},
            "('A', 4)": {"null": 6.0},
            "('B (batch size 2)', 2)": {"null": 10.0},
        },
        "k80": {"('A', 1)": {"null": 0.5}},
    }
    path = tmp_path / "cluster_job_log"

    def said(read):
        def of(document):
            path.write_text(json.dumps(document, indent=1))
            return told(lambda: read(path), tmp_path)

        return of

    found = {
        f"log {what}": answer
        for what, answer in answers(log, said(lambda file: read_jobs(file, "philly", ReadOptions())), 2).items()
    }
    found |= {f"rates {what}": answer for what, answer in answers(rates, said(read_throughputs), 2).items()}
    found["nodes"] = [
        told(
            lambda nodes=nodes: read_jobs(
                alibaba_file(tmp_path, TABLES["alibaba"][1:], nodes), "alibaba", ReadOptions()
            ),
            tmp_path,
        )
        for nodes in ([], [("n0", 9000, 4096, 8, "G2")], [("n0", -1, 4096, 8, "G2")])
    ]
    assert NODES[0] == "sn"
    assert_kept(KEPT / "logs.json", found)
