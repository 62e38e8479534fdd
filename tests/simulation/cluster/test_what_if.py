"""Two runs side by side: a worked example by hand, and against each run alone."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.quota_tree import QueueRules, Reclaim
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.what_if import PairedRuns, QueueQuotas, queue_use, quotas_of, settings_of
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


def log_of(*events):
    """Return the log of events (hour, type, job) on one machine; starts take one GPU."""
    hour, kind, job = (np.array(column) for column in zip(*events, strict=True))
    starts = kind == Event.START
    return EventLog(
        time_us=hour * HOUR * US,
        kind=kind.astype(np.int8),
        job=job,
        first=np.concatenate([[0], np.cumsum(starts)]),
        machine=np.zeros(starts.sum(), np.int64),
        gpus=np.ones(starts.sum(), np.int64),
    )


ONE_EACH = QueueQuotas(names=("a", "b"), queue=np.array([0, 1]), quota=np.array([1.0, 1.0]))


def two_jobs(submit_h=0):
    """Jobs of 40 h of the queues a and b, the second submitted at a given hour."""
    rows = [(0, 1, 40 * HOUR), (submit_h * HOUR, 1, 40 * HOUR)]
    return workload(rows, group=np.array([0, 1]), groups=("a", "b"))


@pytest.mark.parametrize("kind", [Event.PREEMPT, Event.CRASH, Event.FAULT])
def test_a_job_that_loses_its_gpus_waits_again(kind):
    log = log_of((0, Event.START, 0), (10, kind, 0), (30, Event.START, 0), (60, Event.END, 0))
    use = queue_use(two_jobs(100), log, ONE_EACH)
    assert use.starved_h.tolist() == [20, 0]
    assert use.gpu_hours.tolist() == [40, 0]
    assert use.stopped.tolist() == [int(kind == Event.PREEMPT), 0]


def test_a_rejected_job_waits_no_longer_and_one_that_never_starts_waits_to_the_end():
    events = ((10, Event.LEAVE, 0), (20, Event.START, 1), (60, Event.END, 1))
    assert queue_use(two_jobs(), log_of(*events), ONE_EACH).starved_h.tolist() == [10, 20]
    assert queue_use(two_jobs(), log_of(*events[1:]), ONE_EACH).starved_h.tolist() == [60, 20]


def test_queues_of_two_runs_are_paired_by_name():
    log = log_of((0, Event.START, 0), (40, Event.END, 0), (40, Event.START, 1), (80, Event.END, 1))
    turned = QueueQuotas(names=("b", "a"), queue=np.array([1, 0]), quota=np.array([2.0, 0.0]))
    paired_runs = PairedRuns(jobs=two_jobs(), now=log, then=log, quotas_now=turned, quotas_then=ONE_EACH)
    rows = {row["queue"]: row for row in paired_runs.rows()}
    assert [(rows[name]["quota_now"], rows[name]["borrowed_gpu_hours_now"]) for name in "ab"] == [(0, 40), (2, 0)]
    assert [(rows[name]["quota_then"], rows[name]["starved_h_then"]) for name in "ab"] == [(1, 0), (1, 40)]


def test_the_ending_of_a_file_names_the_policy_in_any_case():
    assert settings_of("etc/SLURM.CONF") == {"multifactor": "conf"}
    assert settings_of("queues.yml") == {"hierarchical-quota": "quotas"}
