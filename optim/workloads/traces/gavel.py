"""Gavel's jobs, sampled over Philly's submissions, and its table of throughputs."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.cluster.workload import ELSEWHERE
from optim.workloads.csv_columns import header_of, read_columns, require_all_fields, require_columns, require_whole
from optim.workloads.traces.job_table import (
    NO_GPU,
    NO_WORK,
    JobTable,
    ReadOptions,
    gpu_hours_of,
    is_elsewhere,
    leave_out,
    sibling_file,
)

ALONE = "null"
"""Key of the rate of a job that shares its GPUs with no other job."""

SCATTERED = "_unconsolidated"
"""Suffix of a GPU type's name in columns for jobs whose GPUs are on several machines."""

TELL = "give Gavel's throughput table"

_KEY = re.compile(r"^\('(?P<type>.*)', (?P<gpus>\d+)\)$")

Job = tuple[str, int]
"""Job type and number of GPUs."""

Rates = list[FloatArray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Throughputs:
    """Measured throughputs in steps per second.

    Parameters
    ----------
    types
        GPU types.
    alone
        Rates of jobs that run alone, by column of the file (a GPU type, with or without `SCATTERED`), job type and
        number of GPUs.
    beside
        Rates of both jobs of each measured pair that shares its GPUs, by column and pair.
    """

    types: tuple[str, ...]
    alone: Mapping[str, Mapping[str, Mapping[int, float]]]
    beside: Mapping[str, Mapping[tuple[Job, Job], tuple[float, float]]]

    def rates(
        self, gpu_type: str, kinds: list[str], gpus: IntArray, *, is_scattered: bool = False
    ) -> tuple[FloatArray, BoolArray]:
        """Return the steps per second of each job (0 if its job type has no rate), and whether each rate was measured.

        For an unmeasured number of GPUs, the rate of the largest measured number below it (or else of the smallest
        measured number) is extrapolated in proportion to the GPUs.

        Raises
        ------
        InvalidProblemError
            If the table lacks the GPU type.
        """
        column = gpu_type + (SCATTERED if is_scattered else "")
        if gpu_type not in self.types:
            known = ", ".join(self.types) or "nothing"
            raise InvalidProblemError(
                f"GPU type {gpu_type!r} is missing from the throughput table (there are: {known}); choose another gpu_type"
            )
        table = self.alone.get(column, {})
        rate, is_measured = np.zeros(len(gpus)), np.zeros(len(gpus), dtype=bool)
        for row, (kind, number) in enumerate(zip(kinds, gpus.tolist(), strict=True)):
            known_sizes = table.get(kind)
            if known_sizes:
                base = max((size for size in known_sizes if size <= number), default=min(known_sizes))
                rate[row] = known_sizes[base] * number / base
                is_measured[row] = base == number
        return rate, is_measured


def read_throughputs(path: str | Path) -> Throughputs:
    """Read the throughput table (JSON, plain or gzip).

    Raises
    ------
    InvalidProblemError
        If the file isn't a throughput table.

    References
    ----------
    Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020.
    """
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InvalidProblemError(f"{path}: not JSON ({error}); {TELL}") from error
    columns = content.items() if isinstance(content, dict) else ()
    alone: dict[str, dict[str, dict[int, float]]] = {}
    beside: dict[str, dict[tuple[Job, Job], tuple[float, float]]] = {}
    for column, kinds in columns:
        if isinstance(kinds, dict):
            alone[column], beside[column] = _read_column(path, kinds)
    if not alone:
        raise InvalidProblemError(f"{path}: no GPU type is listed; {TELL}")
    types = tuple(column for column in alone if not column.endswith(SCATTERED))
    return Throughputs(types=types, alone=alone, beside=beside)


def _read_column(
    path: str | Path, kinds: Mapping[str, Any]
) -> tuple[dict[str, dict[int, float]], dict[tuple[Job, Job], tuple[float, float]]]:
    """Return the rates in one column: of jobs that run alone, and of pairs that share GPUs."""
    alone: dict[str, dict[int, float]] = {}
    beside: dict[tuple[Job, Job], tuple[float, float]] = {}
    for key, rates in kinds.items():
        job = _job(key)
        own = rates.get(ALONE) if isinstance(rates, dict) else None
        if job is None or not isinstance(own, int | float):
            raise InvalidProblemError(f"{path}: entry {key!r} must be ('type', GPUs) with a rate {ALONE!r}; {TELL}")
        if own > 0:
            alone.setdefault(job[0], {})[job[1]] = float(own)
        for other_key, both in rates.items():
            other = _job(other_key)
            if other is not None:
                if not (isinstance(both, list) and len(both) == 2 and all(isinstance(x, int | float) for x in both)):
                    raise InvalidProblemError(f"{path}: entry {key!r} must have two rates with {other_key!r}; {TELL}")
                beside[job, other] = float(both[0]), float(both[1])
    return alone, beside


def _job(key: str) -> Job | None:
    match = _KEY.match(key)
    return None if match is None else (match["type"], int(match["gpus"]))


TABLE_NAMES = ("simulation_throughputs.json.gz", "simulation_throughputs.json")
"""Names of the throughput table, in the folder of the jobs."""

UNKNOWN_TYPE = "jobs of a type without throughput"

TAB = "\t"

_COMMAND = ("job_type", "command", "working_directory", "steps_argument", "needs_data")

_ENDS = (
    ("total_steps", "arrival_s", "scale_factor"),
    ("total_steps", "scale_factor", "weight", "deadline", "arrival_s"),
)

FORMS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        **{
            len(names) + len(end): (*names, *end)
            for end in _ENDS
            for names in (tuple(name for name in _COMMAND if name != "working_directory"), _COMMAND)
        },
        11: (*_COMMAND, "total_steps", "scale_factor", "mode", "weight", "deadline", "arrival_s"),
        12: (*_COMMAND, "total_steps", "scale_factor", "mode", "weight", "deadline", "duration_s", "arrival_s"),
    }
)
"""Columns of the headerless tables that Gavel's and Shockwave's simulators read, by number of columns."""


