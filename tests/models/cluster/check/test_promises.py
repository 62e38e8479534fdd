"""Promised starts in logs: those of the engines hold; missing, moved or broken ones are rejected."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.cluster.check import check_runs
from optim.models.cluster.check.promises import check_promises
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import PROMISES, Event, EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord, load_run, save_run
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy, wrap
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.index.policy import IndexPolicy
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.index_adapter import IndexPolicyAdapter
from tests.support.small_clusters import workload

ALL = 2**40


def _said(jobs, cluster, log, depth=1, begins_us=0):
    found = check_promises(jobs, cluster, log, Rules(reservation_depth=depth), begins_us, "p")
    return str(found[0]) if found else ""


def _drawn(seed):
    """Draw up to 14 jobs with estimates from half to three times their run times, on up to three machines."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 15))
    cluster = Cluster(gpus=rng.choice([2, 4], int(rng.integers(1, 4))))
    duration = rng.integers(2, 30, count)
    rows = zip(np.sort(rng.integers(0, 40, count)), rng.integers(1, cluster.num_gpus + 1, count), duration, strict=True)
    return workload([*rows], estimate_us=(duration * rng.choice([0.5, 1, 1, 1, 2, 3], count) * US).astype(int)), cluster


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("name", ["easy", "conservative"])
def test_promises_of_both_engines_hold_and_are_the_same(seed, name):
    jobs, cluster = _drawn(seed)
    options = EngineOptions(overhead_s=1, mtbf_hours=0.05 if seed % 3 == 0 else 0, repair_hours=0.005)
    policy = make_policy(name, jobs)
    assert isinstance(policy, IndexPolicy)
    runs = [simulate(jobs, cluster, each, options) for each in (policy, IndexPolicyAdapter(policy, jobs))]
    for run in runs:
        assert run.rules.reservation_depth == (1 if name == "easy" else ALL)
        assert not check_promises(jobs, cluster, run.log, run.rules, 0, name)
        assert (run.log.promised_us >= 0).sum() <= run.figures["reserved_jobs"]
    for column in PROMISES:
        assert (getattr(runs[0].log, column) == getattr(runs[1].log, column)).all()


@pytest.mark.parametrize("seed", range(40))
def test_a_promise_of_easy_that_is_dropped_or_moved_is_refused(seed):
    """On one machine or several, without failures, the first that waits has exactly one possible promise."""
    jobs, cluster = _drawn(seed)
    log = simulate(jobs, cluster, make_policy("easy", jobs), EngineOptions(overhead_s=0)).log
    assert not _said(jobs, cluster, log)
    for event in np.flatnonzero(log.promised_us >= 0).tolist():
        for more in (-1, 1, 5 * US):
            moved = log.promised_us.copy()
            moved[event] += more
            assert _said(jobs, cluster, replace(log, promised_us=moved))
        gone = {name: np.where(np.arange(len(log)) == event, -1, getattr(log, name)) for name in PROMISES[1:]}
        assert "fewer than 1 jobs have one" in _said(jobs, cluster, replace(log, **gone))
    for event in np.flatnonzero(log.kind == Event.START).tolist():
        other = log.estimate_us.copy()
        other[event] += 1
        assert "has an estimate" in _said(jobs, cluster, replace(log, estimate_us=other))


@pytest.mark.parametrize("seed", range(40))
def test_a_promise_of_conservative_that_is_dropped_is_refused(seed):
    jobs, cluster = _drawn(seed)
    log = simulate(jobs, cluster, make_policy("conservative", jobs), EngineOptions(overhead_s=0)).log
    for event in np.flatnonzero(log.promised_us >= 0).tolist():
        gone = {name: np.where(np.arange(len(log)) == event, -1, getattr(log, name)) for name in PROMISES[1:]}
        assert "without a reserved start" in _said(jobs, cluster, replace(log, **gone), ALL)


def _log(rows, estimates, reserved, promised):
    """Return a log on one machine of rows (second, event type, job, GPUs), with each job's reservation, in seconds."""
    starts = [gpus for _, kind, _, gpus in rows if kind == Event.START]
    log = EventLog(
        time_us=np.array([row[0] for row in rows]) * US,
        kind=np.array([row[1] for row in rows], np.int8),
        job=np.array([row[2] for row in rows]),
        first=np.cumsum([0, *(row[1] == Event.START for row in rows)]),
        machine=np.zeros(len(starts), int),
        gpus=np.array(starts),
    )
    columns = [np.where(np.array(each) < 0, -1, np.array(each) * US) for each in (estimates, reserved, promised)]
    return log.with_promises(*columns)


