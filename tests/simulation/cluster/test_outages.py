"""Failing machines: their frequency, the lost work, and the completion of all jobs under every policy."""

from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidOptionError
from optim.models.cluster.check import check_runs, replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions, OutageFeed, RetryRule, outages
from optim.simulation.cluster.planning.policy import BrokenRuleError, Plan
from tests.simulation.cluster.planning.test_engine import Scripted
from tests.support.policies import CLUSTER_POLICIES, WRAPPERS
from tests.support.random_plans import RandomPlans
from tests.support.small_clusters import workload

CLUSTER = Cluster.grid("6x4")
OFTEN = EngineOptions(mtbf_hours=2, repair_hours=0.5, checkpoint_min=10)
TROUBLED = replace(OFTEN, retries="by-class", max_retries=2, retry_wait_min=1)
LOSSES = np.linspace(2, 1, 12)[None, :] ** 2


def _jobs(seed, count=30):
    """Return jobs of some hours, of three users, with losses, some elastic."""
    rng = np.random.default_rng(seed)
    gangs = rng.choice([1, 1, 2, 4, 6], count)
    return workload(
        [*zip(np.sort(rng.integers(0, 20_000, count)), gangs, rng.integers(60, 9000, count), strict=True)],
        group=np.arange(count) % 3,
        groups=("a", "b", "c"),
        app=np.arange(count) // 3,
        loss=LOSSES.repeat(count, axis=0),
        max_gpus=gangs + (gangs < 4),
        fails_us=np.where(np.arange(count) % 5 == 0, 30 * US, -1),
        tries=1 + np.arange(count) % 2,
        reason=np.arange(count) // 5 % 3,
        reasons=("", "GPU ECC error", "syntax error"),
    )


