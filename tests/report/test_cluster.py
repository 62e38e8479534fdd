"""Allocations of GPUs, curves over time, and the page of a comparison."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import US
from optim.report.cluster import _averages, _queue_changes, gantt_bars, render_cluster, run_of
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import bound
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

CLUSTER = Cluster(gpus=np.array([2, 1]))
ROWS = [(0, 1, 4), (1, 2, 1), (1, 1, 3), (9, 3, 2)]


@pytest.fixture(scope="module")
def record():
    """Two policies on a few jobs."""
    jobs = workload(ROWS)
    runs = []
    for name in ("fifo", "srtf"):
        run = simulate(jobs, CLUSTER, make_policy(name, jobs), EngineOptions(overhead_s=1))
        runs.append(LoggedRun(policy=name, log=run.log, metrics=measure(jobs, CLUSTER, run), rules=run.rules))
    return RunRecord(jobs=jobs, cluster=CLUSTER, overhead_us=US, runs=tuple(runs), **bound(jobs, CLUSTER, 5))


def test_bars_cover_what_was_held_and_no_gpu_twice(record):
    for run in record.runs:
        bars = gantt_bars(CLUSTER, run.log)
        assert sum(end - begin for _, begin, end, _ in bars) / 3.6e9 == pytest.approx(run.metrics.gpu_hours)
        for gpu in range(3):
            mine = sorted((begin, end) for which, begin, end, _ in bars if which == gpu)
            assert all(one[1] <= two[0] for one, two in pairwise(mine))


def test_bars_take_the_gpus_that_a_log_names():
    log = EventLog(
        time_us=np.array([0, 5]), kind=np.array([0, 2]), job=np.array([0, 0]), first=np.array([0, 2, 2]),
        machine=np.array([0, 1]), gpus=np.array([1, 1]), slot=np.array([1, 0]),
    )  # fmt: skip
    assert sorted(gantt_bars(CLUSTER, log)) == [(1, 0, 5, 0), (2, 0, 5, 0)]


def test_what_events_tell_of_jobs_is_what_the_run_told(record):
    jobs, run = record.jobs, record.runs[1]
    played = simulate(jobs, CLUSTER, make_policy("srtf", jobs), EngineOptions(overhead_s=1))
    told = run_of(jobs, run)
    assert told.first_start_us.tolist() == played.first_start_us.tolist()
    assert told.end_us.tolist() == played.end_us.tolist()
    assert told.is_done.all()


def test_the_queue_is_empty_at_the_end_and_never_negative(record):
    for run in record.runs:
        times, changes = _queue_changes(record.jobs, run.log)
        assert (np.diff(times) >= 0).all()
        waiting = np.cumsum(changes)
        assert (waiting[-1], waiting.min()) == (0, 0)


def test_who_leaves_the_queue_was_in_it_and_who_gives_up_at_work_was_not():
    """Three jobs: the first fails at work, the second is sent away before it ran, the third is preempted and then sent away."""
    rows = [(0, Event.START, 0), (3, Event.GIVE_UP, 0), (4, Event.LEAVE, 1)]
    rows += [(5, Event.START, 2), (6, Event.PREEMPT, 2), (7, Event.LEAVE, 2)]
    time, kind, job = (np.array(column) for column in zip(*rows, strict=True))
    log = EventLog(
        time_us=time * US, kind=kind, job=job, first=np.array([0, 1, 1, 1, 2, 2, 2]),
        machine=np.array([0, 0]), gpus=np.array([1, 1]), slot=np.array([-1, -1]),
    )  # fmt: skip
    times, changes = _queue_changes(workload([(0, 1, 9), (1, 1, 9), (2, 1, 9)]), log)
    waiting = [int(changes[times <= second * US].sum()) for second in range(8)]
    assert waiting == [0, 1, 2, 2, 1, 0, 1, 0]


def test_averages_keep_the_area_of_a_step_function():
    middles, means = _averages(np.array([1.0, 3.0, 8.0]), np.array([2.0, 5.0, 0.0]))
    assert means.mean() * 8 == pytest.approx(2 * 2 + 5 * 5)
    assert (len(means), middles[0]) == (400, pytest.approx(8 / 800))


@pytest.mark.prove
def test_a_page_has_every_policy_picture_and_table(record):
    page = render_cluster(record, has_study=True)
    titles = (
        "Completion times",
        "Finish-time fairness",
        "Ratio to the lower bound",
        "Allocated GPUs",
        "Waiting jobs",
        "Waits by gang",
        "Causes of waiting",
    )
    gantts = [f"GPU allocations: {run.policy}" for run in record.runs]
    tables = ("lower bound", "not in this trace", "Waiting by gang and cause (table 2)")
    for text in (*titles, *gantts, *tables):
        assert text in page
    assert "http" not in page


@pytest.mark.prove
def test_the_first_screen_has_five_numbers_and_four_pictures_before_all_else(record):
    page = render_cluster(replace(record, settings={"begin": "2026-11-02T08:00:00", "seed": 0}))
    screen, rest = page.split("<h2>Input</h2>")
    assert screen.count("<figure>") == 4
    numbers = screen[screen.index('class="numbers"') :]
    assert numbers.count("<b>") == 5
    mean = record.runs[0].metrics.wait_mean_h
    assert f"<b>{mean:.3g} h</b><span>mean wait, fifo<br>srtf" in numbers
    assert "submitted 2026-11-02 to 2026-11-02" in screen
    assert "date (UTC)" in screen
    assert "seed=0" in rest
    assert "The Philly study under" not in page
