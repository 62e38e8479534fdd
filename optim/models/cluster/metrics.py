"""Metrics of a run: completion, fairness of jobs and apps, waiting, and allocated GPUs."""

from dataclasses import dataclass, fields

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidProblemError, UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog, Run
from optim.models.cluster.rules import useful_us
from optim.models.cluster.waiting import down_change, waiting
from optim.models.cluster.workload import US, WHOLE_MILLI, Workload


@dataclass(frozen=True, kw_only=True, eq=False)
class AppFairness:
    """Fairness of each app, in the order of their numbers.

    Parameters
    ----------
    seconds
        Time from the app's first submission to its last end.
    rho, rho_space
        `seconds` over the ideal time, (C.1) of docs/mathematics/auction.md in both readings of (C.2): the app has the entire
        cluster for 1/N of the time, or 1/N of the cluster all the time.
    """

    seconds: FloatArray
    rho: FloatArray
    rho_space: FloatArray


def app_fairness(jobs: Workload, cluster: Cluster, run: Run) -> AppFairness:
    """Return the fairness of all apps of a run in which every job completed or was rejected.

    N is the average number of active apps during an app's lifetime. The ideal time is the app's total work over the number of
    available GPUs that its jobs can use, and at least the duration of its longest job.
    """
    _, app = np.unique(jobs.app, return_inverse=True)
    count = int(app.max()) + 1
    begin, end = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(begin, app, jobs.submit_us.astype(float))
    np.maximum.at(end, app, run.end_us.astype(float))
    end = np.maximum(end, begin + 1.0)
    times = np.unique(np.concatenate([begin, end]))
    active = (np.searchsorted(np.sort(begin), times, "right") - np.searchsorted(np.sort(end), times, "right")).astype(
        float
    )
    area = np.concatenate([[0.0], np.cumsum(active[:-1] * np.diff(times))])
    average = (np.interp(end, times, area) - np.interp(begin, times, area)) / (end - begin)
    work = np.bincount(app, jobs.gpus * jobs.duration_us.astype(float))
    demand = np.bincount(app, jobs.gpus)
    longest = np.zeros(count)
    np.maximum.at(longest, app, jobs.duration_us.astype(float))

    def ideal(gpus: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(work / np.minimum(gpus, demand), longest))

    whole = average * ideal(np.full(count, float(cluster.num_gpus)))
    return AppFairness(
        seconds=(end - begin) / 1e6,
        rho=(end - begin) / whole,
        rho_space=(end - begin) / ideal(cluster.num_gpus / average),
    )


HOUR_US = 3600 * US

MAX_FIGURE = 1e300

NOT_TOLD = -1.0
"""Value of a metric that a log of an earlier version lacks."""

GANG_CLASSES = (("1", 1, 1), ("2_4", 2, 4), ("5_8", 5, 8), ("above_8", 9, 2**20))
"""Gang sizes of the Philly study: name, smallest and largest number of GPUs."""

