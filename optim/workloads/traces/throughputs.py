"""Gavel's table of steps a second: by GPU type, job type and number of GPUs, alone and beside another job."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.workloads.traces.job_table import BoolArray, FloatArray, IntArray

ALONE = "null"
"""Key of a job type's rate when it has its GPUs for itself."""
SCATTERED = "_unconsolidated"
"""End of the name of a GPU type where the GPUs are on several machines."""
TELL = "give Gavel's throughput table"

_KEY = re.compile(r"^\('(?P<type>.*)', (?P<gpus>\d+)\)$")

Job = tuple[str, int]
"""Job type and number of GPUs."""
Rates = list[FloatArray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Throughputs:
    """Steps a second.

    Parameters
    ----------
    types
        GPU types.
    alone
        By column of the file (a GPU type, or one with `SCATTERED`), then job type and number of GPUs: the rate alone.
    beside
        By column: both rates of two jobs that share their GPUs, as far as measured.
    """

    types: tuple[str, ...]
    alone: Mapping[str, Mapping[str, Mapping[int, float]]]
    beside: Mapping[str, Mapping[tuple[Job, Job], tuple[float, float]]]

    def rates(
        self, gpu_type: str, kinds: list[str], gpus: IntArray, *, is_scattered: bool = False
    ) -> tuple[FloatArray, BoolArray]:
        """Return steps a second of each job (0 where its type has none), and whether they were measured.

        Numbers of GPUs that weren't measured are extrapolated in proportion from the largest below, or else the smallest.

        Raises
        ------
        InvalidProblemError
            If the table doesn't have the GPU type.
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
    """Read the table, JSON, plain or gzip.

    Raises
    ------
    InvalidProblemError
        If it isn't such a table.

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
        raise InvalidProblemError(f"{path}: it names no GPU type; {TELL}")
    types = tuple(column for column in alone if not column.endswith(SCATTERED))
    return Throughputs(types=types, alone=alone, beside=beside)


def _read_column(
    path: str | Path, kinds: Mapping[str, Any]
) -> tuple[dict[str, dict[int, float]], dict[tuple[Job, Job], tuple[float, float]]]:
    """Return a GPU type's rates alone and beside another job."""
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
                    raise InvalidProblemError(f"{path}: entry {key!r} must have two rates beside {other_key!r}; {TELL}")
                beside[job, other] = float(both[0]), float(both[1])
    return alone, beside


def _job(key: str) -> Job | None:
    match = _KEY.match(key)
    return None if match is None else (match["type"], int(match["gpus"]))
