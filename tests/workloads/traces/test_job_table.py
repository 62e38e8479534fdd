"""The retained rows of a trace, and the columns that every reader keeps."""

import numpy as np
import pytest

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.workloads.traces.formats import TRACE_FORMATS, read_jobs
from optim.workloads.traces.job_table import ReadOptions, is_elsewhere, leave_out, sibling_file


def test_the_first_reason_that_holds_for_a_row_counts():
    kept, dropped = leave_out(
        {"a": np.array([True, True, False, False, False]), "b": np.array([True, False, True, True, False])}
    )
    assert kept.tolist() == [4]
    assert dropped == {"a": 2, "b": 2}


def test_without_a_virtual_cluster_asked_for_nobody_is_elsewhere():
    cluster = np.array(["a", "b", "a"], dtype=object)
    assert is_elsewhere(cluster, ReadOptions()).tolist() == [False, False, False]
    assert is_elsewhere(cluster, ReadOptions(virtual_cluster="a")).tolist() == [False, True, False]


def test_the_first_file_of_the_names_is_taken(tmp_path):
    names = ("x.gz", "x")
    with pytest.raises(InvalidProblemError, match=r"no table 'x.gz' in the folder of the jobs' file; .* as where"):
        sibling_file(tmp_path / "jobs", names, what="table", option="where")
    (tmp_path / "x").touch()
    assert sibling_file(tmp_path / "jobs", names, what="table", option="where") == tmp_path / "x"
    (tmp_path / "x.gz").touch()
    assert sibling_file(str(tmp_path / "jobs"), names, what="table", option="where") == tmp_path / "x.gz"


def test_virtual_clusters_are_kept_with_the_jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,num_gpus,duration_s,vc\n7,5,2,60,a\n8,6,1,0,a\n9,7,4,30,\n10,8,1,9,b\n")
    table = read_jobs(path, "philly", ReadOptions())
    assert table.ids == ("philly-7", "philly-9", "philly-10")
    assert table.virtual_cluster.tolist() == ["a", "", "b"]
    assert (table.workers.tolist(), table.duration_s.tolist()) == ([2, 4, 1], [60.0, 30.0, 9.0])
    assert (table.submit_s.tolist(), table.clock.tolist()) == ([5.0, 7.0, 8.0], [0, 0, 0])
    assert (table.user, table.model, table.status, table.rows_read, len(table)) == (None, None, None, 4, 3)
    only = read_jobs(path, "philly", ReadOptions(virtual_cluster="a"))
    assert only.dropped == {"jobs in other virtual clusters": 2, "jobs without a GPU": 0, "jobs without run time": 1}


def test_models_and_states_are_kept_where_the_trace_has_them(tmp_path):
    (tmp_path / "simulation_throughputs.json").write_text('{"v100": {"(\'A\', 1)": {"null": 2.0}}}')
    jobs = tmp_path / "gavel.csv"
    jobs.write_text("vc,idx,job_type,total_steps,arrival_s,scale_factor\nx,0,A,10,1,1\ny,0,A,20,2,2\n")
    table = read_jobs(jobs, "gavel", ReadOptions())
    assert (table.model.tolist(), table.virtual_cluster.tolist()) == (["A", "A"], ["x", "y"])
    assert (table.clock.tolist(), table.duration_s.tolist()) == ([0, 1], [5.0, 5.0])
    (tmp_path / "openb_node_list_all_node.csv").write_text(
        "model,cpu_milli,memory_mib,gpu\nT4,8000,2048,2\n,4000,1024,0\n"
    )
    pods = tmp_path / "pods.csv"
    names = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,pod_phase,creation_time,deletion_time,scheduled_time"
    pods.write_text(f"{names}\np,2000,1024,2,1000,Running,1,9,3\nq,1,1,1,500,Failed,1,9,2\n")
    table = read_jobs(pods, "alibaba", ReadOptions())
    assert table.status.tolist() == ["Running", "Failed"]
    assert table.demand[0].tolist() == [1.0, 1.0, 0.5]
    assert table.nodes.kind == ("T4 x 2", "CPU")
    assert table.nodes.capacity.tolist() == [[2, 8, 2], [0, 4, 1]]


def test_an_unknown_format_is_named_with_the_known_ones(tmp_path):
    with pytest.raises(InvalidOptionError, match=f"one of {', '.join(TRACE_FORMATS)}, got 'venus'"):
        read_jobs(tmp_path, "venus", ReadOptions())
