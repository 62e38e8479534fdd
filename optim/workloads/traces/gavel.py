"""Gavel's jobs, drawn over Philly's submissions: work in steps, and the table of steps a second."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
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

TABLE_NAMES = ("simulation_throughputs.json.gz", "simulation_throughputs.json")
"""Where the throughput table is looked for, beside the jobs."""

ALONE = "null"
"""Key of a job type's rate when it has its GPUs for itself."""

UNKNOWN_TYPE = "of a type without throughput"

_KEY = re.compile(r"^\('(?P<type>.*)', (?P<gpus>\d+)\)$")


def read_gavel(path: str | Path, options: ReadOptions) -> JobTable:
    """Read Gavel's jobs; the run time is the number of steps over the steps a second on `gpu_type`.

    Columns: `vc` (virtual cluster, each with a clock of its own), `idx`, `job_type`, `total_steps`,
    `arrival_s`, `scale_factor` (GPUs). The table holds rates for few numbers of GPUs; others are extrapolated
    in proportion to the GPUs from the largest number below that was measured, and counted in the notes.
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
    rate, is_measured = _rates(columns["job_type"].tolist(), gpus, _read_table(path, options))
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
        rows_read=len(gpus),
        dropped=dropped,
        notes=(f"throughputs of {extrapolated} of {len(kept)} jobs are extrapolated over GPUs",),
    )


def _rates(types: list[str], gpus: IntArray, table: dict[str, dict[int, float]]) -> tuple[FloatArray, Any]:
    """Return steps a second of each job (0 where its type is unknown), and whether they were measured."""
    rate = np.zeros(len(gpus))
    is_measured = np.zeros(len(gpus), dtype=bool)
    for row, (kind, number) in enumerate(zip(types, gpus.tolist(), strict=True)):
        known = table.get(kind)
        if not known:
            continue
        base = max((size for size in known if size <= number), default=min(known))
        rate[row] = known[base] * number / base
        is_measured[row] = base == number
    return rate, is_measured


def _read_table(path: str | Path, options: ReadOptions) -> dict[str, dict[int, float]]:
    """Return steps a second by job type and number of GPUs."""
    place = options.throughputs or file_beside(path, TABLE_NAMES, what="throughput table", option="throughputs")
    try:
        content = json.loads(read_bytes(place))
    except (ValueError, RecursionError) as error:
        raise InvalidProblemError(f"{place}: not JSON ({error}); give Gavel's throughput table") from error
    kinds = content.get(options.gpu_type) if isinstance(content, dict) else None
    if not isinstance(kinds, dict):
        known = ", ".join(content) if isinstance(content, dict) else "nothing"
        raise InvalidProblemError(
            f"{place}: GPU type {options.gpu_type!r} is missing (there are: {known}); choose another gpu_type"
        )
    table: dict[str, dict[int, float]] = {}
    for key, rates in kinds.items():
        match = _KEY.match(key)
        alone = rates.get(ALONE) if isinstance(rates, dict) else None
        if match is None or not isinstance(alone, int | float):
            raise InvalidProblemError(
                f"{place}: entry {key!r} must be ('type', GPUs) with a rate {ALONE!r}; give Gavel's throughput table"
            )
        if alone > 0:
            table.setdefault(match["type"], {})[int(match["gpus"])] = float(alone)
    return table
