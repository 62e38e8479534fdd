"""Formats of job traces, by name."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from optim.core.errors import InvalidOptionError
from optim.workloads.csv_columns import header_of
from optim.workloads.traces.alibaba import read_alibaba
from optim.workloads.traces.gavel import read_gavel
from optim.workloads.traces.job_table import JobTable, ReadOptions, merge_attempts
from optim.workloads.traces.philly import read_philly
from optim.workloads.traces.plain_tables import HELIOS, MURI, TIRESIAS, read_plain
from optim.workloads.traces.pollux_workload import read_workload
from optim.workloads.traces.slurm import read_sacct


def _read_pollux(path: str | Path, options: ReadOptions) -> JobTable:
    """Read a trace of Pollux' authors: the list that they sample from, or a workload sampled from it."""
    return read_workload(path, options) if "application" in header_of(path) else read_philly(path, options)


_READERS: Mapping[str, Callable[[str | Path, ReadOptions], JobTable]] = MappingProxyType(
    {
        "philly": read_philly,
        "gavel": read_gavel,
        "alibaba": read_alibaba,
        "pollux": _read_pollux,
        "csv": read_plain,
        "tiresias": partial(read_plain, form=TIRESIAS),
        "muri": partial(read_plain, form=MURI),
        "helios": partial(read_plain, form=HELIOS),
        "sacct": read_sacct,
    }
)

TRACE_FORMATS = tuple(_READERS)
"""Names of the formats that `read_jobs` knows."""

DEFAULT_FORMAT = "csv"
"""Format of a trace if none is stated: the user's table."""


def read_jobs(path: str | Path, trace_format: str, options: ReadOptions) -> JobTable:
    """Read the jobs of a trace, plain or gzip: tables, or Philly's job log in JSON. Rows with equal names are attempts of one job.

    Raises
    ------
    InvalidOptionError
        If the format is unknown, or doesn't have one of the options.
    InvalidProblemError
        If the file can't be read or is invalid.
    """
    if trace_format not in _READERS:
        raise InvalidOptionError(f"trace format must be one of {', '.join(TRACE_FORMATS)}, got {trace_format!r}")
    return merge_attempts(_READERS[trace_format](path, options))
