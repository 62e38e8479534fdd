"""Job tables in operators' formats: `simulate cluster` gives the stated value, or one line with the remedy."""

import json
import re

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.models.cluster.log import Event
from optim.models.cluster.run_file import load_run
from tests.support.public_traces import small_file

RUNNER = CliRunner()


def play(table, *words, gpus="1x8", policy="fifo"):
    """Return exit code, the first line's content, the policy's row and the messages of one run."""
    words = ("simulate", "cluster", "--trace", table, "--gpus", gpus, "--policy", policy, "--bound-steps", 0, *words)
    result = RUNNER.invoke(app, [str(word) for word in (*words, "--format", "json")])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, *(lines or [{}, {}])[:2], result.stderr


def refused(table, *words, **more):
    """Return the error's only line for a table."""
    code, *_, said = play(table, *words, **more)
    assert code == 2, said
    assert said.count("\n") == 1, said
    return said


@pytest.fixture
def operators():
    return lambda name: small_file("operators", name)


@pytest.fixture
def reports():
    return lambda name: small_file("reports", name)


SACCT = ("--trace-format", "sacct")


def test_six_jobs_in_strict_order_and_with_backfill(operators):
    *_, row, _ = play(operators("tiny6.csv"))
    assert row["wait_mean_h"] * 3600 == pytest.approx(9575)
    assert row["first_start_mean_h"] * 3600 == pytest.approx(9575)
    assert row["utilisation"] == pytest.approx(0.72917, abs=5e-6)
    assert row["jct_p95_h"] == pytest.approx(4.86458, abs=5e-6)
    assert row["queue"] == "strict"
    *_, row, _ = play(operators("tiny6.csv"), "--option", "backfill=true")
    assert row["wait_mean_h"] == pytest.approx(1.24306, abs=5e-6)
    assert row["queue"] == "backfill"


def test_two_jobs_with_a_restart(operators):
    *_, row, _ = play(operators("srtf2.csv"), gpus="1x1", policy="srtf")
    assert row["jct_mean_h"] == pytest.approx(0.67083, abs=5e-6)


def test_milliseconds_since_1970(operators):
    *_, row, said = play(operators("epoch-ms.csv"))
    assert row["wait_mean_h"] * 3600 == pytest.approx(9575)
    assert "the times in 'submit' are read as milliseconds since 1970" in said


def test_dates_with_and_without_offset(operators):
    said = refused(operators("tz-mixed.csv"))
    assert "row 5 ('2026-03-29T02:00:00') has no offset" in said
    assert "row 2 ('2026-03-29T01:59:30+01:00') has one" in said


def test_columns_that_are_unknown_and_types_and_partitions_that_are_kept(operators, tmp_path):
    code, first, row, said = play(operators("unknowncols.csv"), gpus=operators("topology.json"))
    assert code == 0
    assert "columns that are not read: Priorty (is priority meant?)" in said
    assert "columns that are not read: Priorty (is priority meant?)" in first["notes"]
    assert row["wait_mean_h"] == 0
    one = tmp_path / "one.json"
    one.write_text(json.dumps({"schema": "optim/cluster/1", "machines": [{"gpus": 8, "kind": "a100"}]}))
    assert "GPU type 'v100', but the cluster has a100" in refused(operators("unknowncols.csv"), gpus=one)
    machines = [{"gpus": 8, "kind": kind, "partitions": ["a"]} for kind in ("a100", "v100")]
    one.write_text(json.dumps({"schema": "optim/cluster/1", "machines": machines}))
    assert "partition 'b' with GPU type 'a100'" in refused(operators("unknowncols.csv"), gpus=one)


def test_hours_minutes_and_seconds_and_months_first(operators):
    *_, row, _ = play(operators("hms.csv"))
    assert row["wait_mean_h"] * 3600 == pytest.approx(9575)
    assert "row 2, column 'submit'" in refused(operators("us-date.csv"))
    *_, row, said = play(operators("quoted-crlf.csv"))
    assert row["wait_mean_h"] * 3600 == pytest.approx(9575)
    assert "not read" not in said


