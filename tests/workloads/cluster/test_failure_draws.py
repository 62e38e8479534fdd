"""Drawn outcomes: the published shares, and times that the jobs' own run times allow."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.philly import STATUS_SHARES, STATUSES
from optim.workloads.cluster.generator import REASON_NAMES, REASONS, UNSUCCESSFUL, draw_outcomes, status_chances


@pytest.fixture(scope="module")
def jobs():
    """Gangs and run times with a heavy tail."""
    rng = np.random.default_rng(0)
    return rng.choice([1, 2, 8], 20_000, p=[0.85, 0.05, 0.1]), np.exp(rng.normal(21.0, 2.3, 20_000)).astype(np.int64)


def test_shares_of_jobs_and_of_gpu_time_are_the_published_ones_in_expectation(jobs):
    time = jobs[0] * jobs[1].astype(float)
    chances = status_chances(time)
    assert chances.sum(axis=1) == pytest.approx(np.ones(len(time)))
    wanted = np.array([STATUS_SHARES[name] for name in STATUSES])
    assert chances.mean(axis=0) == pytest.approx(wanted[:, 0], abs=1e-5)
    assert time @ chances / time.sum() == pytest.approx(wanted[:, 1], abs=1e-5)


def test_a_failed_jobs_tries_fill_its_run_time(jobs):
    outcomes = draw_outcomes(*jobs, seed=1)
    failed = outcomes.status == UNSUCCESSFUL
    assert (outcomes.reason[~failed] == -1).all()
    assert (outcomes.fails_us[~failed] == -1).all()
    assert (outcomes.reason[failed] >= 0).all()
    rest = jobs[1][failed] - outcomes.tries[failed] * outcomes.fails_us[failed]
    assert ((rest >= 0) & (rest < outcomes.tries[failed])).all()
    assert outcomes.fails_us[failed].min() >= 1


def test_reasons_suit_the_run_times(jobs):
    outcomes = draw_outcomes(*jobs, seed=1)
    medians = [
        np.median(outcomes.fails_us[outcomes.reason == REASON_NAMES.index(name)])
        for name in ("syntax error", "incorrect inputs", "MPI runtime failure")
    ]
    assert medians[0] < medians[1] < medians[2]
    number = REASON_NAMES.index("CPU out of memory")
    tries = outcomes.tries[outcomes.reason == number]
    assert tries.mean() == pytest.approx(REASONS[number].trials / REASONS[number].jobs, rel=0.15)


def test_the_same_seed_draws_the_same():
    few = np.array([1, 8, 4]), np.array([10**9, 10**12, 10**7])
    first, again = draw_outcomes(*few, seed=4), draw_outcomes(*few, seed=4)
    assert first.status.tolist() == again.status.tolist()
    assert len(draw_outcomes(np.array([1]), np.array([1]), seed=0).status) == 1
    with pytest.raises(InvalidProblemError, match="GPU-time"):
        draw_outcomes(np.zeros(0, int), np.zeros(0, int), seed=0)
