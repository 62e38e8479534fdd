"""Waiting by cause against sums second by second."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError
from optim.models.cluster.check import check_runs
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.metrics import measure
from optim.models.cluster.rules import Rules
from optim.models.cluster.run_file import LoggedRun, RunRecord, load_run, save_run
from optim.models.cluster.waiting import held_gpus, last_times, quotas, waiting
from optim.models.cluster.workload import US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import small_worlds, workload

CLUSTER = Cluster(gpus=np.array([2, 2]))


NO_QUOTAS, UNTOLD = Rules(), Rules(knows_quotas=True)
STATED = Rules(knows_quotas=True, quotas=(0.0, 1.5))


@pytest.mark.parametrize("rules", [NO_QUOTAS, UNTOLD, STATED], ids=["no quotas", "of an earlier version", "quotas"])
@given(world=small_worlds(jobs=6), groups=st.lists(st.integers(0, 1), min_size=6, max_size=6), wide=st.integers(0, 5))
def test_causes_of_waiting_are_what_adding_up_seconds_gives(rules, world, groups, wide):
    rows, _ = world
    rows = [(submit, 4 if job == wide else gpus, duration) for job, (submit, gpus, duration) in enumerate(rows)]
    jobs = workload(rows, group=np.array(groups[: len(rows)]), groups=("a", "b"))
    run = simulate(jobs, CLUSTER, make_policy("las", jobs, {"quantum_s": 1}), EngineOptions(overhead_s=1))
    quota = quotas(jobs, CLUSTER, rules)
    if rules is STATED:
        assert quota.tolist() == [0, 1.5]
    held = np.zeros((len(rows), 2, 200), int)
    for time, kind, job, places in run.log.rows():
        held[job, :, time // US :] = 0
        for machine, gpus in places if kind == 0 else ():
            held[job, machine, time // US :] = gpus
    free = 2 - held.sum(axis=0)
    causes = np.zeros(4)
    for job, (submit, gpus, _) in enumerate(rows):
        used = held[jobs.group == jobs.group[job]].sum(axis=(0, 1))
        for at in range(submit, int(run.end_us[job] // US)):
            if not held[job, :, at].any():
                is_over = rules.knows_quotas and used[at] >= quota[jobs.group[job]]
                room = max(free[:, at]) if gpus <= 2 else sum(each for each in free[:, at] if each == 2)
                cause = 0 if is_over else 2 if sum(free[:, at]) < gpus else 3 if room >= gpus else 1
                causes[cause] += 1
    spells = waiting(jobs, CLUSTER, run.log, run.end_us, rules)
    assert last_times(run.log, len(jobs)).tolist() == run.end_us.tolist()
    assert spells.cause_us.sum(axis=0) == pytest.approx(causes * US)
    assert spells.shares() == pytest.approx(causes / max(1, causes.sum()))
    assert (spells.end_us - spells.begin_us).sum() == causes.sum() * US


def causes_of(rows, cluster, name="fifo", options=None, **more):
    """Return the shares of waiting by cause: quota, fragmented, full, order."""
    jobs = workload(rows, **more)
    run = simulate(jobs, cluster, make_policy(name, jobs), EngineOptions(overhead_s=0, **(options or {})), 1)
    return waiting(jobs, cluster, run.log, run.end_us, run.rules).shares().tolist()


TWO_TYPES = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("a100", "v100"))


@pytest.mark.parametrize("name", ["fifo", "srtf", "yarn-cs"])
def test_gpus_on_which_a_job_can_not_run_are_not_free_for_it(name):
    only = np.array([[0, 1_000_000]] * 2)
    assert causes_of([(0, 1, 3600), (0, 1, 3600)], TWO_TYPES, name, gpu_type_slowdown_ppm=only) == [0, 0, 1, 0]


def test_a_job_behind_the_head_of_a_strict_queue_is_held_up_by_the_order():
    """One machine of 8: 4 GPUs run for 2 h, a gang of 8 waits for them, and 4 behind it wait 2 h for the gang and 1 h for GPUs."""
    shares = causes_of([(0, 4, 7200), (0, 8, 3600), (0, 4, 3600)], Cluster.grid("1x8"))
    assert shares == pytest.approx([0, 0, 0.6, 0.4])


def test_gpus_that_are_free_on_two_machines_are_fragmented_unless_gangs_may_spread():
    """Each machine has one of its two GPUs free for 3 s; on either the gang of two behind them waits."""
    rows = [(0, 1, 3), (0, 1, 3), (0, 2, 1)]
    assert causes_of(rows, CLUSTER, options={"placement": "worst-fit"}) == [0, 1, 0, 0]
    assert causes_of([*rows, (0, 3, 1)], CLUSTER, options={"placement": "worst-fit", "spread": True}) == [0, 0, 1, 0]


def test_gpus_of_a_machine_that_is_down_are_not_free():
    log = EventLog(
        time_us=np.array([0, 0, 2, 3, 5]) * US,
        kind=np.array([Event.START, Event.FAIL, Event.REPAIR, Event.START, Event.END], np.int8),
        job=np.array([0, -1, -1, 1, 1]),
        first=np.array([0, 2, 3, 4, 6, 6]),
        machine=np.array([0, 0, 1, 1, 1, 1]),
        gpus=np.array([1, 1, 0, 0, 1, 1]),
        slot=np.array([0, 1, 0, 0, 0, 1]),
    )
    jobs = workload([(0, 2, 5), (0, 2, 2)])
    spells = waiting(jobs, CLUSTER, log, np.array([5, 5]) * US, NO_QUOTAS)
    assert spells.cause_us.sum(axis=0).tolist() == [0, 0, 2 * US, 1 * US]


def test_room_beside_gpus_is_that_of_vcpus_and_memory():
    """Of 4 GPUs 3 are free, and vCPUs for one: a job of 2 finds no place."""
    cluster = Cluster(gpus=np.array([4]), cpus=np.array([4.0]))
    shares = causes_of([(0, 1, 10), (0, 2, 10)], cluster, cpu_milli=np.array([3000, 1000]))
    assert shares == [0, 1, 0, 0]


def test_gpus_that_starts_name_are_held_from_then_on_once_however_many_share_them():
    """GPU 0; GPUs 1 and 2; GPU 0 again, shared with its first job; then all leave, the sharing jobs one by one."""
    places = [(0, 0), (0, 1), (1, 0), (0, 0)]
    log = EventLog(
        time_us=np.arange(6),
        kind=np.array([Event.START] * 3 + [Event.END] * 3, np.int8),
        job=np.array([0, 1, 2, 0, 1, 2]),
        first=np.array([0, 1, 3, 4, 4, 4, 4]),
        machine=np.array([machine for machine, _ in places]),
        gpus=np.ones(4, np.int64),
        slot=np.array([slot for _, slot in places]),
    )
    assert held_gpus(CLUSTER, log).tolist() == [1, 3, 3, 3, 1, 0]


def test_quotas_of_logs_that_tell_none_are_by_gpu_time_and_use_every_gpu_up():
    jobs = workload([(0, 1, 6), (0, 2, 1), (0, 1, 2)], group=np.array([0, 1, 2]), groups=("a", "b", "c"))
    assert quotas(jobs, Cluster.grid("1x5"), UNTOLD).tolist() == [3, 1, 1]
    assert quotas(jobs, Cluster.grid("1x7"), UNTOLD).tolist() == [4, 2, 1]


@pytest.mark.parametrize("quotas", [(-1.0,), (float("nan"),), (float("inf"),)])
def test_quotas_that_are_no_numbers_of_gpus_are_refused(quotas):
    with pytest.raises(InvalidProblemError, match="quotas must be numbers of at least 0"):
        Rules(knows_quotas=True, quotas=quotas)
    with pytest.raises(InvalidProblemError, match="empty unless knows_quotas is true"):
        Rules(quotas=(1.0,))


@pytest.mark.parametrize(
    ("name", "given", "meant", "over"),
    [
        ("yarn-cs", {"quotas": "1:7"}, [1, 7], 1),
        ("yarn-cs", {"quotas": "7:1"}, [7, 1], 0),
        ("yarn-cs", {}, [5, 3], 0),
        ("fifo", {}, [np.inf, np.inf], 0),
        ("static", {}, [4, 4], 0),
    ],
)
def test_figures_and_checker_go_by_the_quotas_of_the_policy(tmp_path, name, given, meant, over):
    """Each of two virtual clusters uses 2 GPUs of one machine of 4, and a gang of 4 of the first waits for either machine."""
    jobs = workload([(0, 2, 300), (0, 2, 300), (1, 4, 100)], group=np.array([0, 1, 0]), groups=("a", "b"))
    cluster = Cluster.grid("2x4")
    options = EngineOptions(overhead_s=0, placement="worst-fit")
    run = simulate(jobs, cluster, make_policy(name, jobs, given), options)
    assert quotas(jobs, cluster, run.rules).tolist() == meant
    assert waiting(jobs, cluster, run.log, run.end_us, run.rules).shares()[0] == over
    logged = LoggedRun(policy=run.policy, log=run.log, metrics=measure(jobs, cluster, run), rules=run.rules)
    save_run(RunRecord(jobs=jobs, cluster=cluster, overhead_us=0, runs=(logged,)), tmp_path / "run.npz")
    record = load_run(tmp_path / "run.npz")
    assert record.runs[0].rules == run.rules
    assert [str(found) for _, check in check_runs(record) for found in check.violations] == []
    if over:
        other = replace(record.runs[0], rules=replace(run.rules, quotas=(8.0, 8.0)))
        said = [str(found) for _, check in check_runs(replace(record, runs=(other,))) for found in check.violations]
        assert any("wait_order_share" in line or "wait_fair_share" in line for line in said)
    short = replace(record.runs[0], rules=replace(run.rules, knows_quotas=True, quotas=(1.0,)))
    with pytest.raises(InvalidProblemError, match="expected 2 quotas, one per virtual cluster, got 1"):
        replace(record, runs=(short,))
