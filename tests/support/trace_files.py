"""Small made-up files in the forms of the public traces of clusters."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optim.models.admission.instance import AdmissionInstance
from optim.workloads.admission.traces import TraceOptions, read_trace

MERGED = ("job_id", "submit_s", "num_gpus", "duration_s", "vc")
POLLUX = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
GAVEL = ("vc", "idx", "job_type", "total_steps", "arrival_s", "scale_factor")
PODS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

Rows = Sequence[Sequence[object]]

ROOMY: dict[str, Any] = {"num_slots": 10, "num_worker_servers": 20, "num_ps_servers": 20}
"""A cluster that holds everything, and a horizon of 10 slots of 15 minutes."""


def write_table(path: Path, header: Sequence[str], rows: Rows) -> Path:
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def philly_file(folder: Path, rows: Rows) -> Path:
    return write_table(folder / "jobs.csv", MERGED, rows)


def read_philly_instance(path: Path, **options: Any) -> AdmissionInstance:
    return read_trace(path, "philly", TraceOptions(**{**ROOMY, **options}), 0)[0]


def gavel_file(folder: Path, rows: Rows) -> Path:
    table = {
        "v100": {
            "('A', 1)": {"null": 2.0, "('A', 1)": [1.0, 1.0]},
            "('A', 4)": {"null": 6.0},
            "('B (batch size 2)', 2)": {"null": 10.0},
        },
        "k80": {"('A', 1)": {"null": 0.5}},
    }
    with gzip.open(folder / "simulation_throughputs.json.gz", "wt") as file:
        json.dump(table, file)
    return write_table(folder / "jobs.csv", GAVEL, rows)


def alibaba_file(folder: Path, pods: Rows, nodes: Rows | None = None) -> Path:
    whole: Rows = [("n0", 96_000, 393_216, 8, "G2"), ("n1", 64_000, 262_144, 2, "T4"), ("n2", 32_000, 262_144, 0, "")]
    write_table(folder / "openb_node_list_all_node.csv", NODES, whole if nodes is None else nodes)
    return write_table(folder / "pods.csv", PODS, pods)


def pod(name: str, gpus: int, milli: int, times: tuple[object, object, object], phase: str = "Failed") -> list[object]:
    return [name, 6000, 12288, gpus, milli, phase, *times]