SCORES = (1.0, 0.5, 0.25)
"""Placement score by locality; all GPUs of a machine are assumed to share fast links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics of one run, in hours, GPU-hours or ratios; shares lie in 0..1.

    Parameters
    ----------
    jct_mean_h, jct_p50_h, jct_p95_h, jct_p99_h, makespan_h
        Mean and percentiles of a job's completion time (JCT), which counts from its submission; and makespan, the time
        from the first submission to the last completion.
    first_start_mean_h
        Mean time from submission to first start.
    slowdown_mean, slowdown_max
        Mean and maximum of completion time over exclusive run time.
    rho_max, rho_p50, rho_min, rho_share_above_1
        Finish-time fairness of apps, if the active apps share the entire cluster in time (Themis' reading). A job without
        an app is an app by itself. An app counts if all its jobs have ended, and at least one completed.
    rho_space_max, rho_space_p50, rho_space_min, rho_space_share_above_1
        Finish-time fairness if each active app has an equal share of the GPUs, up to the GPUs that its jobs can use: the
        stricter reading.
    rho_static_max
        Largest rho of a job as defined in Shockwave's simulator: completion time over the product of exclusive run time and
        max(1, number of jobs in the trace over number of GPUs) (`get_finish_time_fairness` of uw-mad-dash/shockwave,
        scheduler/scheduler.py, "static"); -1 in logs of earlier versions.
    jain
        Jain's index of 1 / rho over apps.
    gpu_hours
        Allocated GPU-time. If jobs share GPUs, each job counts with its share of a GPU; so it does in `overhead_gpu_hours`,
        `goodput` and `lost_gpu_hours`.
    overhead_gpu_hours
        Part of the allocated GPU-time that is lost to restarts.
    goodput
        Useful over allocated GPU-time: useful is the exclusive run time times the gang of completed jobs, without failed
        attempts.
    placement_score
        1 for gangs in one machine, 0.5 in one rack, 0.25 otherwise; mean over gangs of several GPUs, weighted by GPU-time.
    utilisation
        Allocated GPU-time over the cluster's GPU-time until the makespan.
    wait_fair_share, wait_fragmented_share, wait_order_share
        Shares of waiting time by cause. Fair share: the job's virtual cluster used its quota (see `Rules`) or more, or fewer
        usable GPUs were free than the gang needs. Fragmentation: enough were free, but the placement rule could not place
        the gang. Order: the gang could be placed, but the policy's order delayed the job. `wait_order_share` is -1 in logs
        of earlier versions, which count the order, and free GPUs of other types, as fragmentation.
    preemptions
        Number of times that a job lost its GPUs, including migrations and changes of width.
    machine_failures
        Number of failures of machines.
    crashes
        Number of times that a failure of a machine killed a job.
    lost_gpu_hours
        Work undone by failures of machines, preemptions and failed attempts, in GPU-time of the gang in one machine.
    down_gpu_hours
        GPU-time of failed machines until the makespan.
    failed_attempts
        Number of failed attempts, if attempts are simulated one by one.
    failed
        Number of jobs given up after a failed attempt, if attempts are simulated one by one.
    wait_mean_h
        Mean waiting time: all time without GPUs from a job's submission to its end, before its first start and after
        preemptions; -1 in logs of earlier versions.
    wait_max_1_h, wait_max_2_4_h, wait_max_5_8_h, wait_max_above_8_h
        Longest waiting time of a job by gang size, including unfinished jobs up to the end of the run; 0 without such
        gangs, -1 in logs of earlier versions.
    left, unfinished
        Number of rejected jobs, and of unfinished jobs. The metrics of completion and fairness exclude these and failed
        jobs; the metrics of GPU-time include all jobs.

    Raises
    ------
    InvalidProblemError
        If a metric isn't finite.
    """

    jct_mean_h: float
    jct_p50_h: float
    jct_p95_h: float
    jct_p99_h: float
    makespan_h: float
    first_start_mean_h: float
    slowdown_mean: float
    slowdown_max: float
    rho_max: float
    rho_p50: float
    rho_min: float
    rho_share_above_1: float
    rho_space_max: float
    rho_space_p50: float
    rho_space_min: float
    rho_space_share_above_1: float
    jain: float
    gpu_hours: float
    overhead_gpu_hours: float
    goodput: float
    placement_score: float
    utilisation: float
    wait_fair_share: float
    wait_fragmented_share: float
    preemptions: int
    machine_failures: int = 0
    crashes: int = 0
    lost_gpu_hours: float = 0.0
    down_gpu_hours: float = 0.0
    failed_attempts: int = 0
    failed: int = 0
    left: int = 0
    unfinished: int = 0
    wait_mean_h: float = NOT_TOLD
    wait_order_share: float = NOT_TOLD
    wait_max_1_h: float = NOT_TOLD
    wait_max_2_4_h: float = NOT_TOLD
    wait_max_5_8_h: float = NOT_TOLD
    wait_max_above_8_h: float = NOT_TOLD
    rho_static_max: float = NOT_TOLD

    def __post_init__(self) -> None:
        """Check that all metrics are finite."""
        for figure in fields(self):
            if not abs(getattr(self, figure.name)) <= MAX_FIGURE:
                raise InvalidProblemError(f"{figure.name} must be a finite number of at most {MAX_FIGURE:g}")


