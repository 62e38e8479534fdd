"""Output of `sacct -P`: GPUs from resources; steps and unfinished jobs are left out."""

import re
from datetime import datetime
from pathlib import Path

import pytest

from optim.cli.commands import load
from optim.core.errors import InvalidProblemError
from optim.workloads.cluster.jobs import Selection, cluster_jobs
from optim.workloads.traces.formats import read_jobs
from optim.workloads.traces.job_table import ReadOptions
from optim.workloads.traces.sacct_command import COMMAND
from optim.workloads.traces.slurm import read_sacct_state

DOCS = Path(__file__).parents[3] / "docs"

HEADER = "JobID|User|Partition|Submit|ElapsedRaw|ReqTRES|AllocTRES|State"
ROWS = (
    "7|ada|gpu|2024-01-02T00:00:10|60|cpu=4|billing=9,cpu=8,gres/gpu=2,mem=64G,node=1|COMPLETED",
    "7.batch||||60||cpu=8,mem=64G|COMPLETED",
    "8|bob|big|2024-01-02T00:00:00|30|cpu=1,gres/gpu:a100=4,mem=512M|||",
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
    assert {reason: count for reason, count in table.dropped.items() if count} == {
        "job steps (parts of their jobs)": 1,
        "jobs without a GPU": 1,
        "jobs still running or pending": 1,
        "jobs without run time": 1,
    }
    assert table.dropped_gpu_h == {"jobs still running or pending": pytest.approx(5 / 3600)}
    assert table.gpu_type.tolist() == ["", "a100", "a100"]


def test_accounts_and_qualities_of_service_are_kept_where_they_are_there(tmp_path):
    path = tmp_path / "jobs.txt"
    path.write_text(
        "JobID|Account|QOS|Partition|Submit|ElapsedRaw|AllocTRES|State\n"
        "1|physics|high|gpu|2024-01-02T00:00:00|60|gres/gpu=1|COMPLETED\n"
        "2|biology|normal|gpu|2024-01-02T00:00:01|60|gres/gpu=1|COMPLETED\n"
    )
    jobs = cluster_jobs(read_jobs(path, "sacct", ReadOptions()), Selection())
    assert [jobs.accounts[each] for each in jobs.account] == ["physics", "biology"]
    assert [jobs.qos_names[each] for each in jobs.qos] == ["high", "normal"]
    assert _table(tmp_path, ROWS).account is None


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
        ("JobID|Partition|Submit|ElapsedRaw|AllocTRES|State", "1|g|yesterday|5|gres/gpu=1|X", "column 'Submit': expected YYYY-MM-DDThh:mm:ss"),
        ("JobID|Partition|Submit|ElapsedRaw|AllocTRES|State", "1|g|2024-01-02T00:00:00|long|gres/gpu=1|X", "column 'ElapsedRaw'"),
        ("JobID|Partition|Submit|ElapsedRaw|AllocTRES|State", "1|g|2024-01-02T00:00:00|-5|gres/gpu=1|X", "'ElapsedRaw': must be"),
    ],
)  # fmt: skip
def test_a_bad_file_gives_one_clear_line(tmp_path, header, row, cause):
    with pytest.raises(InvalidProblemError, match=cause) as caught:
        _table(tmp_path, [row], header)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["JobID", "Partition", "Submit", "ElapsedRaw", "AllocTRES", "State"])
def test_the_error_for_a_missing_column_prints_the_command_that_gives_all(tmp_path, name):
    header = "JobID|Partition|Submit|ElapsedRaw|AllocTRES|State".replace(name, f"My{name}")
    with pytest.raises(
        InvalidProblemError,
        match=rf"column '{name}' is missing; this command prints all: sacct -a -P -S now-30days --form",
    ):
        _table(tmp_path, ["1|g|2024-01-02T00:00:00|5|gres/gpu=1|X"], header)


@pytest.mark.parametrize("page", ["how-to/operators.md", "first-answer.md", "reference/cluster.md"])
def test_the_pages_give_the_command_that_errors_print(page):
    said = re.findall(r"sacct -\w [^`>\n]*[^`>\n ]", (DOCS / page).read_text())
    assert said == [COMMAND]


def test_help_gives_the_command_that_errors_print():
    assert COMMAND in load("simulate").commands["cluster"].epilog


def test_the_command_prints_every_column_that_is_read(tmp_path):
    """Jobs have all optional data, and a state needs no other column."""
    header = COMMAND.rpartition("--format=")[2].replace(",", "|")
    ended = "1|ana|lab|high|g|2024-01-02T00:00:00|2024-01-02T01:00:00|2024-01-02T02:00:00|3600|02:00:00|gres/gpu=1|gres/gpu=1|COMPLETED|7|n1"
    waiting = "2|ana|lab|high|g|2024-01-02T01:30:00|Unknown|Unknown|0|02:00:00|gres/gpu=4||PENDING|7|None assigned"
    table = _table(tmp_path, [ended, waiting], header)
    assert (table.account.tolist(), table.qos.tolist(), table.estimate_s.tolist()) == (["lab"], ["high"], [7200])
    state = read_sacct_state(tmp_path / "sacct.txt")
    assert [(job.name, job.gpus, job.limit_s, job.priority) for job in state.jobs] == [("2", 4, 7200, 7)]