def _record(jobs, cluster, run):
    logged = LoggedRun(policy=run.policy, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    return RunRecord(jobs=jobs, cluster=cluster, overhead_us=OFTEN.overhead_us, runs=(logged,))


@pytest.mark.parametrize("name", [*CLUSTER_POLICIES, *(f"{wrap}+srtf" for wrap in WRAPPERS)])
def test_every_policy_gets_its_jobs_done_between_failures(name):
    """Machines fail, and six jobs fail once or twice; jobs for which a retry is useless fail once, and for good."""
    jobs = _jobs(1)
    run = simulate(jobs, CLUSTER, make_policy(name, jobs), TROUBLED, seed=3)
    record = _record(jobs, CLUSTER, run)
    assert [found.violations for _, found in check_runs(record)] == [(), ()]
    found = record.runs[0].metrics
    assert (found.unfinished, found.crashes > 0, found.lost_gpu_hours > 0) == (0, True, True)
    if not found.left:
        hopeless = (jobs.fails_us >= 0) & (jobs.reason == 2)
        assert (found.failed, found.failed_attempts) == (
            hopeless.sum(),
            np.where(hopeless, 1, jobs.tries)[jobs.fails_us >= 0].sum(),
        )
    is_down = run.log.kind == Event.FAIL
    known = [
        (time, machine)
        for time, machine, fails in islice(outages(CLUSTER, OFTEN, 3), 2 * found.machine_failures)
        if fails
    ]
    machines = run.log.machine[run.log.first[:-1][is_down]]
    assert [*zip(run.log.time_us[is_down], machines, strict=True)] == known[: found.machine_failures]


def test_the_least_work_between_checkpoints_is_a_microsecond_and_none_where_machines_never_fail():
    often = EngineOptions(mtbf_hours=100.0, checkpoint_min=1e-9)
    assert (often.checkpoint_us, replace(often, mtbf_hours=0.0).checkpoint_us) == (1, 0)


def test_times_between_failures_and_repairs_have_the_means_asked_for():
    options = EngineOptions(mtbf_hours=100, repair_hours=3)
    drawn = [*islice(outages(Cluster.grid("50x1"), options, 0), 40_000)]
    assert drawn == sorted(drawn, key=lambda outage: outage[:2])
    hours = {True: [], False: []}
    for machine in range(50):
        own = [(0, machine, False), *(outage for outage in drawn if outage[1] == machine)]
        assert all(one[2] != other[2] for one, other in pairwise(own))
        for one, other in pairwise(own):
            hours[other[2]].append((other[0] - one[0]) / 3600 / US)
    for fails, mean in ((True, 100), (False, 3)):  # exponential: mean = deviation, known to 1 / sqrt(20,000)
        assert np.mean(hours[fails]) == pytest.approx(mean, rel=0.04)
        assert np.std(hours[fails]) == pytest.approx(mean, rel=0.06)


def test_all_outages_of_an_instant_are_taken_together():
    feed = OutageFeed(CLUSTER, EngineOptions(), 0)
    assert feed.take_many(10).shape == (0, 3)
    feed = OutageFeed(CLUSTER, OFTEN, 0)
    feed._ahead, feed.next = iter([(7, 1, True), (8, 2, True)]), (7, 0, True)
    assert feed.take_many(1)[:, 1].tolist() == [0, 1]


def _failing_at(monkeypatch, *when):
    """Let machine 0 fail and be repaired, in turn, at the given seconds."""
    drawn = [(round(time * US), 0, number % 2 == 0) for number, time in enumerate(when)]
    monkeypatch.setattr("optim.simulation.cluster.options.outages", lambda *_: iter(drawn))


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_keeps_its_work_up_to_its_last_checkpoint(monkeypatch, is_planned):
    """10 s of work, checkpoints every 4: at 7 s it falls back to 4; the repair ends at 9, a restart takes 1, so it ends at 16."""
    _failing_at(monkeypatch, 7, 9, 1000)
    jobs, cluster = workload([(0, 1, 10)]), Cluster.grid("1x1")
    options = EngineOptions(overhead_s=1, mtbf_hours=1, checkpoint_min=4 / 60, neighbour=1.5 if is_planned else 1)
    run = simulate(jobs, cluster, make_policy("fifo", jobs), options)
    assert (run.end_us.tolist(), run.lost_us.tolist()) == ([16 * US], [3 * US])
    assert [kind for _, kind, *_ in run.log.rows()] == [0, 5, 4, 6, 0, 2]
    found = measure(jobs, cluster, run)
    assert (found.machine_failures, found.crashes, found.preemptions) == (1, 1, 0)
    assert (found.down_gpu_hours, found.lost_gpu_hours) == pytest.approx((2 / 3600, 3 / 3600))
    assert found.wait_fragmented_share == 0  # GPUs of a machine that is down aren't free


@pytest.mark.parametrize("name", ["themis", "themis-greedy"])
def test_gpus_of_a_repaired_machine_are_leased_at_once_where_leases_end_one_by_one(monkeypatch, name):
    _failing_at(monkeypatch, 7, 9, 1000)
    jobs = workload([(0, 1, 10)])
    options = EngineOptions(overhead_s=0, mtbf_hours=1, checkpoint_min=10)
    run = simulate(jobs, Cluster.grid("1x1"), make_policy(name, jobs, {"aligned": False}), options)
    assert run.end_us.tolist() == [19 * US]


def test_a_trial_on_one_gpu_begins_anew_where_its_machine_failed(monkeypatch):
    """The pool for trials is the second machine; it fails during a gang's trial at 20 s, and is repaired at 30 s."""
    drawn = [(20 * US, 1, True), (30 * US, 1, False), (10**12, 0, True)]
    monkeypatch.setattr("optim.simulation.cluster.options.outages", lambda *_: iter(drawn))
    jobs = workload([(0, 2, 600)])
    options = EngineOptions(overhead_s=0, mtbf_hours=1, checkpoint_min=10)
    run = simulate(jobs, Cluster.grid("2x2"), make_policy("fail-early+fifo", jobs), options)
    starts = [(time // US, places) for time, kind, _, places in run.log.rows() if kind == Event.START]
    assert starts[:2] == [(0, ((1, 1),)), (30, ((1, 1),))]
    assert run.is_done.all()


def test_a_preempted_job_keeps_what_it_did(monkeypatch):
    """The short job stops the long one after 3 s of work, which no failure takes; then 2 s more are lost."""
    _failing_at(monkeypatch, 6, 7, 1000)
    jobs = workload([(0, 1, 20), (3, 1, 1)])
    options = EngineOptions(overhead_s=0, mtbf_hours=1, checkpoint_min=10)
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("srtf", jobs), options)
    assert run.lost_us.tolist() == [2 * US, 0]
    assert run.end_us.tolist() == [(7 + 17) * US, 4 * US]


def test_a_plan_on_a_machine_that_is_down_is_refused(monkeypatch):
    _failing_at(monkeypatch, 1, 9)
    policy = Scripted(Plan(gpus={}, again_us=2 * US), Plan(gpus={}, again_us=3 * US), Plan(gpus={0: (0,)}))
    with pytest.raises(BrokenRuleError, match="machine that is down"):
        simulate(workload([(0, 1, 10)]), Cluster.grid("1x1"), policy, EngineOptions(mtbf_hours=1))


def test_parts_of_gpus_of_a_machine_that_is_down_are_nobodys(monkeypatch):
    _failing_at(monkeypatch, 7, 9, 1000)
    jobs = workload([(0, 1, 10), (8, 1, 1)], share_milli=np.array([500, 500]))
    options = EngineOptions(overhead_s=0, sharing=True, mtbf_hours=1, checkpoint_min=10)
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("fifo", jobs), options)
    assert run.end_us.tolist() == [19 * US, 10 * US]


def test_a_policy_may_ask_often_while_it_waits_for_a_repair(monkeypatch):
    """Two thousand calls without running jobs, which would end the run if all machines were up."""
    _failing_at(monkeypatch, 1, 2001, 10**6)

    def again(view):
        gpus = {job: (0,) for job in view.jobs.tolist() if view.is_up.all()}
        return Plan(gpus=gpus, again_us=view.now_us + US)

    run = simulate(workload([(0, 1, 10)]), Cluster.grid("1x1"), Scripted(*[again] * 3000), EngineOptions(mtbf_hours=1))
    assert run.is_done.all()


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from(list(RetryRule)))
def test_a_random_plan_is_what_the_checker_finds_in_its_log(seed, is_elastic, retries):
    rules = Rules(restart_us=3, move_us=7, is_elastic=is_elastic, may_refuse=True)
    jobs, cluster = _jobs(seed, 6), Cluster(gpus=np.array([3, 2, 4]))
    run = simulate(jobs, cluster, UpOnly(rules), replace(OFTEN, retries=retries), seed)
    found, problems = replay(jobs, cluster, run.log, run.rules)
    assert not problems
    for name in ("first_start_us", "end_us", "executed_us", "overhead_us", "lost_us", "is_done"):
        assert getattr(found, name) == tuple(getattr(run, name).tolist()), name
    assert (found.allocated_gpu_us, found.overhead_gpu_us) == (run.allocated_gpu_us, run.overhead_gpu_us)


