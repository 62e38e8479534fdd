"""Published summary statistics of clusters, to compare with a trace, a generator or a cluster's size."""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.workloads.csv_columns import header_of, read_columns, refuse, require_columns, require_whole

SHARES = "--option yarn-cs.quotas=4.2:1.8, one for each virtual cluster by name"
"""Option, for an error message, to give quotas that aren't an integer number of machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """Statistics of the GPU jobs of one cluster; None if the published summary lacks one.

    Parameters
    ----------
    id
        Name of the cluster.
    gpu_job_num
        Number of jobs with GPUs.
    avg_run_time_gpu, med_run_time_gpu, avg_que_time_gpu, med_que_time_gpu
        Mean and median run times, and mean and median waiting times, in seconds.
    avg_gpu_num, med_gpu_num
        Mean and median number of GPUs per job.
    complete_rate_gpu, cancel_rate_gpu, fail_rate_gpu
        Shares of completed, cancelled and failed jobs.
    complete_gpu_time, cancel_gpu_time, fail_gpu_time
        GPU-seconds of completed, cancelled and failed jobs.
    """

    id: str
    gpu_job_num: float | None
    avg_run_time_gpu: float | None
    med_run_time_gpu: float | None
    avg_que_time_gpu: float | None
    med_que_time_gpu: float | None
    avg_gpu_num: float | None
    med_gpu_num: float | None
    complete_rate_gpu: float | None
    cancel_rate_gpu: float | None
    fail_rate_gpu: float | None
    complete_gpu_time: float | None
    cancel_gpu_time: float | None
    fail_gpu_time: float | None

    @property
    def gpu_time_shares(self) -> tuple[float, float, float] | None:
        """Shares of the GPU-time of completed, cancelled and failed jobs."""
        parts = (self.complete_gpu_time, self.cancel_gpu_time, self.fail_gpu_time)
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or sum(known) <= 0:
            return None
        done, cancelled, failed = (part / sum(known) for part in known)
        return done, cancelled, failed


def read_summaries(path: str | Path) -> tuple[ClusterSummary, ...]:
    """Read the summary tables published with the traces of Helios and of Acme, one row per cluster.

    Raises
    ------
    InvalidProblemError
        If a column is missing, or a field isn't a number or is negative.

    References
    ----------
    Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC 2021; Hu et
    al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024.
    """
    names = [field.name for field in fields(ClusterSummary) if field.name != "id"]
    columns = read_columns(path, names, ("id",))
    require_columns(path, columns, *names, least=0.0, may_lack=True)
    return tuple(
        ClusterSummary(
            id=str(columns["id"][row]),
            **{name: None if np.isnan(columns[name][row]) else float(columns[name][row]) for name in names},
        )
        for row in range(len(columns["id"]))
    )


def read_quotas(path: str | Path) -> dict[str, int]:
    """Read the number of machines of each virtual cluster of Philly, assigned by Helios' authors: columns ``vc, node num``.

    Raises
    ------
    InvalidProblemError
        If a column is missing, or a field isn't an integer of at least 0.
    """
    columns = read_columns(path, ("node num",), ("vc",))
    require_columns(path, columns, "node num", least=0.0)
    nodes = columns["node num"]
    due = f"expected an integer number of machines (for others replace the file by {SHARES})"
    refuse(path, "node num", nodes != np.floor(nodes), due, nodes)
    return {str(name): int(number) for name, number in zip(columns["vc"], nodes.tolist(), strict=True)}


def read_samples(path: str | Path) -> tuple[FloatArray, IntArray]:
    """Read a sample of jobs: Gavel's run times with GPUs (``duration_s, num_gpus``), or Tiresias' service (``duration``).

    Tiresias' values are GPU-seconds, which equal run times on one GPU.

    Returns
    -------
    tuple
        Run times in seconds, and GPUs.

    Raises
    ------
    InvalidProblemError
        If a column is missing, or a field isn't a number or is below the minimum.
    """
    is_service = "duration_s" not in header_of(path)
    duration = "duration" if is_service else "duration_s"
    columns = read_columns(path, (duration,) if is_service else (duration, "num_gpus"))
    require_columns(path, columns, duration, least=0.0)
    if is_service:
        return columns[duration], np.ones(len(columns[duration]), np.int64)
    require_columns(path, columns, "num_gpus", least=1.0)
    return columns[duration], require_whole(path, "num_gpus", columns["num_gpus"])
