"""The costs of stops by job, by hand: intervals of checkpoints by job, by partition, and none."""

from dataclasses import replace

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.check import check_runs
from optim.models.cluster.check.replay import replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.lost_work import lost_rows
from optim.models.cluster.run_file import RunRecord, load_run, save_run
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison
from optim.simulation.cluster.engine import is_compiled, simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions
from tests.support.small_clusters import workload

HEADER = "id,submit,gpus,duration,vc"
ROWS = ("a,0,8,7200,x", "b,600,8,900,y", "c,2400,8,600,y", "d,2500,8,60,x")
ONE = Cluster.grid("1x8")


def jobs_of(folder, steps=(), checkpoints=None, **more):
    path = folder / "jobs.csv"
    rows = [f"{row},{step}" for row, step in zip(ROWS, steps, strict=True)] if steps else ROWS
    path.write_text("\n".join([HEADER + (",checkpoint_min" if steps else ""), *rows]) + "\n")
    table = read_jobs(path, "csv", ReadOptions())
    return cluster_jobs(table, Selection(checkpoints=checkpoints, **more), ONE)


def played(jobs, preempted, **more):
    options = EngineOptions(preempted=preempted, **more)
    run = simulate(jobs, ONE, make_policy("srtf", jobs, {}), options)
    logged = Comparison(jobs, ONE, options, 0).measured("", run).logged
    record = RunRecord(jobs=jobs, cluster=ONE, overhead_us=options.overhead_us, runs=(logged,))
    assert not [row for _, found in check_runs(record) for row in found.violations]
    return run, record


