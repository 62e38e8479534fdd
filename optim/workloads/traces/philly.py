"""Lists of the jobs in Microsoft's Philly trace: the merged list, and the list that Pollux simulates.

Both carry the attribution: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019 (trace: CC BY 4.0).
"""

from datetime import datetime
from pathlib import Path

import numpy as np

from optim.models.cluster.workload import ELSEWHERE
from optim.workloads.csv_columns import header_of, read_columns, require, require_whole
from optim.workloads.traces.job_table import (
    NO_GPU,
    NO_WORK,
    JobTable,
    ReadOptions,
    gpu_hours_of,
    is_elsewhere,
    leave_out,
)
from optim.workloads.traces.philly_log import is_log, read_log
from optim.workloads.traces.time_stamps import PHILLY_STAMP, since_first

MERGED_BEGIN = datetime(2017, 8, 14, 23, 27)
"""Second 0 of the merged list."""


def read_philly(path: str | Path, options: ReadOptions) -> JobTable:
    """Read a list of Philly's jobs; its beginning tells which of three forms it has.

    The merged list has columns `job_id`, `submit_s` (seconds since the first job), `num_gpus`, `duration_s`
    and `vc`; its run times add up all attempts, so that GPU-hours are upper bounds, and the virtual cluster is empty
    for the long and wide jobs.
    Pollux' list has `timestamp` (date and time, not in order), `duration` (s), `num_gpus` and `cluster`.
    The trace's own job log is JSON (`read_log`).

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field is no number or negative, or the file can't be read.
    """
    if is_log(path):
        return read_log(path, options)
    begin = MERGED_BEGIN
    is_pollux = "timestamp" in header_of(path) and "submit_s" not in header_of(path)
    if is_pollux:
        columns = read_columns(path, ("duration", "num_gpus"), ("timestamp", "cluster"))
        submit, begin = since_first(path, "timestamp", columns["timestamp"], PHILLY_STAMP)
        duration, cluster = columns["duration"], columns["cluster"]
        duration_name = "duration"
        ids = [f"row-{row}" for row in range(len(submit))]
    else:
        columns = read_columns(path, ("submit_s", "num_gpus", "duration_s"), ("job_id", "vc"))
        submit, duration, cluster = columns["submit_s"], columns["duration_s"], columns["vc"]
        duration_name = "duration_s"
        ids = [f"philly-{name}" for name in columns["job_id"].tolist()]
        require(path, columns, "submit_s", least=0.0)
    require(path, columns, duration_name, least=0.0)
    require(path, columns, "num_gpus", least=0.0)
    gpus = require_whole(path, "num_gpus", columns["num_gpus"])
    out = {ELSEWHERE: is_elsewhere(cluster, options), NO_GPU: gpus < 1, NO_WORK: duration <= 0}
    kept, dropped = leave_out(out)
    return JobTable(
        ids=tuple(ids[row] for row in kept.tolist()),
        submit_s=submit[kept],
        workers=gpus[kept],
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        virtual_cluster=cluster[kept],
        begin=begin,
        rows_read=len(submit),
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, gpus * duration),
        notes=() if is_pollux else ("run times add up all attempts: GPU-hours are upper bounds",),
    )