@pytest.mark.parametrize(
    ("name", "jobs", "gpu_hours", "left_out"),
    [
        ("sacct-het.txt", 1, 16, {}),
        ("sacct-requeued.txt", 1, 24, {}),
        ("sacct-unknownsub.txt", 1, 8, {"jobs with unknown submission": {"rows": 1, "gpu_hours": 8}}),
    ],
)
def test_small_tables_of_sacct(operators, name, jobs, gpu_hours, left_out):
    code, first, row, _ = play(operators(name), *SACCT, gpus="2x8")
    assert (code, first["jobs"], first["gpu_hours"], first["left_out"]) == (0, jobs, gpu_hours, left_out)
    assert row["gpu_hours"] == pytest.approx(gpu_hours)
    assert row["wait_mean_h"] == 0


def test_attempts_never_run_at_once(operators):
    *_, row, _ = play(operators("sacct-requeued.txt"), *SACCT, gpus="2x8")
    assert row["makespan_h"] == pytest.approx(3)


def test_rows_that_are_no_whole_gpus_of_one_type(operators):
    assert "1 job with MIG slices instead of full GPUs" in refused(operators("sacct-mig.txt"), *SACCT)
    assert "1 job with GPUs of several types" in refused(operators("sacct-twotypes.txt"), *SACCT)
    said = refused(operators("sacct-noheader.txt"), *SACCT)
    assert (
        "the header is missing; print the table with it (without -n): sacct -a -P -S now-30days --format=JobID," in said
    )


def test_a_month_of_sacct_is_read_without_another_command(operators, tmp_path):
    page = tmp_path / "page.html"
    table, topology = operators("sacct-300.txt"), operators("topology.json")
    code, first, row, said = play(table, *SACCT, "--report", page, gpus=topology)
    rows = [line.split("|") for line in table.read_text().splitlines()[1:]]
    whole = [
        row for row in rows if "." not in row[0] and row[10] not in ("RUNNING", "PENDING") and "gres/gpu" in row[9]
    ]
    assert (code, first["jobs"]) == (0, len(whole))
    assert first["left_out"]["jobs still running or pending"]["rows"] == 32
    assert first["left_out"]["job steps (parts of their jobs)"]["rows"] == sum("." in row[0] for row in rows)
    assert first["left_out"]["jobs still running or pending"]["gpu_hours"] == pytest.approx(87, abs=0.5)
    assert first["left_out"]["jobs still running or pending"]["at_least"]
    assert first["recorded"] == {"jobs": 69, "wait_mean_h": pytest.approx(0.433, abs=5e-4)}
    assert first["gpu_hours"] + 87 == pytest.approx(291, abs=0.5)
    assert "warning: at least 87.0 of 291.0 GPU-hours (30%) are left out: jobs still running or pending" in said
    assert first["settings"]["trace_format"] == "sacct"
    text = page.read_text()
    for shown in (
        "Warning: at least 87.0 of 291.0 GPU-hours",
        "32 jobs still running or pending (at least 87.0 GPU-hours), 3 jobs without a GPU",
        "trace_format=sacct",
        "<td>as recorded</td>",
        "h under fifo (taken as the current policy), recorded 1.54 h (+61 %): fifo does not behave like your cluster",
    ):
        assert shown in text
    assert row["unfinished"] == 0


def test_what_the_option_takes_instead_of_parts_of_machines(operators):
    for option in (
        f"yarn-cs.quota_file={operators('quotas-fraction.csv')}",
        f"yarn-cs.quotas={operators('quotas-fraction.csv')}",
    ):
        code, *_, said = play(operators("tiny6.csv"), "--option", option, policy="yarn-cs")
        assert (code, "--option yarn-cs.quotas=4.2:1.8, one for each virtual cluster by name" in said) == (2, True)


def test_sacct_read_as_csv_names_the_format(operators):
    assert "read it with --trace-format sacct" in refused(operators("sacct-300.txt"))


def test_names_with_quotation_marks_and_bars(reports):
    _, first, *_ = play(reports("02-sacct-jobname/quote_last.txt"), *SACCT)
    assert (first["jobs"], first["gpu_hours"]) == (5, 10)
    _, first, row, _ = play(reports("02-sacct-jobname/quote.txt"), *SACCT, gpus="1x2")
    assert (first["jobs"], first["gpu_hours"]) == (5, 10)
    assert row["makespan_h"] == pytest.approx(5)
    assert "more fields than the header" in refused(reports("02-sacct-jobname/pipe.txt"), *SACCT)


