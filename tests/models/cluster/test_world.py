"""Clusters and workloads: their defaults, and rejected values."""

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import PPM, US, Workload


def test_a_grid_has_equal_machines_in_racks_of_sixteen():
    cluster = Cluster.grid("20x8")
    assert (cluster.num_machines, cluster.num_gpus) == (20, 160)
    assert cluster.rack.tolist() == [0] * 16 + [1] * 4


@pytest.mark.parametrize("text", ["0", "0x8", "60x", "x8", "6x0", "-1x8", "1x2x3", "200000x1", "1x2000", "axb"])
def test_a_grid_of_another_form_is_refused(text):
    with pytest.raises(InvalidProblemError, match=r"60x8|1 to"):
        Cluster.grid(text)


def test_the_tree_has_a_leaf_for_each_gpu():
    tree = Cluster(gpus=np.array([2, 3]), rack=np.array([0, 1])).to_networkx()
    leaves = [node for node in tree if not tree.out_degree(node)]
    assert len(leaves) == 5
    assert set(tree.successors("cluster")) == {"rack 0", "rack 1"}


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"submit_us": [5, 3]}, "sorted"),
        ({"submit_us": [-1, 3]}, "sorted"),
        ({"gpus": [0, 1]}, "gpus must lie"),
        ({"duration_us": [0, 1]}, "duration_us must lie"),
        ({"duration_us": [2**51, 1]}, "duration_us must lie"),
        ({"duration_us": [2**49, 1], "gpus": [2**14, 1]}, "check the units"),
        ({"gpus": [1]}, "1 entries for 2 jobs"),
        ({"slowdown_ppm": [[PPM - 1] * 3, [PPM] * 3]}, "slowdown_ppm must lie"),
        ({"slowdown_ppm": [[PPM] * 2] * 2}, "slowdown_ppm must have 3 numbers per job"),
        ({"slowdown_ppm": [PPM, PPM]}, "slowdown_ppm must have one row per job"),
        ({"app": [[0], [1]]}, "app must have one number per job"),
        ({"submit_us": [0, 2**51]}, "submit_us must lie"),
        ({"app": [0, 2**62]}, "app must lie"),
        ({"app": [-1, 0]}, "app must lie"),
        ({"loss": [[1.0, 0.5], [1.0, float("nan")]]}, "loss must be finite"),
    ],
)
def test_a_workload_that_is_none_is_refused(change, cause):
    columns = {"submit_us": [0, 3], "gpus": [1, 1], "duration_us": [US, US], **change}
    with pytest.raises(InvalidProblemError, match=cause):
        Workload(**{name: np.array(values) for name, values in columns.items()})


def test_a_cluster_without_machines_or_with_uneven_columns_is_refused():
    with pytest.raises(InvalidProblemError, match="at least one machine"):
        Cluster(gpus=np.array([], dtype=np.int64))
    with pytest.raises(InvalidProblemError, match="rack has 1 entries for 2 machines"):
        Cluster(gpus=np.array([1, 1]), rack=np.array([0]))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"gpus": [2**40, 1]}, "gpus must lie"),
        ({"rack": [-1, 0]}, "rack must lie"),
        ({"rack": [0, 2**62]}, "rack must lie"),
        ({"kind": [0, 1]}, "kind must lie"),
        ({"kind": [-1, 0]}, "kind must lie"),
        ({"kinds": ()}, "kind must lie"),
        ({"kinds": ("",)}, "kinds must be distinct"),
        ({"kinds": ("a", "a")}, "kinds must be distinct"),
        ({"cpus": [float("nan"), 1.0]}, "cpus must lie"),
        ({"cpus": [1e308, 1.0]}, "cpus must lie"),
        ({"memory_gb": [-1.0, 1.0]}, "memory_gb must lie"),
        ({"memory_gb": [float("inf"), 1.0]}, "memory_gb must lie"),
    ],
)
def test_a_cluster_of_impossible_machines_is_refused(change, cause):
    columns = {name: values if name == "kinds" else np.array(values) for name, values in change.items()}
    with pytest.raises(InvalidProblemError, match=cause):
        Cluster(**{"gpus": np.array([2, 2]), **columns})
