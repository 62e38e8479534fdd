"""Jobs that need more vCPU or memory than any machine has are rejected, since they would wait for ever."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optim.core.errors import InvalidProblemError, UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from tests.support.small_clusters import workload


@st.composite
def hosts(draw):
    """Two machines of few vCPUs and little memory, and one gang."""
    sizes = np.array([draw(st.integers(1, 3)), draw(st.integers(1, 3))])
    cluster = Cluster(
        gpus=sizes,
        cpus=np.array([draw(st.integers(1, 9)), draw(st.integers(1, 9))]),
        memory_gb=np.array([draw(st.integers(1, 9)), draw(st.integers(1, 9))]),
    )
    gang, cpus, memory = draw(st.integers(1, int(sizes.sum()))), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    asks = {"cpu_milli": np.array([1000 * cpus]), "memory_mib": np.array([1024 * memory])}
    return workload([(0, gang, 5)], **asks), cluster, (gang, cpus, memory)


def _fits(cluster, gang, cpus, memory, spread):
    """Go through all ways to divide a gang among two machines."""
    sizes = cluster.gpus.tolist()
    for counts in product(*(range(size + 1) for size in sizes)):
        if sum(counts) == gang and all(
            count * cpus <= cluster.cpus[m] and count * memory <= cluster.memory_gb[m] for m, count in enumerate(counts)
        ):
            is_whole = gang > max(sizes) and all(
                size * cpus <= cluster.cpus[m] and size * memory <= cluster.memory_gb[m]
                for m, size in enumerate(sizes)
                if counts[m]
            )
            if spread or is_whole or max(counts) == gang:
                return True
    return False


@given(hosts(), st.booleans(), st.sampled_from(["fifo", "srtf", "drf", "omega", "yarn-cs"]))
def test_a_gang_is_refused_or_done(world, spread, name):
    jobs, cluster, asks = world
    options = EngineOptions(spread=spread, overhead_s=0)
    if _fits(cluster, *asks, spread or name == "yarn-cs"):
        run = simulate(jobs, cluster, make_policy(name, jobs), options)
        assert run.is_done.all()
    else:
        with pytest.raises(InvalidProblemError, match="vCPU and"):
            simulate(jobs, cluster, make_policy(name, jobs), options)


def test_hosts_count_under_every_policy():
    """Two jobs of one GPU and all vCPUs take turns; policies without host demands report it."""
    jobs = workload([(0, 1, 5), (0, 1, 5)], cpu_milli=np.array([8000, 8000]))
    cluster = Cluster(gpus=np.array([2]), cpus=np.array([8.0]))
    for name in ("fifo", "las", "drf", "tetris"):
        run = simulate(jobs, cluster, make_policy(name, jobs), EngineOptions(overhead_s=0))
        assert sorted((run.first_start_us / 1e6).tolist()) == [0, 5], name
    for name in ("gandiva", "themis"):
        with pytest.raises(UnsupportedProblemError, match="ignores vCPUs"):
            simulate(jobs, cluster, make_policy(name, jobs))


def test_all_on_a_host_make_room_where_one_leaves_a_gpu_but_too_little_memory():
    """Two jobs use 6 of 12 vCPU each; a shorter one requests one GPU and 9 vCPU, so both have to stop."""
    jobs = workload([(0, 1, 50), (0, 1, 60), (5, 1, 10)], cpu_milli=np.array([6_000, 6_000, 9_000]))
    cluster = Cluster(gpus=np.array([3]), cpus=np.array([12.0]))
    run = simulate(jobs, cluster, make_policy("srtf", jobs), EngineOptions(overhead_s=0))
    assert (run.end_us / 10**6).tolist() == [60, 70, 15]
