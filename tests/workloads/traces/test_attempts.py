"""Rows of one name are attempts of one job, in every table."""

import pytest

from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

HEADER = "submit,gpus,duration,id,user,priority,cpus"


def _read(tmp_path, rows, header=HEADER):
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return read_jobs(path, "csv", ReadOptions())


def test_attempts_add_up_and_the_last_tells_the_rest(tmp_path):
    rows = ["100,4,50,a,u2,5,8", "0,2,10,a,u1,3,6", "5,1,7,b,u3,1,1"]
    table = _read(tmp_path, rows)
    assert (table.ids, table.submit_s.tolist(), table.workers.tolist()) == (("a", "b"), [0, 5], [4, 1])
    assert table.duration_s.tolist() == [(4 * 50 + 2 * 10) / 4, 7]
    assert (table.user.tolist(), table.priority.tolist()) == (["u2", "u3"], [5, 1])
    assert table.demand.tolist() == [[1, 2, 0], [1, 1, 0]]
    assert table.notes == ("1 job is in several records: attempts of one job, whose run times add up",)


def test_a_row_that_stands_twice_counts_once(tmp_path):
    table = _read(tmp_path, ["0,2,10,a,u,1,1", "0,2,10,b,u,1,1", "0,2,10,a,u,1,1"])
    assert (table.ids, table.duration_s.tolist()) == (("a", "b"), [10, 10])
    assert table.dropped["repeated rows"] == 1
    assert table.notes == ()


def test_rows_without_names_are_jobs_of_their_own(tmp_path):
    table = _read(tmp_path, ["0,2,10", "0,2,10"], "submit,gpus,duration")
    assert (len(table), table.dropped.get("repeated rows")) == (2, None)


@pytest.mark.parametrize("trace_format", ["tiresias", "muri"])
def test_tables_of_simulators_keep_the_same_rule(tmp_path, trace_format):
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,num_gpu,submit_time,duration,model_name\n7,2,0,5000,x\n7,2,9000,1000,y\n")
    table = read_jobs(path, trace_format, ReadOptions())
    assert (table.ids, table.workers.tolist(), table.model.tolist()) == (("7",), [2], ["y"])
    assert table.duration_s.tolist() == [6000 if trace_format == "tiresias" else 6]
