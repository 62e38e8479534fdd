"""Two runs side by side: a worked example by hand, and against each run alone."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.quota_tree import QueueRules, Reclaim
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.what_if import PairedRuns, QueueQuotas, queue_use, quotas_of
from optim.workloads.cluster.queue_files import write_kueue
from tests.support.cluster_worlds import WORLDS
from tests.support.quota_trees import quota_tree
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)
HOUR = 3600


def write_quotas(path, a, b):
    tree = quota_tree(
        ("c", "", 0, None, None),
        ("a", "c", a, None, None),
        ("b", "c", b, None, None),
        rules=QueueRules(reclaim=Reclaim.ANY),
    )
    path.write_text(write_kueue(tree)[0])
    return path


def paired(jobs, cluster, now, then, options=FREE):
    runs = [simulate(jobs, cluster, make_policy(*each), options) for each in (now, then)]
    quotas = [quotas_of(make_policy(*each), jobs, cluster) for each in (now, then)]
    return PairedRuns(jobs=jobs, now=runs[0].log, then=runs[1].log, quotas_now=quotas[0], quotas_then=quotas[1]), runs


def test_quotas_1_and_1_against_2_and_0_by_hand(tmp_path):
    """Two jobs of a at 0 for 100 h, one of b at 10 for 20 h, on 1x8, where queues have two GPUs together.

    1/1: a borrows b's from 0 to 10; its second job is stopped at 10, goes on at 30 and ends at 120, while a holds two until 100:
    80 GPU-hours borrowed. 2/0: a's are over at 100, then b borrows a's for 20 hours, having waited 90.
    """
    jobs = workload(
        [(0, 1, 100 * HOUR), (0, 1, 100 * HOUR), (10 * HOUR, 1, 20 * HOUR)],
        group=np.array([0, 0, 1]),
        groups=("a", "b"),
    )
    files = write_quotas(tmp_path / "now.yaml", 1, 1), write_quotas(tmp_path / "then.yaml", 2, 0)
    requests = [("hierarchical-quota", jobs, {"quotas": file}) for file in files]
    found, runs = paired(jobs, Cluster.grid("1x8"), *requests)
    assert [(run.end_us / US / HOUR).tolist() for run in runs] == [[100, 120, 30], [100, 100, 120]]
    assert found.waits_h.tolist() == [[0, 20, 0], [0, 0, 90]]
    a, b = found.rows()
    assert a == {
        **{"queue": "a", "quota_now": 1, "quota_then": 2, "jobs": 2, "wait_mean_h_now": 10, "wait_mean_h_then": 0},
        **{"wait_less": 1, "wait_more": 0, "borrowed_gpu_hours_now": 80, "borrowed_gpu_hours_then": 0},
        **{"stopped_now": 1, "stopped_then": 0, "starved_h_now": 0, "starved_h_then": 0},
    }
    assert b == {
        **{"queue": "b", "quota_now": 1, "quota_then": 0, "jobs": 1, "wait_mean_h_now": 0, "wait_mean_h_then": 90},
        **{"wait_less": 0, "wait_more": 1, "borrowed_gpu_hours_now": 0, "borrowed_gpu_hours_then": 20},
        **{"stopped_now": 0, "stopped_then": 0, "starved_h_now": 0, "starved_h_then": 0},
    }
    summary = found.summary()
    assert (summary["wait_less"], summary["wait_less_h"], summary["wait_more"], summary["wait_more_h"]) == (
        1,
        20,
        1,
        90,
    )
    assert (summary["over_quota_now"], summary["over_quota_then"]) == (["a"], ["b"])
    assert summary["most_less"] == [{"job": "j1", "queue": "a", "wait_h_change": -20}]
    assert (summary["stopped_now"], summary["stopped_then"], summary["starved_now"]) == (1, 0, [])


@pytest.mark.parametrize("base", ["fifo", "hierarchical-quota", "yarn-cs"])
@pytest.mark.parametrize("world", ["plain", "failing"])
def test_the_paired_table_is_that_of_two_separate_runs(tmp_path, base, world):
    jobs, cluster, options = WORLDS[world]()
    tree = quota_tree(
        ("all", "", 0, None, None),
        *((name, "all", quota, None, None) for name, quota in zip("abc", (8, 4, 0), strict=True)),
        rules=QueueRules(reclaim=Reclaim.ANY),
    )
    (tmp_path / "then.yaml").write_text(write_kueue(tree)[0])
    found, runs = paired(
        jobs, cluster, (base, jobs), ("hierarchical-quota", jobs, {"quotas": tmp_path / "then.yaml"}), options
    )
    waits = [(run.end_us - jobs.submit_us - run.executed_us - run.overhead_us) / (HOUR * US) for run in runs]
    assert found.waits_h == pytest.approx(np.stack(waits))
    rows = {row["queue"]: row for row in found.rows()}
    for group, name in enumerate(jobs.groups):
        mine = jobs.group == group
        assert rows[name]["jobs"] == mine.sum()
        assert rows[name]["wait_mean_h_now"] == pytest.approx(waits[0][mine].mean())
        assert rows[name]["wait_mean_h_then"] == pytest.approx(waits[1][mine].mean())
        assert rows[name]["wait_less"] == (waits[1][mine] < waits[0][mine] - 1e-12).sum()
        assert rows[name]["wait_more"] == (waits[1][mine] > waits[0][mine] + 1e-12).sum()
    summary = found.summary()
    assert summary["wait_less"] + summary["wait_more"] + summary["wait_same"] == len(jobs)
    stopped = [int(run.log.kind.tolist().count(1)) for run in runs]
    assert [sum(row[f"stopped_{when}"] for row in rows.values()) for when in ("now", "then")] == stopped
    use = queue_use(jobs, found.then, found.quotas_then)
    assert use.gpu_hours.sum() == pytest.approx(runs[1].allocated_gpu_us / HOUR / US)
    if base == "fifo":
        assert all(row["borrowed_gpu_hours_now"] is None for row in rows.values())
        assert (summary["over_quota_now"], summary["starved_now"]) == (None, None)


def test_a_queue_starves_while_its_unused_quota_would_do_for_a_job_that_waits():
    """a uses both GPUs until 100 h under first come, first served; b, to which one is promised, waits from 10 h on."""
    jobs = workload(
        [(0, 2, 100 * HOUR), (10 * HOUR, 1, 20 * HOUR), (20 * HOUR, 2, HOUR)],
        group=np.array([0, 1, 1]),
        groups=("a", "b"),
    )
    run = simulate(jobs, Cluster.grid("1x2"), make_policy("fifo", jobs), FREE)
    quotas = QueueQuotas(names=("a", "b"), queue=jobs.group, quota=np.array([1.0, 1.0]))
    use = queue_use(jobs, run.log, quotas)
    assert use.starved_h.tolist() == [0, 90]
    assert use.borrowed_gpu_hours.tolist() == [100, 1]
    wide = queue_use(jobs, run.log, replace(quotas, quota=np.array([0.0, 2.0])))
    assert wide.starved_h.tolist() == [0, 90]
    assert wide.borrowed_gpu_hours.tolist() == [200, 0]
