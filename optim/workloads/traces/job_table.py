"""Jobs of a public trace of a cluster in one form, whatever is to be decided about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.ranges import check_in

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
TextArray = NDArray[np.object_]

NO_WORK = "without run time"
NO_GPU = "without a GPU"
NAMES_SHOWN = 8
"""Virtual clusters that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to take of a trace, and where the files beside it are.

    Parameters
    ----------
    virtual_cluster
        Take only this virtual cluster's jobs; None for all.
    gpu_type
        Column of Gavel's throughput table.
    throughputs, nodes, steps
        Gavel's throughput table, Alibaba's node list, Pollux' folder of step times; None to look for the published name beside
        the trace.
    run_s
        Run time of jobs in lists that tell no times, which are submitted a second apart; None to refuse such lists.
    """

    virtual_cluster: str | None = None
    gpu_type: str = "v100"
    throughputs: Path | None = None
    nodes: Path | None = None
    steps: Path | None = None
    run_s: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("(0, 1e9]", self, "run_s")


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeTable:
    """Servers of a trace, one row a server: resources in the order GPUs, vCPUs, memory (GB).

    Parameters
    ----------
    kind
        Name of each server's type.
    capacity
        Shape (servers, resources).
    """

    kind: tuple[str, ...]
    capacity: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTable:
    """Jobs of a trace that had work, one row a job.

    Parameters
    ----------
    ids
        Unique names.
    submit_s
        Time of submission in seconds, on the clock `clock`; shape (jobs,).
    workers
        GPUs that the job held, a worker each; shape (jobs,).
    duration_s
        Run time with these workers, positive; shape (jobs,).
    clock
        Jobs with different numbers have different origins of time; shape (jobs,).
    demand
        What one worker takes of GPUs, vCPUs, memory (GB), shape (jobs, 3); None where the trace doesn't say.
    virtual_cluster, user, model, status, app
        Texts, "" for a job of which the trace doesn't say it, shape (jobs,); None where it says it of no job.
    gpu_type
        Types of GPU that the job may run on, with bars between; "" for a job of which the trace doesn't say it; shape (jobs,);
        None where it says it of no job.
    priority
        Larger ones first, shape (jobs,); None where the trace has none.
    least_gpus, most_gpus
        What the job could also run on, shape (jobs,); None where the trace doesn't say.
    failed_s
        After how much run time the first attempt failed, NaN if none did; shape (jobs,); None where the trace doesn't say.
    failed_tries, good_s
        How many attempts failed, and the run time of the one that didn't, 0 if there was none; shape (jobs,); None where the
        trace doesn't say.
    busy
        Share of its time that a job computes on its GPUs, in (0, 1], shape (jobs,); None where the trace doesn't say.
    slowdown
        Run time over `duration_s` where the workers share a machine, a rack, or only the cluster; at least 1, shape (jobs, 3);
        None where the trace doesn't say.
    types, type_ratio
        Names of GPU types, and the run time on each over `duration_s`, NaN where the job can't run; shape (jobs, types).
    loss
        Loss after equal parts of the work, from 1 at its beginning, NaN for jobs of which it isn't known; shape (jobs, points).
    begin
        Date and time of second 0 of all clocks; None where the trace tells no dates.
    rows_read
        Rows of the file.
    dropped
        How many rows were left out, by reason.
    dropped_gpu_h
        GPU-hours of those that held GPUs, by reason, as far as the trace tells them.
    notes
        What a user of the jobs should know, one line each.
    nodes
        The trace's own servers, if it lists them.
    waited_s
        How long each job waited in the cluster of the trace: all time without GPUs from its submission to its end; NaN where it
        isn't recorded, None where it is of no job.
    """

    ids: tuple[str, ...]
    submit_s: FloatArray
    workers: IntArray
    duration_s: FloatArray
    clock: IntArray
    demand: FloatArray | None = None
    virtual_cluster: TextArray | None = None
    user: TextArray | None = None
    model: TextArray | None = None
    status: TextArray | None = None
    app: TextArray | None = None
    gpu_type: TextArray | None = None
    priority: IntArray | None = None
    least_gpus: IntArray | None = None
    most_gpus: IntArray | None = None
    failed_s: FloatArray | None = None
    failed_tries: IntArray | None = None
    good_s: FloatArray | None = None
    busy: FloatArray | None = None
    slowdown: FloatArray | None = None
    types: tuple[str, ...] = ()
    type_ratio: FloatArray | None = None
    loss: FloatArray | None = None
    begin: datetime | None = None
    rows_read: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    dropped_gpu_h: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    nodes: NodeTable | None = None
    waited_s: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.ids)


def leave_out(reasons: Mapping[str, BoolArray]) -> tuple[IntArray, dict[str, int]]:
    """Return the rows that no reason leaves out, and how many each does: the first that holds for a row counts."""
    first = _first_reasons(reasons)
    is_kept = ~np.any(list(first.values()), axis=0)
    return np.flatnonzero(is_kept), {reason: int(holds.sum()) for reason, holds in first.items()}


def gpu_hours_of(reasons: Mapping[str, BoolArray], gpu_s: FloatArray) -> dict[str, float]:
    """Return the GPU-hours that each reason leaves out, where there are any; unknown ones (NaN) count as none."""
    hours = {reason: float(np.nansum(gpu_s[holds])) / 3600 for reason, holds in _first_reasons(reasons).items()}
    return {reason: held for reason, held in hours.items() if held > 0}


def _first_reasons(reasons: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    """Return for which rows each reason is the first that holds."""
    is_left = np.ones(len(next(iter(reasons.values()))), dtype=bool)
    first = {}
    for reason, holds in reasons.items():
        first[reason] = is_left & holds
        is_left &= ~holds
    return first


def is_elsewhere(cluster: TextArray, options: ReadOptions) -> BoolArray:
    """Tell which jobs are in other virtual clusters than the one asked for; none, if none was.

    Raises
    ------
    InvalidProblemError
        If no job is in it; it names those that there are.
    """
    if options.virtual_cluster is None:
        return np.zeros(len(cluster), dtype=bool)
    is_other: BoolArray = cluster != options.virtual_cluster
    if is_other.all():
        names = sorted({str(name) for name in cluster.tolist()} - {""})
        shown = [name[:20] for name in names[:NAMES_SHOWN]] + ["..."] * (len(names) > NAMES_SHOWN)
        raise InvalidProblemError(
            f"virtual_cluster: no job of the trace is in {options.virtual_cluster[:40]!r} (there are: "
            f"{', '.join(shown) or 'none'}); name one of them, or leave the option out"
        )
    return is_other


def file_beside(trace: str | Path, names: Sequence[str], *, what: str, option: str) -> Path:
    """Return the first file of these names in a trace's folder, or raise InvalidProblemError."""
    found = [path for path in (Path(trace).parent / name for name in names) if path.exists()]
    if not found:
        raise InvalidProblemError(
            f"{trace}: no {what} {names[0]!r} beside the jobs; put it there or give its path as {option} "
            f"(simulate cluster: --option trace.{option}=FILE)"
        )
    return found[0]