def test_four_records_of_one_job(reports):
    _, first, row, said = play(reports("03-sacct-requeue/dup.txt"), *SACCT)
    assert first["jobs"] == 1
    assert first["gpu_hours"] == pytest.approx(18.49, abs=5e-3)
    assert row["gpu_hours"] == pytest.approx(18.49, abs=5e-3)
    assert "attempts of one job" in said


def test_host_memory_that_is_not_stated_does_not_bind(reports):
    *_, row, _ = play(reports("04-sacct-exclusive-mem/c.txt"), *SACCT)
    assert row["jct_mean_h"] == pytest.approx(1)
    code, *_ = play(reports("04-sacct-exclusive-mem/a.txt"), *SACCT)
    assert code == 0
    code, *_ = play(reports("04-sacct-exclusive-mem/a.txt"), *SACCT, gpus=reports("04-sacct-exclusive-mem/t.json"))
    assert code == 0


def test_a_simulators_table_of_tabs(reports, tmp_path):
    rates = {
        "v100": {
            "('Transformer (batch size 128)', 1)": {"null": 10.0},
            "('ResNet-18 (batch size 32)', 4)": {"null": 100.0},
        }
    }
    table = tmp_path / "rates.json"
    table.write_text(json.dumps(rates))
    words = ("--trace-format", "gavel", "--option", f"trace.throughputs={table}")
    code, first, row, _ = play(reports("13-gavel-trace/a.trace"), *words)
    assert (code, first["jobs"]) == (0, 2)
    assert first["gpu_hours"] * 3600 == pytest.approx(95121 / 10 + 4 * 1104675 / 100)
    assert row["makespan_h"] * 3600 == pytest.approx(6 + 1104675 / 100)


def test_jobs_of_sacct_start_on_gpus_of_the_type_that_they_had(operators, tmp_path):
    log, table = tmp_path / "run.npz", operators("sacct-300.txt")
    words = ("--option", "backfill=true", "--log", log)
    code, *_ = play(table, *SACCT, *words, gpus=operators("topology.json"), policy="fifo,srtf,tiresias,drf")
    assert code == 0
    had = {}
    for line in table.read_text().splitlines()[1:]:
        fields = line.split("|")
        had[fields[0]] = [part.partition("=")[0][9:] for part in fields[9].split(",") if part.startswith("gres/gpu:")]
    record = load_run(log)
    kinds = [record.cluster.kinds[kind] for kind in record.cluster.kind]
    for run in record.runs:
        starts = [(job, places) for _, kind, job, places in run.log.rows() if kind == Event.START]
        assert len(starts) >= len(record.jobs)
        for job, places in starts:
            assert {kinds[machine] for machine, _ in places} == set(had[record.jobs.ids[job]])


def test_the_wait_that_a_table_records_stands_beside_the_simulated_one(tmp_path):
    table = tmp_path / "jobs.csv"
    table.write_text("submit,start,gpus,duration\n0,1800,8,3600\n0,5400,8,3600\n0,,8,60\n")
    _, first, row, _ = play(table, "--trace-format", "csv")
    assert first["recorded"] == {"jobs": 2, "wait_mean_h": pytest.approx(1.0)}
    assert row["wait_mean_h"] == pytest.approx(1.0)
    words = ("simulate", "cluster", "--trace", table, "--trace-format", "csv", "--gpus", "1x8", "--policy", "fifo")
    said = RUNNER.invoke(app, [*map(str, words), "--bound-steps", "0", "--details"]).stdout
    assert "recorded: mean wait 1.000 h over the 2 jobs with a recorded start\n" in said
    table.write_text("submit,start,gpus,duration\n0,1800,8,3600\n0,5400,8,3600\n")
    said = RUNNER.invoke(app, [*map(str, words)]).stdout
    left = re.search(
        r"; no schedule lowers the mean completion by more than (\S+) h, or has a mean wait below (\S+) h", said
    )
    assert 0.5 <= float(left[1]) < 0.6  # (1.5 + 2.5) / 2 hours are recorded, (1 + 2) / 2 are least
    assert 0.4 < float(left[2]) <= 0.5  # each job runs for an hour
    table.write_text("submit,start,gpus,duration,max_gpus\n0,1800,4,3600,8\n0,5400,8,3600,8\n")
    said = RUNNER.invoke(app, [*map(str, words)]).stdout
    assert "no schedule lowers the mean completion" in said
    assert "has a mean wait below" not in said
