"""A run beside what published clusters were like in sum: whether a workload is like any that was measured."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.waiting import last_times, waiting
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.philly_outcomes import STATUS_OF, StudyTable
from optim.workloads.traces.summaries import ClusterSummary, read_summaries

HEADER = (
    *("cluster", "gpu_jobs", "gpus_mean", "gpus_p50", "run_mean_s", "run_p50_s", "wait_mean_s", "wait_p50_s"),
    *("done", "killed", "failed", "done_gpu_time", "killed_gpu_time", "failed_gpu_time"),
)
STATUSES = ("passed", "killed", "unsuccessful")


def calibration(jobs: Workload, cluster: Cluster, run: LoggedRun, files: Sequence[Path]) -> StudyTable:
    """Return the figures of a run's jobs, and below them those of the clusters of some summaries.

    Parameters
    ----------
    jobs, cluster, run
        What was played, and its events. Waiting is all that a job spent without its GPUs.
    files
        Summaries that come with the traces of Helios and Acme.

    Raises
    ------
    InvalidProblemError
        If a file isn't such a summary.
    """
    published = [summary for path in files for summary in read_summaries(path)]
    return StudyTable(
        name="calibration",
        title="Jobs beside those of published clusters",
        header=HEADER,
        rows=(_own(jobs, cluster, run), *map(_published, published)),
        note="published: Hu et al., SC 2021 and NSDI 2024, as their summaries say; shares of the jobs, and of GPU-time",
    )


def _own(jobs: Workload, cluster: Cluster, run: LoggedRun) -> tuple[object, ...]:
    spells = waiting(jobs, cluster, run.log, last_times(run.log, len(jobs)), run.rules)
    waited = np.bincount(spells.job, spells.end_us - spells.begin_us, len(jobs)) / US
    seconds = jobs.duration_us / US
    status = np.array([STATUS_OF.get(name.lower(), "unsuccessful") for name in jobs.statuses], dtype=object)[
        jobs.status
    ]
    shares: list[float | None] = [None] * 6
    if (status != "").any():
        is_told = status != ""
        weights = (is_told.astype(float), is_told * jobs.gpus * seconds)
        shares = [float(each[status == name].sum() / each.sum()) for each in weights for name in STATUSES]
    return (
        *("this run", len(jobs), float(jobs.gpus.mean()), float(np.median(jobs.gpus))),
        *(float(seconds.mean()), float(np.median(seconds)), float(waited.mean()), float(np.median(waited))),
        *shares,
    )


def _published(summary: ClusterSummary) -> tuple[object, ...]:
    return (
        *(summary.id, summary.gpu_job_num, summary.avg_gpu_num, summary.med_gpu_num),
        *(summary.avg_run_time_gpu, summary.med_run_time_gpu, summary.avg_que_time_gpu, summary.med_que_time_gpu),
        *(summary.complete_rate_gpu, summary.cancel_rate_gpu, summary.fail_rate_gpu),
        *(summary.gpu_time_shares or (None, None, None)),
    )
