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
    high = 2.0
    while high < MOST_SLOWDOWN and _overload(jobs, cluster, high) is not None:
        high *= 2
    low, proof = 1.0, IntervalProof(slowdown=1.0, from_us=0, to_us=0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        found = _overload(jobs, cluster, middle)
        if found is None:
            high = middle
        else:
            low, proof = middle, found
    return proof


def _overload(jobs: Workload, cluster: Cluster, slowdown: float) -> IntervalProof | None:
    """Return an interval of whole microseconds that is overloaded at a slowdown, None if none is found."""
    from optim.solvers.cluster.earliest_deadline import overloaded_interval

    release, duration = jobs.submit_us / US, jobs.duration_us / US
    deadline = release + slowdown * duration
    begin, end = overloaded_interval(release, duration * jobs.gpus, deadline, float(cluster.num_gpus))
    if end < 0:
        return None
    from_us, to_us = round(begin * US), int(np.floor(end * US)) + 1
    room = (to_us - jobs.submit_us) * (1 - 1e-15)  # what ends inside by rounded numbers does so by exact ones
    inside = (jobs.submit_us >= from_us) & (slowdown * jobs.duration_us <= room)
    work = int((jobs.gpus[inside] * jobs.duration_us[inside]).sum())
    is_overloaded = work > cluster.num_gpus * (to_us - from_us)
    return IntervalProof(slowdown=slowdown, from_us=from_us, to_us=to_us) if is_overloaded else None