def read_gavel(path: str | Path, options: ReadOptions) -> JobTable:
    """Read Gavel's jobs; a run time is the number of steps divided by the steps per second on `gpu_type`.

    Columns: `vc` (virtual cluster, each with a separate clock), `idx`, `job_type`, `total_steps`,
    `arrival_s`, `scale_factor` (GPUs); or a headerless table separated by tabs, as simulators read it (`FORMS`). The
    throughput table has rates for some numbers of GPUs only. The rate for another number is extrapolated from the
    largest measured number below it, in proportion to the GPUs; a note counts these jobs. The ratio of the rates on one
    machine and on several machines gives the slowdown of gangs that don't fit one machine. Since virtual clusters have
    separate clocks, a time window lies within one of them.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field isn't a number or is negative, or a file can't be read.

    References
    ----------
    Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
    OSDI 2020. Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine Learning",
    NSDI 2023.
    """
    numbers = ("total_steps", "arrival_s", "scale_factor")
    width = len(header_of(path, TAB))
    if width > 1:
        if width not in FORMS:
            raise InvalidProblemError(
                f"{path}: its first row has {width} fields separated by tabs; Gavel's tables have {min(FORMS)} to {max(FORMS)}, "
                f"such as {', '.join(FORMS[7])}"
            )
        columns = read_columns(path, numbers, ("job_type",), TAB, names=FORMS[width])
        require_all_fields(path, TAB, "the first row")
        ids = [f"row-{row}" for row in range(len(columns["job_type"]))]
        clusters = np.full(len(ids), "", dtype=object)
    else:
        columns = read_columns(path, ("idx", *numbers), ("vc", "job_type"))
        clusters = columns["vc"]
        ids = [f"{name}-{idx:.0f}" for name, idx in zip(clusters.tolist(), columns["idx"].tolist(), strict=True)]
    require_columns(path, columns, *numbers, least=0.0)
    gpus = require_whole(path, "scale_factor", columns["scale_factor"])
    place = options.throughputs or sibling_file(path, TABLE_NAMES, what="throughput table", option="throughputs")
    table = read_throughputs(place)
    kinds = columns["job_type"].tolist()
    rate, is_measured = table.rates(options.gpu_type, kinds, np.maximum(1, gpus))
    out = {
        ELSEWHERE: is_elsewhere(clusters, options),
        NO_GPU: gpus < 1,
        UNKNOWN_TYPE: rate <= 0,
        NO_WORK: columns["total_steps"] <= 0,
    }
    kept, dropped = leave_out(out)
    run_s = np.divide(columns["total_steps"], rate, out=np.full(len(rate), np.nan), where=rate > 0)
    _, clock = np.unique(clusters.astype(str), return_inverse=True)
    extrapolated = int((~is_measured[kept]).sum())
    return JobTable(
        ids=tuple(ids[row] for row in kept.tolist()),
        submit_s=columns["arrival_s"][kept],
        workers=gpus[kept],
        duration_s=run_s[kept],
        clock=clock[kept].astype(np.int64),
        virtual_cluster=None if width > 1 else clusters[kept],
        model=columns["job_type"][kept],
        slowdown=_slowdown(table, options.gpu_type, kinds, np.maximum(1, gpus), rate)[kept],
        types=table.types,
        type_ratio=_ratios(table, kinds, np.maximum(1, gpus), rate)[kept],
        rows_read=len(gpus),
        dropped=dropped,
        dropped_gpu_h=gpu_hours_of(out, gpus * run_s),
        notes=(f"throughputs of {extrapolated} of {len(kept)} jobs are extrapolated from other numbers of GPUs",),
    )


def _slowdown(table: Throughputs, gpu_type: str, kinds: list[str], gpus: IntArray, rate: FloatArray) -> FloatArray:
    """Return the slowdowns on one machine (1), in one rack, and across racks, where the last two are equal; shape (jobs, 3)."""
    scattered, is_measured = table.rates(gpu_type, kinds, gpus, is_scattered=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        slower = np.where(is_measured & (rate > 0) & (scattered > 0), np.maximum(1.0, rate / scattered), 1.0)
    return np.stack([np.ones(len(rate)), slower, slower], axis=1)


def _ratios(table: Throughputs, kinds: list[str], gpus: IntArray, rate: FloatArray) -> FloatArray:
    """Return the ratio of each job's run time on every GPU type to that on `gpu_type`."""
    columns: Rates = [table.rates(name, kinds, gpus)[0] for name in table.types]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.stack([np.where(other > 0, rate / other, np.nan) for other in columns], axis=1)
