"""Figures of a run: completion, fairness in both readings, waiting, and what GPUs were held for."""

from dataclasses import dataclass

import numpy as np

from optim.models.cluster.log import Event, Run
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, FloatArray

HOUR_US = 3600 * US


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Figures of one run. Hours, GPU-hours or ratios; shares lie in 0..1.

    Parameters
    ----------
    jct_mean_h, jct_p50_h, jct_p95_h, jct_p99_h, makespan_h
        Completion less submission, and the last completion less the first submission.
    queue_mean_h
        First start less submission.
    slowdown_mean, slowdown_max
        Completion time over exclusive run time.
    rho_max, rho_share_above_1
        Finish-time fairness with the whole cluster shared in time by the active apps (Themis' reading).
    rho_space_max, rho_space_share_above_1
        The same with an equal share of the GPUs, up to the gang: the stricter reading.
    jain
        Jain's index of 1 / rho.
    gpu_hours, overhead_gpu_hours
        GPU-time held, and of it lost to restarts.
    utilisation
        GPU-time held over the cluster's until the makespan.
    wait_fragmented_share
        Share of waiting time in which as many GPUs were free as the gang needs, though not where or for whom.
    preemptions
        How often a job lost its GPUs.
    """

    jct_mean_h: float
    jct_p50_h: float
    jct_p95_h: float
    jct_p99_h: float
    makespan_h: float
    queue_mean_h: float
    slowdown_mean: float
    slowdown_max: float
    rho_max: float
    rho_share_above_1: float
    rho_space_max: float
    rho_space_share_above_1: float
    jain: float
    gpu_hours: float
    overhead_gpu_hours: float
    utilisation: float
    wait_fragmented_share: float
    preemptions: int


def measure(jobs: Workload, cluster: Cluster, run: Run) -> Metrics:
    """Return the figures of a run."""
    completion = (run.end_us - jobs.submit_us).astype(float)
    slowdown = completion / jobs.duration_us
    whole, space = fairness(jobs, cluster, run)
    held = jobs.gpus * (run.executed_us + run.overhead_us).astype(float)
    makespan = float(run.end_us.max())
    p50, p95, p99 = np.percentile(completion, [50, 95, 99]) / HOUR_US
    inverse = 1 / whole
    return Metrics(
        jct_mean_h=float(completion.mean()) / HOUR_US,
        jct_p50_h=float(p50),
        jct_p95_h=float(p95),
        jct_p99_h=float(p99),
        makespan_h=makespan / HOUR_US,
        queue_mean_h=float((run.first_start_us - jobs.submit_us).mean()) / HOUR_US,
        slowdown_mean=float(slowdown.mean()),
        slowdown_max=float(slowdown.max()),
        rho_max=float(whole.max()),
        rho_share_above_1=float((whole > 1).mean()),
        rho_space_max=float(space.max()),
        rho_space_share_above_1=float((space > 1).mean()),
        jain=float(inverse.sum() ** 2 / (len(jobs) * (inverse @ inverse))),
        gpu_hours=float(held.sum()) / HOUR_US,
        overhead_gpu_hours=float(jobs.gpus @ run.overhead_us.astype(float)) / HOUR_US,
        utilisation=float(held.sum()) / (makespan * cluster.num_gpus),
        wait_fragmented_share=fragmented_share(jobs, cluster, run),
        preemptions=int((run.log.kind == Event.PREEMPT).sum()),
    )


def fairness(jobs: Workload, cluster: Cluster, run: Run) -> tuple[FloatArray, FloatArray]:
    """Return finish-time fairness of each job in both readings ((C.1), (C.2) of docs/mathematics/auction.md).

    The number of active apps is averaged over the job's own life; an app is active from its first submission to its last
    end.
    """
    apps, app = np.unique(jobs.app, return_inverse=True)
    begin, end = np.full(len(apps), np.iinfo(np.int64).max), np.zeros(len(apps), np.int64)
    np.minimum.at(begin, app, jobs.submit_us)
    np.maximum.at(end, app, run.end_us)
    times = np.concatenate([begin, end])
    order = np.argsort(times, kind="stable")
    times = times[order].astype(float)
    active = np.cumsum(np.where(order < len(apps), 1, -1))
    area = np.concatenate([[0.0], np.cumsum(active[:-1] * np.diff(times))])

    def apps_until(when: FloatArray) -> FloatArray:
        at = np.clip(np.searchsorted(times, when, side="right") - 1, 0, len(times) - 1)
        return np.asarray(area[at] + active[at] * (when - times[at]), float)

    submit, done = jobs.submit_us.astype(float), run.end_us.astype(float)
    mean_apps = np.maximum(1.0, (apps_until(done) - apps_until(submit)) / (done - submit))
    completion = done - submit
    whole = completion / (jobs.duration_us * mean_apps)
    fair_gpus = np.minimum(cluster.num_gpus / mean_apps, jobs.gpus)
    space = completion / (jobs.duration_us * jobs.gpus / fair_gpus)
    return whole, space


def fragmented_share(jobs: Workload, cluster: Cluster, run: Run) -> float:
    """Return the share of waiting time (gangs weigh once) with as many GPUs free as the gang needs."""
    log = run.log
    change = np.where(log.kind == Event.START, -1, 1) * jobs.gpus[log.job]
    free = cluster.num_gpus + np.cumsum(change)
    times = log.time_us.astype(float)
    # Waiting begins with a submission or a preemption, and ends with the next start.
    starts = np.flatnonzero(log.kind == Event.START)
    stops = np.flatnonzero(log.kind == Event.PREEMPT)
    begins = np.concatenate([jobs.submit_us, log.time_us[stops]])
    owners = np.concatenate([np.arange(len(jobs)), log.job[stops]])
    by_owner = np.lexsort((begins, owners))
    start_order = np.lexsort((log.time_us[starts], log.job[starts]))
    begins, owners = begins[by_owner].astype(float), owners[by_owner]
    ends = log.time_us[starts][start_order].astype(float)
    waited = float((ends - begins).sum())
    if waited <= 0:
        return 0.0
    fragmented = 0.0
    for width in np.unique(jobs.gpus):
        mine = jobs.gpus[owners] == width
        room = np.concatenate([[cluster.num_gpus >= width], free >= width]).astype(float)
        marks = np.concatenate([[0.0], times])
        area = np.concatenate([[0.0], np.cumsum(room[:-1] * np.diff(marks))])

        def room_until(
            when: FloatArray, marks: FloatArray = marks, area: FloatArray = area, room: FloatArray = room
        ) -> FloatArray:
            at = np.searchsorted(marks, when, side="right") - 1
            return np.asarray(area[at] + room[at] * (when - marks[at]), float)

        fragmented += float((room_until(ends[mine]) - room_until(begins[mine])).sum())
    return fragmented / waited
