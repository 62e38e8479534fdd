"""Changed logs, and logs of impossible schedules, machines and attempts: each is rejected, or states the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.check import check_runs, replay
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import NO_JOB, Event, EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Retries, Rules
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
    """The only change that may pass is another machine with capacity: no figure depends on it."""
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
        ([(0, 0, 0, [(0, 1)])], "allocates 1 GPUs to a gang of 2"),
        ([(0, 0, 0, [(0, 1), (0, 1)])], "names a machine twice"),
        ([(0, 0, 0, [(0, 2)]), (1, 0, 1, [(0, 1)])], "takes 1 GPUs of machine 0, which are not free"),
        ([(0, 0, 0, [(5, 2)])], "takes 2 GPUs of machine 5"),
        ([(0, 0, 0, [(0, 2)]), (1, 0, 0, [(1, 2)])], "starts a job that already runs or has ended"),
        ([(0, 0, 0, [(0, 2)]), (3, 2, 0, [])], "ends a job after 3000000 of its 4000000"),
        ([(0, 0, 0, [(0, 2)]), (5, 2, 0, [])], "ends a job later than its work was done"),
        ([(0, 0, 0, [(0, 2)]), (4, 1, 0, [])], "stops a job whose work is done"),
        ([(0, 1, 0, [])], "stops a job that doesn't run"),
        ([(0, 0, 1, [(0, 1)])], "before its submission"),
        ([(2, 0, 0, [(0, 2)]), (1, 0, 1, [(1, 1)])], "is earlier than the event before it"),
        ([(0, 3, 0, [])], "rejects a job, which the policy may not"),
        ([(0, 0, 9, [])], "names an unknown job"),
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


START, PREEMPT, END, _, CRASH, FAIL, REPAIR, *_ = Event
TWO_SHARED = [(0, 1, 6), (0, 1, 6), (1, 2, 3)]
EVENTS = {
    "a": (0, START, 0, (0, 0)),
    "b": (0, START, 1, (0, 1)),
    "c": (1, START, 2, (1, 0), (1, 1)),
    "d": (4, END, 2),
    "e": (6, END, 0),
    "f": (6, END, 1),
}
"""Two jobs of one GPU on machine 0, and one of two on machine 1: places are pairs (machine, GPU)."""
ASKS = {"cpu_milli": [4_000] * 3, "memory_mib": [16_384] * 3}
HOSTS = {"cpus": np.array([16.0, 16.0]), "memory_gb": np.array([128.0, 128.0])}
TYPES = {"kind": np.array([0, 1]), "kinds": ("a", "b")}


def log_of(events, is_named):
    """Return a log of events that names single GPUs, or only numbers of GPUs by machine."""
    places = []
    for event in events:
        if is_named:
            places.append([(machine, 1, gpu) for machine, gpu in event[3:]])
        else:
            machines = [machine for machine, _ in event[3:]]
            places.append([(machine, machines.count(machine), -1) for machine in sorted(set(machines))])
    flat = [place for one in places for place in one]
    machine, gpus, slot = (np.array([place[column] for place in flat], np.int64) for column in range(3))
    return EventLog(
        time_us=np.array([round(event[0] * US) for event in events]),
        kind=np.array([event[1] for event in events], np.int8),
        job=np.array([event[2] for event in events]),
        first=np.cumsum([0, *map(len, places)]),
        machine=machine,
        gpus=gpus,
        slot=slot,
    )


def verdict_of(events, is_named, jobs=None, cluster=None):
    """Return the checker's messages for a record of a log, whose figures come from another run."""
    plain = workload(TWO_SHARED)
    run = simulate(plain, Cluster.grid("2x2"), make_policy("fifo", plain), EngineOptions(overhead_s=0))
    metrics = measure(plain, Cluster.grid("2x2"), run)
    record = RunRecord(
        jobs=workload(TWO_SHARED, **{name: np.array(values) for name, values in {**ASKS, **(jobs or {})}.items()}),
        cluster=Cluster(gpus=np.array([2, 2]), **{**HOSTS, **(cluster or {})}),
        overhead_us=0,
        runs=(LoggedRun(policy="mine", log=log_of(events, is_named), metrics=metrics, rules=Rules()),),
    )
    return [str(one) for _, found in check_runs(record) for one in found.violations]


