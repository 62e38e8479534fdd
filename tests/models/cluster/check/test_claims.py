"""The joint claims of a record: bounds with runs that left jobs unfinished, and compared runs."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.metrics import measure
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison, bound
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from tests.support.small_clusters import workload


class FirstOnly(PlanningPolicy):
    """Give the first job its GPU, and no other job any."""

    name = "first-only"

    def plan(self, view):
        return Plan(gpus={0: (0,)} if 0 in view.jobs else {})


@pytest.fixture(scope="module")
def unfinished():
    """A record of a short job that completes and a long one that never runs: the bounds for both exceed the figures."""
    jobs, cluster, options = workload([(0, 1, 60), (0, 1, 9000)]), Cluster.grid("1x1"), EngineOptions()
    run = simulate(jobs, cluster, FirstOnly(), options)
    logged = LoggedRun(policy=run.policy, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    lower = bound(jobs, cluster, 20)
    return RunRecord(jobs=jobs, cluster=cluster, overhead_us=options.overhead_us, runs=(logged,), **lower), run


def test_a_run_that_left_jobs_unfinished_is_not_held_against_bounds_for_all_jobs(unfinished):
    record, _ = unfinished
    metrics = record.runs[0].metrics
    assert metrics.unfinished == 1
    assert all(getattr(metrics, name) < value for name, value in record.bounds.items())
    (_, bounds), (_, found) = check_runs(record)
    assert bounds.is_ok
    assert found.is_ok
    assert found.bound is None


def test_beside_it_bounds_and_figures_are_still_checked(unfinished):
    record, _ = unfinished
    more = {name: value * 1.1 for name, value in record.bounds.items()}
    assert len(check_runs(replace(record, bounds=more))[0][1].violations) == len(more)
    run = record.runs[0]
    lie = replace(run, metrics=replace(run.metrics, unfinished=0))
    assert ["unfinished is 1" in str(one) for one in check_runs(replace(record, runs=(lie,)))[1][1].violations] == [
        True
    ]


def test_it_has_no_ratio_to_the_bound(unfinished):
    record, run = unfinished
    task = Comparison(record.jobs, record.cluster, EngineOptions(), 0, record.bounds["jct_mean_h"])
    assert task.measured("", run).row.ratio_to_bound is None
    done = simulate(record.jobs, record.cluster, PolicyOfAll(), EngineOptions())
    assert np.all(done.is_done)
    assert task.measured("", done).row.ratio_to_bound >= 1


class PolicyOfAll(PlanningPolicy):
    """Gives the GPU to the first present job."""

    name = "first-of-all"

    def plan(self, view):
        return Plan(gpus={int(view.jobs[0]): (0,)} if len(view.jobs) else {})


FAILING = EngineOptions(overhead_s=60, mtbf_hours=1, repair_hours=0.5, checkpoint_min=10)


def recorded(*played):
    """Return a record of runs of policies, each with separate options and seed."""
    jobs, cluster = workload([(0, 1, 5000), (10, 2, 900), (10, 1, 20_000)]), Cluster.grid("2x2")
    runs = []
    for name, options, seed in played:
        run = simulate(jobs, cluster, make_policy(name, jobs), options, seed)
        runs.append(LoggedRun(policy=name, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules))
    return RunRecord(jobs=jobs, cluster=cluster, overhead_us=FAILING.overhead_us, runs=tuple(runs))


def said_of(record):
    return [[str(one) for one in found.violations] for _, found in check_runs(record)[1:]]


def test_runs_that_met_the_same_failures_stand_side_by_side():
    """Runs of different lengths see the same failures, a shorter run only the first ones."""
    record = recorded(*((name, FAILING, 1) for name in ("fifo", "srtf", "drf", "finish-time-fairness", "yarn-cs")))
    assert len({run.log.time_us[-1] for run in record.runs}) > 1
    assert all(run.metrics.machine_failures for run in record.runs)
    assert said_of(record) == [[]] * 5


@pytest.mark.parametrize("name", ["drf", "srtf"])
@pytest.mark.parametrize(
    ("other", "seed", "cause"),
    [
        (EngineOptions(overhead_s=60), 1, "checkpoint_us is 0 here, but 600000000 for fifo"),
        (replace(FAILING, checkpoint_min=5), 1, "checkpoint_us is 300000000 here, but 600000000 for fifo"),
        (replace(FAILING, retries="blind"), 1, "retries is 1 here, but 0 for fifo"),
        (FAILING, 2, "failures and repairs of machines differ from those of fifo"),
        (replace(FAILING, mtbf_hours=1000), 1, "failures and repairs of machines differ from those of fifo"),
    ],
)
def test_a_run_that_met_other_failures_doesnt_stand_beside(name, other, seed, cause):
    record = recorded(("fifo", FAILING, 1), (name, other, seed))
    assert record.runs[1].log.time_us[-1] <= record.runs[0].log.time_us[-1]  # so that it is compared with the other
    said = said_of(record)
    assert said[0] == []
    assert any(cause in each for each in said[1])
    assert sum(map(bool, said_of(replace(record, runs=record.runs[::-1])))) == 1
    assert said_of(replace(record, runs=record.runs[1:])) == [[]]
