"""Both lists of Philly's jobs, and what is said of a bad one."""

import gzip
from pathlib import Path

import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.admission.traces import TraceOptions, read_trace
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
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,9,a\n1,0,1,long,a\n", "row 3, column 'duration_s': a finite"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,inf,1,9,a\n", "row 2, column 'submit_s': a finite number"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,nan,a\n", "row 2, column 'duration_s': a finite number"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,,9,a\n", "'num_gpus': must be at least 0, got nothing"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,0,9,a\n", "no job is left of 1 rows: 1 without a GPU"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1.5,9,a\n", "'num_gpus': a whole number is due, got 1.5"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,-9,a\n", "'duration_s': must be at least 0, got -9"),
        (b"job_id,submit_s,num_gpus,duration_s,vc\n0,-1,1,9,a\n", "'submit_s': must be at least 0"),
        (
            b"job_id,submit_s,num_gpus,duration_s,vc\n0,0,1,9,a,b,c\n0,0\n1,1,1,1,1,1,1,1\n",
            "row 2 has more fields than the header .7, not 5",
        ),
        (b"timestamp,duration,num_gpus,cluster\n2017-13-45,1,1,a\n", "column 'timestamp': YYYY-MM-DD hh:mm:ss is due"),
        (b"job_id,submit_s\xff\xfe,num_gpus,duration_s,vc\n0,0,1,9,a\n", "not a CSV file"),
        (_truncated_gzip(), "gzip data is damaged or truncated"),
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
