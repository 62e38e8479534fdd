"""The lessons' study: savings by hand, sums over the log, and losses that decrease as stated."""

from dataclasses import replace

import numpy as np
import pytest
from optim_studies.lessons import LESSONS, LessonOptions, Saving, ends_well, falling_losses, runs_of, savings

from optim.core.errors import InvalidOptionError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

TINY = LessonOptions(jobs=30, gpus="2x8", load=0.1, draws=2)


def _gpu_hours(run):
    """Sum GPUs times hours from each start in the log to the next event of its job."""
    since, total = {}, 0
    for time, kind, job, places in run.log.rows():
        if job in since:
            begun, gpus = since.pop(job)
            total += (time - begun) * gpus
        if kind == Event.START:
            since[job] = (time, sum(gpus for _, gpus in places))
    assert not since
    return total / (3600 * US)


def test_a_gang_that_fails_early_saves_its_gpus_and_makes_the_next_wait():
    # Three machines of two GPUs; the first gang fails after 200 s in each of its tries, the second is good.
    jobs = workload([(0, 2, 7200), (0, 2, 7200)], fails_us=np.array([200 * US, -1]))
    cluster = Cluster.grid("3x2")
    plain, taught = (
        simulate(jobs, cluster, make_policy(name, jobs, {}), EngineOptions(overhead_s=0), 0)
        for name in ("yarn-cs", "fail-early+yarn-cs")
    )
    found = Saving.of(jobs, plain, taught)
    # Both hold 4 GPU-hours without it. Trials: 200 s and 300 s on one GPU, which does half of a gang's work.
    held = (200 + 300 + 2 * (7200 - 150)) / 3600
    assert found.gpu_hours == pytest.approx(8 - held, abs=1e-6)
    assert found.share == pytest.approx((8 - held) / 8, abs=1e-6)
    assert found.delay_h == pytest.approx(150 / 3600, abs=1e-6)
    assert found.given_up == 0.0
    assert Saving.of(jobs, plain, plain) == Saving(gpu_hours=0.0, share=0.0, delay_h=0.0, delay_share=0.0, given_up=0.0)


def test_only_jobs_that_end_well_both_times_count_as_delayed():
    jobs = workload([(0, 1, 3600), (0, 1, 3600), (0, 1, 3600)], fails_us=np.array([-1, 60 * US, -1]))
    plain = simulate(jobs, Cluster.grid("1x4"), make_policy("fifo", jobs, {}), EngineOptions(overhead_s=0), 0)
    assert ends_well(jobs, plain).tolist() == [True, False, True]
    late = replace(plain, end_us=plain.end_us + np.array([2, 7, 1]) * 3600 * US, is_done=np.array([True, True, False]))
    found = Saving.of(jobs, plain, late)
    assert found.delay_h == pytest.approx(2.0)
    assert found.delay_share == pytest.approx(2.0)
    assert found.given_up == pytest.approx(0.5)


@pytest.mark.parametrize("lesson", LESSONS)
def test_savings_are_the_sums_over_both_logs(lesson):
    jobs, plain, taught = runs_of(TINY, lesson, "fifo", 3)
    found = Saving.of(jobs, plain, taught)
    assert found.gpu_hours == pytest.approx(_gpu_hours(plain) - _gpu_hours(taught), rel=1e-9, abs=1e-6)
    assert found.share == pytest.approx(found.gpu_hours / _gpu_hours(plain), rel=1e-9, abs=1e-9)


def test_worlds_differ_by_seed_and_intervals_span_them():
    found = savings(TINY, "retry by class", "fifo", 1)
    each = [Saving.of(*runs_of(TINY, "retry by class", "fifo", seed)).gpu_hours for seed in (2, 3)]
    assert each[0] != each[1]
    assert found["gpu_hours"].mean == pytest.approx(np.mean(each))


def test_losses_come_within_a_thousandth_when_they_are_said_to():
    losses = falling_losses(4000, np.random.default_rng(0))
    assert np.all(np.diff(losses, axis=1) <= 0)
    assert losses[:, 0] == pytest.approx(2.0)
    is_close = losses <= 1.001 + 1e-12
    share = np.where(is_close.any(axis=1), is_close.argmax(axis=1), losses.shape[1] - 1) / (losses.shape[1] - 1)
    assert np.median(share) == pytest.approx(0.15, abs=0.03)
    assert is_close[:, -1].all()


@pytest.mark.parametrize("wrong", [{"draws": 1}, {"neighbour": 0.9}, {"network_share": 1.1}, {"load": 0}])
def test_options_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidOptionError, match=next(iter(wrong))):
        LessonOptions(**wrong)


def test_run_times_are_cut_to_hours():
    jobs = replace(TINY, jobs=200, cap_h=2.0).workload(0)
    assert jobs.duration_us.max() == 2 * 3600 * US
