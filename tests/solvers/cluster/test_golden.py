"""What bounds and shares of a cluster's jobs come to, against a record: see `tests.support.golden`."""

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US
from optim.solvers.cluster.load_bounds import bound_makespan, bound_slowdown, overloaded_interval
from optim.solvers.cluster.price_bound import PriceBoundOptions, best_ends, bound_mean_completion, use_of_slots
from optim.solvers.cluster.time_shares import (
    finish_time_shares,
    finish_time_shares_by_programmes,
    max_min_shares,
    price_shares,
)
from tests.solvers.cluster.test_time_shares import drawn
from tests.support.golden import check
from tests.support.small_clusters import workload


def jobs_of(seed):
    """Return jobs and a cluster by a seed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 9))
    submit = np.sort(rng.integers(0, 9, count))
    submit -= submit[0]
    rows = list(
        zip(submit.tolist(), rng.integers(1, 4, count).tolist(), rng.integers(1, 9, count).tolist(), strict=True)
    )
    return workload(rows), Cluster(gpus=np.array([3]))


def bounds():
    """Bound drawn jobs by every proof."""
    found = []
    for seed in range(15):
        jobs, cluster = jobs_of(seed)
        found += [bound_makespan(jobs, cluster), bound_slowdown(jobs, cluster)]
        for steps in (0, 1, 7, 25):
            found.append(bound_mean_completion(jobs, cluster, PriceBoundOptions(slots=12, steps=steps)).least_s)
    return found


def loops():
    """Buy time at drawn prices, and look for intervals with too much work."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 7))
        release, duration = np.sort(rng.integers(0, 8, count)), rng.integers(1, 7, count)
        width, price = (
            rng.integers(1, 4, count).astype(float),
            rng.choice([0.0, 0.3, 1.0, 2.0], int(rng.integers(1, 7))),
        )
        value, flow, use = np.empty(count), np.empty(count), np.zeros(len(price))
        edge = 2 * US * np.arange(len(price) + 1)
        facts = (release * US, duration * US, width, edge, np.searchsorted(edge, release * US, side="right") - 1, price)
        best_ends(*facts, value, flow)
        use_of_slots(*facts, flow, use)
        found += [value, flow, use]
        deadline = release + duration * rng.uniform(0.8, 2.5, count)
        found += [overloaded_interval(release.astype(float), duration * width, deadline, speed) for speed in (1.0, 2.0)]
    return found


def shares():
    """Share time by each rule."""
    rules = (max_min_shares, finish_time_shares, finish_time_shares_by_programmes, price_shares)
    found = []
    for seed in range(8):
        for rule in rules:
            answer = rule(drawn(seed, 2 + seed, kinds=2 + seed % 2))
            # Shares of equal worth are HiGHS' choice.
            found.append(answer if rule is price_shares else (answer.value, answer.solves))
    return found


RUNS = {"bounds": bounds, "loops": loops, "shares": shares}


@pytest.mark.parametrize("name", RUNS)
def test_does_what_the_golden_record_says(name):
    check("solvers/cluster", name, RUNS[name])