@pytest.mark.parametrize(
    ("preempted", "steps", "lost_s"),
    [
        # a is stopped at 600 s with 600 s done, and at 2,400 s after it ran again from 1,530 s; c at 2,500 s after 100 s.
        ("keeps-all", ("10", "none", "", "none"), [0, 0, 0, 0]),
        ("checkpoint", ("10", "none", "", "none"), [270, 0, 100, 0]),
        ("checkpoint", ("none", "none", "1", "none"), [600 + 870, 0, 40, 0]),
        ("restart", ("10", "", "", ""), [270, 0, 100, 0]),
        ("restart", (), [600 + 870, 0, 100, 0]),
        ("checkpoint", (), [600 + 870, 0, 100, 0]),
    ],
)
def test_lost_work_by_hand(tmp_path, preempted, steps, lost_s):
    jobs = jobs_of(tmp_path, steps)
    run, record = played(jobs, preempted)
    assert (run.lost_us // US).tolist() == lost_s
    by_job = {row.name: row for row in lost_rows(jobs, ONE, record.runs[0], "job")}
    assert [by_job[name].lost_gpu_hours for name in "abcd"] == pytest.approx([8 * lost / 3600 for lost in lost_s])
    assert [by_job[name].preemptions for name in "abcd"] == [2, 0, 1, 0]
    by_vc = {row.name: row for row in lost_rows(jobs, ONE, record.runs[0], "vc")}
    assert by_vc["x"].lost_gpu_hours == pytest.approx(8 * (lost_s[0] + lost_s[3]) / 3600)
    assert by_vc["y"].lost_share == pytest.approx(lost_s[2] / 1500)
    assert (by_vc["x"].jobs, by_vc["x"].stopped_jobs) == (2, 1)
    (row,) = lost_rows(jobs, ONE, record.runs[0], "gang")
    assert (row.name, row.lost_gpu_hours) == ("8", pytest.approx(8 * sum(lost_s) / 3600))


def test_partitions_tell_intervals_of_those_that_have_none_of_their_own(tmp_path):
    jobs = jobs_of(tmp_path, ("", "", "5", ""), checkpoints="x:none,y:20")
    assert jobs.checkpoint_us.tolist() == [0, 1200 * US, 300 * US, 0]
    assert jobs_of(tmp_path, checkpoints="y:20").checkpoint_us.tolist() == [-1, 1200 * US, 1200 * US, -1]
    assert jobs_of(tmp_path).checkpoint_us.tolist() == [-1] * 4


def test_compiled_loop_starts_again_as_plans_do():
    rng = np.random.default_rng(3)
    jobs = Workload(
        submit_us=np.sort(rng.integers(0, 4000, 40)) * US,
        gpus=rng.choice([1, 2, 4, 8], 40),
        duration_us=rng.integers(1, 3000, 40) * US,
    )
    options = EngineOptions(preempted="restart")
    assert is_compiled(jobs, ONE, options)
    own = replace(jobs, checkpoint_us=np.zeros(40, np.int64))
    assert not is_compiled(own, ONE, options)
    first, second = (simulate(each, ONE, make_policy("srtf", each, {}), options) for each in (jobs, own))
    assert first.end_us.tolist() == second.end_us.tolist()
    assert first.lost_us.tolist() == second.lost_us.tolist()
    assert first.lost_us.any()


def test_logs_keep_intervals(tmp_path):
    _, record = played(jobs_of(tmp_path, ("10", "none", "", "none")), "checkpoint")
    save_run(record, tmp_path / "run.npz")
    assert load_run(tmp_path / "run.npz").jobs.checkpoint_us.tolist() == [600 * US, 0, -1, 0]
    wrong = replace(record, jobs=replace(record.jobs, checkpoint_us=np.full(4, -1)))
    assert [row for _, found in check_runs(wrong) for row in found.violations]


def test_failures_of_machines_undo_by_the_same_intervals(tmp_path):
    jobs = jobs_of(tmp_path, ("1", "1", "1", "1"))
    often, none = (
        played(each, "keeps-all", mtbf_hours=1.5, repair_hours=0.01)[0].lost_us.sum()
        for each in (jobs, replace(jobs, checkpoint_us=np.zeros(4, np.int64)))
    )
    assert often < none


def test_loading_is_overhead_and_no_work():
    """A (10 s) loads for 5 s; it is stopped at 8 by B (2 s, on a type as slow), and at its second start it holds its GPU for 1 s."""
    world = Cluster.grid("1x1")
    jobs = workload([(0, 1, 10), (8, 1, 2)])
    options = EngineOptions(startup_s=5, overhead_s=1)
    for each in (make_policy("srtf", jobs), IndexPolicyAdapter(make_policy("srtf", jobs), jobs)):
        run = simulate(jobs, world, each, options)
        assert (run.end_us / US).tolist() == [23, 15]
        assert (run.overhead_us / US).tolist() == [6, 5]
        assert (run.executed_us / US).tolist() == [10, 2]
        assert (run.rules.startup_us, run.lost_us.sum()) == (5 * US, 0)
        assert not replay(jobs, world, run.log, run.rules)[1]
        wrong = replay(jobs, world, run.log, replace(run.rules, startup_us=4 * US))
        assert wrong[1]


@pytest.mark.parametrize("text", ["x", "x:0", "x:-1", ":5", "x:soon", "x:nan"])
def test_bad_checkpoints_are_told(text):
    with pytest.raises(InvalidOptionError, match="checkpoints must be NAME:MINUTES"):
        Selection(checkpoints=text)


def test_unknown_partitions_columns_and_minutes_are_told(tmp_path):
    with pytest.raises(InvalidOptionError, match=r"no job is in 'z' \(there are: x, y\)"):
        jobs_of(tmp_path, checkpoints="z:5")
    with pytest.raises(InvalidProblemError, match="expected minutes above 0, or none"):
        jobs_of(tmp_path, ("0", "", "", ""))
    _, record = played(jobs_of(tmp_path), "keeps-all")
    with pytest.raises(InvalidOptionError, match="unknown column of --lost-by"):
        lost_rows(record.jobs, ONE, record.runs[0], "colour")
