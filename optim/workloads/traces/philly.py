"""Lists of the jobs in Microsoft's Philly trace: the merged list, and the list that Pollux simulates.

Both carry the attribution: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", USENIX ATC 2019 (trace: CC BY 4.0).
"""

from pathlib import Path

import numpy as np

from optim.workloads.csv_columns import header_of, read_columns, refuse, require, require_whole
from optim.workloads.traces.job_table import (
    ELSEWHERE,
    NO_WORK,
    FloatArray,
    JobTable,
    ReadOptions,
    TextArray,
    is_elsewhere,
    leave_out,
)


def read_philly(path: str | Path, options: ReadOptions) -> JobTable:
    """Read a list of Philly's jobs; its header tells which of the two forms it has.

    The merged list has columns `job_id`, `submit_s` (seconds since the first job), `num_gpus`, `duration_s`
    and `vc`; its run times add up all attempts, so that GPU-hours are upper bounds, and the virtual cluster is empty
    for the long and wide jobs.
    Pollux' list has `timestamp` (date and time, not in order), `duration` (s), `num_gpus` and `cluster`.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field is no number or negative, or the file can't be read.
    """
    is_pollux = "timestamp" in header_of(path) and "submit_s" not in header_of(path)
    if is_pollux:
        columns = read_columns(path, ("duration", "num_gpus"), ("timestamp", "cluster"))
        submit, duration, cluster = (
            _seconds(path, columns["timestamp"]),
            columns["duration"],
            columns["cluster"],
        )
        duration_name = "duration"
        ids = [f"row-{row}" for row in range(len(submit))]
    else:
        columns = read_columns(path, ("submit_s", "num_gpus", "duration_s"), ("job_id", "vc"))
        submit, duration, cluster = columns["submit_s"], columns["duration_s"], columns["vc"]
        duration_name = "duration_s"
        ids = [f"philly-{name}" for name in columns["job_id"].tolist()]
        require(path, columns, "submit_s", least=0.0)
    require(path, columns, duration_name, least=0.0)
    require(path, columns, "num_gpus", least=1.0)
    gpus = require_whole(path, "num_gpus", columns["num_gpus"])
    kept, dropped = leave_out({ELSEWHERE: is_elsewhere(cluster, options), NO_WORK: duration <= 0})
    return JobTable(
        ids=tuple(ids[row] for row in kept.tolist()),
        submit_s=submit[kept],
        workers=gpus[kept],
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        virtual_cluster=cluster[kept],
        rows_read=len(submit),
        dropped=dropped,
        notes=() if is_pollux else ("run times add up all attempts: GPU-hours are upper bounds",),
    )


def _seconds(path: str | Path, timestamps: TextArray) -> FloatArray:
    """Return seconds since the first of all time stamps."""
    import pandas as pd

    times = pd.to_datetime(pd.Series(timestamps), format="%Y-%m-%d %H:%M:%S", errors="coerce")
    refuse(path, "timestamp", times.isna().to_numpy(), "YYYY-MM-DD hh:mm:ss is due", timestamps)
    seconds: FloatArray = (times - times.min()).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds
