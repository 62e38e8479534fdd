"""Jobs whose speed changes with their steps: the apparent remaining time, and policies that use it."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.run_file import RunRecord, load_run, save_run
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

ONE = Cluster.grid("1x1")


def by_steps(pace, duration, served):
    """Return the apparent remaining time, by adding up the steps one by one."""
    steps, parts = 12_000, len(pace)
    times = np.repeat(np.array(pace, float), steps // parts)
    times *= duration / times.sum()
    done = int(np.searchsorted(np.cumsum(times), served * (1 - 1e-12), side="left")) if served else 0
    now = times[min(done, steps - 1)]
    return now * (steps - done)


@pytest.mark.parametrize("pace", [[1], [3, 1], [1, 4, 2], [5, 1, 1, 1]])
def test_what_seems_left_is_that_of_a_walk_over_steps(pace):
    duration = 3600 * US
    jobs = Workload(
        submit_us=np.array([0]),
        gpus=np.array([1]),
        duration_us=np.array([duration]),
        step_time_milli=1000 * np.array([pace]),
    )
    for served in np.linspace(0, 0.97, 23) * duration:
        seen = jobs.foreseen_us(np.array([int(served)]))[0]
        assert seen == pytest.approx(by_steps(pace, duration, served), abs=duration * max(pace) / 5_000)
    assert jobs.foreseen_us(np.array([duration])).tolist() == [0]


def test_shortest_job_first_goes_by_the_present_speed(tmp_path):
    # a takes 100 s, but its first half of steps goes at 90 s for half: it seems to need 180 s. b needs 120 s.
    path = tmp_path / "jobs.csv"
    path.write_text("id,submit,gpus,duration,step_time\nz,0,1,10,\na,1,1,100,9:1\nb,1,1,120,\n")
    jobs = cluster_jobs(read_jobs(path, "csv", ReadOptions()), Selection(), ONE)
    assert jobs.step_time_milli.tolist() == [[1000, 1000], [1800, 200], [1000, 1000]]
    options = EngineOptions(overhead_s=0)

    def ends(each):
        run = simulate(each, ONE, make_policy("srtf", each, {}), options)
        return dict(zip(each.ids, (run.end_us // US).tolist(), strict=True)), run

    assert ends(jobs)[0] == {"z": 10, "b": 130, "a": 230}
    constant = replace(jobs, step_time_milli=np.zeros((3, 0), np.int64))
    assert ends(constant)[0] == {"z": 10, "a": 110, "b": 230}
    logged = Comparison(jobs, ONE, options, 0).measured("", ends(jobs)[1]).logged
    record = RunRecord(jobs=jobs, cluster=ONE, overhead_us=0, runs=(logged,))
    assert not [row for _, found in check_runs(record) for row in found.violations]
    save_run(record, tmp_path / "run.npz")
    assert load_run(tmp_path / "run.npz").jobs.step_time_milli.tolist() == jobs.step_time_milli.tolist()


@pytest.mark.parametrize("text", ["1:x", "0:1", "-1", "1::2", "nan"])
def test_bad_step_times_are_told(tmp_path, text):
    path = tmp_path / "jobs.csv"
    path.write_text(f"id,submit,gpus,duration,step_time\na,0,1,10,{text}\n")
    with pytest.raises(InvalidProblemError, match="times per step above 0, separated by colons"):
        read_jobs(path, "csv", ReadOptions())


def test_parts_of_several_numbers_are_brought_to_one(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("id,submit,gpus,duration,step_time\na,0,1,10,1:2\nb,0,1,10,1:2:3\nc,0,1,10,\n")
    found = read_jobs(path, "csv", ReadOptions()).step_time
    assert found.tolist() == [[1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 3, 3], [1] * 6]
    path.write_text("id,submit,gpus,duration,step_time\na,0,1,10," + ":".join(["1"] * 997) + "\nb,0,1,10,1:2\n")
    with pytest.raises(InvalidProblemError, match=r"least common multiple .*above 1000"):
        read_jobs(path, "csv", ReadOptions())
