"""Alibaba's pods with parts of GPUs, and the nodes that host them."""

from pathlib import Path

import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.admission.data import MICRO
from optim.workloads.admission.traces import TraceOptions, read_trace
from optim.workloads.traces.alibaba import NEVER_RAN, NO_GPU
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import NO_WORK, ReadOptions
from tests.support.trace_files import alibaba_file, pod


def test_a_pod_with_part_of_a_gpu_is_one_worker_with_that_part(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod("half", 1, 460, (0, 1800, 0)), pod("two", 2, 1000, (0, 900, 0))])
    instance = read_trace(path, "alibaba", TraceOptions(num_slots=10), 0)[0]
    assert (instance.jobs.worker_demand / MICRO).tolist() == [[0.46, 6, 12], [1, 3, 6]]
    assert instance.work.tolist() == [2, 2]


def test_pods_that_never_ran_or_have_no_gpu_are_left_out_and_counted(tmp_path: Path) -> None:
    pods = [
        pod("ran", 1, 1000, (0, 900, 0), "Running"),
        pod("pending", 1, 1000, (0, 900, ""), "Pending"),
        pod("cpu", 0, 0, (0, 900, 0)),
        pod("instant", 1, 1000, (0, 5, 5)),
    ]
    summary = read_trace(alibaba_file(tmp_path, pods), "alibaba", TraceOptions(num_slots=10), 0)[1]
    assert summary.dropped == {NEVER_RAN: 1, NO_GPU: 1, NO_WORK: 1}
    assert "1 of 1 pods were still running" in summary.notes[0]


def test_run_times_begin_when_a_pod_is_scheduled(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod("waited", 1, 1000, (0, 2700, 1800))])
    assert read_trace(path, "alibaba", TraceOptions(num_slots=10), 0)[0].work.tolist() == [1]


def test_pods_wait_from_their_creation_until_they_are_scheduled(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod("waited", 1, 1000, (60, 2700, 1800)), pod("didn't", 1, 1000, (5, 9, 5))])
    assert read_jobs(path, "alibaba", ReadOptions()).waited_s.tolist() == [1740, 0]


def test_nodes_with_gpus_host_workers_and_the_others_pss(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod("one", 1, 1000, (0, 900, 0))])
    instance = read_trace(path, "alibaba", TraceOptions(num_slots=4, num_worker_servers=2), 0)[0]
    assert set(instance.worker_servers.types) == {"G2 x 8", "T4 x 2"}
    assert instance.ps_servers.types == ("CPU",)
    assert (instance.ps_servers.capacity[0, 0] / MICRO).tolist() == [0, 32, 256]


def test_nodes_larger_than_needed_are_left_out(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod(f"p{i}", 1, 1000, (0, 3600, 0)) for i in range(2)])
    servers = read_trace(path, "alibaba", TraceOptions(num_slots=4), 0)[0].worker_servers
    assert servers.types == ("T4 x 2",)  # two GPUs at the same time


def test_nodes_too_small_for_most_workers_are_passed_over(tmp_path: Path) -> None:
    nodes = [("n0", 4_000, 393_216, 1, "tiny"), ("n1", 64_000, 262_144, 2, "T4"), ("n2", 32_000, 262_144, 0, "")]
    path = alibaba_file(tmp_path, [pod("one", 1, 1000, (0, 900, 0))], nodes)
    assert read_trace(path, "alibaba", TraceOptions(num_slots=4), 0)[0].worker_servers.types == ("T4 x 2",)


def test_refuses_a_cluster_that_the_nodes_cannot_give(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod("one", 1, 1000, (0, 900, 0))])
    with pytest.raises(InvalidProblemError, match="num_worker_servers must be at most 2"):
        read_trace(path, "alibaba", TraceOptions(num_worker_servers=3), 0)
    only_gpus = alibaba_file(tmp_path, [pod("one", 1, 1000, (0, 900, 0))], [("n0", 96_000, 393_216, 8, "G2")])
    with pytest.raises(InvalidProblemError, match="no usable node for num_ps_servers"):
        read_trace(only_gpus, "alibaba", TraceOptions(), 0)
    (tmp_path / "openb_node_list_all_node.csv").unlink()
    with pytest.raises(InvalidProblemError, match="no node list"):
        read_trace(path, "alibaba", TraceOptions(), 0)


def test_alibaba_has_no_virtual_clusters(tmp_path: Path) -> None:
    path = alibaba_file(tmp_path, [pod("one", 1, 1000, (0, 900, 0))])
    with pytest.raises(InvalidOptionError, match="virtual_cluster must be None"):
        read_trace(path, "alibaba", TraceOptions(virtual_cluster="a"), 0)


def test_lists_without_times_are_read_if_a_run_time_is_given(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,2000,1024,1,460\nq,2000,1024,0,0\nr,4000,2048,2,1000\n"
    )
    (tmp_path / "openb_node_list_all_node.csv").write_text("model,cpu_milli,memory_mib,gpu\nT4,8000,2048,2\n")
    table = read_jobs(path, "alibaba", ReadOptions(run_s=60.0))
    assert (table.submit_s.tolist(), table.duration_s.tolist(), table.workers.tolist()) == ([0, 2], [60, 60], [1, 2])
    assert table.demand is not None
    assert table.demand[:, 0].tolist() == [0.46, 1.0]
    assert "no times" in table.notes[0]
    with pytest.raises(InvalidProblemError, match="'creation_time' is missing"):
        read_jobs(path, "alibaba", ReadOptions())
