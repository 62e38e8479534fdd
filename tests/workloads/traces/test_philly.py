"""Philly's lists and job log: attempts add up, failed ones are classified, and messages for invalid ones."""

import gzip
import json
import os
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.admission.traces import TraceOptions, read_trace
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions
from tests.support.trace_files import (
    MERGED,
    POLLUX,
    philly_file,
    read_philly_instance,
    write_table,
)


def test_reads_the_list_of_pollux_which_is_not_in_order(tmp_path: Path) -> None:
    rows = [
        ("2017-10-09 07:15:01", 900.0, 2, 1800.0, "11cb48"),
        ("2017-10-09 07:00:00", 1800.0, 1, 1800.0, "11cb48"),
    ]
    instance = read_philly_instance(write_table(tmp_path / "pollux.csv", POLLUX, rows))
    assert instance.jobs.ids == ("row-1", "row-0")
    assert instance.jobs.arrival.tolist() == [0, 2]
    assert instance.work.tolist() == [2, 2]


def test_the_merged_list_may_have_a_column_of_times_beside_its_seconds(tmp_path: Path) -> None:
    own = philly_file(tmp_path, [("a", 0, 1, 1800, "vc")])
    further = write_table(
        tmp_path / "more.csv", (*MERGED, "timestamp"), [("a", 0, 1, 1800, "vc", "2017-10-09 07:00:00")]
    )
    assert read_philly_instance(further).jobs.ids == read_philly_instance(own).jobs.ids == ("philly-a",)


def _truncated_gzip() -> bytes:
    return gzip.compress(b"job_id,submit_s,num_gpus,duration_s,vc\n" + b"0,0,1,900,\n" * 1000)[:-20]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is empty"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n", "has a header but no rows"),
        (b"job_id,submit_s,num_gpus,vc\n0,0,1,a\n", "column 'duration_s' is missing .there are: job_id"),
        (
            b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,9,a\n1,0,1,long,a\n",
            "row 3, column 'duration_s': expected a finite",
        ),
        (
            b"job_id,submit_s,num_gpus,duration_s,vc\n0,inf,1,9,a\n",
            "row 2, column 'submit_s': expected a finite number",
        ),
        (
            b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,nan,a\n",
            "row 2, column 'duration_s': expected a finite number",
        ),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,,9,a\n", "'num_gpus': must be at least 0, got nothing"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,0,9,a\n", "no job is left of 1 rows: 1 job without a GPU"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1.5,9,a\n", "'num_gpus': expected an integer, got 1.5"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,-9,a\n", "'duration_s': must be at least 0, got -9"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,-1,1,9,a\n", "'submit_s': must be at least 0"),
        (
            b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,9,a,b,c\n0,0\n1,1,1,1,1,1,1,1\n",
            "row 2 has more fields than the header .7, not 5",
        ),
        (
            b"timestamp,duration,num_gpus,cluster\n2017-13-45,1,1,a\n",
            "column 'timestamp': expected YYYY-MM-DD hh:mm:ss",
        ),
        (b"job_id,submit_s\xff\xfe,num_gpus,duration_s,vc\n0,0,1,9,a\n", "not a CSV file"),
        (_truncated_gzip(), "gzip data are damaged or truncated"),
    ],
    ids=lambda value: value[:24].replace(" ", "-") if isinstance(value, str) else "",
)
def test_a_bad_file_gives_one_clear_line(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidProblemError, match=text) as caught:
        read_trace(path, "philly", TraceOptions(), 0)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_gives_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match="can't be read"):
        read_trace(tmp_path / "absent.csv", "philly", TraceOptions(), 0)


