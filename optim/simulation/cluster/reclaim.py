"""Effect on the queue of reclaiming GPUs of idle jobs: a simulation of the same jobs, uncut and cut at idle times.

A reclaimed job releases its GPUs. When the recorded job computes again, its rest is submitted as a separate job. The time
between the submissions of two parts is the recorded time, as if no part had waited. The job's wait is the total wait of its
parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.core.progress import Progress
from optim.core.stopping import Interruption
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.columns import columns_of
from optim.models.cluster.log import Run
from optim.models.cluster.metrics import HOUR_US
from optim.models.cluster.waiting import waited_by_job
from optim.models.cluster.workload import US, Workload
from optim.models.containers.gpu_use import SECONDS_PER_HOUR, JobUse, complement
from optim.simulation.cluster.comparison import PolicyRequest
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimRow:
    """Effect of reclaiming after a number of idle minutes.

    Attributes
    ----------
    after_min
        Consecutive idle minutes after which a job is reclaimed.
    freed_gpu_h
        Released GPU-hours.
    jobs_reclaimed, returns
        Number of jobs reclaimed at least once, and number of times that a job computed again later and had to queue.
    wait_held_h, wait_mean_h
        Mean wait in the simulated queue without and with reclaiming, over all jobs; None if no queue was simulated.
    wait_others_held_h, wait_others_h
        Mean wait without and with reclaiming over the jobs that are never reclaimed; None if there are none.
    """

    after_min: float
    freed_gpu_h: float
    jobs_reclaimed: int
    returns: int
    wait_held_h: float | None = None
    wait_mean_h: float | None = None
    wait_others_held_h: float | None = None
    wait_others_h: float | None = None


def jobs_of_uses(uses: Sequence[JobUse]) -> Workload:
    """Return jobs that are submitted when they first hold a GPU, for use without a table of submissions.

    Raises
    ------
    InvalidProblemError
        If there are no jobs.
    """
    if not uses:
        raise InvalidProblemError("no GPU has a pod or job, so no queue can be simulated; add labels or columns")
    first = min(use.begin_s for use in uses)
    return Workload(
        submit_us=np.array([round((use.begin_s - first) * US) for use in uses], np.int64),
        gpus=np.array([use.gpus for use in uses], np.int64),
        duration_us=np.array([max(1, round((use.end_s - use.begin_s) * US)) for use in uses], np.int64),
        ids=tuple(name_of(use) for use in uses),
    )


def name_of(use: JobUse) -> str:
    """Return a job's name, with its namespace if it has one."""
    return f"{use.holder.namespace}/{use.holder.job}" if use.holder.namespace else use.holder.job


def matched(jobs: Workload, uses: Sequence[JobUse]) -> dict[int, JobUse]:
    """Return the GPU use of each job that has series, by the job's row; names are matched with or without namespace."""
    by_name: dict[str, JobUse] = {}
    for use in uses:
        by_name.setdefault(use.holder.job, use)
        by_name[name_of(use)] = use
    return {row: by_name[name] for row, name in enumerate(jobs.ids) if name in by_name}


def cut_jobs(jobs: Workload, uses: Mapping[int, JobUse], after_min: float) -> tuple[Workload, IntArray]:
    """Return a workload in which reclaimed jobs are cut into parts, and for each part the row of its job.

    A job's run begins when it first holds a GPU; times without samples count as busy.
    """
    pieces: list[tuple[int, float, float]] = []
    for row, duration in enumerate(jobs.duration_us.tolist()):
        spans = np.array([[0.0, duration]])
        if row in uses:
            use = uses[row]
            left = complement((use.reclaimed(after_min) - use.begin_s) * US, 0.0, float(duration))
            spans = left if len(left) else spans
        pieces += [(row, begin, end) for begin, end in spans.tolist()]
    owner = np.array([row for row, _, _ in pieces], np.int64)
    begin, end = (np.array([piece[k] for piece in pieces]) for k in (1, 2))
    is_cut = (np.bincount(owner) > 1)[owner] | (end - begin < jobs.duration_us[owner])
    submit = jobs.submit_us[owner] + np.rint(begin).astype(np.int64)
    order = np.lexsort((np.arange(len(owner)), submit))
    owner, is_cut = owner[order], is_cut[order]
    taken: dict[str, Any] = {name: getattr(jobs, name)[owner] for name in columns_of(jobs)}
    # The attempts in a trace describe the uncut run, so they are dropped.
    taken |= {
        name: np.where(is_cut, value, taken[name]) for name, value in (("fails_us", -1), ("tries", 1), ("good_us", -1))
    }
    taken |= {"submit_us": submit[order], "duration_us": np.maximum(1, np.rint(end - begin).astype(np.int64))[order]}
    number = np.zeros(len(jobs), np.int64)
    ids = []
    for row in owner.tolist():
        number[row] += 1
        ids.append(jobs.ids[row] if number[row] == 1 else f"{jobs.ids[row]} (return {number[row] - 1})")
    return replace(jobs, **taken, ids=tuple(ids), recorded_wait=None), owner


