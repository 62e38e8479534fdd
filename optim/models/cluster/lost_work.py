"""Work lost to preemptions, crashes and failed attempts, by virtual cluster, user, or another column of the jobs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError, unknown_name
from optim.models.cluster.check.replay import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.workload import LABELS, WHOLE_MILLI, Workload

COLUMNS = {"vc": "group", "partition": "group", "user": "user", "model": "model", "status": "status"}
"""Column of a workload for each column name of the command line."""

BY_JOB, BY_GANG = "job", "gang"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRow:
    """Work lost by the jobs of one group.

    Attributes
    ----------
    name
        Name of the group; "" if unknown.
    jobs
        Number of jobs.
    stopped_jobs
        Number of jobs that lost their GPUs at least once.
    preemptions
        Number of times that the jobs lost their GPUs to another job, a migration or a change of width.
    crashes
        Number of times that the jobs lost their GPUs to failures of machines.
    lost_gpu_hours
        Work that had to be repeated, including failed attempts, in GPU-hours of the gang.
    lost_share
        `lost_gpu_hours` over the GPU-hours of the jobs' work.
    """

    name: str
    jobs: int
    stopped_jobs: int
    preemptions: int
    crashes: int
    lost_gpu_hours: float
    lost_share: float


def lost_rows(jobs: Workload, cluster: Cluster, run: LoggedRun, by: str) -> list[LostRow]:
    """Return one row per group, most lost GPU-hours first.

    Parameters
    ----------
    by
        ``vc``, ``partition``, ``user``, ``model``, ``status``, ``gang`` or ``job``.

    Raises
    ------
    InvalidOptionError
        If `by` is none of these.
    InvalidProblemError
        If the log can't be replayed.
    """
    names, group = _groups(jobs, by)
    replayed, broken = replay(jobs, cluster, run.log, run.rules)
    if replayed is None:
        raise InvalidProblemError(f"the log of {run.policy} can't be replayed: {broken[0]}")
    share = jobs.share_milli / WHOLE_MILLI if run.rules.is_shared else np.ones(len(jobs))
    held = jobs.gpus * share
    lost, work = held * np.array(replayed.lost_us, float), held * jobs.duration_us
    preempted, crashed = (
        np.bincount(run.log.job[run.log.kind == kind], minlength=len(jobs)) for kind in (Event.PREEMPT, Event.CRASH)
    )
    sums = [
        np.bincount(group, each, len(names))
        for each in (np.ones(len(jobs)), preempted + crashed > 0, preempted, crashed, lost / HOUR_US, work / HOUR_US)
    ]
    rows = [
        LostRow(
            name=name,
            jobs=int(count),
            stopped_jobs=int(stopped),
            preemptions=int(preemptions),
            crashes=int(crashes),
            lost_gpu_hours=float(lost_h),
            lost_share=float(lost_h / work_h),
        )
        for name, count, stopped, preemptions, crashes, lost_h, work_h in zip(names, *sums, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.lost_gpu_hours, row.name))


def check_columns(names: Iterable[str]) -> None:
    """Raise InvalidOptionError if a name isn't a column by which lost work can be grouped."""
    for name in names:
        if name not in (*COLUMNS, BY_GANG, BY_JOB):
            raise unknown_name("column of --lost-by", name, sorted({*COLUMNS, BY_GANG, BY_JOB}))


def _groups(jobs: Workload, by: str) -> tuple[list[str], "np.typing.NDArray[np.int64]"]:
    """Return the names of the groups that have jobs, and each job's index into them."""
    if by == BY_JOB:
        return list(jobs.ids), np.arange(len(jobs))
    if by == BY_GANG:
        gangs, group = np.unique(jobs.gpus, return_inverse=True)
        return [str(gang) for gang in gangs.tolist()], group.astype(np.int64)
    check_columns([by])
    label = COLUMNS[by]
    known, group = np.unique(getattr(jobs, label), return_inverse=True)
    return [getattr(jobs, LABELS[label])[number] for number in known.tolist()], group.astype(np.int64)
