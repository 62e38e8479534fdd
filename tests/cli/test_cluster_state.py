"""`simulate cluster` from a given state, and its report of jobs and differences."""

import csv
import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.models.cluster.run_file import load_run

RUNNER = CliRunner()
HEADER = "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Timelimit|ReqTRES|AllocTRES|State|Priority|NodeList"


def tres(gpus):
    return f"gres/gpu={gpus}"


def row(name, submit, start, run_s, gpus, state, end="Unknown"):
    granted = "" if state == "PENDING" else tres(gpus)
    return f"{name}|ana|nlp|p|{submit}|{start}|{end}|{run_s}|04:00:00|{tres(gpus)}|{granted}|{state}|1|"


@pytest.fixture
def state(tmp_path):
    """Thirty jobs of an hour that are over, one that runs, and two that wait."""
    over = [
        row(n, f"2026-10-{n:02}T08:00:00", f"2026-10-{n:02}T08:00:00", 3600 + 60 * n, 8, "COMPLETED", f"2026-10-{n:02}T09:00:00")
        for n in range(1, 31)
    ]  # fmt: skip
    now = [
        row(40, "2026-11-02T11:00:00", "2026-11-02T11:30:00", 1800, 8, "RUNNING"),
        row(41, "2026-11-02T11:40:00", "Unknown", 0, 8, "PENDING"),
        row(42, "2026-11-02T11:50:00", "Unknown", 0, 4, "PENDING"),
    ]
    path = tmp_path / "now.txt"
    path.write_text("\n".join([HEADER, *over, *now]) + "\n")
    return path


def run(*words):
    return RUNNER.invoke(app, [str(word) for word in ("simulate", "cluster", *words)])


def test_a_forecast_is_printed_written_and_drawn(state, tmp_path):
    table, page = tmp_path / "starts.csv", tmp_path / "page.html"
    words = (
        "--state",
        state,
        "--gpus",
        "1x8",
        "--policy",
        "easy",
        "--forecast",
        30,
        "--option",
        "forecast.arrival_days=0",
    )
    result = run(*words, "--jobs-csv", table, "--report", page, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["job"] for each in rows] == ["41", "42"]
    # Job 40 has run for half an hour, and jobs of this user run for 61 to 90 minutes: it ends at 12:31 to 13:00.
    assert (
        "2026-11-02T12:30:59"
        <= rows[0]["start_10"]
        <= rows[0]["start_50"]
        <= rows[0]["start_90"]
        <= "2026-11-02T13:00:01"
    )
    assert rows[1]["start_10"] >= "2026-11-02T13:31"
    with table.open() as file:
        assert [each["start_50"] for each in csv.DictReader(file)] == [each["start_50"] for each in rows]
    assert "Starts of pending jobs: easy" in page.read_text()
    assert "state at 2026-11-02T12:00:00 UTC: 1 running job, 2 pending" in result.stderr
    # No job waited in that month.
    assert "easy: ranges are not calibrated: the history has 0 moments comparable to now" in result.stderr


def test_ranges_are_calibrated_on_a_past_in_which_jobs_waited(tmp_path):
    """Two jobs of two hours per day; the second waits for the first."""
    over = [
        row(10 * n + m, f"2026-10-{n:02}T08:0{m}:00", f"2026-10-{n:02}T{8 + 2 * m:02}:00:00", 7200, 8, "COMPLETED", f"2026-10-{n:02}T{10 + 2 * m}:00:00")
        for n in range(1, 31)
        for m in (0, 1)
    ]  # fmt: skip
    now = [
        row(400, "2026-11-02T11:00:00", "2026-11-02T11:30:00", 1800, 8, "RUNNING"),
        row(401, "2026-11-02T11:40:00", "Unknown", 0, 8, "PENDING"),
    ]
    path, page = tmp_path / "now.txt", tmp_path / "page.html"
    path.write_text("\n".join([HEADER, *over, *now]) + "\n")
    words = ("--state", path, "--gpus", "1x8", "--policy", "easy", "--forecast", 20)
    result = run(*words, "--option", "forecast.arrival_days=0", "--report", page)
    assert result.exit_code == 0, result.output
    # All jobs run for two hours, so every range is exact and none is stretched.
    assert "easy: ranges are calibrated: at 12 past times, drawn ranges contained 100% of the starts" in result.stderr
    assert "ranges are calibrated" in page.read_text()
    assert "2026-11-02T13:30:00" in result.stdout