def reclaim_rows(
    uses: Sequence[JobUse],
    after_min: Sequence[float],
    queue: "Queue | None" = None,
    stop: Interruption | None = None,
    progress: Progress | None = None,
) -> list[ReclaimRow]:
    """Return one row for each number of minutes; fewer if `stop` is requested.

    Parameters
    ----------
    uses
        Jobs that hold GPUs.
    after_min
        Idle minutes after which a job is reclaimed.
    queue
        Queue in which waits are simulated; None for no simulation.
    """
    held = None if queue is None else queue.waits(queue.jobs, np.arange(len(queue.jobs)), stop, progress)
    rows = []
    for minutes in after_min:
        spans = [use.reclaimed(minutes) for use in uses]
        row = ReclaimRow(
            after_min=minutes,
            freed_gpu_h=sum(use.freed_s(minutes) for use in uses) / SECONDS_PER_HOUR,
            jobs_reclaimed=sum(len(span) > 0 for span in spans),
            returns=sum(int((span[:, 1] < use.end_s).sum()) for span, use in zip(spans, uses, strict=True)),
        )
        if queue is not None and held is not None:
            known = matched(queue.jobs, uses)
            wait = queue.waits(*cut_jobs(queue.jobs, known, minutes), stop, progress)
            if wait is None:
                break
            is_other = np.ones(len(held), np.bool_)
            is_other[[row for row, use in known.items() if len(use.reclaimed(minutes))]] = False
            row = replace(
                row,
                wait_held_h=float(held.mean()),
                wait_mean_h=float(wait.mean()),
                wait_others_held_h=float(held[is_other].mean()) if is_other.any() else None,
                wait_others_h=float(wait[is_other].mean()) if is_other.any() else None,
            )
        rows.append(row)
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Queue:
    """Jobs, the cluster that they wait for, and the policy that starts them."""

    jobs: Workload
    cluster: Cluster
    request: PolicyRequest
    options: EngineOptions
    seed: int = 0

    def waits(
        self, jobs: Workload, owner: IntArray, stop: Interruption | None = None, progress: Progress | None = None
    ) -> FloatArray | None:
        """Return the hours that each job waited, over all its parts, shape (jobs,); None if stopped.

        Raises
        ------
        InvalidProblemError
            If a gang is larger than the cluster, or the policy leaves jobs unfinished, so that waits can't be compared.
        """
        if progress is not None:
            progress.start("jobs submitted", len(jobs))

        def watch(submitted: int) -> bool:
            if progress is not None:
                progress.update(submitted)
            return stop is not None and stop.is_requested

        run = simulate(jobs, self.cluster, self.request.build(jobs), self.options, self.seed, watch)
        if progress is not None:
            progress.finish()
        return None if run is None else np.bincount(owner, _waits_h(jobs, run), len(self.jobs)).astype(np.float64)


def _waits_h(jobs: Workload, run: Run) -> FloatArray:
    if not run.is_done.all():
        raise InvalidProblemError(
            f"{run.policy} left jobs unfinished, so that waits can't be compared; choose another policy"
        )
    return np.asarray(waited_by_job(jobs, run.log) / HOUR_US)