SHORT = "JobID|Partition|JobName|Submit|ElapsedRaw|AllocTRES|State"


def _row(number, resources="gres/gpu=2", state="COMPLETED", elapsed="3600", submit="2024-01-02T00:00:00", name="x"):
    return f"{number}|g|{name}|{submit}|{elapsed}|{resources}|{state}"


def _gpu_h(table):
    return float(table.workers @ table.duration_s) / 3600


@pytest.mark.parametrize("name", ['"open', 'end"', '12" model', '""', "'", '"a" b', "a,b", "#1"])
def test_quotation_marks_in_names_are_signs_like_others(tmp_path, name):
    rows = [_row(1), _row(2, name=name), _row(3), _row(4, name='"'), _row(5)]
    table = _table(tmp_path, rows, SHORT)
    assert (len(table), _gpu_h(table)) == (5, 10)


def test_a_bar_in_a_name_is_named_as_the_cause(tmp_path):
    for rows in ([_row(1, name="a|b"), _row(2)], [_row(1), _row(2, name="a|b")]):
        with pytest.raises(InvalidProblemError, match=r"has more fields .* or in a name, which the format can't mark"):
            _table(tmp_path, rows, SHORT)
    with pytest.raises(InvalidProblemError, match=r"row 3 has fewer fields than the header \(6, not 7\)"):
        _table(tmp_path, [_row(1), _row(2).replace("|x|", "|")], SHORT)


def test_records_of_one_id_are_attempts_of_one_job(tmp_path):
    rows = [
        _row(1, "gres/gpu=4", "REQUEUED", 3889),
        _row(1, "gres/gpu=4", "PREEMPTED", 4473, "2024-01-02T01:10:00"),
        _row(2, "gres/gpu=1", "COMPLETED", 60),
        _row(1, "gres/gpu=8", "COMPLETED", 2153, "2024-01-02T04:30:00"),
        _row(1, "gres/gpu=4", "NODE_FAIL", 6122, "2024-01-02T02:40:00"),
    ]
    table = _table(tmp_path, rows, SHORT)
    assert table.ids == ("1", "2")
    assert (table.workers.tolist(), table.submit_s.tolist()) == ([8, 1], [0, 0])
    assert table.status.tolist() == ["COMPLETED", "COMPLETED"]
    assert _gpu_h(table) == pytest.approx((4 * (3889 + 4473 + 6122) + 8 * 2153 + 60) / 3600)
    assert table.notes == ("1 job is in several records: attempts of one job, whose run times add up",)


def test_a_row_printed_twice_counts_once(tmp_path):
    table = _table(tmp_path, [_row(1), _row(2), _row(1)], SHORT)
    assert (_gpu_h(table), table.dropped["repeated rows"]) == (4, 1)


def test_components_are_one_gang_and_a_lost_one_takes_the_others_along(tmp_path):
    rows = [_row("9+0", "gres/gpu=8"), _row("9+1", "gres/gpu=4"), _row("9+1.batch", "gres/gpu=4"), _row("8")]
    table = _table(tmp_path, rows, SHORT)
    assert (table.ids, table.workers.tolist(), table.duration_s.tolist()) == (("9", "8"), [12, 2], [3600, 3600])
    rows = [_row("9+0", "gres/gpu:a100=8"), _row("9+1", "gres/gpu:v100=4"), _row("8", "gres/gpu:a100=2,gres/gpu=2")]
    table = _table(tmp_path, rows, SHORT)
    assert (table.ids, table.gpu_type.tolist()) == (("8",), ["a100"])
    assert table.dropped["jobs with GPUs of several types"] == 2
    rows = [_row("9+0", "gres/gpu=8"), _row("9+1", "gres/gpu:1g.5gb=4"), _row("8")]
    assert _table(tmp_path, rows, SHORT).ids == ("8",)


def test_requeued_components_are_one_gang_with_the_work_of_all_attempts(tmp_path):
    later = "2024-01-02T02:00:00"
    rows = [_row(f"9+{part}", f"gres/gpu={gpus}", "NODE_FAIL", 600) for part, gpus in ((0, 8), (1, 4))]
    rows += [_row(f"9+{part}", f"gres/gpu={gpus}", elapsed=1200, submit=later) for part, gpus in ((0, 8), (1, 4))]
    table = _table(tmp_path, rows, SHORT)
    assert (table.workers.tolist(), table.duration_s.tolist(), table.submit_s.tolist()) == ([12], [1800], [0])


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ("gres/gpu:a100_1g.10gb=2,gres/gpu=2", "jobs with MIG slices instead of full GPUs"),
        ("gres/gpu:1g.5gb=2", "jobs with MIG slices instead of full GPUs"),
        ("gres/gpu:nvidia_h100_3g.40gb=1,gres/gpu:h100=1,gres/gpu=2", "jobs with MIG slices instead of full GPUs"),
        ("gres/gpu:a100=2,gres/gpu:v100=2,gres/gpu=4", "jobs with GPUs of several types"),
        ("gres/gpu:a100=2,gres/gpu=4", "jobs with GPUs of several types"),
        ("gres/gpumem=80G,gres/gpuutil=5", "jobs without a GPU"),
    ],
)
def test_what_is_no_gang_of_whole_gpus_of_one_type_is_left_out_and_counted(tmp_path, resources, reason):
    table = _table(tmp_path, [_row(1, resources), _row(2)], SHORT)
    assert (table.ids, table.dropped[reason]) == (("2",), 1)


