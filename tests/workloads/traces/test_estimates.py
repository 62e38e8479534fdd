"""Run times stated by users: a column of a table, and Slurm's time limits."""

import pytest

from optim.core.errors import InvalidProblemError
from optim.models.cluster.workload import US
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions

SACCT = "JobID|User|Partition|Submit|ElapsedRaw|{}|AllocTRES|State\n"


def _estimates(tmp_path, text, form):
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    return (cluster_jobs(read_jobs(path, form, ReadOptions()), Selection()).estimate_us / US).tolist()


def test_estimates_of_ones_own_table_are_seconds_or_hours(tmp_path):
    rows = "id,submit,gpus,duration,estimate\na,0,1,100,120\nb,1,1,100,0:30:00\nc,2,1,100,\nd,3,1,100,50.5\n"
    assert _estimates(tmp_path, rows, "csv") == [120, 1800, 0, 50.5]


@pytest.mark.parametrize(
    ("column", "texts", "expected"),
    [
        ("Timelimit", ("00:02:00", "1-00:00:00", "UNLIMITED", "Partition_Limit"), [120, 86400, 0, 0]),
        ("TimelimitRaw", ("2", "1440", "", "90"), [120, 86400, 0, 5400]),
    ],
)
def test_limits_of_slurm_are_estimates(tmp_path, column, texts, expected):
    rows = [f"{n}|u|p|2024-01-01T00:00:0{n}|100|{text}|gres/gpu=1|COMPLETED" for n, text in enumerate(texts)]
    assert _estimates(tmp_path, SACCT.format(column) + "\n".join(rows) + "\n", "sacct") == expected


@pytest.mark.parametrize(
    ("value", "said"), [("0", "expected a time above 0"), ("-5", "at least 0"), ("soon", "expected seconds")]
)
def test_an_estimate_that_cannot_be_one_is_refused_in_a_line(tmp_path, value, said):
    rows = f"id,submit,gpus,duration,estimate\na,0,1,100,{value}\n"
    with pytest.raises(InvalidProblemError, match=said) as error:
        _estimates(tmp_path, rows, "csv")
    assert "row 2" in str(error.value)
    assert "\n" not in str(error.value)
