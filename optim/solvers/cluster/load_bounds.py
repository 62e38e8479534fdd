"""Lower bounds on the makespan and the largest slowdown of any schedule, from the total work of jobs in an interval."""

import heapq

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import IntArray
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import IntervalProof, LoadProof
from optim.models.cluster.workload import US, Workload
from optim.solvers.cluster.price_bound import gpu_pools


@compiled
def overloaded_interval(release, work, deadline, speed):
    """Return an interval (from, to) whose jobs can't all be completed within it, (-1, -1) if all deadlines are met.

    Jobs, sorted by release, run on a single machine of the given speed, earliest deadline first. Only work with earlier
    deadlines delays the first late job. So the interval begins when the machine was last idle or processed a job with a
    later deadline.
    """
    queue = [(0.0, 0, 0.0)]
    queue.pop()
    pieces = [(0.0, 0.0, 0.0)]
    pieces.pop()
    now, at, count = 0.0, 0, len(release)
    while at < count or queue:
        if not queue:
            now = max(now, release[at])
        while at < count and release[at] <= now:
            heapq.heappush(queue, (deadline[at], at, work[at]))
            at += 1
        job_deadline, job, remaining = heapq.heappop(queue)
        until = now + remaining / speed
        is_cut = at < count and release[at] < until
        if is_cut:
            until = release[at]
        pieces.append((now, until, job_deadline))
        remaining = max(0.0, remaining - (until - now) * speed)
        now = until
        if is_cut:
            heapq.heappush(queue, (job_deadline, job, remaining))  # the newly released job may be more urgent
        elif now > job_deadline:
            begin = now
            for piece in range(len(pieces) - 1, -1, -1):
                start, stop, urgency = pieces[piece]
                if urgency > job_deadline or stop < begin:
                    break
                begin = start
            return begin, job_deadline
    return -1.0, -1.0


BISECTIONS = 30

MAX_SLOWDOWN = 1e6


def bound_makespan(jobs: Workload, cluster: Cluster) -> LoadProof:
    """Return the proof of the bound (D.2) of docs/mathematics/cluster.md: the time t at which the bound is largest."""
    pools = gpu_pools(jobs, cluster)
    work, best, best_us = (jobs.gpus * pools.duration_us).astype(float), 0, -1.0
    for who, gpus in pools.bound_together():
        ends = jobs.submit_us[who] + np.cumsum(work[who][::-1])[::-1] / gpus
        at = int(np.argmax(ends))
        if ends[at] > best_us:
            best, best_us = int(jobs.submit_us[who[at]]), float(ends[at])
    return LoadProof(from_us=best)


def bound_slowdown(jobs: Workload, cluster: Cluster) -> IntervalProof:
    """Return an interval that proves the largest slowdown that bisection finds ((D.3)); slowdown 1 if none is overloaded."""
    pools, proof = gpu_pools(jobs, cluster), IntervalProof(slowdown=1.0, from_us=0, to_us=0)
    for who, gpus in pools.bound_together():
        facts = (jobs.submit_us[who], jobs.duration_us[who], jobs.gpus[who] * pools.duration_us[who], gpus)
        low, high = proof.slowdown, 2.0 * proof.slowdown
        while high < MAX_SLOWDOWN and _overload(*facts, high) is not None:
            high *= 2
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            overload = _overload(*facts, middle)
            if overload is None:
                high = middle
            else:
                low, proof = middle, overload
    return proof


def _overload(
    submit_us: IntArray, duration_us: IntArray, work_us: IntArray, gpus: int, slowdown: float
) -> IntervalProof | None:
    """Return an interval in integer microseconds that is overloaded at a slowdown, or None."""
    release = submit_us / US
    deadline = release + slowdown * (duration_us / US)
    begin, end = overloaded_interval(release, work_us / US, deadline, float(gpus))
    if end < 0:
        return None
    from_us, to_us = round(begin * US), int(np.floor(end * US)) + 1
    # Rounded down: a deadline that is inside the interval by this test is inside in exact arithmetic.
    max_duration_us = (to_us - submit_us) * (1 - 1e-15)
    inside = (submit_us >= from_us) & (slowdown * duration_us <= max_duration_us)
    is_overloaded = int(work_us[inside].sum()) > gpus * (to_us - from_us)
    return IntervalProof(slowdown=slowdown, from_us=from_us, to_us=to_us) if is_overloaded else None
