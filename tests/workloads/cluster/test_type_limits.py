"""GPU types and partitions in a table: used if the topology names them, otherwise reported; never dropped silently."""

import json

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.simulation.cluster.comparison import bound
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.cluster.topology import read_cluster
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

SACCT = """JobID|Partition|Submit|ElapsedRaw|AllocTRES|State
1|fast|2026-11-02T08:00:00|60|cpu=8,gres/gpu:a100=2,gres/gpu=2|COMPLETED
2|slow|2026-11-02T08:00:00|60|cpu=8,gres/gpu:V100=2,gres/gpu=2|COMPLETED
3|fast|2026-11-02T08:00:00|60|cpu=8,gres/gpu=2|COMPLETED
4|fast|2026-11-02T08:00:00|60|cpu=8,gres/gpu:a100=4|COMPLETED
"""
TYPES = [{"count": 2, "gpus": 4, "kind": "a100"}, {"gpus": 4, "kind": "v100"}]
PARTED = [
    {"gpus": 4, "kind": "a100", "partitions": ["fast"]},
    {"gpus": 4, "kind": "a100", "partitions": ["fast", "slow"]},
    {"gpus": 4, "kind": "v100", "partitions": ["slow"]},
]


def _topology(folder, machines):
    path = folder / "cluster.json"
    path.write_text(json.dumps({"schema": "optim/cluster/1", "machines": machines}))
    return read_cluster(str(path))


def _jobs(folder, cluster, text=SACCT, form="sacct", **selection):
    path = folder / "jobs.txt"
    path.write_text(text)
    return cluster_jobs(read_jobs(path, form, ReadOptions()), Selection(**selection), cluster)


def _machines(jobs, cluster):
    """Return the machines that each job may run on, all if types make no difference."""
    if not jobs.gpu_type_slowdown_ppm.shape[1]:
        return {name: list(range(cluster.num_machines)) for name in jobs.ids}
    return {
        name: np.flatnonzero(row[cluster.kind] == 10**6).tolist()
        for name, row in zip(jobs.ids, jobs.gpu_type_slowdown_ppm, strict=True)
    }


def test_types_of_sacct_are_kept(tmp_path):
    cluster = _topology(tmp_path, TYPES)
    jobs = _jobs(tmp_path, cluster)
    assert _machines(jobs, cluster) == {"1": [0, 1], "2": [2], "3": [0, 1, 2], "4": [0, 1]}
    assert "1 job records no GPU type: it runs on any GPU" in jobs.notes


def test_the_bound_keeps_types_and_no_note_says_otherwise(tmp_path):
    cluster = _topology(tmp_path, [{"gpus": 8, "kind": "v100"}, {"count": 4, "gpus": 8, "kind": "a100"}])
    text = "submit,gpus,duration,gpu_type\n" + "0,8,3600,v100\n" * 3
    jobs = _jobs(tmp_path, cluster, text, "csv")
    assert not [note for note in jobs.notes if "bound" in note]
    assert bound(jobs, cluster, 100)["bounds"]["jct_mean_h"] == pytest.approx(2, rel=1e-3)  # one after the other
    assert _jobs(tmp_path, cluster, text + "0,1,5,a100\n", "csv").notes[-1].startswith("3 jobs were submitted at")


def test_partitions_that_the_cluster_does_not_name_are_said(tmp_path):
    text = "submit,gpus,duration,partition,gpu_type\n0,1,5,fast,a100\n0,1,5,slow,a100\n0,1,5,slow,a100\n"
    for cluster in (Cluster.grid("3x4"), _topology(tmp_path, TYPES)):
        said = "recorded partitions (slow for 2, fast for 1) are ignored: the cluster has none"
        assert [note for note in _jobs(tmp_path, cluster, text, "csv").notes if note.startswith(said)]
    one = text.replace("slow", "fast")
    vc = text.replace("partition", "vc")  # for example a team, which has no machines
    grid = Cluster.grid("3x4")
    for told, cluster in ((text, _topology(tmp_path, PARTED)), (one, grid), (vc, grid)):
        assert not [note for note in _jobs(tmp_path, cluster, told, "csv").notes if "partition" in note]


