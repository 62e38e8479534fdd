"""Clusters from grids, topologies and published tables."""

import json

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import MAX_GPUS, UNSTATED
from optim.workloads.cluster.topology import SCHEMA, read_cluster
from tests.support.public_traces import trace_file


def _topology(tmp_path, content):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"schema": SCHEMA, **content}))
    return str(path)


def test_a_topology_names_machines_types_racks_and_host_room(tmp_path):
    machines = [
        {"gpus": 8, "count": 3, "kind": "v100", "cpus": 96, "memory_gb": 768},
        {"gpus": 4, "kind": "k80", "rack": 5},
        {"gpus": 8, "kind": "v100"},
    ]
    cluster = read_cluster(_topology(tmp_path, {"machines": machines, "machines_a_rack": 2}))
    assert cluster.gpus.tolist() == [8, 8, 8, 4, 8]
    assert [cluster.kinds[kind] for kind in cluster.kind] == ["v100", "v100", "v100", "k80", "v100"]
    assert cluster.rack.tolist() == [6, 6, 7, 5, 8]  # machines without a rack are filled into further ones in order
    assert cluster.cpus.tolist() == [96, 96, 96, UNSTATED, UNSTATED]  # missing limits never bind
    assert cluster.memory_gb.tolist() == [768, 768, 768, UNSTATED, UNSTATED]


def test_a_grid_and_tiresias_specification(tmp_path):
    assert read_cluster("3x4").gpus.tolist() == [4, 4, 4]
    assert read_cluster("3").gpus.tolist() == [1, 1, 1]
    path = tmp_path / "spec.csv"
    path.write_text("num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,4,128,254\n")
    cluster = read_cluster(str(path))
    assert (cluster.gpus.tolist(), cluster.rack.tolist()) == ([4] * 6, [0, 0, 0, 1, 1, 1])
    assert (cluster.cpus[0], cluster.memory_gb[0]) == (128, 254)


def test_a_specification_has_at_most_so_many_gpus_a_machine(tmp_path):
    path = tmp_path / "spec.csv"
    head = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node"
    path.write_text(f"{head}\n1,2,{MAX_GPUS},128,254\n")
    assert read_cluster(str(path)).gpus.tolist() == [MAX_GPUS] * 2
    path.write_text(f"{head}\n1,2,{MAX_GPUS + 1},128,254\n")
    with pytest.raises(InvalidProblemError, match=f"at most {MAX_GPUS} GPUs, got {MAX_GPUS + 1}"):
        read_cluster(str(path))


def test_nodes_without_gpus_are_left_out(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,2048,2,T4\nb,4000,1024,0,\n")
    cluster = read_cluster(str(path))
    assert (cluster.gpus.tolist(), cluster.cpus.tolist(), cluster.memory_gb.tolist()) == ([2], [8], [2])


def test_the_published_files_are_read():
    nodes = read_cluster(str(trace_file("alibaba_v2023/openb_node_list_all_node.csv.gz")))
    assert nodes.num_gpus == 6212
    specifications = ("n1g4", "n32g4", "n160g8", "n256g8", "cluster_spec")
    sizes = [read_cluster(str(trace_file(f"tiresias/{name}.csv"))).num_gpus for name in specifications]
    assert sizes == [4, 128, 1280, 2048, 64]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ({"machines": []}, "at least one machine"),
        ({"machines": [{"gpus": 0}]}, "gpus"),
        ({"machines": [{"gpus": 2000}]}, r"machines\[0\] must have at most 1024 GPUs"),
        ({"machines": [{"gpus": 2, "cpus": -1}]}, "cpus and memory_gb of at least 0"),
        ({"machines": [{"gpus": 2, "count": 2**40}]}, "machines"),
        ({"machines": [{"gpu": 2}]}, "gpu"),
        ({"schema": "other", "machines": []}, "schema"),
    ],
)
def test_a_bad_topology_gives_one_clear_line(tmp_path, content, cause):
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        read_cluster(_topology(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_other_files_are_no_clusters(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidProblemError, match="not a cluster; give MACHINESxGPUS"):
        read_cluster(str(path))
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nb,4000,1024,0,\n")
    with pytest.raises(InvalidProblemError, match="no node has a GPU"):
        read_cluster(str(path))
    with pytest.raises(InvalidProblemError, match="60x8"):
        read_cluster("60x")
