"""Figures of a run against sums second by second."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given

from optim.core.errors import InvalidProblemError, UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.metrics import (
    Metrics,
    app_fairness,
    localities,
    measure,
    placement_score,
    rho_of_apps,
)
from optim.models.cluster.waiting import waiting
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import small_worlds, workload


def _play(rows, cluster, name="las", **options):
    jobs = workload(rows)
    policy = make_policy(name, jobs, {"quantum_s": 1} if name == "las" else None)
    return jobs, simulate(jobs, cluster, policy, EngineOptions(**options))


@given(small_worlds(jobs=6))
def test_fairness_is_what_adding_up_seconds_gives(world):
    rows, cluster = world
    jobs, run = _play(rows, cluster, overhead_s=1)
    ends = run.end_us // US
    found = app_fairness(jobs, cluster, run)
    whole, space = found.rho, found.rho_space
    for job, (submit, gpus, duration) in enumerate(rows):
        seconds = range(submit, int(ends[job]))
        active = [sum(rows[other][0] <= at < ends[other] for other in range(len(rows))) for at in seconds]
        mean = np.mean(active)
        assert whole[job] == pytest.approx(len(seconds) / (duration * mean))
        share = min(cluster.num_gpus / mean, gpus)
        assert space[job] == pytest.approx(len(seconds) * share / (duration * gpus))


@pytest.mark.parametrize("name", ["las", "fifo", "patience+srtf"])
@given(world=small_worlds(jobs=6))
def test_waiting_is_all_time_without_gpus(name, world):
    """Second by second from the events: before the first start, and whenever GPUs were lost; as the study's tables add it up."""
    rows, cluster = world
    jobs, run = _play(rows, cluster, name, overhead_s=1)
    holds, waited, begun = set(), np.zeros(len(rows), np.int64), {}
    events = run.log.rows()
    for second in range(int(run.end_us.max() // US)):
        for _, kind, job, _ in (event for event in events if event[0] == second * US):
            (holds.add if kind == Event.START else holds.discard)(job)
            begun.setdefault(job, second)
        for job, (submit, _, _) in enumerate(rows):
            waited[job] += submit <= second < run.end_us[job] // US and job not in holds
    metrics = measure(jobs, cluster, run)
    assert metrics.wait_mean_h == pytest.approx(waited.mean() / 3600)
    assert metrics.first_start_mean_h == pytest.approx(np.mean([begun[job] - rows[job][0] for job in begun]) / 3600)
    spells = waiting(jobs, cluster, run.log, run.end_us, run.rules)
    assert (spells.end_us - spells.begin_us).sum() == waited.sum() * US


def test_figures_of_a_run_worked_by_hand():
    """One GPU: the second job takes it at 1, the first continues at 2 after a second of restart, and ends at 6."""
    jobs, run = _play([(0, 1, 4), (1, 1, 1)], Cluster.grid("1x1"), "srtf", overhead_s=1)
    metrics = measure(jobs, Cluster.grid("1x1"), run)
    assert run.end_us.tolist() == [6 * US, 2 * US]
    assert metrics.jct_mean_h == pytest.approx((6 + 1) / 2 / 3600)
    assert metrics.first_start_mean_h == 0
    assert metrics.wait_mean_h == pytest.approx(1 / 2 / 3600)
    assert metrics.makespan_h == pytest.approx(6 / 3600)
    assert metrics.slowdown_max == pytest.approx(6 / 4)
    assert metrics.slowdown_mean == pytest.approx((6 / 4 + 1) / 2)
    assert metrics.gpu_hours == pytest.approx(6 / 3600)
    assert metrics.overhead_gpu_hours == pytest.approx(1 / 3600)
    assert metrics.utilisation == pytest.approx(1)
    assert metrics.preemptions == 1
    # Two apps were active for one of the first's six seconds, and all of the second's one.
    assert metrics.rho_max == pytest.approx(6 / (4 * 7 / 6))
    assert metrics.jain == pytest.approx((7 / 9 + 2) ** 2 / (2 * ((7 / 9) ** 2 + 4)))
    assert metrics.rho_share_above_1 == 0.5
    assert (metrics.rho_min, metrics.rho_p50) == (pytest.approx(1 / 2), pytest.approx((1 / 2 + 6 / (4 * 7 / 6)) / 2))
    assert metrics.goodput == pytest.approx(5 / 6)
    assert (metrics.placement_score, metrics.wait_fair_share, metrics.wait_fragmented_share) == (1, 1, 0)


def test_gangs_score_by_where_they_ran_and_for_how_long():
    """Three machines of two GPUs, two of them in a rack: a gang of four in the rack for 3 s, one of six beyond it for 2 s."""
    cluster = Cluster(gpus=np.array([2, 2, 2]), rack=np.array([0, 0, 1]))
    jobs, run = _play([(0, 4, 3), (4, 6, 2), (7, 2, 4), (7, 1, 9)], cluster, "fifo")
    assert localities(cluster, run.log).tolist() == [1, 0, 2, 0, 0, 0, 0, 0]
    score = (12 * 0.5 + 12 * 0.25 + 8 * 1.0) / 32
    assert placement_score(cluster, run) == pytest.approx(score)
    assert measure(jobs, cluster, run).placement_score == pytest.approx(score)


def test_fairness_is_that_of_apps_all_of_whose_jobs_are_over():
    """Apps of 4 and 6 s, and of 10 s on both GPUs, as worked out for apps; a third is never done."""
    jobs = workload([(0, 1, 4), (0, 1, 6), (0, 2, 10)], app=np.array([0, 0, 1]))
    cluster = Cluster.grid("1x2")
    run = simulate(jobs, cluster, make_policy("fifo", jobs), EngineOptions(overhead_s=0))
    metrics = measure(jobs, cluster, run)
    assert (metrics.rho_min, metrics.rho_max) == pytest.approx((6 / 12, 16 / (22 / 16 * 10)))
    assert metrics.rho_space_min == pytest.approx(6 / 10)
    assert metrics.jct_mean_h * 3600 == pytest.approx((4 + 6 + 16) / 3)
    gone = replace(run, is_done=np.array([True, False, True]))
    assert measure(jobs, cluster, gone).rho_min == metrics.rho_max  # the first app is incomplete
    alone = replace(run, is_done=np.array([True, False, False]))
    assert measure(jobs, cluster, alone).rho_max == metrics.rho_min  # no complete app: the present jobs count


@pytest.mark.parametrize("missing", [None, 0, 1, 2, 3, 4])
def test_only_apps_all_of_whose_jobs_are_over_have_a_fairness(missing):
    """Apps 0 and 2 of two jobs each, and app 1 of one."""
    jobs = workload([(0, 1, 4), (0, 1, 5), (0, 2, 6), (1, 1, 7), (2, 1, 8)], app=np.array([0, 0, 1, 2, 2]))
    cluster = Cluster.grid("1x2")
    run = simulate(jobs, cluster, make_policy("fifo", jobs), EngineOptions(overhead_s=0))
    rho, space = rho_of_apps(jobs, cluster, replace(run, is_done=np.arange(5) != missing))
    kept = [app for app in range(3) if missing is None or app != jobs.app[missing]]
    found = app_fairness(jobs, cluster, run)
    assert (rho.tolist(), space.tolist()) == (found.rho[kept].tolist(), found.rho_space[kept].tolist())


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -1e308, 10**400], ids=["nan", "inf", "-1e308", "10**400"]
)
def test_figures_are_finite_numbers(value):
    names = [figure.name for figure in fields(Metrics)]
    for name in ("jct_mean_h", "preemptions"):
        with pytest.raises(InvalidProblemError, match=f"{name} must be a finite number"):
            Metrics(**{**dict.fromkeys(names, 1), name: value})


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ((0, 0), "metrics need at least one completed job"),
        ((0, 1, 0, 1, 0, 1), "it preempted 2 jobs 3 times; keep view.running in the plan"),
    ],
)
def test_a_run_in_which_no_job_was_done_says_what_may_have_kept_them(kinds, said):
    jobs, cluster = workload([(0, 1, 4), (0, 1, 4)]), Cluster.grid("1x2")
    run = simulate(jobs, cluster, make_policy("fifo", jobs), EngineOptions())
    starts = np.cumsum(np.array(kinds) == 0)
    log = EventLog(
        time_us=np.arange(len(kinds)), kind=np.array(kinds, np.int8), job=(starts - 1) % 2,
        first=np.concatenate([[0], starts]), machine=np.zeros(starts[-1], int), gpus=np.ones(starts[-1], int),
    )  # fmt: skip
    with pytest.raises(UnsupportedProblemError, match=said):
        measure(jobs, cluster, replace(run, log=log, is_done=np.zeros(2, bool)))
    with pytest.raises(UnsupportedProblemError, match="finished no job; jobs were stopped"):
        measure(jobs, cluster, replace(run, log=log, is_done=np.zeros(2, bool), halted="jobs were stopped"))