@pytest.mark.parametrize("is_named", [False, True])
def test_the_schedule_itself_is_possible(is_named):
    assert verdict_of(EVENTS.values(), is_named) == []


def with_column(name, *values):
    return {"jobs": {name: np.array(values)}}


def with_event(**changed):
    return {"events": [event for event in {**EVENTS, **changed}.values() if event is not None]}


INFEASIBLE = {
    "two jobs ask for more vCPU than their machine has": with_column("cpu_milli", 9_000, 9_000, 1),
    "two jobs ask for more memory than their machine has": with_column("memory_mib", 66_000, 66_000, 1),
    "one asks for more vCPU than there is": with_column("cpu_milli", 17_000, 1, 1),
    "one asks for more memory than there is": with_column("memory_mib", 1, 1, 66_000),
    "a machine has no vCPU": {"cluster": {"cpus": np.array([0.0, 16.0])}},
    "a job can't run on its type": {"jobs": {"gpu_type_slowdown_ppm": [[0, 10**6]] + [[10**6] * 2] * 2}, "cluster": TYPES},
    "no job can run on any type": {"jobs": {"gpu_type_slowdown_ppm": [[0, 0]] * 3}, "cluster": TYPES},
    "a job is slower on its type": {"jobs": {"gpu_type_slowdown_ppm": [[3 * 10**6, 10**6]] + [[10**6] * 2] * 2}, "cluster": TYPES},
    "the last is a little slower on its type": {"jobs": {"gpu_type_slowdown_ppm": [[10**6] * 2] * 2 + [[10**6, 10**6 + 1]]}, "cluster": TYPES},
    "a job starts before it is submitted": with_event(c=(0, START, 2, (1, 0), (1, 1)), d=(3, END, 2)),
    "a GPU has two jobs": with_event(c=(1, START, 2, (0, 1), (1, 1))),
    "a machine gives GPUs that it hasn't": with_event(b=(0, START, 1, (1, 2)), c=(1, START, 2, (1, 0), (1, 1))),
    "a gang is short of one": with_event(c=(1, START, 2, (1, 0))),
    "a gang has one too many": with_event(a=(0, START, 0, (0, 0), (1, 0))),
    "a machine isn't there": with_event(a=(0, START, 0, (2, 0))),
    "a machine has a number below 0": with_event(a=(0, START, 0, (-1, 0))),
    "a job ends early": with_event(e=(5.999999, END, 0)),
    "a job ends late": with_event(f=(6.000001, END, 1)),
    "a job ends that never ran": with_event(b=None),
    "a job is started twice": with_event(d=(4, START, 0, (1, 0))),
    "a job runs on at the end": with_event(f=None),
    "time goes back": with_event(d=(7, END, 2)),
    "a job isn't there": with_event(f=(6, END, 3)),
    "a machine fails where none does": with_event(d=(4, FAIL, NO_JOB, (1, 0))),
}  # fmt: skip


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("why", INFEASIBLE)
def test_a_schedule_that_cant_be_is_refused(why, is_named):
    case = {"events": list(EVENTS.values()), **INFEASIBLE[why]}
    said = verdict_of(case.pop("events"), is_named, **case)
    assert any(one.startswith("log") for one in said), said
    if not is_named and (INFEASIBLE[why].keys() & {"jobs", "cluster"}):
        assert "names no single GPUs, but" in said[0]


def test_hosts_and_types_that_dont_matter_need_no_names():
    """Machines full of the most demanding job have capacity, and the slower type isn't there."""
    jobs = {"gpu_type_slowdown_ppm": np.full((3, 2), [10**6, 2 * 10**6]), "cpu_milli": np.full(3, 8_000)}
    assert verdict_of(EVENTS.values(), is_named=False, jobs=jobs) == []