class TestKept:
    """A (3 of 4 GPUs, 10 s) runs, B (4, 2 s) is promised 10; C passes B and ends at 14 only."""

    ROWS = (
        (0, Event.START, 0, 3),
        (0, Event.START, 2, 1),
        (10, Event.END, 0, 0),
        (14, Event.END, 2, 0),
        (14, Event.START, 1, 4),
        (16, Event.END, 1, 0),
    )

    @pytest.mark.parametrize("depth", [1, 5, ALL])
    def test_a_late_start_is_refused_while_estimates_hold(self, depth):
        jobs = workload([(0, 3, 10), (0, 4, 2), (0, 1, 14)], estimate_us=np.array([10, 2, 14]) * US)
        log = _log(self.ROWS, [10, 2, 14], [-1, 0, -1], [-1, 10, -1])
        assert "later than the reserved 10000000 us, although no estimate was exceeded" in _said(
            jobs, Cluster.grid("1x4"), log, depth
        )

    @pytest.mark.parametrize(
        ("estimate", "said"),
        [(10, ""), (9, ""), (4, ""), (14, "no estimate was exceeded"), (11, "no estimate was exceeded")],
    )
    def test_a_job_that_outlasts_its_estimate_before_then_excuses_it(self, estimate, said):
        """C (14 s) estimates 10, 9 or 4: at 10, at 9, or at 4 and again at 8 it is late; with 11 s only after the promised start."""
        jobs = workload([(0, 3, 10), (0, 4, 2), (0, 1, 14)], estimate_us=np.array([10, 2, estimate]) * US)
        log = _log(self.ROWS, [10, 2, estimate], [-1, 0, -1], [-1, 10, -1])
        assert said in _said(jobs, Cluster.grid("1x4"), log, ALL)
        assert bool(said) == bool(_said(jobs, Cluster.grid("1x4"), log, ALL))

    def test_what_a_job_outlasted_before_the_promise_excuses_nothing(self):
        """C exceeds 4 s at 4, and its expected end is 8.

        At 5, B (just submitted) is promised 10. No later estimate is exceeded, as C ends at 8.
        """
        rows = [*self.ROWS[:2], (8, Event.END, 2, 0), (10, Event.END, 0, 0), *self.ROWS[4:]]
        jobs = workload([(0, 3, 10), (0, 1, 8), (5, 4, 2)], estimate_us=np.array([10, 4, 2]) * US)
        swap = {0: 0, 1: 2, 2: 1}
        rows = [(time, kind, swap[job], gpus) for time, kind, job, gpus in rows]
        log = _log(rows, [10, 4, 2], [-1, -1, 5], [-1, -1, 10])
        assert "no estimate was exceeded" in _said(jobs, Cluster.grid("1x4"), log)


def test_a_promise_stands_at_a_first_start_of_a_policy_that_reserves():
    jobs, cluster = workload([(0, 1, 3), (0, 1, 3)], estimate_us=np.array([3, 3]) * US), Cluster.grid("1x1")
    log = simulate(jobs, cluster, make_policy("easy", jobs)).log
    assert "makes no reservations" in _said(jobs, cluster, log, depth=0)
    for name in PROMISES:
        column = getattr(log, name).copy()
        column[log.kind == Event.END] = 7
        assert "other than a start" in _said(jobs, cluster, replace(log, **{name: column}))
    early = replace(log, reserved_us=np.where(log.promised_us >= 0, 4 * US, -1))
    assert "from its submission to its first start" in _said(jobs, cluster, early)


def test_no_job_is_promised_a_start_before_another_that_waits_longer():
    """Two jobs wait; the second alone has a promise."""
    jobs = workload([(0, 1, 3), (0, 1, 3), (0, 1, 3)], estimate_us=np.array([3, 3, 3]) * US)
    log = simulate(jobs, Cluster.grid("1x1"), make_policy("easy", jobs)).log
    swapped = log.with_promises(np.full(3, 3 * US), np.array([-1, 3, 0]) * US, np.array([-1, 3, 6]) * US)
    assert "which waits longer" in _said(jobs, Cluster.grid("1x1"), swapped)


def test_a_file_keeps_promises_and_a_changed_one_is_refused(tmp_path):
    jobs = workload([(0, 3, 10), (0, 4, 2), (0, 1, 9)], estimate_us=np.array([10, 2, 9]) * US)
    cluster = Cluster.grid("1x4")
    run = simulate(jobs, cluster, make_policy("easy", jobs))
    logged = LoggedRun(policy="easy", log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    save_run(RunRecord(jobs=jobs, cluster=cluster, overhead_us=30 * US, runs=(logged,)), tmp_path / "run.npz")
    record = load_run(tmp_path / "run.npz")
    for column in PROMISES:
        assert (getattr(record.runs[0].log, column) == getattr(run.log, column)).all()
    assert check_runs(record)[1][1].is_ok
    other = replace(run.log, promised_us=np.where(run.log.promised_us >= 0, 9 * US, -1))
    changed = replace(record, runs=(replace(record.runs[0], log=other),))
    assert "job j1 starts at 10000000 us, later than the reserved 9000000 us" in str(
        check_runs(changed)[1][1].violations
    )


def test_a_state_that_holds_jobs_owes_promises_from_its_present_on():
    """B was submitted at 0, and gets its promise at 5, when the simulated time begins."""
    jobs = workload([(0, 1, 10), (0, 1, 2)], estimate_us=np.array([10, 2]) * US)
    rows = [(0, Event.START, 0, 1), (10, Event.END, 0, 0), (10, Event.START, 1, 1), (12, Event.END, 1, 0)]
    log = _log(rows, [10, 2], [-1, 5], [-1, 10])
    assert not _said(jobs, Cluster.grid("1x1"), log, begins_us=None)
    assert "fewer than 1" in _said(jobs, Cluster.grid("1x1"), log)


def test_a_wrapper_promises_nothing():
    jobs = workload([(0, 1, 100), (0, 8, 50)], estimate_us=np.array([100, 50]) * US)
    run = simulate(jobs, Cluster.grid("1x8"), wrap("isolate", make_policy("easy", jobs), jobs))
    assert run.rules.reservation_depth == 0
    assert (run.log.promised_us == -1).all()


def test_a_job_has_one_estimate_in_all_of_its_runs():
    """The job states no estimate; the policy's own estimate must not change between two runs of the job."""
    jobs = workload([(0, 1, 4)], estimate_us=np.array([0]))
    rows = [(0, Event.START, 0, 1), (2, Event.PREEMPT, 0, 0), (2, Event.START, 0, 1), (4, Event.END, 0, 0)]
    log = _log(rows, [9], [-1], [-1])
    assert not _said(jobs, Cluster.grid("1x1"), log)
    other = replace(log, estimate_us=np.array([9 * US, -1, 8 * US, -1]))
    assert "or has another estimate at another start" in _said(jobs, Cluster.grid("1x1"), other)
