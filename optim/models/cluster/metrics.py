"""Figures of a run: completion, fairness in both readings, waiting, and what GPUs were held for."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.log import Event, EventLog, Run
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, FloatArray, IntArray

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
        How often a job lost its GPUs, those that moved or changed their width included.
    left, unfinished
        Jobs that were sent away, and those that were never done: the figures above of completion and fairness leave both
        out, those of GPU-time count them.
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
    left: int = 0
    unfinished: int = 0


def measure(jobs: Workload, cluster: Cluster, run: Run) -> Metrics:
    """Return the figures of a run.

    Raises
    ------
    UnsupportedProblemError
        If no job was done.
    """
    done = run.is_done
    if not done.any():
        raise UnsupportedProblemError(f"{run.policy} finished no job; there is nothing to measure")
    completion = (run.end_us - jobs.submit_us)[done].astype(float)
    slowdown = completion / jobs.duration_us[done]
    whole, space = (values[done] for values in fairness(jobs, cluster, run))
    makespan = float(run.log.time_us[-1])
    p50, p95, p99 = np.percentile(completion, [50, 95, 99]) / HOUR_US
    inverse = 1 / whole
    left = int((run.log.kind == Event.LEAVE).sum())
    return Metrics(
        jct_mean_h=float(completion.mean()) / HOUR_US,
        jct_p50_h=float(p50),
        jct_p95_h=float(p95),
        jct_p99_h=float(p99),
        makespan_h=makespan / HOUR_US,
        queue_mean_h=float((run.first_start_us - jobs.submit_us)[done].mean()) / HOUR_US,
        slowdown_mean=float(slowdown.mean()),
        slowdown_max=float(slowdown.max()),
        rho_max=float(whole.max()),
        rho_share_above_1=float((whole > 1).mean()),
        rho_space_max=float(space.max()),
        rho_space_share_above_1=float((space > 1).mean()),
        jain=float(inverse.sum() ** 2 / (len(completion) * (inverse @ inverse))),
        gpu_hours=run.held_gpu_us / HOUR_US,
        overhead_gpu_hours=run.overhead_gpu_us / HOUR_US,
        utilisation=run.held_gpu_us / (makespan * cluster.num_gpus),
        wait_fragmented_share=fragmented_share(jobs, cluster, run),
        preemptions=int((run.log.kind == Event.PREEMPT).sum()),
        left=left,
        unfinished=len(jobs) - len(completion) - left,
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
    alive = np.maximum(1.0, done - submit)  # a job that is refused at once is none of the figures
    mean_apps = np.maximum(1.0, (apps_until(done) - apps_until(submit)) / alive)
    completion = done - submit
    whole = completion / (jobs.duration_us * mean_apps)
    fair_gpus = np.minimum(cluster.num_gpus / mean_apps, jobs.gpus)
    space = completion / (jobs.duration_us * jobs.gpus / fair_gpus)
    return whole, space


def fragmented_share(jobs: Workload, cluster: Cluster, run: Run) -> float:
    """Return the share of waiting time (gangs weigh once) with as many GPUs free as the gang needs."""
    log = run.log
    free = free_gpus(cluster, log)
    times = log.time_us.astype(float)
    # Waiting begins with a submission or a preemption, and ends with the next start, or when the job leaves or the run ends.
    starts = np.flatnonzero(log.kind == Event.START)
    stops = np.flatnonzero(log.kind == Event.PREEMPT)
    begins = np.concatenate([jobs.submit_us, log.time_us[stops]])
    owners = np.concatenate([np.arange(len(jobs)), log.job[stops]])
    never = np.flatnonzero(np.bincount(owners, minlength=len(jobs)) > np.bincount(log.job[starts], minlength=len(jobs)))
    ends = np.concatenate([log.time_us[starts], run.end_us[never]])
    enders = np.concatenate([log.job[starts], never])
    by_owner, by_ender = np.lexsort((begins, owners)), np.lexsort((ends, enders))
    begins, owners, ends = begins[by_owner].astype(float), owners[by_owner], ends[by_ender].astype(float)
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


def free_gpus(cluster: Cluster, log: EventLog) -> IntArray:
    """Return how many GPUs nobody holds after each event."""
    width = log.width
    if not log.names_gpus:
        held = np.zeros(int(log.job.max(initial=-1)) + 1, np.int64)
        held[log.job[log.kind == Event.START]] = width[log.kind == Event.START]  # a gang is as wide at every start
        return np.asarray(cluster.num_gpus - np.cumsum(np.where(log.kind == Event.START, 1, -1) * held[log.job]))
    first = np.concatenate([[0], np.cumsum(cluster.gpus)])
    place = (first[log.machine] + log.slot).tolist()
    holders, free = [0] * cluster.num_gpus, cluster.num_gpus
    held_by: dict[int, list[int]] = {}
    left = np.empty(len(log), np.int64)
    bounds = log.first.tolist()
    for event, (kind, job) in enumerate(zip(log.kind.tolist(), log.job.tolist(), strict=True)):
        if kind == Event.START:
            held_by[job] = place[bounds[event] : bounds[event + 1]]
            for gpu in held_by[job]:
                free -= holders[gpu] == 0
                holders[gpu] += 1
        else:
            for gpu in held_by.pop(job, ()):
                holders[gpu] -= 1
                free += holders[gpu] == 0
        left[event] = free
    return left
