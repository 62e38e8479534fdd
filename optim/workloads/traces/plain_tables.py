"""Traces that are one table with a row a job: one's own, and those of Tiresias' and Muri's simulators."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.workloads.csv_columns import header_of, read_columns, require, require_whole
from optim.workloads.traces.job_table import (
    ELSEWHERE,
    NO_WORK,
    FloatArray,
    JobTable,
    ReadOptions,
    is_elsewhere,
    leave_out,
)
from optim.workloads.traces.time_stamps import read_times

CPUS_A_GPU, MEMORY_GB_A_GPU = 4.0, 16.0
"""Host room of a job, a GPU, where its table tells only one of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainForm:
    """Which columns hold what.

    Parameters
    ----------
    submit, gpus, duration
        Columns of numbers; times in units of `second`.
    second
        How many of the file's units of time a second has.
    texts
        Columns of texts that may be absent, by the field of the table that they fill; `ids` are the names.
    counts
        Columns of whole numbers that may be absent, likewise.
    cpus, memory_gb
        Host room of the whole job; may be absent.
    computing, iteration
        Time that a job's step computes on the GPU, and that it takes; may be absent.
    """

    submit: str = "submit"
    gpus: str = "gpus"
    duration: str = "duration"
    second: float = 1.0
    texts: Mapping[str, str] = field(
        default_factory=lambda: {
            "ids": "id",
            "virtual_cluster": "vc",
            **{name: name for name in ("user", "model", "status", "app", "gpu_type")},
        }
    )
    counts: Mapping[str, str] = field(
        default_factory=lambda: {"priority": "priority", "least_gpus": "min_gpus", "most_gpus": "max_gpus"}
    )
    cpus: str = "cpus"
    memory_gb: str = "memory_gb"
    computing: str = ""
    iteration: str = ""


OWN = PlainForm()
_SIMULATED: dict[str, Any] = {
    "submit": "submit_time",
    "gpus": "num_gpu",
    "texts": {"ids": "job_id", "model": "model_name"},
}
TIRESIAS = PlainForm(**_SIMULATED)
MURI = PlainForm(**_SIMULATED, second=1000.0, computing="resource_time_1", iteration="iteration_time")
"""Muri's times are milliseconds; of its resources the second is taken for the GPU: the first is long where data is loaded or
an environment played (ShuffleNet, DQN), the third where gangs are wide."""


def read_plain(path: str | Path, options: ReadOptions, form: PlainForm = OWN) -> JobTable:
    """Read a table of jobs.

    One's own has columns `submit` (s, any origin, or dates and times), `gpus` and `duration` (s), and may have `id`, `vc`,
    `user`, `model`, `status`, `app`, `gpu_type` (all that it may run on, with bars between), `priority`, `min_gpus` and
    `max_gpus` (what it could also run on), `cpus` and `memory_gb` (of the whole job).

    Raises
    ------
    InvalidProblemError
        If a column is missing, a field is no number, negative, or no whole number of GPUs.
    """
    header = header_of(path)
    texts = {name: column for name, column in form.texts.items() if column in header}
    counts = {name: column for name, column in form.counts.items() if column in header}
    amounts = [name for name in (form.cpus, form.memory_gb, form.computing, form.iteration) if name in header]
    columns = read_columns(path, (form.gpus, form.duration, *counts.values(), *amounts), tuple(texts.values()))
    submit, begin = read_times(path, form.submit, form.second)
    for column, least in ((form.duration, 0.0), (form.gpus, 1.0), *((name, 0.0) for name in amounts)):
        require(path, columns, column, least=least)
    duration = columns[form.duration] / form.second
    gpus = require_whole(path, form.gpus, columns[form.gpus])
    clusters = columns[texts["virtual_cluster"]] if "virtual_cluster" in texts else np.full(len(gpus), "", dtype=object)
    kept, dropped = leave_out({ELSEWHERE: is_elsewhere(clusters, options), NO_WORK: duration <= 0})
    named: dict[str, Any] = {name: columns[column][kept] for name, column in texts.items()}
    ids = named.pop("ids", np.array([f"row-{row}" for row in kept.tolist()], dtype=object))
    return JobTable(
        ids=tuple(map(str, ids.tolist())),
        submit_s=submit[kept],
        workers=gpus[kept],
        duration_s=duration[kept],
        clock=np.zeros(len(kept), dtype=np.int64),
        demand=_demand(columns, gpus, form)[kept] if {form.cpus, form.memory_gb} & set(columns) else None,
        busy=_busy(columns, form)[kept] if form.computing in columns and form.iteration in columns else None,
        begin=begin,
        rows_read=len(gpus),
        dropped=dropped,
        **named,
        **_counts(path, columns, counts, kept),
    )


def _counts(
    path: str | Path, columns: Mapping[str, NDArray[Any]], counts: Mapping[str, str], kept: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the columns of whole numbers."""
    for name, column in counts.items():
        require(path, columns, column, least=-np.inf if name == "priority" else 1.0)
    return {name: require_whole(path, column, columns[column])[kept] for name, column in counts.items()}


def _demand(columns: Mapping[str, NDArray[Any]], gpus: NDArray[np.int64], form: PlainForm) -> FloatArray:
    """Return what each GPU's worker takes of GPUs, vCPUs and memory."""
    one = np.ones(len(gpus))
    cpus = columns[form.cpus] / gpus if form.cpus in columns else one * CPUS_A_GPU
    memory = columns[form.memory_gb] / gpus if form.memory_gb in columns else one * MEMORY_GB_A_GPU
    return np.stack([one, cpus, memory], axis=1)


def _busy(columns: Mapping[str, NDArray[Any]], form: PlainForm) -> FloatArray:
    """Return the share of a step that computes on the GPU: at least a thousandth."""
    share = columns[form.computing] / np.maximum(columns[form.iteration], 1e-9)
    return np.asarray(np.clip(share, 1e-3, 1.0))
