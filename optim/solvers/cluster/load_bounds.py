"""Loads that bound the makespan and the largest slowdown of any schedule from below."""

import numpy as np

from optim.models.cluster.proof import IntervalProof, LoadProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster

BISECTIONS = 30
MOST_SLOWDOWN = 1e6


def bound_makespan(jobs: Workload, cluster: Cluster) -> LoadProof:
    """Return the time from which on the remaining load gives the latest end ((D.2) of docs/mathematics/cluster.md)."""
    work = (jobs.gpus * jobs.duration_us).astype(float)
    to_come = np.cumsum(work[::-1])[::-1]
    best = int(np.argmax(jobs.submit_us + to_come / cluster.num_gpus))
    return LoadProof(from_us=int(jobs.submit_us[best]))


def bound_slowdown(jobs: Workload, cluster: Cluster) -> IntervalProof:
    """Return an interval that is overloaded at the largest slowdown found by bisection ((D.3)); slowdown 1 if none is."""
    from optim.solvers.cluster.earliest_deadline import overloaded_interval

    release, duration = jobs.submit_us / US, jobs.duration_us / US
    work = duration * jobs.gpus
    low, high, proof = 1.0, 2.0, IntervalProof(slowdown=1.0, from_us=0, to_us=0)
    for _ in range(BISECTIONS):
        begin, end = overloaded_interval(release, work, release + high * duration, float(cluster.num_gpus))
        if end < 0 or high > MOST_SLOWDOWN:
            break
        low, high = high, 2 * high
    for step in range(BISECTIONS):
        middle = low if step == 0 else (low + high) / 2
        begin, end = overloaded_interval(release, work, release + middle * duration, float(cluster.num_gpus))
        if end < 0:
            if step == 0:
                break
            high = middle
        else:
            low = middle
            # Whole microseconds around the interval: the checker counts jobs that lie within it.
            proof = IntervalProof(slowdown=middle, from_us=round(begin * US), to_us=int(np.floor(end * US)) + 1)
    return proof