def measure(jobs: Workload, cluster: Cluster, run: Run) -> Metrics:
    """Return the metrics of a run.

    Raises
    ------
    UnsupportedProblemError
        If no job completed.
    """
    done = run.is_done
    if not done.any():
        raise UnsupportedProblemError(f"{run.policy} finished no job; {run.halted or _why_nothing(run.log)}")
    completion = (run.end_us - jobs.submit_us)[done].astype(float)
    slowdown = completion / jobs.duration_us[done]
    whole, space = rho_of_apps(jobs, cluster, run)
    makespan = float(run.log.time_us[-1])
    waited = run.end_us - jobs.submit_us - run.executed_us - run.overhead_us
    held = jobs.gpus * (jobs.share_milli / WHOLE_MILLI) if run.rules.is_shared else jobs.gpus.astype(float)
    p50, p95, p99 = np.percentile(completion, [50, 95, 99]) / HOUR_US
    inverse = 1 / whole
    over, fragmented, full, order = waiting(jobs, cluster, run.log, run.end_us, run.rules).shares()
    left, gave_up, faults = (int((run.log.kind == kind).sum()) for kind in (Event.LEAVE, Event.GIVE_UP, Event.FAULT))
    return Metrics(
        jct_mean_h=float(completion.mean()) / HOUR_US,
        jct_p50_h=float(p50),
        jct_p95_h=float(p95),
        jct_p99_h=float(p99),
        makespan_h=makespan / HOUR_US,
        first_start_mean_h=float((run.first_start_us - jobs.submit_us)[done].mean()) / HOUR_US,
        slowdown_mean=float(slowdown.mean()),
        slowdown_max=float(slowdown.max()),
        rho_max=float(whole.max()),
        rho_p50=float(np.median(whole)),
        rho_min=float(whole.min()),
        rho_share_above_1=float((whole > 1).mean()),
        rho_space_max=float(space.max()),
        rho_space_p50=float(np.median(space)),
        rho_space_min=float(space.min()),
        rho_space_share_above_1=float((space > 1).mean()),
        rho_static_max=float(slowdown.max()) / max(1.0, len(jobs) / cluster.num_gpus),
        jain=float(inverse.sum() ** 2 / (len(whole) * (inverse @ inverse))),
        gpu_hours=run.allocated_gpu_us / HOUR_US,
        overhead_gpu_hours=run.overhead_gpu_us / HOUR_US,
        utilisation=run.allocated_gpu_us / (makespan * cluster.num_gpus),
        goodput=float(held[done] @ useful_us(jobs, run.rules)[done].astype(float)) / run.allocated_gpu_us,
        placement_score=placement_score(cluster, run),
        wait_fair_share=float(over + full),
        wait_fragmented_share=float(fragmented),
        wait_order_share=float(order),
        preemptions=int((run.log.kind == Event.PREEMPT).sum()),
        machine_failures=int((run.log.kind == Event.FAIL).sum()),
        crashes=int((run.log.kind == Event.CRASH).sum()),
        lost_gpu_hours=float(held @ run.lost_us.astype(float)) / HOUR_US,
        down_gpu_hours=_down_us(cluster, run.log) / HOUR_US,
        failed_attempts=faults + gave_up,
        failed=gave_up,
        left=left,
        unfinished=len(jobs) - len(completion) - left - gave_up,
        wait_mean_h=float(waited[done].mean()) / HOUR_US,
        **{
            f"wait_max_{name}_h": float(waited.max(where=(jobs.gpus >= least) & (jobs.gpus <= most), initial=0))
            / HOUR_US
            for name, least, most in GANG_CLASSES
        },
    )


def _why_nothing(log: EventLog) -> str:
    """Return a likely reason why no job completed."""
    stopped = log.job[log.kind == Event.PREEMPT]
    if not len(stopped):
        return "metrics need at least one completed job"
    jobs, times = len(np.unique(stopped)), len(stopped)
    return f"it preempted {jobs:,} jobs {times:,} times; keep view.running in the plan"


def _down_us(cluster: Cluster, log: EventLog) -> int:
    """Return the GPU-time for which failed machines were down, as a Python integer because it may exceed 64 bits."""
    change = down_change(cluster, log)
    at, last = np.flatnonzero(change), int(log.time_us[-1])
    return sum(more * (last - time) for more, time in zip(change[at].tolist(), log.time_us[at].tolist(), strict=True))


def rho_of_apps(jobs: Workload, cluster: Cluster, run: Run) -> tuple[FloatArray, FloatArray]:
    """Return finish-time fairness in both readings for each app whose jobs have all ended, at least one by completing."""
    _, app = np.unique(jobs.app, return_inverse=True)
    is_over = run.is_done.copy()
    is_over[run.log.job[np.isin(run.log.kind, (Event.LEAVE, Event.GIVE_UP))]] = True
    counts = np.bincount(app, run.is_done) > 0
    counts &= np.bincount(app, ~is_over) == 0
    found = app_fairness(jobs, cluster, run)
    if not counts.any():  # no app has ended: use apps with a completed job, up to the end of the run
        counts = np.bincount(app, run.is_done) > 0
    return found.rho[counts], found.rho_space[counts]


def placement_score(cluster: Cluster, run: Run) -> float:
    """Return the mean placement score of gangs of several GPUs, weighted by GPU-time; 1 without such gangs."""
    log = run.log
    level, width = localities(cluster, log), log.width
    order = np.argsort(log.job, kind="stable")
    is_same = log.job[order][1:] == log.job[order][:-1]
    stop = np.full(len(log), int(log.time_us[-1]))
    stop[order[:-1][is_same]] = log.time_us[order[1:][is_same]]
    weight = np.where(width > 1, width, 0) * (stop - log.time_us).astype(float)
    return float(weight @ np.array(SCORES)[level] / weight.sum()) if weight.sum() > 0 else 1.0


def localities(cluster: Cluster, log: EventLog) -> IntArray:
    """Return each event's index into `LEVELS`: the smallest part of the cluster that holds all its GPUs, 0 if it takes none."""
    level = np.zeros(len(log), np.int64)
    starts = np.flatnonzero(np.diff(log.first) > 0)
    first = log.first[starts]
    for values in (log.machine, cluster.rack[log.machine]) if len(starts) else ():
        level[starts] += np.maximum.reduceat(values, first) > np.minimum.reduceat(values, first)
    return level
