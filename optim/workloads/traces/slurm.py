"""Slurm's accounting: what `sacct -P` prints."""

import re
from pathlib import Path

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.workloads.csv_columns import header_of, read_columns, require
from optim.workloads.traces.job_table import (
    ELSEWHERE,
    NO_WORK,
    FloatArray,
    IntArray,
    JobTable,
    ReadOptions,
    TextArray,
    is_elsewhere,
    leave_out,
)
from optim.workloads.traces.time_stamps import SLURM_STAMP, since_first

SEPARATOR = "|"
RESOURCES = ("AllocTRES", "ReqTRES")
STEP, NO_GPU, UNFINISHED = "that are steps of jobs", "without a GPU", "that run or wait still"
STILL = ("RUNNING", "PENDING", "REQUEUED", "SUSPENDED", "CONFIGURING", "COMPLETING", "RESIZING")
_GPU = re.compile(r"(?:^|,)gres/gpu(?::(?P<type>[^=,]+))?=(?P<count>\d+)")
_CPU = re.compile(r"(?:^|,)cpu=(\d+)()")
_MEMORY = re.compile(r"(?:^|,)mem=(\d+(?:\.\d+)?)([KMGTP]?)")
MB_OF = {"K": 2.0**-10, "M": 1.0, "": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
GB_A_MB = 2.0**-10


def read_sacct(path: str | Path, options: ReadOptions) -> JobTable:
    """Read jobs from ``sacct -P --format=JobID,User,Partition,Submit,ElapsedRaw,AllocTRES,State`` (ReqTRES will do as well).

    GPUs are ``gres/gpu=N`` (or ``gres/gpu:TYPE=N``, all types together), the type is the one that a job names first; vCPUs and memory are those of the job. The partition
    is the virtual cluster. Steps of jobs (``123.batch``), jobs without GPUs and jobs that aren't over are left out and counted.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field is no number or date, or the file can't be read.
    """
    header = header_of(path, SEPARATOR)
    resources = [name for name in RESOURCES if name in header]
    if not resources:
        raise InvalidProblemError(
            f"{path}: column 'AllocTRES' is missing, and 'ReqTRES', too; print one of them with sacct -P --format=..."
        )
    optional = [name for name in ("JobID", "JobIDRaw", "User", "JobName") if name in header]
    columns = read_columns(path, ("ElapsedRaw",), ("Submit", "Partition", "State", *resources, *optional), SEPARATOR)
    require(path, columns, "ElapsedRaw", least=0.0)
    count = len(columns["Submit"])
    ids = columns.get("JobID", columns.get("JobIDRaw", np.array([f"row-{row}" for row in range(count)], object)))
    granted = columns[resources[0]].copy()
    for name in resources[1:]:  # a job that never ran was granted nothing: what it asked for
        granted[granted == ""] = columns[name][granted == ""]
    gpus = _gpus(granted)
    state = np.array([text.split(" ", 1)[0] for text in columns["State"].tolist()], dtype=object)
    submit, begin = since_first(path, "Submit", columns["Submit"], SLURM_STAMP)
    kept, dropped = leave_out(
        {
            STEP: np.array(["." in name for name in ids.tolist()]),
            ELSEWHERE: is_elsewhere(columns["Partition"], options),
            NO_GPU: gpus < 1,
            UNFINISHED: np.isin(state, STILL),
            NO_WORK: columns["ElapsedRaw"] <= 0,
        }
    )
    workers = gpus[kept]
    cpus, memory = _amounts(granted[kept], _CPU), _amounts(granted[kept], _MEMORY) * GB_A_MB
    return JobTable(
        ids=tuple(ids[kept].tolist()),
        submit_s=submit[kept],
        workers=workers,
        duration_s=columns["ElapsedRaw"][kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        demand=np.stack([np.ones(len(kept)), cpus / workers, memory / workers], axis=1),
        virtual_cluster=columns["Partition"][kept],
        user=columns["User"][kept] if "User" in columns else None,
        status=state[kept],
        gpu_type=_types(granted[kept]),
        begin=begin,
        rows_read=count,
        dropped=dropped,
    )


def _gpus(texts: TextArray) -> IntArray:
    """Return the GPUs of each job: the total, or the sum over types where there is no total."""
    known: dict[str, int] = {}
    for text in set(texts.tolist()):
        found = [(match["type"], int(match["count"])) for match in _GPU.finditer(text)]
        totals = [count for kind, count in found if kind is None]
        known[text] = totals[0] if totals else sum(count for _, count in found)
    return np.array([known[text] for text in texts.tolist()], np.int64)


def _types(texts: TextArray) -> TextArray | None:
    """Return the type of GPU of each job, "" where it isn't told; None if it is told of no job."""
    known = {text: next((m["type"] for m in _GPU.finditer(text) if m["type"]), "") for text in set(texts.tolist())}
    return np.array([known[text] for text in texts.tolist()], object) if any(known.values()) else None


def _amounts(texts: TextArray, pattern: re.Pattern[str]) -> FloatArray:
    """Return an amount of each job's resources, 0 where it isn't told; without a unit of memory it is MB."""
    found = [pattern.search(text) for text in texts.tolist()]
    return np.array([float(match[1]) * MB_OF[match[2]] if match else 0.0 for match in found])
