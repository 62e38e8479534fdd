"""A small Slurm cluster of two types of GPU as `sacct -P` prints it: eight weeks of jobs that ended, some that run, and some that wait.

`python -m tests.support.sacct_cluster FOLDER` writes the table, the topology and the other files of the guide for operators.
"""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

HEADER = (
    "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Timelimit|ReqTRES|AllocTRES|State|Priority|QOS|NodeList"
)
BEGIN = datetime(2026, 3, 2, 8, 0, 0)
TYPES = {"train": ("h100", "h"), "batch": ("a100", "a")}
USERS = {"ann": "nlp", "ben": "nlp", "cem": "vision", "dee": "vision", "eva": "bio"}
MACHINES = 3


def write_cluster(folder: Path, weeks: int = 8, seed: int = 0) -> None:
    """Write `jobs.txt`, `topology.json`, `more.json`, `outages.csv`, `slurm.conf`, `quotas.yaml`, `then.yaml` and `gpu_util.csv`."""
    rng = np.random.default_rng(seed)
    rows, number = [HEADER], 1000
    end = BEGIN + timedelta(weeks=weeks)
    for partition, (kind, _) in TYPES.items():
        free = np.zeros(MACHINES * 8)  # hours after the beginning at which each GPU is free: the recorded schedule
        hour = 0.0
        while True:
            hour += float(rng.exponential(2.2 if hour < 168 * weeks - 12 else 0.4))  # the last evening is busy
            submit = BEGIN + timedelta(hours=hour)
            if submit >= end:
                break
            gpus = int(rng.choice([1, 2, 4, 8, 16], p=[0.4, 0.2, 0.2, 0.15, 0.05]))
            length = float(np.clip(rng.lognormal(1.3, 1.0), 0.05, 60))
            limit = max(1, int(np.ceil(length * rng.uniform(1.0, 3.0))))
            order = np.argsort(free, kind="stable")[:gpus]
            start_h = max(hour, float(free[order].max()))
            free[order] = start_h + length
            user = str(rng.choice(list(USERS)))
            number += 1
            begin, over = BEGIN + timedelta(hours=start_h), BEGIN + timedelta(hours=start_h + length)
            state = "COMPLETED" if over <= end else "RUNNING" if begin <= end else "PENDING"
            elapsed = {
                "COMPLETED": length * 3600,
                "RUNNING": (end - begin).total_seconds(),
                "PENDING": 0,
            }[state]
            tres = f"cpu={4 * gpus},gres/gpu:{kind}={gpus},gres/gpu={gpus}"
            fields = (
                *(number, user, USERS[user], partition, _date(submit)),
                _date(begin) if state != "PENDING" else "Unknown",
                _date(over) if state == "COMPLETED" else "Unknown",
                *(int(elapsed), f"{limit // 24}-{limit % 24:02}:00:00", tres, "" if state == "PENDING" else tres),
                *(state, int(rng.integers(1, 1000)), "normal", ""),
            )
            rows.append("|".join(map(str, fields)))
    (folder / "jobs.txt").write_text("\n".join(rows) + "\n")
    for name, machines in (("topology.json", MACHINES), ("more.json", MACHINES + 2)):
        document = {
            "schema": "optim/cluster/1",
            "machines": [
                {"count": machines, "gpus": 8, "kind": kind, "partitions": [partition]}
                for partition, (kind, _) in TYPES.items()
            ],
        }
        (folder / name).write_text(json.dumps(document))
    window = BEGIN + timedelta(weeks=weeks - 1)
    (folder / "outages.csv").write_text(
        f"machine,start,end\n0-1,{_date(window)},{_date(window + timedelta(hours=24))}\n"
    )
    (folder / "slurm.conf").write_text(
        "PriorityType=priority/multifactor\nPriorityWeightAge=1000\nPriorityMaxAge=7-0\nPriorityWeightFairshare=10000\n"
        "PriorityDecayHalfLife=7-0\nPriorityWeightJobSize=500\n"
    )
    for name, quotas in (("quotas.yaml", QUOTAS), ("then.yaml", QUOTAS | {"nlp": (8, 4), "vision": (12, 16)})):
        (folder / name).write_text("---\n".join(_queue(each, *quota) for each, quota in quotas.items()))
    _write_series(folder / "gpu_util.csv")


QUOTAS = {"nlp": (16, 4), "vision": (4, 16), "bio": (4, 4)}
"""Nominal quotas of each account by type of GPU."""


def _queue(name: str, h100: int, a100: int) -> str:
    flavors = "".join(
        f"    - {{name: {kind}, resources: [{{name: nvidia.com/gpu, nominalQuota: {quota}}}]}}\n"
        for kind, quota in (("h100", h100), ("a100", a100))
    )
    return (
        f"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n  cohort: all\n"
        "  preemption: {reclaimWithinCohort: Any}\n  resourceGroups:\n  - coveredResources: [nvidia.com/gpu]\n"
        f"    flavors:\n{flavors}"
    )


def _write_series(path: Path) -> None:
    rows = ["time_s,gpu,utilisation,namespace,user,job"]
    for second in range(0, 4 * 3600, 600):
        rows += [f"{second},g{gpu},{90 if gpu < 2 or second < 3600 else 0},train,ann,1001" for gpu in range(4)]
    path.write_text("\n".join(rows) + "\n")


def _date(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}"


if __name__ == "__main__":
    write_cluster(Path(sys.argv[1]))
