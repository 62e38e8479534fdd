"""Arrays of a run on disk: which there are, of what form, and which come together."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict
from numpy.typing import NDArray

from optim.core.archives import Arrays
from optim.core.errors import InvalidProblemError
from optim.models.cluster.log import EventLog
from optim.models.cluster.run_header import SCHEMA, HeaderDocument
from optim.models.cluster.workload import TABLES
from optim.models.cluster.world import FloatArray, IntArray

JOB_COLUMNS = ("submit_us", "gpus", "duration_us", "slowdown_ppm", "app", "group")
PLANNED_JOB_COLUMNS = (
    *("least_gpus", "most_gpus", "share_milli", "busy_milli", "kind_ppm", "cpu_milli", "memory_mib", "priority"),
    "fails_us",
)
TRIED_JOB_COLUMNS = ("tries", "good_us")
NAMED_JOB_COLUMNS = ("user", "model", "status", "reason")
MORE_JOB_COLUMNS = (*PLANNED_JOB_COLUMNS, *TRIED_JOB_COLUMNS, *NAMED_JOB_COLUMNS, "loss")
MACHINE_COLUMNS = ("gpus", "rack", "kind")
MORE_MACHINE_COLUMNS = ("cpus", "memory_gb")
LOG_COLUMNS = ("time_us", "kind", "job", "first", "machine", "gpus")
MORE_LOG_COLUMNS = ("slot",)
"""Columns that files of earlier versions lack are called MORE here; what they stand for where they are missing is in the types."""
WORTH_ARRAYS = ("theta", "price")
DIVISIBLE_ARRAYS = ("job", "weight", "gpu_type", "start_us")
NOT_WHOLE = ("loss", "cpus", "memory_gb")
MOST, LARGEST = np.iinfo(np.int64).max, 8
"""Largest whole number, and bytes of the largest numbers."""

STAGES: Sequence[Sequence[str]] = (
    (
        *("header.rules", "header.figures", "jobs.loss", "log.slot"),
        *(f"jobs.{name}" for name in PLANNED_JOB_COLUMNS),
        *(f"cluster.{name}" for name in MORE_MACHINE_COLUMNS),
    ),
    ("header.names", "header.kinds", *(f"jobs.{name}" for name in NAMED_JOB_COLUMNS)),
    ("header.worth",),
    tuple(f"jobs.{name}" for name in TRIED_JOB_COLUMNS),
)
"""What one version after the other added: a file that has any of it has all of it, and all before."""


class RunArrays:
    """Arrays of a file, of which each is known and read.

    Parameters
    ----------
    arrays
        By name, the header's bytes among them.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._unread = set(arrays)

    @property
    def is_whole(self) -> bool:
        """Whether the file holds what came last in files of the first schema."""
        return any(name in self._arrays for name in STAGES[-1])

    @property
    def has_prices(self) -> bool:
        """Whether the file holds prices, or a part of them."""
        return "price" in self._arrays or "price_end_us" in self._arrays

    def has_any(self, prefix: str) -> bool:
        """Tell whether the file holds an array whose name begins so."""
        return any(name.startswith(prefix) for name in self._arrays)

    def dimensions(self, name: str) -> int:
        """Return 2 if an array has two dimensions, else 1."""
        return 2 if name in self._arrays and self._arrays[name].ndim == 2 else 1

    def header(self) -> bytes:
        """Return the bytes of the header."""
        values = self._take("header")
        if values.dtype != np.uint8 or values.ndim != 1:
            raise InvalidProblemError("header must be an array of bytes")
        return values.tobytes()

    def check_parts(self, header: HeaderDocument) -> None:
        """Check that what came with a version is there as a whole."""
        there = {*self._arrays, *(f"header.{name}" for name, value in asdict(header).items() if value is not UNSET)}
        is_due = header.schema == SCHEMA
        for stage in reversed(STAGES):
            names = [each for name in stage for each in _of_runs(name, len(header.policies))]
            missing = [name for name in names if name not in there]
            is_due |= len(missing) < len(names)
            if is_due and missing:
                raise InvalidProblemError(f"no {missing[0]} in it, which what else it holds comes with")

    def check_all_read(self) -> None:
        """Check that the file holds nothing else."""
        if self._unread:
            raise InvalidProblemError(f"unknown array {min(self._unread)[:40]!r} in it")

    def whole(self, name: str, dims: int) -> IntArray:
        """Return whole numbers."""
        values = self._take(name)
        is_whole = values.dtype.kind in "iu" and values.ndim == dims
        if not is_whole or (values.dtype.kind == "u" and values.max(initial=0) > MOST):
            raise InvalidProblemError(f"{name} must hold whole numbers of 64 bits, in {dims} dimensions")
        return values.astype(np.int64)

    def floats(self, name: str, dims: int) -> FloatArray:
        """Return finite numbers."""
        values = self._take(name)
        is_real = values.dtype.kind in "iuf" and values.dtype.itemsize <= LARGEST and values.ndim == dims
        if not is_real or not np.isfinite(values).all():
            raise InvalidProblemError(f"{name} must hold finite numbers of 64 bits, in {dims} dimensions")
        return values.astype(np.float64)

    def columns(self, prefix: str, names: Sequence[str], more: Sequence[str]) -> dict[str, Any]:
        """Return columns of a table by their names, those of `more` if they are there."""
        found = (*names, *(name for name in more if f"{prefix}.{name}" in self._arrays))
        read = {name: self.floats if name in NOT_WHOLE else self.whole for name in found}
        return {name: read[name](f"{prefix}.{name}", 2 if name in TABLES else 1) for name in found}

    def table(self, prefix: str, names: Sequence[str], more: Sequence[str]) -> dict[str, Any]:
        """Return columns that are all of one length: one that is left empty isn't filled."""
        columns = self.columns(prefix, names, more)
        for name, values in columns.items():
            if len(values) != len(columns[names[0]]):
                raise InvalidProblemError(
                    f"{prefix}.{name} has {len(values)} rows, and {prefix}.{names[0]} has {len(columns[names[0]])}"
                )
        return columns

    def log(self, number: int) -> EventLog:
        """Return a run's events."""
        prefix = f"log{number}"
        columns = self.columns(prefix, LOG_COLUMNS, MORE_LOG_COLUMNS)
        first, events, places = columns["first"], len(columns["time_us"]), len(columns["machine"])
        sizes = {len(columns[name]) for name in ("time_us", "kind", "job")}
        is_whole = len(first) == events + 1 and first[0] == 0 and first[-1] == places and (np.diff(first) >= 0).all()
        slot = columns.get("slot", np.full(len(columns["gpus"]), -1))
        if len(sizes) > 1 or {len(columns["gpus"]), len(slot)} != {places} or not is_whole:
            raise InvalidProblemError(f"{prefix} has columns of different lengths")
        if not ((slot == -1).all() or (slot >= 0).all()):
            raise InvalidProblemError(f"{prefix}.slot must name a GPU of each place, or be -1 for all")
        return EventLog(**columns)

    def _take(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            raise InvalidProblemError(f"no {name} in it")
        self._unread.discard(name)
        return self._arrays[name]


def _of_runs(name: str, runs: int) -> Iterator[str]:
    """Yield the names of an array that each run has."""
    prefix, _, column = name.partition(".")
    yield from (f"log{number}.{column}" for number in range(runs)) if prefix == "log" else (name,)
