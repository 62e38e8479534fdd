"""Waiting by cause against sums second by second."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.models.cluster.log import Event, EventLog
from optim.models.cluster.waiting import free_gpus, held_change, held_gpus, last_times, quotas, waiting
from optim.models.cluster.workload import US
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import play
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import small_worlds, workload

CLUSTER = Cluster(gpus=np.array([2, 2]))


@given(small_worlds(jobs=6), st.lists(st.integers(0, 1), min_size=6, max_size=6))
def test_causes_of_waiting_are_what_adding_up_seconds_gives(world, groups):
    rows, _ = world
    jobs = workload(rows, group=np.array(groups[: len(rows)]), groups=("a", "b"))
    run = play(jobs, CLUSTER, make_policy("las", jobs, {"quantum_s": 1}), EngineOptions(overhead_s=1))
    quota = quotas(jobs, CLUSTER)
    held = np.zeros((len(rows), 200), int)
    for time, kind, job, _ in run.log.rows():
        held[job, time // US :] = jobs.gpus[job] * (kind == 0)
    free = 4 - held.sum(axis=0)
    causes = np.zeros(3)
    for job, (submit, gpus, _) in enumerate(rows):
        used = held[jobs.group == jobs.group[job]].sum(axis=0)
        for at in range(submit, int(run.end_us[job] // US)):
            if not held[job, at]:
                cause = 0 if used[at] >= quota[jobs.group[job]] else 1 if free[at] >= gpus else 2
                causes[cause] += 1
    spells = waiting(jobs, CLUSTER, run.log, run.end_us, quota)
    assert last_times(run.log, len(jobs)).tolist() == run.end_us.tolist()
    assert spells.cause_us.sum(axis=0) == pytest.approx(causes * US)
    assert spells.shares() == pytest.approx(causes / max(1, causes.sum()))
    assert (spells.end_us - spells.begin_us).sum() == causes.sum() * US


def test_a_gang_waits_for_one_place_while_enough_gpus_are_free_in_two():
    jobs = workload([(0, 1, 4), (0, 2, 1), (0, 1, 4), (1, 2, 1)])
    cluster = Cluster(gpus=np.array([2, 2]))
    run = play(jobs, cluster, make_policy("fifo", jobs), EngineOptions(placement="worst-fit", overhead_s=0))
    held = free_gpus(cluster, run.log)
    assert held[-1] == 4
    assert (held == 4 - np.cumsum(held_change(run.log))).all()


def test_gpus_that_starts_name_are_held_from_then_on_once_however_many_share_them():
    """GPU 0; GPUs 1 and 2; GPU 0 again beside its first holder; then all leave, the sharers one by one."""
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
    assert free_gpus(CLUSTER, log).tolist() == [3, 1, 1, 1, 3, 4]


def test_quotas_are_by_gpu_time_and_use_every_gpu_up():
    jobs = workload([(0, 1, 6), (0, 2, 1), (0, 1, 2)], group=np.array([0, 1, 2]), groups=("a", "b", "c"))
    assert quotas(jobs, Cluster.grid("1x5")).tolist() == [3, 1, 1]
    assert quotas(jobs, Cluster.grid("1x7")).tolist() == [4, 2, 1]