def test_a_type_that_was_asked_for_is_the_jobs_too(tmp_path):
    header = "JobID|Partition|Submit|ElapsedRaw|ReqTRES|AllocTRES|State"
    rows = ["1|g|2024-01-02T00:00:00|60|gres/gpu:a100=2|cpu=1,gres/gpu=2|COMPLETED"]
    rows += ["2|g|2024-01-02T00:00:00|60|gres/gpu=2|cpu=1,gres/gpu=2|COMPLETED"]
    assert _table(tmp_path, rows, header).gpu_type.tolist() == ["a100", ""]


@pytest.mark.parametrize(
    ("text", "seconds"), [("01:02:03", 3723), ("24:57", 1497), ("1-00:00:10", 86410), ("00:00:01.500", 1.5)]
)
def test_elapsed_times_are_read_as_slurm_prints_them(tmp_path, text, seconds):
    header = SHORT.replace("ElapsedRaw", "Elapsed")
    assert _table(tmp_path, [_row(1, elapsed=text)], header).duration_s.tolist() == [seconds]


def test_begin_and_end_tell_the_run_time_where_nothing_else_does(tmp_path):
    header = "JobID|Partition|Submit|Start|End|AllocTRES|State"
    rows = ["1|g|2024-01-02T00:00:00|2024-01-02T01:00:00|2024-01-02T03:00:00|gres/gpu=1|COMPLETED"]
    rows += ["2|g|2024-01-02T00:00:00|2024-01-02T00:30:00|2024-01-02T00:31:00|gres/gpu=1|COMPLETED"]
    rows += ["3|g|2024-01-02T00:00:00|Unknown|Unknown|gres/gpu=1|PENDING"]
    rows += ["4|g|2024-01-02T00:00:00|2024-01-02T00:30:00|Unknown|gres/gpu=1|RUNNING"]
    table = _table(tmp_path, rows, header)
    assert table.duration_s.tolist() == [7200, 60]
    assert table.dropped["jobs still running or pending"] == 2


@pytest.mark.parametrize(
    "form", ["2024-01-02T00:{:02}:00", "2024-01-02T01:{:02}:00+01:00", "2024-01-02T01:{:02}:00+0100", "17041536{:02}"]
)
def test_dates_come_in_the_forms_that_slurm_can_be_told(tmp_path, form):
    gap = 50.0 if form.startswith("17") else 3000.0
    table = _table(tmp_path, [_row(1, submit=form.format(0)), _row(2, submit=form.format(50))], SHORT)
    assert (table.submit_s - table.submit_s.min()).tolist() == [0, gap]


def test_unknown_dates_matter_only_on_rows_that_are_played(tmp_path):
    rows = [
        _row(1, submit="Unknown"),
        _row("1.batch", submit="Unknown", elapsed=""),
        _row(2, "cpu=2", submit="Unknown"),
        _row(3, state="PENDING", submit="never", elapsed="?"),
        _row(4),
    ]
    table = _table(tmp_path, rows, SHORT)
    assert table.ids == ("4",)
    assert table.dropped["jobs with unknown submission"] == 1
    assert table.dropped_gpu_h == {"jobs with unknown submission": 2.0}


def test_a_table_without_header_or_of_commas_says_so(tmp_path):
    with pytest.raises(
        InvalidProblemError, match=r"the header is missing; print the table with it \(without -n\): sacct"
    ):
        _table(tmp_path, [_row(2)], _row(1))
    with pytest.raises(InvalidProblemError, match="read it with --trace-format csv"):
        _table(tmp_path, ["0,1,1"], "submit,gpus,duration")


def test_gpus_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(InvalidProblemError, match=r"row 3, column 'AllocTRES': expected gres/gpu\[:TYPE\]=NUMBER"):
        _table(tmp_path, [_row(1), _row(2, "cpu=2,gres/gpu=two")], SHORT)


def test_numbers_that_are_no_seconds_since_1970_are_refused(tmp_path):
    with pytest.raises(
        InvalidProblemError, match="row 2, column 'Submit': expected YYYY-MM-DDThh:mm:ss, or seconds since 1970"
    ):
        _table(tmp_path, [_row(1, submit="7.5")], SHORT)
