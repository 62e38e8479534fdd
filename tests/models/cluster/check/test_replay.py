"""A log with anything changed is refused, or says the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.check import check_runs, replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import bound
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

ROWS = [(0, 2, 4), (1, 1, 2), (1, 3, 3), (2, 1, 1), (5, 4, 2), (5, 1, 6)]
OPTIONS = EngineOptions(overhead_s=1)
COLUMNS = ("time_us", "kind", "job", "machine", "gpus")


@pytest.fixture(scope="module")
def record() -> RunRecord:
    """Gangs, preemptions and restarts of two policies, with bounds."""
    jobs, cluster = workload(ROWS), Cluster(gpus=np.array([2, 2]))
    runs = []
    for name in ("srtf", "las"):
        run = simulate(jobs, cluster, make_policy(name, jobs, {"quantum_s": 1} if name == "las" else None), OPTIONS)
        runs.append(LoggedRun(policy=name, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules))
    return RunRecord(
        jobs=jobs, cluster=cluster, overhead_us=OPTIONS.overhead_us, runs=tuple(runs), **bound(jobs, cluster, 10)
    )


def test_a_record_as_it_was_written_holds(record):
    assert record.runs[0].metrics.preemptions > 0
    assert [found.is_ok for _, found in check_runs(record)] == [True] * 3


@given(data=st.data())
def test_a_log_with_one_number_changed_is_refused_or_says_the_same(record, data):
    """The only change that may pass is another machine that had room: no figure hangs on it."""
    run = data.draw(st.sampled_from(record.runs))
    column = data.draw(st.sampled_from(COLUMNS))
    values = getattr(run.log, column).astype(np.int64)
    at = data.draw(st.integers(0, len(values) - 1))
    values[at] += data.draw(st.sampled_from([-1_000_000, -2, -1, 1, 2, 1_000_000]))
    changed = replace(run, log=EventLog(**{**_columns(run.log), column: values}))
    if all(found.is_ok for _, found in check_runs(replace(record, runs=(changed,)))):
        assert column == "machine"
        logs = (run.log, changed.log)
        assert len({replay(record.jobs, record.cluster, log, run.rules)[0] for log in logs}) == 1


def _columns(log):
    return {name: getattr(log, name) for name in ("time_us", "kind", "job", "first", "machine", "gpus")}


@given(data=st.data())
def test_a_figure_or_bound_that_is_changed_is_refused(record, data):
    run = record.runs[0]
    name = data.draw(st.sampled_from(sorted(run.metrics.__slots__)))
    value = getattr(run.metrics, name)
    changed = replace(run, metrics=replace(run.metrics, **{name: value * 1.001 + 0.001}))
    assert not all(found.is_ok for _, found in check_runs(replace(record, runs=(changed,))))
    bounds = dict(record.bounds)
    bounds[data.draw(st.sampled_from(sorted(bounds)))] *= 1.001
    assert not check_runs(replace(record, bounds=bounds))[0][1].is_ok


def test_a_bound_without_proof_is_refused(record):
    assert not check_runs(replace(record, prices=None))[0][1].is_ok


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([(0, 0, 0, [(0, 1)])], "gives 1 GPUs to a gang of 2"),
        ([(0, 0, 0, [(0, 1), (0, 1)])], "names a machine twice"),
        ([(0, 0, 0, [(0, 2)]), (1, 0, 1, [(0, 1)])], "takes 1 GPUs of machine 0, which are not free"),
        ([(0, 0, 0, [(5, 2)])], "takes 2 GPUs of machine 5"),
        ([(0, 0, 0, [(0, 2)]), (1, 0, 0, [(1, 2)])], "starts a job that runs or is over"),
        ([(0, 0, 0, [(0, 2)]), (3, 2, 0, [])], "ends a job after 3000000 of its 4000000"),
        ([(0, 0, 0, [(0, 2)]), (5, 2, 0, [])], "ends a job later than its work was done"),
        ([(0, 0, 0, [(0, 2)]), (4, 1, 0, [])], "stops a job whose work is done"),
        ([(0, 1, 0, [])], "stops a job that doesn't run"),
        ([(0, 0, 1, [(0, 1)])], "before its submission"),
        ([(2, 0, 0, [(0, 2)]), (1, 0, 1, [(1, 1)])], "comes before the event ahead of it"),
        ([(0, 3, 0, [])], "is no event"),
        ([(0, 0, 9, [])], "names a job that isn't there"),
    ],
)
def test_the_first_broken_event_is_named(events, cause):
    jobs = workload([(0, 2, 4), (1, 1, 2)])
    sizes = [len(places) for *_, places in events]
    places = [place for *_, each in events for place in each]
    log = EventLog(
        time_us=np.array([time * US for time, *_ in events]),
        kind=np.array([kind for _, kind, *_ in events]),
        job=np.array([job for _, _, job, _ in events]),
        first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        machine=np.array([machine for machine, _ in places], dtype=np.int64),
        gpus=np.array([gpus for _, gpus in places], dtype=np.int64),
    )
    replayed, problems = replay(jobs, Cluster.grid("2x2"), log, Rules(restart_us=US, move_us=US))
    assert replayed is None
    assert cause in problems[0].message
    assert f"event {len(events) - 1}" in problems[0].row
