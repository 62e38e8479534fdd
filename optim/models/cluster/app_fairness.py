"""Finish-time fairness of apps, whose jobs are trials of one search: an app is over with its last job."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from optim.models.cluster.log import Event, Run
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster, FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class AppFairness:
    """Fairness of each app, in the order of their numbers.

    Parameters
    ----------
    seconds
        From its first submission to its last end.
    rho, rho_space
        That time over the ideal one, (C.1) of docs/mathematics/auction.md in both readings (C.2): the whole cluster for 1/N
        of the time, or 1/N of the cluster all the time.
    """

    seconds: FloatArray
    rho: FloatArray
    rho_space: FloatArray


def app_fairness(jobs: Workload, cluster: Cluster, run: Run) -> AppFairness:
    """Return the fairness of all apps of a run in which every job was done or left.

    N is the average number of active apps over an app's own life. The ideal time is that of all its work on as many GPUs as
    there are or as its jobs can use, never less than its longest job's.
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


def placement_envy(jobs: Workload, cluster: Cluster, run: Run) -> float:
    """Return how many times faster a running job would be, at most, on the GPUs of another one that runs at the same time.

    A job could use another's GPUs if these are at least as many as its gang; then only the smallest part of the cluster that
    holds them tells them apart. Jobs that wait envy everybody and aren't counted. 1 means that no placement is envied.
    """
    levels: dict[int, int] = {}
    worst = 1.0
    for time, group in groupby(run.log.rows(), key=lambda row: row[0]):
        del time
        for _, kind, job, places in group:
            if kind == Event.START:
                machines = {machine for machine, _ in places}
                racks = {int(cluster.rack[machine]) for machine in machines}
                levels[job] = 0 if len(machines) == 1 else 1 if len(racks) == 1 else 2
            else:
                levels.pop(job, None)
        for job, level in levels.items():
            best = min((other for rival, other in levels.items() if jobs.gpus[rival] >= jobs.gpus[job]), default=level)
            worst = max(worst, float(jobs.slowdown_ppm[job, level] / jobs.slowdown_ppm[job, best]))
    return worst
