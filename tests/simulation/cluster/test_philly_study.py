"""The study's tables of small runs, worked by hand."""

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.run_file import LoggedRun
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.philly_study import NOT_IN_TRACE, philly_study
from tests.support.small_clusters import workload

MINUTE = 60


def _study(jobs, cluster, name="fifo", is_drawn=False, **options):
    run = simulate(jobs, cluster, make_policy(name, jobs), EngineOptions(overhead_s=0, **options))
    logged = LoggedRun(policy=name, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    return {table.name: table for table in philly_study(jobs, cluster, logged, is_drawn=is_drawn)}


def _row(table, name):
    return next(dict(zip(table.header, row, strict=True)) for row in table.rows if row[0] == name)


def test_a_gang_that_waits_for_one_machine_is_held_by_fragmentation():
    """Two machines of two GPUs, a job of one GPU on each for a minute; the gang of two waits though two GPUs are free."""
    jobs = workload([(0, 1, MINUTE), (0, 1, MINUTE), (0, 2, MINUTE), (0, 2, MINUTE)])
    tables = _study(jobs, Cluster(gpus=np.array([2, 2])), placement="worst-fit")
    row = _row(tables["waiting-by-gang"], "2-4 GPU")
    assert (row["jobs"], row["fair_share"], row["fragmentation"], row["fragmentation_share"]) == (2, 0, 2, 1)
    assert row["wait_mean_h"] == pytest.approx(1 / 60)
    assert row["published"] == pytest.approx(0.594, abs=1e-3)
    assert "1.000 of all waiting time" in tables["waiting-by-gang"].note


def test_a_virtual_cluster_over_its_quota_waits_for_its_share():
    jobs = workload([(0, 1, 60), (0, 1, 60), (0, 1, 120)], group=np.array([1, 1, 0]), groups=("", "a"))
    table = _study(jobs, Cluster.grid("1x2"))["waiting-by-virtual-cluster"]
    none, other = _row(table, "(none)"), _row(table, "a")
    assert (none["quota_gpus"], other["quota_gpus"]) == (None, None)
    assert table.note.startswith("fifo has no quotas, so no job waits for one; ")
    assert none["gpu_hours"] == pytest.approx(120 / 3600)
    assert (none["wait_mean_h"], none["full"], none["over_quota"]) == (pytest.approx(1 / 60), 1, 0)
    assert other["wait_mean_h"] == 0
    known = _study(jobs, Cluster.grid("1x2"), "yarn-cs")["waiting-by-virtual-cluster"]
    assert [row[3] for row in known.rows] == [1, 1]
    assert known.note.startswith(
        "quotas are those of the policy: from its option, or in proportion to the trace's GPU-hours; "
    )


def test_a_job_behind_the_head_of_a_strict_queue_is_held_up_by_its_order():
    jobs = workload([(0, 4, 7200), (0, 8, 3600), (0, 4, 10800)])
    table = _study(jobs, Cluster.grid("1x8"))["waiting-by-gang"]
    row = _row(table, "2-4 GPU")
    assert (row["fair_share"], row["fragmentation"], row["queue_order"], row["fragmentation_share"]) == (0, 0, 1, 0)


def test_wide_gangs_are_told_by_machines_and_waits():
    jobs = workload([(0, 8, 600), (0, 16, 60), (0, 16, 60)])
    tables = _study(jobs, Cluster.grid("2x8"))
    assert [row[:3] for row in tables["locality"].rows] == [("5-8 GPU", "1", 1), (">8 GPU", "2", 2)]
    assert tables["locality"].rows[1][3] == pytest.approx(10.5)
    row = _row(tables["utilisation"], "16 GPU")
    assert (row["machines_mean"], row["model"], row["gpu_hours"]) == (2, pytest.approx(40.39), pytest.approx(32 / 60))


def test_what_a_trace_lacks_is_said():
    tables = _study(workload([(0, 1, 1)]), Cluster.grid("1x1"))
    for name in ("statuses", "failures", "failing-early"):
        assert (tables[name].rows, tables[name].note) == ((), NOT_IN_TRACE)


def test_statuses_and_failures_are_those_of_the_jobs():
    """A gang of two that fails twice after five minutes, one that fails once after an hour, and two others."""
    jobs = workload(
        [(0, 2, 600), (0, 1, 3600), (0, 1, 600), (0, 1, 600)],
        status=np.array([1, 1, 2, 0]),
        statuses=("Killed", "Failed", "Pass"),
        fails_us=np.array([300 * US, 3600 * US, -1, -1]),
        reason=np.array([1, 2, 0, 0]),
        reasons=("", "syntax error", "MPI runtime failure"),
    )
    tables = _study(jobs, Cluster.grid("1x8"), is_drawn=True)
    assert tables["statuses"].note == "drawn"
    row = _row(tables["statuses"], "unsuccessful")
    assert (row["jobs"], row["jobs_share"], row["gpu_time_share"]) == (2, 0.5, pytest.approx(4800 / 6000))
    row = _row(tables["failures"], "syntax error")
    assert (row["class"], row["retry_helps"], row["jobs"], row["fails_p50_min"]) == ("user", False, 1, 5)
    assert row["gpu_time_share"] == pytest.approx(1200 / 4800)
    caught = _row(tables["failing-early"], "caught in the pool")
    assert (caught["jobs"], caught["gpu_hours_saved"]) == (1, pytest.approx(1200 / 3600))
    assert caught["gpu_hours_spent"] == pytest.approx(1 / 6)  # ten minutes of the one job of several GPUs
    assert _row(tables["failing-early"], "no retry where it is useless")["jobs"] == 0


def test_retries_that_are_useless_cost_all_but_the_first_try():
    jobs = workload([(0, 1, 3600)], status=np.array([0]), statuses=("Failed",), fails_us=np.array([900 * US]),
                    reason=np.array([0]), reasons=("syntax error",))  # fmt: skip
    row = _row(_study(jobs, Cluster.grid("1x1"))["failing-early"], "no retry where it is useless")
    assert (row["jobs"], row["gpu_hours_saved"]) == (1, pytest.approx(0.75))


def test_preemption_its_cost_and_scale_are_told():
    jobs = workload([(0, 1, 600), (60, 1, 60)])
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("srtf", jobs), EngineOptions(overhead_s=30))
    logged = LoggedRun(policy="srtf", log=run.log, metrics=measure(jobs, Cluster.grid("1x1"), run), rules=run.rules)
    figures = dict(philly_study(jobs, Cluster.grid("1x1"), logged)[-1].rows)
    assert (figures["preemptions"], figures["share of jobs preempted"]) == (1, 0.5)
    assert figures["GPU-hours lost to restarts"] == pytest.approx(30 / 3600)


def test_jobs_whose_end_is_not_told_are_counted_apart():
    jobs = workload([(0, 1, 60), (0, 1, 180)], status=np.array([1, 0]), statuses=("", "Pass"))
    table = _study(jobs, Cluster(gpus=np.array([2])))["statuses"]
    passed, unknown = _row(table, "passed"), _row(table, "(unknown)")
    assert (passed["jobs"], unknown["jobs"]) == (1, 1)
    assert (passed["gpu_time_share"], unknown["gpu_time_share"]) == (0.25, 0.75)
