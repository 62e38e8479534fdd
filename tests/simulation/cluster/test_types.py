"""Jobs stay on the types of GPU, and in the partitions, of their table: in every policy, or the run is rejected."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optim.core.errors import UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import Event
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.policies import CLUSTER_POLICIES, WRAPPERS
from tests.support.small_clusters import workload

FREE = EngineOptions(overhead_s=0)
MAY_REFUSE = ("gandiva", "static")
CURVE = np.linspace(1.0, 0.1, 9)


@st.composite
def typed_worlds(draw):
    """Machines of two types, and jobs of either or both that find their GPUs on one machine of theirs."""
    size = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=4))
    kind = [0, 1, *(draw(st.integers(0, 1)) for _ in size[2:])]
    largest = [max(gpus for gpus, each in zip(size, kind, strict=True) if each == which) for which in (0, 1)]
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        usable = draw(st.sampled_from([(1, 0), (0, 1), (1, 1)]))
        widest = max(most for most, may in zip(largest, usable, strict=True) if may)
        rows.append((draw(st.integers(0, 5)), draw(st.integers(1, widest)), draw(st.integers(1, 9)), usable))
    rows.sort()
    begin = rows[0][0]
    jobs = Workload(
        submit_us=np.array([row[0] - begin for row in rows]) * US,
        gpus=np.array([row[1] for row in rows]),
        duration_us=np.array([row[2] for row in rows]) * US,
        gpu_type_slowdown_ppm=np.array([row[3] for row in rows]) * PPM,
        group=np.array([draw(st.integers(0, 1)) for _ in rows]),
        groups=("a", "b"),
        loss=np.tile(CURVE, (len(rows), 1)),
    )
    return jobs, Cluster(gpus=np.array(size), kind=np.array(kind), kinds=("a100", "v100"))


def _check_types(run, jobs, cluster):
    """Check that jobs use only GPUs of types on which they can run, and that all jobs that didn't leave completed."""
    for _, kind, job, places in run.log.rows():
        if kind == Event.START:
            assert all(jobs.gpu_type_slowdown_ppm[job, cluster.kind[machine]] > 0 for machine, _ in places)
    left = set(run.log.job[run.log.kind == Event.LEAVE].tolist())
    assert [job for job in np.flatnonzero(~run.is_done).tolist() if job not in left] == []


@pytest.mark.parametrize("name", sorted(CLUSTER_POLICIES))
@given(typed_worlds())
@settings(max_examples=25)
def test_every_policy_keeps_types_or_refuses(name, world):
    jobs, cluster = world
    if name in MAY_REFUSE:
        with suppress(UnsupportedProblemError):
            _check_types(simulate(jobs, cluster, make_policy(name, jobs), FREE), jobs, cluster)
        return
    _check_types(simulate(jobs, cluster, make_policy(name, jobs), FREE), jobs, cluster)


@pytest.mark.parametrize("name", sorted(WRAPPERS))
@given(typed_worlds())
@settings(max_examples=25)
def test_every_wrapper_keeps_types(name, world):
    jobs, cluster = world
    _check_types(simulate(jobs, cluster, make_policy(f"{name}+srtf", jobs), FREE), jobs, cluster)


def _order(usable, backfill):
    """Return when jobs of 1 GPU and 10 s start, first come, first served, on one GPU of each of two types."""
    jobs = workload([(0, 1, 10)] * len(usable), gpu_type_slowdown_ppm=np.array(usable) * PPM)
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("a100", "v100"))
    run = simulate(jobs, cluster, make_policy("fifo", jobs, {"backfill": backfill}), FREE)
    return (run.first_start_us // US).tolist()


def test_who_waits_for_a_type_holds_up_only_those_who_could_use_it():
    first, second, either = (1, 0), (0, 1), (1, 1)
    assert _order([first, first, second], backfill=False) == [0, 10, 0]
    assert _order([first, second, either, first, second], backfill=False) == [0, 0, 10, 20, 10]
    assert _order([first, first, second], backfill=True) == [0, 10, 0]


def test_preemption_takes_gpus_of_the_right_type_and_spares_the_others():
    """A short job of the second type stops the one that holds it, not the longer one on the first."""
    jobs = workload(
        [(0, 1, 90), (0, 1, 50), (5, 1, 10)], gpu_type_slowdown_ppm=np.array([(1, 0), (0, 1), (0, 1)]) * PPM
    )
    cluster = Cluster(gpus=np.array([1, 1]), kind=np.array([0, 1]), kinds=("a100", "v100"))
    run = simulate(jobs, cluster, make_policy("srtf", jobs), FREE)
    assert (run.end_us // US).tolist() == [90, 60, 15]


@pytest.mark.parametrize("name", ["fifo", "static"])
def test_nobody_passes_a_wider_job_of_the_same_type(name):
    """Two GPUs of the first type, one of the second: the third job waits for the second, the fourth for no job."""
    usable = [(1, 0), (1, 0), (1, 0), (0, 1)]
    jobs = workload([(0, 1, 10), (0, 2, 10), (0, 1, 10), (0, 1, 10)], gpu_type_slowdown_ppm=np.array(usable) * PPM)
    cluster = Cluster(gpus=np.array([2, 1]), kind=np.array([0, 1]), kinds=("a100", "v100"))
    run = simulate(jobs, cluster, make_policy(name, jobs, {"backfill": False}), FREE)
    assert (run.first_start_us // US).tolist() == [0, 10, 20, 0]
