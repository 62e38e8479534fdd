"""Loads that bound the makespan and the largest slowdown of any schedule from below."""

import numpy as np

from optim.models.cluster.proof import IntervalProof, LoadProof
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster, IntArray
from optim.solvers.cluster.gpu_pools import gpu_pools

BISECTIONS = 30
MOST_SLOWDOWN = 1e6


def bound_makespan(jobs: Workload, cluster: Cluster) -> LoadProof:
    """Return the time from which on the remaining load gives the latest end ((D.2) of docs/mathematics/cluster.md)."""
    pools = gpu_pools(jobs, cluster)
    work, best, best_us = (jobs.gpus * pools.duration_us).astype(float), 0, -1.0
    for who, gpus in pools.bound_together():
        ends = jobs.submit_us[who] + np.cumsum(work[who][::-1])[::-1] / gpus
        at = int(np.argmax(ends))
        if ends[at] > best_us:
            best, best_us = int(jobs.submit_us[who[at]]), float(ends[at])
    return LoadProof(from_us=best)


def bound_slowdown(jobs: Workload, cluster: Cluster) -> IntervalProof:
    """Return an interval that is overloaded at the largest slowdown found by bisection ((D.3)); slowdown 1 if none is."""
    pools, proof = gpu_pools(jobs, cluster), IntervalProof(slowdown=1.0, from_us=0, to_us=0)
    for who, gpus in pools.bound_together():
        facts = (jobs.submit_us[who], jobs.duration_us[who], jobs.gpus[who] * pools.duration_us[who], gpus)
        low, high = proof.slowdown, 2.0 * proof.slowdown
        while high < MOST_SLOWDOWN and _overload(*facts, high) is not None:
            high *= 2
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            found = _overload(*facts, middle)
            if found is None:
                high = middle
            else:
                low, proof = middle, found
    return proof


def _overload(
    submit_us: IntArray, duration_us: IntArray, work_us: IntArray, gpus: int, slowdown: float
) -> IntervalProof | None:
    """Return an interval of whole microseconds that is overloaded at a slowdown, None if none is found."""
    from optim.solvers.cluster.earliest_deadline import overloaded_interval

    release = submit_us / US
    deadline = release + slowdown * (duration_us / US)
    begin, end = overloaded_interval(release, work_us / US, deadline, float(gpus))
    if end < 0:
        return None
    from_us, to_us = round(begin * US), int(np.floor(end * US)) + 1
    room = (to_us - submit_us) * (1 - 1e-15)  # what ends inside by rounded numbers does so by exact ones
    inside = (submit_us >= from_us) & (slowdown * duration_us <= room)
    is_overloaded = int(work_us[inside].sum()) > gpus * (to_us - from_us)
    return IntervalProof(slowdown=slowdown, from_us=from_us, to_us=to_us) if is_overloaded else None
