"""Jobs drawn like Philly's: bursts, gangs, run times, virtual clusters, and published shares of failures."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.philly import STATUS_SHARES, STATUSES
from optim.workloads.cluster.generator import (
    REASON_NAMES,
    REASONS,
    UNSUCCESSFUL,
    PhillyOptions,
    draw_jobs,
    draw_outcomes,
    status_chances,
)
from tests.support.trace_files import write_table


@pytest.fixture(scope="module")
def many():
    """Enough jobs for quantiles."""
    return draw_jobs(PhillyOptions(jobs=60_000), seed=3)


def test_the_same_seed_gives_the_same_jobs():
    first, again, other = (draw_jobs(PhillyOptions(jobs=300), seed) for seed in (5, 5, 6))
    assert first.duration_s.tolist() == again.duration_s.tolist() != other.duration_s.tolist()
    assert first.virtual_cluster.tolist() == again.virtual_cluster.tolist()
    assert (first.submit_s[0], len(first)) == (0, 300)


def test_submissions_come_in_bursts(many):
    gaps = np.diff(many.submit_s)
    assert (gaps >= 0).all()
    assert np.percentile(gaps, [50, 90]) == pytest.approx([8, 205], rel=0.35)
    hours = np.bincount((many.submit_s // 3600).astype(int))
    assert hours.var() > 30 * hours.mean()  # where single submissions at random would have the mean


def test_gangs_and_run_times_are_those_of_the_trace(many):
    assert (many.workers == 1).mean() == pytest.approx(0.87, abs=0.04)
    assert set(np.unique(many.workers)) <= {1, 2, 4, 8, 12, 16, 24, 32, 48, 64}
    single, eight = many.duration_s[many.workers == 1], many.duration_s[many.workers == 8]
    assert np.log(np.percentile(single, [25, 50, 75])) == pytest.approx(np.log([128, 1198, 3955]), abs=0.3)
    assert np.log(np.percentile(eight, [50, 75])) == pytest.approx(np.log([12567, 112913]), abs=0.4)


def test_virtual_clusters_lean_to_small_or_large_gangs(many):
    shares = [(many.workers[many.virtual_cluster == name] == 1).mean() for name in set(many.virtual_cluster)]
    assert len(shares) == 11
    assert max(shares) > 0.99
    assert min(shares) < 0.75


def test_jobs_of_a_burst_have_one_user_and_mostly_one_gang(many):
    is_like = many.workers[1:] == many.workers[:-1]
    close = np.diff(many.submit_s) <= 60
    assert is_like[close].mean() > 0.9
    assert (many.user[1:] == many.user[:-1])[close].all()


def test_load_and_cap_scale_and_cut(many):
    options = {"jobs": 200}
    plain, dense = (draw_jobs(PhillyOptions(**options, load=load), seed=1) for load in (1.0, 2.0))
    assert dense.submit_s == pytest.approx(plain.submit_s / 2)
    assert draw_jobs(PhillyOptions(**options, cap_s=100.0), seed=1).duration_s.max() == 100


def test_bursts_of_a_list_are_taken_whole(tmp_path):
    rows = [
        (n, time, gpus, 10 * n + 1, "")
        for n, (time, gpus) in enumerate([(0, 1), (500, 2), (510, 2), (2000, 8), (2001, 4)])
    ]
    path = write_table(tmp_path / "list.csv", ("job_id", "submit_s", "num_gpus", "duration_s", "vc"), rows)
    table = draw_jobs(PhillyOptions(jobs=40, bursts_from=path), seed=0)
    pairs = list(zip(table.workers.tolist(), table.duration_s.tolist(), strict=True))
    assert set(pairs) == {(2, 11), (2, 21), (8, 31), (4, 41)}
    for place in range(0, 40, 2):
        assert pairs[place : place + 2] in ([(2, 11), (2, 21)], [(8, 31), (4, 41)])
    gaps = np.diff(table.submit_s)
    assert set(gaps[::2].tolist()) == {10, 1}
    assert set(gaps[1::2].tolist()) == {500, 1490}
    one = write_table(tmp_path / "one.csv", ("job_id", "submit_s", "num_gpus", "duration_s", "vc"), rows[:1])
    with pytest.raises(InvalidProblemError, match="one burst"):
        draw_jobs(PhillyOptions(bursts_from=one), seed=0)


@pytest.mark.parametrize("options", [{"jobs": 0}, {"load": 0.0}, {"cap_s": 0.5}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(InvalidOptionError, match=next(iter(options))):
        PhillyOptions(**options)


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
