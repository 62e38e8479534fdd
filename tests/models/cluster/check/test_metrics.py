"""The checker's figures: by hand, and equal to the simulator's for every type of policy and option."""

from dataclasses import asdict, fields

import numpy as np
import pytest

from optim.models.cluster.check import check_runs, replay
from optim.models.cluster.check.metrics import figures_of
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import Metrics, measure
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import bound
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

H = 3600


def figures(jobs, cluster, run):
    replayed, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    return figures_of(jobs, cluster, run.log, run.rules, replayed)


def test_figures_of_three_jobs_by_hand():
    """One machine of two GPUs, hours: A (0, 1, 4), B (0, 2, 2), C (1, 1, 1) in turn; A and C run 0 to 4 and 1 to 2, B from 4 to 6.

    B waits 4 hours for capacity; C uses GPUs of its virtual cluster for one of them, but `fifo` ignores quotas.
    """
    jobs = workload([(0, 1, 4 * H), (0, 2, 2 * H), (H, 1, H)], group=np.array([0, 1, 1]), groups=("a", "b"))
    cluster = Cluster.grid("1x2")
    run = simulate(jobs, cluster, make_policy("fifo", jobs, {"backfill": True}), EngineOptions(overhead_s=0))
    found = figures(jobs, cluster, run)
    assert found.keys() == {each.name for each in fields(Metrics)}
    hours = [4, 6, 1]  # from submission to end
    crowd = [(2 + 3 + 2 + 2) / 4, (2 + 3 + 2 + 2 + 1 + 1) / 6, 3]  # active apps, on average
    rho = sorted(hour / (alone * apps) for hour, alone, apps in zip(hours, (4, 2, 1), crowd, strict=True))
    space = sorted(  # of 2 GPUs each app has 2 / N, at most its gang
        hour / (alone * gang / min(gang, 2 / apps))
        for hour, alone, gang, apps in zip(hours, (4, 2, 1), (1, 2, 1), crowd, strict=True)
    )
    expected = {
        "jct_mean_h": 11 / 3, "jct_p50_h": 4, "jct_p95_h": 5.8, "jct_p99_h": 5.96, "makespan_h": 6,
        "first_start_mean_h": 4 / 3, "wait_mean_h": 4 / 3, "slowdown_mean": 5 / 3, "slowdown_max": 3,
        "rho_max": rho[2], "rho_p50": rho[1], "rho_min": rho[0], "rho_share_above_1": sum(each > 1 for each in rho) / 3,
        "rho_space_max": space[2], "rho_space_p50": space[1], "rho_space_min": space[0],
        "jain": sum(1 / each for each in rho) ** 2 / (3 * sum(1 / each**2 for each in rho)),
        "gpu_hours": 9, "overhead_gpu_hours": 0, "utilisation": 9 / 12, "goodput": 1, "placement_score": 1,
        "wait_fair_share": 1, "wait_fragmented_share": 0, "wait_order_share": 0, "preemptions": 0, "unfinished": 0, "left": 0,
        "wait_max_1_h": 0, "wait_max_2_4_h": 4, "wait_max_5_8_h": 0, "wait_max_above_8_h": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)


NAMED = ("drf", "themis", "gandiva", "tetris", "max-min")
OPTIONS = (
    {},
    {"overhead_s": 60, "mtbf_hours": 1, "repair_hours": 0.5, "checkpoint_min": 10},
    {"spread": True},
    {"retries": "blind", "retry_wait_min": 5},
)
WORLDS = {
    "types": ({"gpu_type_slowdown_ppm": (0, 2)}, Cluster(gpus=np.array([4, 2, 4]), kind=np.array([0, 1, 1]), kinds=("a", "b"))),
    "hosts": ({"cpu_milli": (1, 4), "memory_mib": (1, 3)},
              Cluster(gpus=np.array([4, 4]), cpus=np.array([9.0, 12.0]), memory_gb=np.array([8.0, 8.0]))),
    "shares": ({"share_milli": (3, 11)}, Cluster.grid("2x4")),
}  # fmt: skip
UNIT = {"gpu_type_slowdown_ppm": 1_000_000, "cpu_milli": 1000, "memory_mib": 1024, "share_milli": 100}


@pytest.mark.parametrize("name", ["fifo", "srtf", "drf", "yarn-cs"])
@pytest.mark.parametrize("world", WORLDS)
def test_two_codes_come_to_the_same_waiting_where_jobs_differ_in_what_they_can_use(world, name):
    asked, cluster = WORLDS[world]
    rng = np.random.default_rng(5)
    rows = sorted((int(rng.integers(0, 2000)), int(rng.integers(1, 5)), int(rng.integers(60, 3000))) for _ in range(20))
    more = {
        column: rng.integers(*limits, (20, 2) if column == "gpu_type_slowdown_ppm" else 20) * UNIT[column]
        for column, limits in asked.items()
    }
    if "gpu_type_slowdown_ppm" in more:
        more["gpu_type_slowdown_ppm"][:, 1] = UNIT["gpu_type_slowdown_ppm"]
    jobs = workload(
        [(each[0] - rows[0][0], *each[1:]) for each in rows], group=np.arange(20) % 3, groups=("a", "b", "c"), **more
    )
    options = EngineOptions(sharing=world == "shares", overhead_s=0, mtbf_hours=2, repair_hours=0.3)
    run = simulate(jobs, cluster, make_policy(name, jobs), options, 1)
    found = figures(jobs, cluster, run)
    assert found == pytest.approx(asdict(measure(jobs, cluster, run)), rel=1e-9, abs=1e-12)
    assert found["wait_fair_share"] > 0


@pytest.mark.parametrize("given", OPTIONS)
@pytest.mark.parametrize("name", ["fifo", "srtf", "las", "tiresias", "yarn-cs", *NAMED])
def test_two_codes_come_to_the_same_figures(name, given):
    rng = np.random.default_rng(3)
    count = 14
    rows = sorted(
        zip(*(rng.integers(*limits, count).tolist() for limits in ((0, 4000), (1, 5), (60, 5000))), strict=True)
    )
    fails = np.where(rng.random(count) < 0.4, 30_000_000, -1)
    jobs = workload(
        [(submit - rows[0][0], width, work) for submit, width, work in rows],
        app=rng.integers(0, 6 if name == "themis" else count, count) if name != "fifo" else np.arange(count),
        group=rng.integers(0, 3, count), groups=("a", "b", "c"), fails_us=fails,
    )  # fmt: skip
    cluster = Cluster.grid("2x4")
    run = simulate(jobs, cluster, make_policy(name, jobs), EngineOptions(**given), 1)
    assert figures(jobs, cluster, run) == pytest.approx(asdict(measure(jobs, cluster, run)), rel=1e-9, abs=1e-12)


def test_submissions_that_are_far_apart_are_verified_to_the_microsecond():
    """Bursts of three jobs of 5 microseconds, up to 35 years apart: no figure is below its bound."""
    submit = np.repeat([0, 2**49, 2**50 - 100], 3)
    jobs = Workload(submit_us=submit, gpus=np.ones(9, np.int64), duration_us=np.full(9, 5))
    cluster = Cluster.grid("1x1")
    run = simulate(jobs, cluster, make_policy("srtf", jobs), EngineOptions(overhead_s=0))
    logged = LoggedRun(policy="srtf", log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    record = RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, runs=(logged,), **bound(jobs, cluster, 50))
    assert [str(one) for _, found in check_runs(record) for one in found.violations] == []
    assert record.bounds["jct_mean_h"] == pytest.approx(10 / 3.6e9, rel=1e-6)