class UpOnly(RandomPlans):
    """Random plans on machines that are up."""

    def _places(self, view, job, gpus):
        taken = super()._places(view, job, gpus)
        return taken if taken and all(view.is_up[view.machine_of(gpu)] for gpu in taken) else None


@pytest.fixture(scope="module", params=["las", "drf"])
def record(request):
    """A run of a compiled policy, and of one that plans, with failures under load and on idle machines.

    All times are a thousandth of the usual ones, so that a change of one microsecond is visible in every figure.
    """
    jobs = _jobs(5, 14)
    submit, duration, fails = (values // 1000 for values in (jobs.submit_us, jobs.duration_us, jobs.fails_us))
    jobs = replace(jobs, submit_us=submit, duration_us=duration, fails_us=fails)
    options = EngineOptions(
        mtbf_hours=0.002,
        repair_hours=0.0005,
        checkpoint_min=0.01,
        overhead_s=0.03,
        retries="by-class",
        retry_wait_min=0.001,
    )
    run = simulate(jobs, CLUSTER, make_policy(request.param, jobs), options, seed=1)
    return replace(_record(jobs, CLUSTER, run), overhead_us=options.overhead_us)


@given(data=st.data())
def test_a_log_with_one_number_changed_is_refused_or_says_the_same(record, data):
    """Only a change of a machine may pass: to another one with capacity, or to an equal one that was down."""
    run = record.runs[0]
    column = data.draw(st.sampled_from(["time_us", "kind", "job", "machine", "gpus"]))
    values = getattr(run.log, column).astype(np.int64)
    outage = np.flatnonzero(run.log.kind >= Event.CRASH)
    at = data.draw(st.sampled_from(outage.tolist()) | st.integers(0, len(values) - 1))
    if column in ("machine", "gpus"):
        at = min(int(run.log.first[min(at, len(run.log) - 1)]), len(values) - 1)
    values[at] += data.draw(st.sampled_from([-(10**9), -2, -1, 1, 2, 10**9]))
    columns = {name: getattr(run.log, name) for name in ("time_us", "kind", "job", "first", "machine", "gpus", "slot")}
    changed = replace(run, log=EventLog(**{**columns, column: values}))
    if all(found.is_ok for _, found in check_runs(replace(record, runs=(changed,)))):
        assert column == "machine"


def test_failures_where_the_rules_allow_none_are_refused(record):
    run = record.runs[0]
    changed = replace(run, rules=replace(run.rules, checkpoint_us=0))
    _, (_, found) = check_runs(replace(record, runs=(changed,)))
    assert "but the rules exclude failures" in found.violations[0].message


def test_ranges_are_told():
    with pytest.raises(InvalidOptionError, match="mtbf_hours must be 0"):
        EngineOptions(mtbf_hours=1e-9)
    with pytest.raises(InvalidOptionError, match="repair_hours"):
        EngineOptions(repair_hours=0)


@pytest.mark.prove
def test_a_job_that_never_reaches_a_checkpoint_is_given_up():
    jobs = workload([(0, 1, 60)])
    options = EngineOptions(mtbf_hours=1e-7, repair_hours=1e-7, checkpoint_min=10, overhead_s=0)
    cluster = Cluster.grid("1x1")
    run = simulate(jobs, cluster, make_policy("fifo", jobs), options)
    assert not run.is_done.any()
    assert replay_ends(run)


def replay_ends(run):
    """Return whether no GPU is in use at the end of a log."""
    starts, stops = (run.log.kind == Event.START).sum(), run.log.is_lost.sum()
    return starts == stops


class Nobody(Scripted):
    """A policy that runs no job, requests a call every hour, and counts the calls."""

    calls = 0

    def plan(self, view):
        self.calls += 1
        return Plan(gpus={}, again_us=view.now_us + 3600 * US)


def test_a_run_without_a_running_job_ends_though_machines_fail():
    jobs, policy = workload([(0, 1, 5)]), Nobody([])
    run = simulate(jobs, CLUSTER, policy, EngineOptions(mtbf_hours=5, repair_hours=2))
    assert not run.is_done.any()
    assert 1_000 < policy.calls < 30_000


@pytest.mark.parametrize("name", ["fifo", "easy", "yarn-cs", "multifactor", "patience+srtf"])
def test_a_run_ends_when_no_machine_that_returns_can_hold_the_jobs_that_wait(name):
    """The second machine leaves for good while a gang runs on both; the first one fails and is repaired repeatedly."""
    jobs = workload([(0, 4, 600), (50, 1, 30)])
    options = EngineOptions(mtbf_hours=1, repair_hours=0.1, planned=((1, 60 * US, 2**62),))
    run = simulate(jobs, Cluster.grid("2x2"), make_policy(name, jobs), options, seed=1)
    assert run.is_done.tolist() == [False, name not in ("fifo", "multifactor")]
    assert "all returning machines were up" in run.halted
    assert (run.log.kind == Event.FAIL).sum() < 1_010


@pytest.mark.parametrize("name", ["fifo", "yarn-cs", "multifactor"])
def test_a_gang_waits_for_all_machines_however_often_they_fail(name):
    """Both machines are up together during a hundredth of the time, but the run doesn't end before the gang has run."""
    jobs = workload([(0, 4, 5)])
    options = EngineOptions(mtbf_hours=0.01, repair_hours=0.1, planned=((1, 0, 600 * US), (0, 0, 900 * US)))
    run = simulate(jobs, Cluster.grid("2x2"), make_policy(name, jobs), options, seed=1)
    assert (run.is_done.all(), run.halted) == (True, "")


@pytest.mark.parametrize("name", ["las", "patience+las"])
def test_a_run_ends_when_every_stop_undoes_all_work_of_its_turn(name):
    """Two jobs of a minute take turns of 3 s, and a checkpoint comes every 10 s of work; in turns of 12 s jobs of half an hour get done."""
    jobs = workload([(0, 1, 60)] * 2)
    options = EngineOptions(overhead_s=0, preempted="checkpoint", checkpoint_min=1 / 6)
    run = simulate(jobs, Cluster.grid("1x1"), make_policy(name, jobs, {"quantum_s": 3}), options)
    assert not run.is_done.any()
    assert "before their next checkpoint" in run.halted
    assert 200 < (run.log.kind == Event.PREEMPT).sum() < 210
    jobs = workload([(0, 1, 1800)] * 2)
    longer = simulate(jobs, Cluster.grid("1x1"), make_policy(name, jobs, {"quantum_s": 12}), options)
    assert (longer.log.kind == Event.PREEMPT).sum() > 210
    assert (longer.is_done.all(), longer.halted) == (True, "")