def test_machines_that_are_down_beyond_64_bits_of_gpu_time_are_counted():
    """A machine of 2^16 GPUs fails at once and stays down for 2^49 microseconds, while a job runs on another."""
    jobs = workload([(0, 1, 1)])
    jobs = replace(jobs, duration_us=np.array([2**49]))
    cluster = Cluster(gpus=np.array([1, 2**16]))
    log = EventLog(
        time_us=np.array([0, 0, 2**49]),
        kind=np.array([FAIL, START, END], np.int8),
        job=np.array([NO_JOB, 0, 0]),
        first=np.array([0, 1, 2, 2]),
        machine=np.array([1, 0]),
        gpus=np.array([0, 1]),
    )
    run = simulate(jobs, Cluster.grid("1x1"), make_policy("fifo", jobs), EngineOptions(overhead_s=0))
    rules = Rules(checkpoint_us=US)
    metrics = measure(jobs, cluster, replace(run, log=log, rules=rules))
    assert metrics.down_gpu_hours == pytest.approx(2**65 / 3.6e9)
    record = RunRecord(jobs=jobs, cluster=cluster, overhead_us=0)
    for hours, is_right in ((metrics.down_gpu_hours, True), ((2**65 - 2**64) / 3.6e9, False), (0.0, False)):
        logged = LoggedRun(policy="mine", log=log, metrics=replace(metrics, down_gpu_hours=hours), rules=rules)
        said = [str(one) for _, found in check_runs(replace(record, runs=(logged,))) for one in found.violations]
        assert (said == []) == is_right, said


ON_0 = (0, START, 0, (0, 1))
FAILURE_RULES = Rules(restart_us=US, move_us=US, checkpoint_us=2 * US)


def _log(events, is_planned):
    first = np.cumsum([0, *(len(event) > 3 for event in events)])
    places = [event[3] for event in events if len(event) > 3]
    return EventLog(
        time_us=np.array([event[0] * US for event in events]),
        kind=np.array([event[1] for event in events], np.int8),
        job=np.array([event[2] for event in events]),
        first=first,
        machine=np.array([machine for machine, _ in places], np.int64),
        gpus=np.array([gpus for _, gpus in places], np.int64),
        slot=np.full(len(places), 0 if is_planned else -1),
    )


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([ON_0, (3, FAIL, NO_JOB, (1, 0)), (4, FAIL, NO_JOB, (1, 0))], "fails machine 1, which is already down"),
        ([ON_0, (3, REPAIR, NO_JOB, (1, 0))], "repairs machine 1, which is already up"),
        ([ON_0, (3, CRASH, 0)], "although none of its machines has just failed"),
        ([ON_0, (3, FAIL, NO_JOB, (1, 0)), (3, CRASH, 0)], "although none of its machines has just failed"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0)), (3, START, 1, (1, 1))], "precedes the crash of job 0"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0)), (4, CRASH, 0)], "precedes the crash of job 0"),
        ([(3, FAIL, NO_JOB, (0, 0)), (4, START, 0, (0, 1))], "machine"),
        ([ON_0, (3, FAIL, 0, (0, 0))], "job"),
        ([ON_0, (3, FAIL, NO_JOB, (9, 0))], "must name one machine of the cluster"),
        ([ON_0, (6, FAIL, NO_JOB, (0, 0)), (6, CRASH, 0)], "a job whose work is done"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0)), (3, CRASH, 0), (4, START, 0, (1, 1)), (8, END, 0)], "4000000 microseconds|5000000 of its 6"),
        ([ON_0, (3, FAIL, NO_JOB, (0, 0))], "failed machine|still runs"),
    ],
)  # fmt: skip
def test_the_first_broken_event_of_a_failing_machine_is_named(events, cause, is_planned):
    jobs, cluster = workload([(0, 1, 6), (0, 1, 1)]), Cluster.grid("2x1")
    found, problems = replay(jobs, cluster, _log(events, is_planned), FAILURE_RULES)
    assert found is None
    assert any(part in problems[0].message for part in cause.split("|")), problems[0].message


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_goes_on_from_its_last_checkpoint(is_planned):
    """6 s of work, checkpoints every 2: at 3 s a second is lost; from 4 on a restart of 1 s and 4 s of work."""
    events = [
        ON_0,
        (3, FAIL, NO_JOB, (0, 0)),
        (3, CRASH, 0),
        (4, START, 0, (1, 1)),
        (9, END, 0),
    ]
    events += [(9, START, 1, (1, 1)), (10, END, 1)]
    found, problems = replay(
        workload([(0, 1, 6), (0, 1, 1)]), Cluster.grid("2x1"), _log(events, is_planned), FAILURE_RULES
    )
    assert not problems
    assert (found.lost_us, found.executed_us, found.overhead_us) == ((US, 0), (7 * US, US), (US, 0))


FAULT, GIVE_UP = Event.FAULT, Event.GIVE_UP
RETRY_RULES = Rules(restart_us=US, move_us=US, retries=int(Retries.BY_CLASS), max_retries=2, retry_wait_us=2 * US)


