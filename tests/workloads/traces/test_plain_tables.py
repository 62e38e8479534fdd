"""Tables of jobs: users' tables and the simulators' forms."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import ELSEWHERE, UNFINISHED
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import NO_GPU, NO_WORK, ReadOptions


def _file(tmp_path, text):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return path


def test_ones_own_table_needs_three_columns(tmp_path):
    table = read_jobs(_file(tmp_path, "submit,gpus,duration\n5,2,10\n3,1,4.5\n"), "csv", ReadOptions())
    jobs = cluster_jobs(table, Selection())
    assert jobs.submit_us.tolist() == [0, 2_000_000]
    assert jobs.gpus.tolist() == [1, 2]
    assert jobs.duration_us.tolist() == [4_500_000, 10_000_000]
    assert jobs.ids == ("row-1", "row-0")


def test_names_and_virtual_clusters_are_kept(tmp_path):
    path = _file(tmp_path, "submit,gpus,duration,id,vc\n0,1,1,a,x\n1,1,1,b,y\n2,1,0,c,y\n")
    table = read_jobs(path, "csv", ReadOptions())
    jobs = cluster_jobs(table, Selection())
    assert jobs.ids == ("a", "b")
    assert [jobs.groups[group] for group in jobs.group] == ["x", "y"]
    assert dict(jobs.dropped) == {"jobs without run time": 1}
    assert read_jobs(path, "csv", ReadOptions(virtual_cluster="y")).ids == ("b",)


def test_the_first_column_may_stand_behind_a_mark_of_the_byte_order(tmp_path):
    text = "priority,submit,gpus,duration\n3,0,1,3600\n1,60,2,7200\n"
    for mark in ("", "\ufeff"):
        table = read_jobs(_file(tmp_path, mark + text), "csv", ReadOptions())
        assert (table.priority.tolist(), table.submit_s.tolist()) == ([3, 1], [0, 60])


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "submit,gpus,duration,user,model\n10,2,60,7,resnet,\n20,1,90,8,vgg,\n",
            "row 2 has more fields than the header",
        ),
        ("submit,gpus,duration,gpus\n10,2,60,7\n20,1,90,8\n", "column 'gpus' is named twice"),
        ("submit,gpus,duration,user,user\n10,2,60,7,8\n", "column 'user' is named twice"),
    ],
)
def test_no_field_is_taken_for_another(tmp_path, text, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        read_jobs(_file(tmp_path, text), "csv", ReadOptions())


def test_muris_times_are_milliseconds_and_tiresias_seconds(tmp_path):
    path = _file(tmp_path, "job_id,num_gpu,submit_time,duration,model_name\n7,4,2000,5000,vgg19\n")
    for name, submit, duration in (("muri", 2.0, 5.0), ("tiresias", 2000.0, 5000.0)):
        table = read_jobs(path, name, ReadOptions())
        assert (table.submit_s[0], table.duration_s[0], table.ids[0], table.model[0]) == (
            submit,
            duration,
            "7",
            "vgg19",
        )


def test_apps_priorities_host_room_and_other_gangs_are_kept(tmp_path):
    header = "submit,gpus,duration,app,priority,min_gpus,max_gpus,cpus,memory_gb,user,model,status,account,qos"
    table = read_jobs(_file(tmp_path, f"{header}\n0,2,5,x,-3,1,4,6,8,u,m,Pass,physics,high\n"), "csv", ReadOptions())
    assert (table.account.tolist(), table.qos.tolist()) == (["physics"], ["high"])
    assert (table.app.tolist(), table.priority.tolist()) == (["x"], [-3])
    assert (table.min_gpus.tolist(), table.max_gpus.tolist(), table.demand.tolist()) == ([1], [4], [[1, 3, 4]])
    assert (table.user.tolist(), table.model.tolist(), table.status.tolist()) == (["u"], ["m"], ["Pass"])
    some = read_jobs(_file(tmp_path, "submit,gpus,duration,cpus\n0,2,5,6\n"), "csv", ReadOptions())
    assert some.demand.tolist() == [[1, 3, 0]]  # missing values are 0


def test_muri_tells_how_busy_a_job_keeps_its_gpus(tmp_path):
    text = "job_id,num_gpu,submit_time,duration,model_name,iteration_time,resource_time_1\n7,4,0,5,dqn,500,10\n"
    assert read_jobs(_file(tmp_path, text), "muri", ReadOptions()).busy.tolist() == [0.02]


def test_a_job_that_hardly_computes_counts_as_busy_for_a_thousandth(tmp_path):
    text = "job_id,num_gpu,submit_time,duration,model_name,iteration_time,resource_time_1\n7,4,0,5,dqn,500,0\n"
    assert read_jobs(_file(tmp_path, text), "muri", ReadOptions()).busy.tolist() == [0.001]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("submit,gpus,duration,min_gpus\n0,1,1,0\n", "min_gpus"),
        ("submit,gpus,duration,cpus\n0,1,1,-1\n", "cpus"),
        ("submit,gpus,duration,priority\n0,1,1,high\n", "priority"),
        ("submit,gpus\n0,1\n", "duration"),
        ("submit,gpus,duration\n0,one,1\n", "gpus"),
        ("submit,gpus,duration\n0,1,-1\n", "duration"),
        ("submit,gpus,duration\n0,1.5,1\n", "gpus"),
    ],
)
def test_bad_columns_are_named(tmp_path, text, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        read_jobs(_file(tmp_path, text), "csv", ReadOptions())


def test_a_selection_takes_the_first_jobs_and_leaves_out_what_is_too_large(tmp_path):
    path = _file(tmp_path, "submit,gpus,duration\n0,9,1\n86400,1,1\n86401,2,1\n172800,1,1\n")
    table = read_jobs(path, "csv", ReadOptions())
    jobs = cluster_jobs(table, Selection(first=2, oversized="drop"), Cluster.grid("1x8"))
    assert jobs.gpus.tolist() == [1, 2]
    assert dict(jobs.dropped) == {"jobs larger than the cluster": 1}
    wide = read_jobs(_file(tmp_path, "submit,gpus,duration\n0,9,1\n"), "csv", ReadOptions())
    with pytest.raises(InvalidProblemError, match=r"no job .* left \(of 1 rows: 1 job larger than the cluster\);"):
        cluster_jobs(wide, Selection(oversized="drop"), Cluster.grid("1x8"))


def test_rows_without_gpus_are_left_out_and_counted(tmp_path):
    for name, text in (
        ("csv", "submit,gpus,duration\n0,0,5\n1,2,5\n2,0,5\n"),
        ("tiresias", "job_id,num_gpu,submit_time,duration,model_name\n1,0,0,5,x\n2,2,0,5,x\n3,0,0,5,x\n"),
        ("philly", "job_id,submit_s,num_gpus,duration_s,vc\n1,0,0,5,a\n2,1,2,5,a\n3,1,0,5,a\n"),
        ("pollux", "timestamp,duration,num_gpus,cluster\n" + "".join(f"2017-10-03 00:00:0{n},5,{2 * (n == 1)},a\n" for n in range(3))),
    ):  # fmt: skip
        table = read_jobs(_file(tmp_path, text), name, ReadOptions())
        assert (table.workers.tolist(), table.dropped["jobs without a GPU"]) == ([2], 2), name


def test_columns_that_are_not_read_are_named_with_the_nearest_known(tmp_path):
    table = read_jobs(_file(tmp_path, "submit,duration,gpus,Priorty,team\n0,1,1,3,x\n"), "csv", ReadOptions())
    assert table.notes == ("columns that are not read: Priorty (is priority meant?), team",)
    assert table.priority is None


def test_types_and_partitions_are_read(tmp_path):
    text = "submit,duration,gpus,partition,gpu_type\n0,1,1,a,v100\n5,1,1,b,a100|h100\n6,1,1,b,\n"
    table = read_jobs(_file(tmp_path, text), "csv", ReadOptions())
    assert (table.virtual_cluster.tolist(), table.gpu_type.tolist()) == (["a", "b", "b"], ["v100", "a100|h100", ""])
    assert table.notes == ()
    both = read_jobs(_file(tmp_path, "submit,duration,gpus,partition,vc\n0,1,1,a,b\n"), "csv", ReadOptions())
    assert both.virtual_cluster.tolist() == ["b"]
    assert both.notes == ("columns that are not read: partition",)


@pytest.mark.parametrize("column", ["status", "state"])
def test_jobs_that_are_not_over_are_left_out_and_counted(tmp_path, column):
    rows = ["0,2,3600,COMPLETED", "1,2,3600,Running", "2,1,,PENDING", "3,1,60,CANCELLED by 7", "4,4,,queued"]
    table = read_jobs(_file(tmp_path, "\n".join([f"submit,gpus,duration,{column}", *rows])), "csv", ReadOptions())
    assert (table.duration_s.tolist(), table.status.tolist()) == ([3600, 60], ["COMPLETED", "CANCELLED by 7"])
    assert (table.dropped[UNFINISHED], table.dropped_gpu_h[UNFINISHED], table.notes) == (3, 2, ())
    with pytest.raises(InvalidProblemError, match="row 2, column 'duration': expected seconds"):
        read_jobs(_file(tmp_path, f"submit,gpus,duration,{column}\n0,1,,FAILED\n"), "csv", ReadOptions())


def test_rows_that_are_alike_and_have_no_names_are_said(tmp_path):
    text = "submit,gpus,duration,user\n0,1,5,a\n0,1,5,b\n0,1,5,a\n0,1,5,a\n"
    table = read_jobs(_file(tmp_path, text), "csv", ReadOptions())
    assert len(table) == 4
    assert table.notes[-1].startswith(
        "2 rows are equal to an earlier one in all columns read, and count as separate jobs"
    )
    named = "submit,gpus,duration,id\n0,1,5,a\n0,1,5,a\n"
    assert not [note for note in read_jobs(_file(tmp_path, named), "csv", ReadOptions()).notes if "alike" in note]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("submit,gpus,duration,priority\n0,8,3\n", r"row 2 has fewer fields than the header \(3, not 4\)"),
        ("0,1,3600\n5,1,60\n", "the header is missing; the first row must name the columns"),
        (
            "JobID|Submit|State\n1|2024-01-02T00:00:00|COMPLETED\n",
            "this is the output of sacct -P; .* --trace-format sacct",
        ),
        ("submit,gpus,duration\n0,1,2:00\n", "row 2, column 'duration': expected seconds, or hours:minutes:seconds"),
        ("submit,gpus,duration\n0,1,soon\n", "row 2, column 'duration': expected seconds, or hours:minutes:seconds"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path, text, cause):
    with pytest.raises(InvalidProblemError, match=cause):
        read_jobs(_file(tmp_path, text), "csv", ReadOptions())


def test_run_times_may_be_hours_minutes_and_seconds(tmp_path):
    text = "submit,gpus,duration\n0,1,2:00:00\n1,1,90.5\n2,1,1-00:00:01\n3,1,00:00:01.25\n"
    assert read_jobs(_file(tmp_path, text), "csv", ReadOptions()).duration_s.tolist() == [7200, 90.5, 86401, 1.25]


def test_a_filter_that_no_job_meets_says_which_values_there_are(tmp_path):
    path = _file(tmp_path, "submit,gpus,duration,vc\n0,1,1,nlp\n1,1,1,vision\n")
    with pytest.raises(InvalidProblemError, match=r"no job of the trace is in 'nlpp' \(there are: nlp, vision\)"):
        read_jobs(path, "csv", ReadOptions(virtual_cluster="nlpp"))
    with pytest.raises(InvalidProblemError, match=r"\(there are: none\)"):
        read_jobs(_file(tmp_path, "submit,gpus,duration\n0,1,1\n"), "csv", ReadOptions(virtual_cluster="nlp"))


STARTS = "submit,start,gpus,duration,id"


@pytest.mark.parametrize(
    ("rows", "waits"),
    [
        (["0,30,1,10,a", "5,,1,10,b", "7,7,1,10,c"], {"a": 30, "c": 0}),
        (["2017-10-03 12:00:00,2017-10-03 12:00:30,1,10,a", "2017-10-03 12:00:10,2017-10-03 12:01:10,1,10,b"], {"a": 30, "b": 60}),
        (["1506000000000,1506000030000,1,10,a"], {"a": 30}),
        (["0,30,1,10,a", "0,100,1,10,a"], {"a": 90}),  # two attempts: 110 s in all, of which 20 s ran
        (["0,30,1,10,a", "60,100,1,10,a"], {"a": 90}),
    ],
)  # fmt: skip
def test_the_wait_that_a_column_of_starts_records(tmp_path, rows, waits):
    table = read_jobs(_file(tmp_path, "\n".join([STARTS, *rows]) + "\n"), "csv", ReadOptions())
    told = {name: wait for name, wait in zip(table.ids, table.waited_s.tolist(), strict=True) if wait == wait}
    assert told == waits
    count, hours = cluster_jobs(table, Selection()).recorded_wait
    assert (count, hours) == (len(waits), pytest.approx(sum(waits.values()) / len(waits) / 3600))
    assert not any("not read" in note for note in table.notes)


def test_a_table_without_starts_records_no_wait(tmp_path):
    for rows in ("submit,gpus,duration\n0,1,10\n", "submit,start,gpus,duration\n0,,1,10\n"):
        assert cluster_jobs(read_jobs(_file(tmp_path, rows), "csv", ReadOptions()), Selection()).recorded_wait is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("10,9,1,10,a", "column 'start': expected a time not before the submission, got '9'"),
        (
            "2017-10-03,9,1,10,a",
            "column 'start': starts must be dates if submissions are dates, and seconds if submissions are seconds",
        ),
        ("10,soon,1,10,a", "column 'start'"),
    ],
)
def test_starts_that_cannot_be_are_refused(tmp_path, row, said):
    with pytest.raises(InvalidProblemError, match=said):
        read_jobs(_file(tmp_path, f"{STARTS}\n{row}\n"), "csv", ReadOptions())


def test_jobs_of_zero_gpus_in_logs_of_helios_are_left_out_and_counted(tmp_path):
    path = tmp_path / "cluster_log.csv"
    path.write_text(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,uA,vcA,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:42:01,2020-06-10 04:55:09,36788,60\n"
        "2,uB,vcB,0,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
        "3,uB,vcA,16,64,2,CANCELLED,2020-06-09 18:41:31,2020-06-09 18:41:31,2020-06-09 18:45:31,240,0\n"
        "4,uB,vcA,8,64,1,FAILED,2020-06-09 18:41:31,2020-06-09 18:41:31,2020-06-09 18:41:31,0,0\n"
    )
    table = read_jobs(path, "helios", ReadOptions())
    assert (table.ids, table.workers.tolist(), table.duration_s.tolist()) == (("1", "3"), [1, 16], [36788, 240])
    assert table.submit_s.tolist() == [0, 30]
    assert table.waited_s.tolist() == [60, 0]
    assert table.virtual_cluster.tolist() == ["vcA", "vcA"]
    assert table.status.tolist() == ["COMPLETED", "CANCELLED"]
    assert table.demand[:, 1].tolist() == [4, 4]
    assert table.dropped == {ELSEWHERE: 0, UNFINISHED: 0, NO_GPU: 1, NO_WORK: 1}
    chosen = read_jobs(path, "helios", ReadOptions(virtual_cluster="vcA"))
    assert chosen.dropped[ELSEWHERE] == 1
