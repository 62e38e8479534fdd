"""Policies that keep a gang on one type reject gangs that fit on no type of GPU before the run."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError, UnsupportedProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, US
from optim.simulation.cluster.catalogue import make_policy
from optim.simulation.cluster.comparison import Comparison, PolicyRequest
from optim.simulation.cluster.engine import simulate
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.placing import on_one_type
from tests.support.small_clusters import workload

TWO = Cluster(
    gpus=np.array([4, 4, 2]), kind=np.array([0, 0, 1]), kinds=("old", "new"), cpus=np.array([32.0, 32.0, 16.0])
)
OF_ONE_TYPE = ("max-min", "finish-time-fairness", "gandiva-fair", "allox", "themis", "themis-greedy")


def checked(name, jobs, cluster=TWO):
    """Perform the check of one policy that a comparison performs before all runs."""
    Comparison(jobs, cluster, EngineOptions(), 0).check([PolicyRequest(name=name)])


@pytest.mark.parametrize("name", OF_ONE_TYPE)
@pytest.mark.parametrize(
    ("gang", "speeds", "most"),
    [(9, (), 8), (3, (0, PPM), 2), (10, (PPM, PPM), 8), (1, (0, 0), 0)],
)
def test_a_gang_that_is_wider_than_every_type_of_its_own_is_refused(name, gang, speeds, most):
    jobs = workload([(0, 1, 5), (0, gang, 5)], gpu_type_slowdown_ppm=np.array([(PPM,) * len(speeds), speeds]))
    with pytest.raises(
        UnsupportedProblemError, match=f"j1 needs {gang} GPUs of one type, .* more than {most} for it; enlarge"
    ):
        checked(name, jobs)
    is_none = ", but the cluster has"  # for every policy
    with pytest.raises(
        (UnsupportedProblemError, InvalidProblemError), match=f"policy {name} cannot be simulated|{is_none}"
    ):
        simulate(jobs, TWO, make_policy(name, jobs), EngineOptions())


@pytest.mark.parametrize("name", OF_ONE_TYPE)
@pytest.mark.parametrize(("gang", "speeds"), [(8, ()), (8, (PPM, 0)), (2, (0, PPM))])
def test_a_gang_that_one_type_just_holds_is_played_to_its_end(name, gang, speeds):
    jobs = workload([(0, 1, 5), (0, gang, 5)], gpu_type_slowdown_ppm=np.array([(PPM,) * len(speeds), speeds]))
    checked(name, jobs)
    assert simulate(jobs, TWO, make_policy(name, jobs), EngineOptions()).is_done.all()


@pytest.mark.parametrize("name", ["fifo", "drf"])
def test_policies_that_mix_types_serve_it(name):
    jobs = workload([(0, 10, 5)])
    checked(name, jobs)
    assert (simulate(jobs, TWO, make_policy(name, jobs), EngineOptions()).end_us / US).tolist() == [5]


def test_only_gpus_whose_hosts_have_vcpu_and_memory_for_them_count():
    """vCPUs suffice for two GPUs on each machine of the first type, four in all, and for both GPUs of the other type."""
    jobs = workload([(0, 1, 5), (0, 5, 5)], cpu_milli=np.array([1, 16_000]))
    assert on_one_type(workload([(0, 4, 5)], cpu_milli=np.array([16_000])), TWO)
    found = on_one_type(jobs, TWO)
    assert not found
    assert "j1 needs 5 GPUs of one type, but no type has more than 4 for it" in found.reason


@pytest.mark.parametrize(("is_passed_over", "ends"), [(False, [5, 10, 15]), (True, [5, 10, 5])])
def test_a_job_without_room_ends_a_strict_order_and_is_passed_over_otherwise(is_passed_over, ends):
    jobs = workload([(0, 3, 5), (0, 4, 5), (0, 1, 5)])
    policy = make_policy("static", jobs, {"backfill": is_passed_over})
    played = simulate(jobs, Cluster(gpus=np.array([4])), policy, EngineOptions())
    assert (played.end_us / US).tolist() == ends