def test_types_of_a_table_are_kept_alternatives_too(tmp_path):
    cluster = _topology(tmp_path, TYPES)
    text = "submit,gpus,duration,gpu_type\n0,1,5,a100\n0,1,5,v100\n0,1,5,A100|v100\n0,1,5,\n"
    assert [*_machines(_jobs(tmp_path, cluster, text, "csv"), cluster).values()] == [[0, 1], [2], [0, 1, 2], [0, 1, 2]]


def test_partitions_are_kept_where_the_topology_says_which_machines_they_have(tmp_path):
    cluster = _topology(tmp_path, PARTED)
    assert cluster.kinds == ("a100 in fast", "a100 in fast, slow", "v100 in slow")
    assert _machines(_jobs(tmp_path, cluster), cluster) == {"1": [0, 1], "2": [2], "3": [0, 1], "4": [0, 1]}


def test_a_cluster_without_types_says_what_it_drops(tmp_path):
    jobs = _jobs(tmp_path, Cluster.grid("3x4"))
    assert not jobs.gpu_type_slowdown_ppm.shape[1]
    said = "recorded GPU types (a100 for 2, V100 for 1) are ignored"
    assert [note for note in jobs.notes if said in note]
    one = "submit,gpus,duration,gpu_type\n0,1,5,a100\n0,1,5,a100\n"
    assert not [note for note in _jobs(tmp_path, Cluster.grid("3x4"), one, "csv").notes if "ignored" in note]


def test_types_that_no_job_records_are_said(tmp_path):
    jobs = _jobs(tmp_path, _topology(tmp_path, TYPES), "submit,gpus,duration\n0,1,5\n", "csv")
    assert jobs.notes[-1] == "no GPU type is recorded: every job runs on any of a100, v100, at the same speed"


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        ([TYPES[0]], "job 2 asks for GPU type 'V100', but the cluster has a100; name it in the topology, or leave"),
        (
            [PARTED[0], {**PARTED[2], "partitions": ["other"]}],
            "job 2 asks for partition 'slow' with GPU type 'V100', but the cluster has partitions fast, other",
        ),
    ],
)
def test_what_no_gpu_may_run_is_refused_or_left_out(tmp_path, machines, said):
    cluster = _topology(tmp_path, machines)
    with pytest.raises(InvalidProblemError, match=said):
        _jobs(tmp_path, cluster)
    jobs = _jobs(tmp_path, cluster, oversized="drop")
    assert jobs.ids == ("1", "3", "4")
    assert jobs.dropped == {"jobs that no GPU of the cluster can run": 1}


def test_a_gang_wider_than_its_type_is_refused_or_left_out(tmp_path):
    cluster = _topology(tmp_path, TYPES)
    text = "submit,gpus,duration,gpu_type\n0,5,9,v100\n0,5,9,a100\n"
    with pytest.raises(InvalidProblemError, match="job row-0 needs 5 GPUs of v100, but the cluster has 4; enlarge"):
        _jobs(tmp_path, cluster, text, "csv").check_fits(cluster)
    jobs = _jobs(tmp_path, cluster, text, "csv", oversized="drop")
    assert (jobs.ids, jobs.dropped) == (("row-1",), {"jobs larger than the cluster": 1})


def test_machines_have_partitions_all_or_none(tmp_path):
    with pytest.raises(InvalidProblemError, match=r"machines\[1\] has no partitions, but others do"):
        _topology(tmp_path, [PARTED[0], TYPES[0]])


def test_types_of_pods_and_nodes_are_kept(tmp_path):
    (tmp_path / "openb_node_list_all_node.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,9000,2,T4\nn1,8000,9000,2,V100M16\nn2,8000,9000,0,\n"
    )
    cluster = read_cluster(str(tmp_path / "openb_node_list_all_node.csv"))
    columns = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,pod_phase,creation_time,deletion_time,scheduled_time\n"
    )
    rows = [
        "p0,1,1,1,1000,T4,Succeeded,0,9,0",
        "p1,1,1,1,1000,,Succeeded,0,9,0",
        "p2,1,1,1,1000,V100M16|T4,Succeeded,0,9,0",
    ]
    jobs = _jobs(tmp_path, cluster, columns + "\n".join(rows) + "\n", "alibaba")
    assert _machines(jobs, cluster) == {"p0": [0], "p1": [0, 1], "p2": [0, 1]}
