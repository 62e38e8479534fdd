"""What `sacct -P` prints: GPUs from resources, steps and unfinished jobs left out."""

from datetime import datetime

import pytest

from optim.core.errors import InvalidProblemError
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

HEADER = "JobID|User|Partition|Submit|ElapsedRaw|ReqTRES|AllocTRES|State"
ROWS = (
    "7|ada|gpu|2024-01-02T00:00:10|60|cpu=4|billing=9,cpu=8,gres/gpu=2,mem=64G,node=1|COMPLETED",
    "7.batch||||60||cpu=8,mem=64G|COMPLETED",
    "8|bob|big|2024-01-02T00:00:00|30|cpu=1,gres/gpu:a100=3,gres/gpu:v100=1,mem=512M|||",
    "9|bob|big|2024-01-02T00:00:00|30|cpu=4,mem=1G|cpu=4,mem=1G|COMPLETED",
    "10|bob|gpu|2024-01-02T00:01:00|5|cpu=4,gres/gpu=1|cpu=4,gres/gpu=1,gres/gpu:a100=1,mem=1T|CANCELLED by 7",
    "11|bob|gpu|2024-01-02T00:01:00|5||cpu=4,gres/gpu=1|RUNNING",
    "12|bob|gpu|2024-01-02T00:01:00|0||cpu=4,gres/gpu=1|FAILED",
)


def _table(tmp_path, rows, header=HEADER, **options):
    path = tmp_path / "sacct.txt"
    fixed = [
        row.replace("7.batch||||60", "7.batch||gpu|2024-01-02T00:00:10|60").replace("512M|||", "512M||TIMEOUT")
        for row in rows
    ]
    path.write_text("\n".join([header, *fixed]) + "\n")
    return read_jobs(path, "sacct", ReadOptions(**options))


def test_jobs_with_gpus_that_are_over_are_kept(tmp_path):
    table = _table(tmp_path, ROWS)
    assert table.ids == ("7", "8", "10")
    assert table.submit_s.tolist() == [10, 0, 60]
    assert table.workers.tolist() == [2, 4, 1]
    assert table.duration_s.tolist() == [60, 30, 5]
    assert table.virtual_cluster.tolist() == ["gpu", "big", "gpu"]
    assert table.user.tolist() == ["ada", "bob", "bob"]
    assert table.status.tolist() == ["COMPLETED", "TIMEOUT", "CANCELLED"]
    assert table.begin == datetime(2024, 1, 2)
    assert dict(table.dropped) == {
        "that are steps of jobs": 1,
        "in other virtual clusters": 0,
        "without a GPU": 1,
        "that run or wait still": 1,
        "without run time": 1,
    }


def test_host_room_is_told_for_each_gpu(tmp_path):
    demand = _table(tmp_path, ROWS).demand
    assert demand.tolist() == [[1, 4, 32], [1, 0.25, 0.125], [1, 4, 1024]]


def test_a_partition_is_a_virtual_cluster(tmp_path):
    assert _table(tmp_path, ROWS, virtual_cluster="big").ids == ("8",)


@pytest.mark.parametrize(
    ("header", "row", "cause"),
    [
        ("JobID|User|Partition|Submit|ElapsedRaw|State", "1|a|g|2024-01-02T00:00:00|5|X", "column 'AllocTRES' is missing"),
        ("JobID|Partition|Submit|AllocTRES|State", "1|g|2024-01-02T00:00:00|gres/gpu=1|X", "column 'ElapsedRaw' is missing"),
        ("Partition|Submit|ElapsedRaw|AllocTRES|State", "g|yesterday|5|gres/gpu=1|X", "column 'Submit': YYYY-MM-DDThh:mm:ss"),
        ("Partition|Submit|ElapsedRaw|AllocTRES|State", "g|2024-01-02T00:00:00|long|gres/gpu=1|X", "column 'ElapsedRaw'"),
        ("Partition|Submit|ElapsedRaw|AllocTRES|State", "g|2024-01-02T00:00:00|-5|gres/gpu=1|X", "'ElapsedRaw': must be"),
    ],
)  # fmt: skip
def test_a_bad_file_gives_one_clear_line(tmp_path, header, row, cause):
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        _table(tmp_path, [row], header)
    assert "\n" not in str(caught.value)
