"""Differences between policies against series of known mean, and lines by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.differences import WEEK_US, difference
from optim.simulation.cluster.engine import simulate
from optim.statistics import block_mean


def coverage(correlation, weeks, truth=0.7, series=400):
    """Return the share of intervals that hold the mean of weekly means that are an autoregression."""
    rng, held = np.random.default_rng(5), 0
    for _ in range(series):
        noise = np.zeros(weeks)
        noise[0] = rng.standard_normal()
        for week in range(1, weeks):
            noise[week] = correlation * noise[week - 1] + math.sqrt(1 - correlation**2) * rng.standard_normal()
        counts = rng.integers(50, 150, weeks).astype(float)
        found = block_mean((truth + noise) * counts, counts, rng, resamples=400)
        held += found.low <= truth <= found.high
    return held / series


@pytest.mark.parametrize(("correlation", "weeks"), [(0.0, 26), (0.0, 12), (0.3, 26)])
def test_intervals_hold_a_known_mean_as_often_as_they_say(correlation, weeks):
    assert 0.91 <= coverage(correlation, weeks) <= 0.985


def test_of_independent_weeks_the_interval_is_students():
    values = np.random.default_rng(1).standard_normal(30)
    found = block_mean(values, np.ones(30), np.random.default_rng(2), length=1, resamples=20_000)
    half = 2.045229642132703 * values.std(ddof=1) / math.sqrt(30)  # Student's quantile of 29 degrees of freedom
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.03)
    assert found.mean == pytest.approx(values.mean())


def logged(policy, jobs, ends):
    """Return the parts of a run that differences read."""
    order = np.argsort(ends, kind="stable")
    nowhere = np.zeros(0, np.int64)
    log = EventLog(
        time_us=np.array(ends)[order],
        kind=np.full(len(ends), Event.END),
        job=np.arange(len(ends))[order],
        first=np.zeros(len(ends) + 1, np.int64),
        machine=nowhere,
        gpus=nowhere,
    )
    return SimpleNamespace(policy=policy, log=log)


def test_pairs_jobs_and_says_when_it_cannot_tell():
    hour = 3_600_000_000
    submit = np.arange(12) * WEEK_US
    jobs = Workload(submit_us=submit, gpus=np.ones(12, int), duration_us=np.full(12, hour))
    later = logged("b", jobs, submit + 3 * hour)
    always = difference(jobs, logged("a", jobs, submit + hour), later)
    assert str(always) == "a instead of b: -2 h [-2, -2], 12 weeks"
    now_and_then = difference(jobs, logged("a", jobs, submit + np.where(np.arange(12) % 2, 1, 5) * hour), later)
    assert now_and_then.hours.mean == 0
    assert str(now_and_then).endswith("12 weeks: not significant, the interval contains 0")


def test_three_weeks_are_too_few():
    jobs = Workload(submit_us=np.arange(3) * WEEK_US, gpus=np.ones(3, int), duration_us=np.full(3, 10**9))
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("fifo", jobs))
    assert "3 weeks: no interval" in str(difference(jobs, run, run))