def test_a_run_begins_in_the_state_and_its_log_is_verified(state, tmp_path):
    log = tmp_path / "run.npz"
    result = run("--state", state, "--gpus", "1x8", "--policy", "fifo", "--log", log)
    assert result.exit_code == 0, result.output
    assert load_run(log).runs[0].log.rows()[0] == (30 * 60 * 10**6, 0, 0, ((0, 8),))
    assert RUNNER.invoke(app, ["verify", str(log)]).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--generate", "philly", "--jobs", "5", "--forecast", "9"), "--forecast requires --state FILE"),
        (("--state", "STATE", "--gpus", "1x4"), "running jobs have 8 GPUs, but the cluster has 4"),
        (("--state", "STATE", "--gpus", "1x8", "--option", "state.then=1"), "unknown option state.then"),
        (("--state", "STATE", "--gpus", "1x8", "--generate", "philly"), "--generate and --state exclude each other"),
        (("--state", "STATE", "--gpus", "1x8", "--option", "forecast.arrival_days=99"), "arrival_days must be in"),
        (
            ("--generate", "philly", "--jobs", "5", "--compare", "las"),
            "--compare las must be a simulated policy: fifo, srtf; add it to --policy",
        ),
    ],
)
def test_what_does_not_go_is_one_line(state, words, said):
    result = run(*(str(state) if word == "STATE" else word for word in words), "--policy", "fifo,srtf")
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stderr.rstrip().count("\n") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--log", "run.npz"),
        ("--results", "rows.jsonl"),
        ("--study",),
        ("--lost-by", "user"),
        ("--waits",),
        ("--compare", "easy"),
        ("--write-config", "slurm"),
        ("--what-if", "slurm.conf"),
    ],
)
def test_a_forecast_refuses_what_it_would_leave_out(state, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    result = run("--state", state, "--gpus", "1x8", "--policy", "easy", "--forecast", 5, *words)
    assert result.exit_code == 2
    assert f"omit {words[0]}" in result.stderr


@pytest.fixture
def without_requests(state):
    """The state without ReqTRES: pending jobs have no GPUs, because nothing is granted yet."""
    lines = [line.split("|") for line in state.read_text().splitlines()]
    at = lines[0].index("ReqTRES")
    state.write_text("\n".join("|".join(line[:at] + line[at + 1 :]) for line in lines) + "\n")
    return state


@pytest.mark.parametrize("words", [(), ("--forecast", 5)])
def test_a_state_without_the_gpus_of_any_pending_job_is_one_line(without_requests, words):
    result = run("--state", without_requests, "--gpus", "1x8", "--policy", "easy", *words)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.endswith("no pending job states its GPUs; print the column ReqTRES (sacct --format)")


def test_pending_jobs_whose_gpus_are_unknown_are_counted_as_pending(without_requests):
    """A requeued job has the GPUs that it was granted before."""
    text = without_requests.read_text()
    pending = next(line for line in text.splitlines() if "PENDING" in line)
    at = text.splitlines()[0].split("|").index("AllocTRES")
    cells = pending.split("|")
    requeued = "|".join([*cells[:at], "gres/gpu=8", *cells[at + 1 :]])
    without_requests.write_text(text.replace(pending, requeued))
    said = run("--state", without_requests, "--gpus", "1x8", "--policy", "easy").stderr
    assert "1 running job, 2 pending, 1 of them left out: their GPUs are unknown (print ReqTRES)" in said
    assert "left out: 1 pending job with unknown GPUs (print the column ReqTRES); seed 0" in said
    assert "without a GPU" not in said


def test_the_gpu_hours_of_a_forecast_are_those_of_the_time_limits(state):
    words = ("--state", state, "--gpus", "1x8", "--policy", "easy")
    assert "3 jobs, 80 GPU-hours, by time limits, on 8 GPUs" in run(*words, "--forecast", 5).stderr
    assert "by time limits" not in run(*words).stderr


@pytest.fixture
def recorded(tmp_path):
    """Two jobs on one machine, of which the second waited an hour longer than it had to."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "submit,start,duration,gpus,user,id\n"
        "2026-03-02 08:00,2026-03-02 08:00,7200,8,ana,a\n2026-03-02 09:00,2026-03-02 11:00,3600,8,ben,b\n"
    )
    return path


def test_the_recorded_schedule_is_a_row_and_its_distance_comes_first(recorded):
    result = run("--trace", recorded, "--gpus", "1x8", "--policy", "fifo", "--bound-steps", 0)
    # Recorded: 2 h and 3 h; simulated: 2 h and 2 h.
    first = result.stdout.splitlines()[0]
    assert (
        "simulated 2 h under fifo (taken as the current policy), recorded 2.5 h (-20 %): fifo does not behave like your cluster: check --gpus (number and types of GPUs), "
        "and put the policy closest to yours first (easy for sched/backfill)" in first
    )
    easy = run("--trace", recorded, "--gpus", "1x8", "--policy", "easy", "--bound-steps", 0).stdout.splitlines()[0]
    assert "easy does not behave like your cluster: check --gpus" in easy
    assert "then the policy and its options, before you trust a what-if" in easy
    assert "as recorded" in result.stdout
    lines = [
        json.loads(line)
        for line in run(
            "--trace", recorded, "--gpus", "1x8", "--policy", "fifo", "--format", "json"
        ).stdout.splitlines()
    ]
    assert lines[-1]["recorded_row"] == {
        "policy": "as recorded", "jct_mean_h": 2.5, "jct_p95_h": 2.95, "wait_mean_h": 1.0, "slowdown_max": 3.0, "makespan_h": 4.0,
    }  # fmt: skip


def test_a_recording_that_the_policy_reproduces_agrees(recorded):
    recorded.write_text(recorded.read_text().replace("2026-03-02 11:00", "2026-03-02 10:00"))
    result = run("--trace", recorded, "--gpus", "1x8", "--policy", "fifo", "--bound-steps", 0)
    assert result.stdout.splitlines()[0].endswith("recorded 2 h (+0 %): they agree")
    assert "below the lower bound" not in result.stdout


@pytest.mark.filterwarnings("ignore:AutoDateLocator was unable")  # the axis of a run of three hours
@pytest.mark.parametrize(
    ("second", "used"),
    [("2026-03-02 09:00", "up to 16 GPUs at once"), ("2026-03-02 10:00", None)],
)
def test_a_recording_below_the_lower_bound_is_named(recorded, second, used):
    """The second job of eight GPUs started while the first held all eight."""
    recorded.write_text(recorded.read_text().replace("2026-03-02 11:00", second))
    words = ("--trace", recorded, "--gpus", "1x8", "--policy", "fifo")
    said = f"the recorded mean, 1.5 h, is below the lower bound for 8 GPUs: the recording used {used}; correct --gpus first"
    page = recorded.with_name("page.html")
    assert (f"warning: {said}" in run(*words, "--report", page).stdout) == (used is not None)
    assert (f"Warning: {said}" in page.read_text()) == (used is not None)
    last = json.loads(run(*words, "--format", "json").stdout.splitlines()[-1])
    assert last["recorded_remark"] == (said if used else "")


def test_jobs_and_waits_are_told(recorded, tmp_path):
    table = tmp_path / "jobs.csv.out"
    result = run(
        "--trace",
        recorded,
        "--gpus",
        "1x8",
        "--policy",
        "fifo,srtf",
        "--waits",
        "--jobs-csv",
        table,
        "--compare",
        "fifo",
    )
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [(each["policy"], each["id"]) for each in rows] == [
        ("fifo", "a"),
        ("fifo", "b"),
        ("srtf", "a"),
        ("srtf", "b"),
    ]
    second = rows[1]
    assert (second["submit"], second["start"], second["end"]) == (
        "2026-03-02T09:00:00", "2026-03-02T10:00:00", "2026-03-02T11:00:00",
    )  # fmt: skip
    assert (second["wait_h"], second["wait_full_h"], second["preemptions"], second["machines"]) == (
        "1.0",
        "1.0",
        "0",
        "0:8",
    )
    assert "fifo: waits by user, hours" in result.stdout
    assert "srtf instead of fifo: +0 h, 1 week: no interval" in result.stdout


def test_policies_are_listed_with_options_units_and_what_they_see():
    result = run("--list")
    assert "las.quantum_s=300 s: Seconds between the ticks" in result.stdout
    lines = [json.loads(line) for line in run("--list", "--format", "json").stdout.splitlines()]
    sees = {line["policy"]: line["sees"] for line in lines}
    assert sees["fifo"] == "nothing"
    assert "run times" in sees["srtf"]


def test_a_log_is_a_frame_with_names_of_jobs(recorded, tmp_path):
    log = tmp_path / "run.npz"
    run("--trace", recorded, "--gpus", "1x8", "--policy", "fifo", "--bound-steps", 0, "--log", log)
    frame = load_run(log).to_frame()
    assert frame[["kind", "job", "machine", "gpus"]].to_numpy().tolist() == [
        ["START", "a", 0, 8], ["END", "a", -1, 0], ["START", "b", 0, 8], ["END", "b", -1, 0],
    ]  # fmt: skip
    assert str(frame["date"][2]) == "2026-03-02 10:00:00"