def _attempt(start, end, *gpus):
    machines = [{"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(count)]} for n, count in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": machines}


def _job(name, minute, status, *attempts, vc="a"):
    time = f"2017-10-03 00:{minute:02}:00"
    return {"jobid": name, "submitted_time": time, "status": status, "vc": vc, "user": "u", "attempts": list(attempts)}


LOG = [
    _job("late", 9, "Pass", _attempt("2017-10-03 00:10:00", "2017-10-03 00:10:30", 8, 8)),
    _job(
        "retried",
        0,
        "Pass",
        _attempt("2017-10-03 00:01:00", "2017-10-03 00:01:20", 1),
        _attempt("2017-10-03 00:05:00", "2017-10-03 00:06:00", 4),
        vc="b",
    ),
    _job("dead", 2, "Failed", _attempt("2017-10-03 00:02:00", "2017-10-03 00:02:05", 1)),
    _job("open", 3, "Killed", _attempt("2017-10-03 00:03:00", None, 1)),
    _job("never", 4, "Killed"),
    _job("instant", 5, "Failed", _attempt("2017-10-03 00:05:00", "2017-10-03 00:05:00", 1)),
]


def _table(tmp_path, content=LOG, **options):
    path = tmp_path / "cluster_job_log"
    path.write_bytes(gzip.compress(json.dumps(content, indent=1).encode()))
    return read_jobs(path, "philly", ReadOptions(**options))


def test_attempts_add_up_and_failed_ones_are_told_apart(tmp_path):
    table = _table(tmp_path)
    assert table.ids == ("late", "retried", "dead")
    assert table.submit_s.tolist() == [540, 0, 120]
    assert table.workers.tolist() == [16, 4, 1]
    assert table.duration_s.tolist() == [30, 80, 5]
    assert np.isnan(table.failed_s[0])
    assert table.failed_s[1:].tolist() == [20, 5]
    assert table.status.tolist() == ["Pass", "Pass", "Failed"]
    assert (table.user.tolist(), table.virtual_cluster.tolist()) == (["u"] * 3, ["a", "b", "a"])
    assert table.begin == datetime(2017, 10, 3)
    assert {reason: count for reason, count in table.dropped.items() if count} == {
        "jobs without an attempt": 1,
        "jobs whose last attempt has no end": 1,
        "jobs without run time": 1,
    }


def test_one_virtual_cluster_can_be_asked_for(tmp_path):
    assert _table(tmp_path, virtual_cluster="b").ids == ("retried",)


def test_a_log_of_jobs_that_never_ran_has_no_job(tmp_path):
    assert len(_table(tmp_path, [_job("never", 4, "Killed")])) == 0


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ([], "the log has no jobs"),
        ([{"jobid": "x"}], "submitted_time"),
        (
            [_job("x", 1, "Pass") | {"submitted_time": "soon"}],
            "log: field 'submitted_time': expected YYYY-MM-DD hh:mm:ss, got 'soon'",
        ),
        ([_job("x", 1, "Pass", _attempt("then", None, 1))], "log: field 'start_time': expected YYYY-MM-DD"),
    ],
)
def test_a_bad_log_gives_one_clear_line(tmp_path, content, cause):
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        _table(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_a_log_may_begin_with_a_mark_of_the_byte_order(tmp_path):
    (tmp_path / "log").write_text("\ufeff\n" + json.dumps(LOG))
    assert read_jobs(tmp_path / "log", "philly", ReadOptions()).ids == ("late", "retried", "dead")


def test_a_log_is_read_more_than_once_and_so_never_from_a_pipe(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, json.dumps(LOG).encode())
    os.close(writer)
    with pytest.raises(InvalidProblemError, match="read more than once"):
        read_jobs(f"/proc/self/fd/{reader}", "philly", ReadOptions())
    os.close(reader)


def test_an_attempt_that_says_nothing_does_not_undo_those_before_it(tmp_path):
    ran = _attempt("2017-10-03 00:01:00", "2017-10-03 00:03:00", 4)
    for nothing in (_attempt(None, None), {}, {"start_time": "2017-10-03 00:04:00", "end_time": None, "detail": []}):
        table = _table(tmp_path, [_job("a", 0, "Pass", ran, nothing)])
        assert (table.workers.tolist(), table.duration_s.tolist(), table.failed_attempts.tolist()) == ([4], [120], [0])
        assert np.isnan(table.failed_s[0])
    unplaced = _attempt("2017-10-03 00:04:00", "2017-10-03 00:05:00")
    table = _table(tmp_path, [_job("a", 0, "Pass", ran, unplaced)])
    assert (table.workers.tolist(), table.duration_s.tolist(), table.failed_attempts.tolist()) == ([4], [180], [1])


@pytest.mark.parametrize("nothing", [None, "None"])
def test_one_missing_time_leaves_one_job_out(tmp_path, nothing):
    missing = {
        **_job("a", 0, "Pass", _attempt("2017-10-03 00:01:00", "2017-10-03 00:03:00", 4)),
        "submitted_time": nothing,
    }
    table = _table(tmp_path, [*LOG, missing])
    assert table.ids == ("late", "retried", "dead")
    assert table.dropped["jobs with unknown submission"] == 1
    with pytest.raises(InvalidProblemError, match="no job has a submitted_time"):
        _table(tmp_path, [missing])


def test_names_that_are_missing_are_empty(tmp_path):
    job = {**LOG[0], "user": None, "vc": None, "status": None}
    table = _table(tmp_path, [job])
    assert (table.user.tolist(), table.virtual_cluster.tolist(), table.status.tolist()) == ([""], [""], [""])


def test_the_wait_is_all_time_from_submission_to_the_last_end_without_gpus(tmp_path):
    odd = _job(
        "odd",
        0,
        "Pass",
        _attempt(None, "2017-10-03 00:01:00", 1),
        _attempt("2017-10-03 00:02:00", "2017-10-03 00:03:00", 1),
    )
    table = _table(tmp_path, [*LOG, odd])
    assert table.ids == ("late", "retried", "dead", "odd")
    assert table.waited_s[:3].tolist() == [60, 280, 0]
    assert not np.isfinite(table.waited_s[3])
    count, hours = cluster_jobs(table, Selection()).recorded_wait
    assert (count, hours) == (3, pytest.approx(340 / 3 / 3600))
