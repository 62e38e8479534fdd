"""Gavel's jobs, drawn over Philly's submissions: work in steps, and the table of steps a second."""

from pathlib import Path

import numpy as np

from optim.workloads.csv_columns import read_columns, require, require_whole
from optim.workloads.traces.job_table import (
    ELSEWHERE,
    NO_WORK,
    FloatArray,
    IntArray,
    JobTable,
    ReadOptions,
    file_beside,
    is_elsewhere,
    leave_out,
)
from optim.workloads.traces.throughputs import Rates, Throughputs, read_throughputs

TABLE_NAMES = ("simulation_throughputs.json.gz", "simulation_throughputs.json")
"""Where the throughput table is looked for, beside the jobs."""

UNKNOWN_TYPE = "of a type without throughput"


def read_gavel(path: str | Path, options: ReadOptions) -> JobTable:
    """Read Gavel's jobs; the run time is the number of steps over the steps a second on `gpu_type`.

    Columns: `vc` (virtual cluster, each with a clock of its own), `idx`, `job_type`, `total_steps`,
    `arrival_s`, `scale_factor` (GPUs). The table holds rates for few numbers of GPUs; others are extrapolated
    in proportion to the GPUs from the largest number below that was measured, and counted in the notes. Rates of GPUs on
    one machine and of scattered ones tell the slowdown of gangs that machines don't hold.
    Virtual clusters are not laid over each other: the window is sought in each of them.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field is no number or negative, or a file can't be read.

    References
    ----------
    Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
    OSDI 2020.
    """
    columns = read_columns(path, ("idx", "total_steps", "arrival_s", "scale_factor"), ("vc", "job_type"))
    require(path, columns, "total_steps", "arrival_s", least=0.0)
    require(path, columns, "scale_factor", least=1.0)
    gpus = require_whole(path, "scale_factor", columns["scale_factor"])
    place = options.throughputs or file_beside(path, TABLE_NAMES, what="throughput table", option="throughputs")
    table = read_throughputs(place)
    kinds = columns["job_type"].tolist()
    rate, is_measured = table.rates(options.gpu_type, kinds, gpus)
    kept, dropped = leave_out(
        {
            ELSEWHERE: is_elsewhere(columns["vc"], options),
            UNKNOWN_TYPE: rate <= 0,
            NO_WORK: columns["total_steps"] <= 0,
        }
    )
    _, clock = np.unique(columns["vc"].astype(str), return_inverse=True)
    extrapolated = int((~is_measured[kept]).sum())
    return JobTable(
        ids=tuple(f"{columns['vc'][row]}-{columns['idx'][row]:.0f}" for row in kept.tolist()),
        submit_s=columns["arrival_s"][kept],
        workers=gpus[kept],
        duration_s=columns["total_steps"][kept] / rate[kept],
        clock=clock[kept].astype(np.int64),
        virtual_cluster=columns["vc"][kept],
        model=columns["job_type"][kept],
        slowdown=_slowdown(table, options.gpu_type, kinds, gpus, rate)[kept],
        types=table.types,
        type_ratio=_ratios(table, kinds, gpus, rate)[kept],
        rows_read=len(gpus),
        dropped=dropped,
        notes=(f"throughputs of {extrapolated} of {len(kept)} jobs are extrapolated over GPUs",),
    )


def _slowdown(table: Throughputs, gpu_type: str, kinds: list[str], gpus: IntArray, rate: FloatArray) -> FloatArray:
    """Return the slowdown on one machine (1), and on several, of a rack or not: the table doesn't tell them apart."""
    scattered, is_measured = table.rates(gpu_type, kinds, gpus, is_scattered=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        slower = np.where(is_measured & (rate > 0) & (scattered > 0), np.maximum(1.0, rate / scattered), 1.0)
    return np.stack([np.ones(len(rate)), slower, slower], axis=1)


def _ratios(table: Throughputs, kinds: list[str], gpus: IntArray, rate: FloatArray) -> FloatArray:
    """Return each job's run time on every GPU type over that on the one chosen."""
    columns: Rates = [table.rates(name, kinds, gpus)[0] for name in table.types]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.where(other > 0, rate / other, np.nan) for other in columns], axis=1)
