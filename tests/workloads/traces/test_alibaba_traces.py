"""Alibaba's tables of 2020, 2025 and 2026 by their published columns, each a small file made after the README's examples."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.cluster.workload import UNFINISHED
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.cluster.topology import read_cluster
from optim.workloads.traces.alibaba import BEFORE, NO_GPU, PAI
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import NO_WORK, ReadOptions

TASKS = """\
a,ps,1.0,Terminated,90.0,700.0,600.0,8.0,,
a,worker,2.0,Terminated,100.0,700.0,400.0,29.296875,50.0,MISC
b,tensorflow,3.0,Failed,200.0,260.0,800.0,10.0,200.0,V100
c,tensorflow,1.0,Running,300.0,,600.0,10.0,100.0,T4
d,evaluator,1.0,Terminated,300.0,400.0,600.0,10.0,,
e,worker,1.0,Terminated,400.0,400.0,600.0,10.0,25.0,P100
"""


def read(path):
    return read_jobs(path, "alibaba", ReadOptions())


@pytest.mark.parametrize("has_header", [True, False])
def test_tasks_of_2020_are_gangs(tmp_path, has_header):
    path = tmp_path / "pai_task_table.csv"
    path.write_text((",".join(PAI) + "\n") * has_header + TASKS)
    table = read(path)
    assert table.ids == ("a", "b")
    # Two halves of a GPU are two workers with a half each; three instances with two GPUs each are six workers.
    assert table.workers.tolist() == [2, 6]
    assert table.submit_s.tolist() == [90, 200]
    assert table.duration_s.tolist() == [610, 60]
    np.testing.assert_allclose(table.demand, [[0.5, (6 + 8) / 2, (8 + 2 * 29.296875) / 2], [1.0, 4.0, 5.0]])
    assert table.gpu_type.tolist() == ["MISC", "V100"]
    assert table.status.tolist() == ["Terminated", "Failed"]
    assert table.dropped == {UNFINISHED: 1, NO_GPU: 1, NO_WORK: 1}
    assert table.notes == (
        "6 tasks are 5 jobs",
        "no pai_job_table.csv in the folder of the tasks: each job is submitted when its first task starts",
    )
    assert table.user is None


@pytest.mark.parametrize("has_header", [True, False])
def test_job_table_of_2020_tells_submissions_and_users(tmp_path, has_header):
    path = tmp_path / "pai_task_table.csv"
    path.write_text(",".join(PAI) + "\n" + TASKS)
    jobs = "a,i1,ann,Terminated,60.0,700.0\nb,i2,bob,Failed,900.0,260.0\n"
    (tmp_path / "pai_job_table.csv").write_text(
        "job_name,inst_id,user,status,start_time,end_time\n" * has_header + jobs
    )
    table = read(path)
    assert table.submit_s.tolist() == [60, 200]  # b's can't be: its task ran before
    assert table.user.tolist() == ["ann", "bob"]
    assert table.waited_s.tolist() == [30, 0]
    assert "submissions of 1 of 5 jobs" in table.notes[1]
    assert cluster_jobs(table, Selection(), read_cluster("1x8")).share_milli.tolist() == [500, 1000]


SERVICES = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,memory_limit,"
    "disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
    "i1,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,,,\n"
    "i2,CN,app_1,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,5.0,5.0,9.0\n"
    "i3,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,100.0,130.0,430.0\n"
    "i4,HN,app_0,12,12,1,1,25,25,120.0,120.0,680.0,800.0,8,100.0,130.0,\n"
)


def test_services_of_2025(tmp_path):
    path = tmp_path / "disaggregated_DLRM_trace.csv"
    path.write_text(SERVICES)
    table = read(path)
    assert (table.ids, table.submit_s.tolist(), table.duration_s.tolist()) == (("i3",), [100], [300])
    assert table.demand.tolist() == [[1, 12, 120]]
    assert (table.user.tolist(), table.waited_s.tolist()) == (["app_0"], [30])
    assert table.dropped == {NO_GPU: 1, BEFORE: 1, UNFINISHED: 1, NO_WORK: 0}


SPOT = (
    "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    "239255,13,A10,20,1,1,0,2764799,HP\n437260,57,A100-SXM4-80GB,15,1,16,9589663,41060,Spot\n7,57,A10,8,2,3,10,3600,Spot\n"
    "8,57,A10,8,0.5,2,20,3600,HP\n9,57,A10,8,0,1,20,3600,HP\n"
)


def test_spot_jobs_of_2026_on_their_nodes(tmp_path):
    path = tmp_path / "job_info_df.csv"
    path.write_text(SPOT)
    table = read(path)
    assert table.ids == ("239255", "437260", "7", "8")
    assert table.workers.tolist() == [1, 16, 6, 2]
    assert table.demand.tolist() == [[1, 20, 0], [1, 15, 0], [1, 4, 0], [0.5, 8, 0]]
    assert table.priority.tolist() == [1, 0, 0, 1]
    assert table.dropped == {NO_GPU: 1, NO_WORK: 0}
    nodes = tmp_path / "node_info_df.csv"
    nodes.write_text(
        "node_name,gpu_model,gpu_capacity_num,cpu_num\n0,A10,4,192\n1,A10,4,192\n2,A100-SXM4-80GB,8,128\n3,A100-SXM4-80GB,8,128\n"
    )
    cluster = read_cluster(str(nodes))
    assert (cluster.kinds, cluster.gpus.tolist(), cluster.cpus.tolist()) == (
        ("A10", "A100-SXM4-80GB"),
        [4, 4, 8, 8],
        [192, 192, 128, 128],
    )
    jobs = cluster_jobs(table, Selection(), cluster)
    jobs.check_fits(cluster)
    assert dict(zip(jobs.ids, (jobs.gpu_type_slowdown_ppm > 0).tolist(), strict=True)) == {
        "239255": [True, False],
        "7": [True, False],
        "8": [True, False],
        "437260": [False, True],
    }


def test_wrong_use_is_told(tmp_path):
    path = tmp_path / "job_info_df.csv"
    path.write_text(SPOT)
    with pytest.raises(InvalidOptionError, match="whose traces have none"):
        read_jobs(path, "alibaba", ReadOptions(virtual_cluster="57"))
    path.write_text(SPOT.replace(",1,16,", ",1,1.5,"))
    with pytest.raises(InvalidProblemError, match="expected an integer"):
        read(path)
    tasks = tmp_path / "tasks.csv"
    tasks.write_text(TASKS.replace("600.0", "x", 1))
    with pytest.raises(InvalidProblemError, match="'plan_cpu'"):
        read(tasks)
