"""Computed loads and intervals against enumeration."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from optim.models.cluster.check import min_makespan, min_slowdown
from optim.models.cluster.proof import IntervalProof, LoadProof
from optim.models.cluster.workload import US
from optim.solvers.cluster.load_bounds import bound_makespan, bound_slowdown, overloaded_interval
from tests.support.small_clusters import small_worlds, workload


@given(small_worlds(jobs=6))
def test_the_load_found_gives_the_latest_end_of_all(world):
    rows, cluster = world
    jobs = workload(rows)
    proven = min_makespan(jobs, cluster, bound_makespan(jobs, cluster))
    proofs = (LoadProof(from_us=int(submit)) for submit in jobs.submit_us)
    assert proven == max(min_makespan(jobs, cluster, proof) for proof in proofs)


@pytest.mark.prove
@given(small_worlds(jobs=5))
def test_the_interval_found_proves_what_the_best_of_all_intervals_does(world):
    rows, cluster = world
    jobs = workload(rows)
    proven = min_slowdown(jobs, cluster, bound_slowdown(jobs, cluster))
    best = 1.0
    for begin in {submit for submit, *_ in rows}:
        for slowdown in np.arange(1.05, 14, 0.05):
            for submit, _, duration in rows:
                to_us = submit * US + math.ceil(Fraction(float(slowdown)) * duration * US)
                proof = IntervalProof(slowdown=float(slowdown), from_us=begin * US, to_us=to_us)
                best = max(best, min_slowdown(jobs, cluster, proof))
    assert proven >= best - 1e-6
    assert proven <= max(1.0, best + 0.06)


def test_nobody_is_late_where_work_fits():
    release, work = np.array([0.0, 0.0, 3.0]), np.array([2.0, 4.0, 1.0])
    assert overloaded_interval(release, work, np.array([2.0, 4.0, 5.0]), 2.0) == (-1.0, -1.0)


def test_the_overload_begins_after_work_that_could_have_waited():
    """The long job with a late deadline runs first; only the job that came at 3 is late at 6."""
    release, work = np.array([0.0, 3.0, 3.0]), np.array([9.0, 2.0, 2.0])
    assert overloaded_interval(release, work, np.array([50.0, 6.0, 6.0]), 1.0) == pytest.approx((3.0, 6.0))
