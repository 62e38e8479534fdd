"""Logs of schedules that can't be, each told by named GPUs and by counts: none passes, whatever else holds."""

from dataclasses import replace

import numpy as np
import pytest

from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import NO_JOB, Event, EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload

START, PREEMPT, END, _, _, FAIL, *_ = Event
ROWS = [(0, 1, 6), (0, 1, 6), (1, 2, 3)]
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
    """Return events as a log of single GPUs, or of how many of which machines."""
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
    """Return what is said of a record of a log, all figures being those of a run that is possible."""
    plain = workload(ROWS)
    run = simulate(plain, Cluster.grid("2x2"), make_policy("fifo", plain), EngineOptions(overhead_s=0))
    metrics = measure(plain, Cluster.grid("2x2"), run)
    record = RunRecord(
        jobs=workload(ROWS, **{name: np.array(values) for name, values in {**ASKS, **(jobs or {})}.items()}),
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
    "a job can't run on its type": {"jobs": {"kind_ppm": [[0, 10**6]] + [[10**6] * 2] * 2}, "cluster": TYPES},
    "no job can run on any type": {"jobs": {"kind_ppm": [[0, 0]] * 3}, "cluster": TYPES},
    "a job is slower on its type": {"jobs": {"kind_ppm": [[3 * 10**6, 10**6]] + [[10**6] * 2] * 2}, "cluster": TYPES},
    "the last is a little slower on its type": {"jobs": {"kind_ppm": [[10**6] * 2] * 2 + [[10**6, 10**6 + 1]]}, "cluster": TYPES},
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
        assert "names no single GPUs, though" in said[0]


def test_hosts_and_types_that_dont_matter_need_no_names():
    """Machines full of the most demanding job have room, and the type that is slower isn't there."""
    jobs = {"kind_ppm": np.full((3, 2), [10**6, 2 * 10**6]), "cpu_milli": np.full(3, 8_000)}
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
