"""Small clusters and workloads, and the least mean completion time by going through all schedules."""

from functools import cache
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload


def workload(rows, **more):
    """Return jobs from rows (submission, GPUs, duration) in seconds."""
    submit, gpus, duration = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(submit_us=submit * US, gpus=gpus, duration_us=duration * US, **more)


@st.composite
def small_worlds(draw, jobs=4):
    """A cluster of one machine and a few jobs with times in integral seconds."""
    gpus = draw(st.integers(1, 3))
    count = draw(st.integers(1, jobs))
    submit = sorted(draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    rows = [(when - submit[0], draw(st.integers(1, gpus)), draw(st.integers(1, 4))) for when in submit]
    return rows, Cluster(gpus=np.array([gpus]))


def least_total_completion(rows, num_gpus):
    """Return the least sum of completion times over schedules that change at integral seconds, with preemption."""

    @cache
    def least(now, left):
        if not any(left):
            return 0
        active = [job for job, work in enumerate(left) if work and rows[job][0] <= now]
        waiting = sum(1 for job, work in enumerate(left) if work and rows[job][0] <= now)
        options = []
        for size in range(len(active), -1, -1):
            for chosen in combinations(active, size):
                if sum(rows[job][1] for job in chosen) <= num_gpus:
                    after = tuple(work - (job in chosen) for job, work in enumerate(left))
                    options.append(after)
        if not active:
            options = [left]
        return waiting + min(least(now + 1, after) for after in options if after != left or not active)

    return least(0, tuple(duration for _, _, duration in rows))


def queue(seed):
    """Return two to eight jobs on three GPUs, by a seed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 9))
    submit = np.sort(rng.integers(0, 9, count))
    rows = zip(
        (submit - submit[0]).tolist(),
        rng.integers(1, 4, count).tolist(),
        rng.integers(1, 9, count).tolist(),
        strict=True,
    )
    return workload(list(rows)), Cluster(gpus=np.array([3]))