def _jobs(reason="GPU ECC error", good=4):
    """A job of 10 s whose first two tries fail after 3."""
    told = {"fails_us": [3 * US], "tries": [2], "good_us": [good * US], "reason": [1]}
    return workload([(0, 1, 10)], reasons=("", reason), **{name: np.array(values) for name, values in told.items()})


def _retry_log(events, is_planned):
    starts = [kind == START for _, kind in events]
    return EventLog(
        time_us=np.array([time * US for time, _ in events]),
        kind=np.array([kind for _, kind in events], np.int8),
        job=np.zeros(len(events), np.int64),
        first=np.cumsum([0, *starts]),
        machine=np.zeros(sum(starts), np.int64),
        gpus=np.ones(sum(starts), np.int64),
        slot=np.full(sum(starts), 0 if is_planned else -1),
    )


@pytest.mark.parametrize("is_planned", [False, True])
@pytest.mark.parametrize(
    ("jobs", "events", "cause"),
    [
        (_jobs(), [(0, START), (2, FAULT)], "after 2000000 us, but the attempt fails after 3000000"),
        (_jobs(), [(0, START), (4, FAULT)], "after 4000000 us"),
        (_jobs(), [(0, START), (3, PREEMPT)], "continues an attempt beyond the time at which it fails"),
        (_jobs(), [(0, START), (10, END)], "continues an attempt beyond the time at which it fails"),
        (_jobs(), [(0, START), (3, GIVE_UP)], "has an attempt left"),
        (_jobs(), [(0, START), (3, FAULT), (4, START)], "must wait until 5000000 us"),
        (_jobs("syntax error"), [(0, START), (3, FAULT)], "repeats a job after its last attempt"),
        (
            _jobs(good=0),
            [(0, START), (3, FAULT), (5, START), (9, FAULT)],
            "repeats a job after its last attempt",
        ),
        (
            _jobs(),
            [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (15, END)],
            "of its 10000000",
        ),
        (
            _jobs(),
            [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (15, GIVE_UP)],
            "never fails",
        ),
        (_jobs("syntax error"), [(0, START), (3, GIVE_UP), (5, START)], "already runs or has ended"),
    ],
)
def test_the_first_broken_event_of_a_failing_try_is_named(jobs, events, cause, is_planned):
    found, problems = replay(jobs, Cluster.grid("1x1"), _retry_log(events, is_planned), RETRY_RULES)
    assert found is None
    assert cause in problems[0].message


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_is_done_after_its_last_failure(is_planned):
    events = [(0, START), (3, FAULT), (5, START), (9, FAULT), (11, START), (16, END)]
    found, problems = replay(_jobs(), Cluster.grid("1x1"), _retry_log(events, is_planned), RETRY_RULES)
    assert not problems
    assert (found.lost_us, found.executed_us, found.overhead_us, found.is_done) == (
        (6 * US,),
        (10 * US,),
        (2 * US,),
        (True,),
    )


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_job_that_is_given_up_is_over_and_not_done(is_planned):
    found, problems = replay(
        _jobs("syntax error"),
        Cluster.grid("1x1"),
        _retry_log([(0, START), (3, GIVE_UP)], is_planned),
        RETRY_RULES,
    )
    assert not problems
    assert (found.end_us, found.lost_us, found.is_done) == ((3 * US,), (3 * US,), (False,))


@pytest.mark.parametrize("is_planned", [False, True])
def test_what_failing_tries_leave_is_done_where_no_good_one_is_told_and_others_never_fail(is_planned):
    """Two failing attempts of 3 s leave 4 s of 10; the next job has a failure count, but no failure time."""
    told = {"fails_us": [3 * US, -1], "tries": [2, 1], "good_us": [-1, -1]}
    jobs = workload([(0, 1, 10), (0, 1, 5)], **{name: np.array(values) for name, values in told.items()})
    events = [
        (0, START),
        (3, FAULT),
        (5, START),
        (9, FAULT),
        (11, START),
        (16, END),
        (16, START),
        (21, END),
    ]
    log = _retry_log(events, is_planned)
    log.job[-2:] = 1
    found, problems = replay(jobs, Cluster.grid("1x1"), log, RETRY_RULES)
    assert not problems
    assert (found.is_done, found.executed_us) == ((True, True), (10 * US, 5 * US))
