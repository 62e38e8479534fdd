"""A run's jobs compared with the summaries of published clusters, by hand."""

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.run_file import LoggedRun
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.philly_study import HEADER, calibration
from optim.workloads.traces.summaries import ClusterSummary
from tests.support.small_clusters import workload

COLUMNS = [name for name in ClusterSummary.__slots__ if name != "id"]


def _table(tmp_path, **more):
    path = tmp_path / "summary.csv"
    numbers = [str(number) for number in range(10, 10 + len(COLUMNS))]
    path.write_text(",".join(("id", *COLUMNS)) + "\n" + ",".join(("Venus", *numbers)) + "\n")
    jobs = workload([(0, 1, 10), (0, 2, 20), (5, 3, 30)], **more)
    cluster = Cluster.grid("1x3")
    run = simulate(jobs, cluster, make_policy("fifo", jobs))
    logged = LoggedRun(policy="fifo", log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    found = calibration(jobs, cluster, logged, [path])
    return [dict(zip(HEADER, row, strict=True)) for row in found.rows]


def test_a_run_stands_beside_published_clusters(tmp_path):
    own, venus = _table(tmp_path, statuses=("Pass", "Killed", ""), status=np.arange(3))
    assert (own["gpu_jobs"], own["gpus_mean"], own["run_mean_s"], own["run_p50_s"]) == (3, 2, 20, 20)
    assert (own["wait_mean_s"], own["wait_p50_s"]) == (5, 0)  # the last waits from 5 to 20
    assert (own["done"], own["killed"], own["failed"]) == (0.5, 0.5, 0)
    assert (own["done_gpu_time"], own["killed_gpu_time"]) == pytest.approx((10 / 50, 40 / 50))
    assert venus["cluster"] == "Venus"
    figures = dict(zip(COLUMNS, range(10, 10 + len(COLUMNS)), strict=True))
    assert (venus["gpus_mean"], venus["wait_p50_s"]) == (figures["avg_gpu_num"], figures["med_que_time_gpu"])
    assert venus["failed"] == figures["fail_rate_gpu"]
    times = [figures[f"{name}_gpu_time"] for name in ("complete", "cancel", "fail")]
    assert venus["failed_gpu_time"] == pytest.approx(times[2] / sum(times))


def test_what_a_trace_does_not_tell_stays_open(tmp_path):
    own, _ = _table(tmp_path)
    assert own["failed"] is None
