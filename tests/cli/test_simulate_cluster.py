"""`optim simulate cluster` and the replay of its logs."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from optim.cli import simulate_cluster
from optim.cli.main import app
from optim.models.cluster.run_file import load_run, save_run
from optim.report import cluster

RUNNER = CliRunner()
ROWS = "submit,gpus,duration,id\n0,2,2000,a\n0,1,8000,b\n0,2,6000,c\n"


@pytest.fixture
def trace(tmp_path):
    """A table of three jobs."""
    path = tmp_path / "mine.csv"
    path.write_text(ROWS)
    return path


def run(*words):
    """Return the output of a command run in this process."""
    return RUNNER.invoke(app, [str(word) for word in words])


def test_a_row_a_policy_and_a_log_that_verifies(trace, tmp_path):
    log = tmp_path / "run.npz"
    words = (
        "simulate",
        "cluster",
        "--trace",
        trace,
        "--gpus",
        "1x2",
        "--policy",
        "srsf,fifo",
        "--option",
        "overhead_s=0",
    )
    result = run(*words, "--log", log, "--format", "json")
    assert result.exit_code == 0, result.output
    bounds, srsf, fifo = (json.loads(line) for line in result.stdout.splitlines())
    assert srsf["jct_mean_h"] == pytest.approx(28000 / 3 / 3600)
    assert (srsf["policy"], fifo["policy"]) == ("srsf", "fifo")
    assert bounds["bounds"]["jct_mean_h"] <= srsf["jct_mean_h"]
    assert srsf["ratio_to_bound"] == pytest.approx(srsf["jct_mean_h"] / bounds["bounds"]["jct_mean_h"])
    verified = run("verify", log)
    assert verified.exit_code == 0
    assert verified.stdout.count("yes") == 3


def test_the_table_marks_who_stopped_jobs_and_says_what_that_costs(trace):
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "fifo,las")
    said = run(*words).stdout
    marked = {line.split()[0] for line in said.splitlines() if " * " in line}
    assert marked == {"las"}
    assert "each keeps all its work; restart overhead 30 s (--option overhead_s, preempted)" in said
    assert "preempted=checkpoint: a stopped job loses" in run(*words, "--details").stdout
    assert "*" not in run(*words[:-1], "fifo").stdout


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ("preempted=restart",),
            "each loses all its work; restart overhead 30 s",
        ),
        (
            ("preempted=checkpoint", "checkpoint_min=5", "overhead_s=60"),
            "each loses its work since its last checkpoint (checkpoint_min=5); restart overhead 60 s",
        ),
    ],
)
def test_the_table_says_what_stops_cost_by_the_options(tmp_path, settings, said):
    trace = tmp_path / "jobs.csv"
    trace.write_text("id,submit,gpus,duration\na,0,2,3600\nb,60,2,600\n")
    options = [word for each in settings for word in ("--option", each)]
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "srtf")
    told = run(*words, *options).stdout
    assert said in told
    assert "keeps all its work" not in told


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--compare", "fifo"), r"las \* instead of fifo: "),
        (("--waits",), r"las \*: waits by gang, hours"),
        (("--gpus", "1x2,2x2"), r"1x2 +las \(backfill\) \* "),
        (("--report", "{}/page.html"), ""),
    ],
)
def test_every_table_marks_who_stopped_jobs(trace, tmp_path, more, line):
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "fifo,las")
    result = run(*words, *(each.format(tmp_path) for each in more))
    assert result.exit_code == 0, result.output
    assert re.search(line, result.stdout)
    assert "* stops running jobs: each keeps all its work" in result.stdout
    if not line:
        page = (tmp_path / "page.html").read_text()
        assert "las *</td>" in page
        assert "fifo *" not in page
        assert "* stops running jobs, which requires checkpoints" in page


def test_the_table_shows_the_bounds_first(trace):
    result = run("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "fifo")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.strip().startswith("lower bound") for line in lines)


@pytest.fixture
def log(trace, tmp_path):
    """The log of two policies, under a name of any form."""
    path = tmp_path / "run"
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "srsf,fifo", "--log", path)
    assert run(*words).exit_code == 0
    return path


def test_a_log_of_any_name_is_verified(log, tmp_path):
    verified = run("verify", log)
    assert verified.exit_code == 0, verified.stderr
    assert verified.stdout.count("yes") == 3
    for name, cause in (
        (
            "nothing",
            "or a run that 'optim simulate cluster --log' wrote; nothing is not a file",
        ),
        ("tiny-0", "expected [PROBLEM] INSTANCE SOLUTION, or a run"),
        ("nothing.npz", "can't be read"),
        (tmp_path / "mine.csv", "write one with --log FILE; to verify a solution, give INSTANCE SOLUTION"),
    ):
        refused = run("verify", name)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert cause in refused.stderr
    assert "got 4 arguments" in run("verify", "admission", "a", "b", log).stderr


def test_every_violation_of_a_run_is_counted_and_shown(log):
    record = load_run(log)
    told = [replace(run, metrics=replace(run.metrics, jct_mean_h=9.0, makespan_h=9.0)) for run in record.runs]
    save_run(replace(record, runs=tuple(told)), log)
    refused = run("verify", log)
    assert refused.exit_code == 3
    assert "4 violations, first: metrics [srsf]: jct_mean_h is" in refused.stderr
    lines = refused.stdout.splitlines()
    assert sum(line.split() == ["row", "amount", "violation"] for line in lines) == 1
    assert next(line.split()[:2] for line in lines if " yes " in line or " no " in line) == ["bounds", "yes"]
    for policy in ("srsf", "fifo"):
        for name in ("jct_mean_h", "makespan_h"):
            assert sum(f"metrics [{policy}]" in line and f"{name} is" in line for line in lines) == 1
    rows = [json.loads(line) for line in run("verify", log, "--format", "json").stdout.splitlines()]
    assert [len(row["violations"]) for row in rows] == [0, 2, 2]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--gpus", "0x8"), "1 to"),
        (("--policy", "nonsense"), "there are: allox"),
        (("--trace-format", "nonsense"), "one of philly"),
        (("--gpus", "1x1"), "oversized=drop"),
        (("--option", "oversized=maybe"), "one of refuse, drop"),
        (("--option", "failures=maybe"), "one of none, study"),
        (("--option", "trace.nonsense=1"), "unknown option 'nonsense'"),
        (("--option", "generate.jobs=1"), "requires --generate"),
        (("--generate", "themis"), "either --trace FILE or --generate"),
        (("--apps", "3"), "requires --generate themis"),
        (("--from", "2017-10-03"), "the trace has no dates"),
        (("--gpus", "60x"), "60x8"),
        (("--option", "study.nonsense=1"), "the only one is study.clusters"),
        (("--option", "study.clusters=a.csv"), "requires --study; add it"),
        (("--study", "--option", "study.clusters=absent.csv"), "absent.csv is not a file"),
    ],
)
def test_wrong_use_is_one_line(trace, words, cause):
    result = run("simulate", "cluster", "--trace", trace, "--policy", "fifo", *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert cause in result.stderr
    assert len(result.stderr.splitlines()) == 1


MINE = """
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy

class MyPolicy(PlanningPolicy):
    def plan(self, view):
        gpus, room = dict(view.running), view.room()
        for job in view.waiting.tolist():
            gpus[job] = room.place(job) or ()
        return Plan(gpus={job: taken for job, taken in gpus.items() if taken})

class Bad(PlanningPolicy):
    def plan(self, view):
        return Plan(gpus={job: (0, 0) for job in view.jobs.tolist()})

class Lazy(PlanningPolicy):
    def plan(self, view):
        waiting = [job for job in view.waiting.tolist() if job == 1]
        return Plan(gpus=dict(view.running) | {job: view.room().find(job) for job in waiting})
"""


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("MyPolicy", 0, ""),
        ("Bad", 2, "'Bad' at event 0 (0 us): job a gets a GPU twice"),
        ("Lazy", 1, "Lazy left jobs unfinished"),
    ],
)
def test_a_policy_of_ones_own_is_played_and_replayed(trace, tmp_path, name, code, said):
    mine, log = tmp_path / "mine.py", tmp_path / "run.npz"
    mine.write_text(MINE)
    result = run("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", f"{mine}:{name}", "--log", log)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    if code == 0:
        verified = run("verify", log)
        assert verified.exit_code == 0
        assert verified.stdout.count("yes") == 2


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--generate", "nonsense"), "philly or themis"),
        (("--generate", "themis", "--jobs", "3"), "--trace or --generate philly"),
        (("--generate", "themis", "--trace-format", "csv"), "requires --trace"),
        (("--generate", "themis", "--option", "generate.gap_min=-1"), "gap_min"),
        (("--generate", "philly", "--from", "7"), "requires --trace"),
        (("--generate", "themis", "--option", "oversized=drop"), "--option oversized requires --trace or --generate"),
        (("--generate", "themis", "--option", "failures=study"), "--option failures requires --trace or --generate"),
        ((), "either --trace FILE or --generate"),
    ],
)
def test_wrong_ways_to_draw_jobs_are_one_line(words, cause):
    result = run("simulate", "cluster", "--policy", "fifo", *words)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert cause in result.stderr


@pytest.mark.parametrize(
    "words", [("philly", "--jobs", "30"), ("themis", "--apps", "2", "--option", "generate.gang=1")]
)
def test_drawn_jobs_are_played(words):
    first, again = (
        run(
            "simulate",
            "cluster",
            "--generate",
            *words,
            "--gpus",
            "8x8",
            "--policy",
            "fifo",
            "--format",
            "json",
            "--seed",
            5,
        )
        for _ in range(2)
    )
    assert first.exit_code == 0, first.output
    assert first.stdout == again.stdout
    assert json.loads(first.stdout.splitlines()[1])["seed"] == 5


def test_a_topology_file_is_the_cluster(trace, tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"schema": "optim/cluster/1", "machines": [{"gpus": 2, "count": 3}]}))
    result = run("simulate", "cluster", "--trace", trace, "--gpus", path, "--policy", "fifo")
    assert result.exit_code == 0, result.output
    assert "3 jobs on 6 GPUs" in result.stdout


def test_what_a_user_of_the_trace_should_know_is_said(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("submit,gpus,duration\n9,1,1\n0,1,1\n0,1,2\n0,9,1\n0,1,0\n")
    words = (
        "--trace",
        path,
        "--gpus",
        "1x8",
        "--policy",
        "fifo",
        "--option",
        "oversized=drop",
        "--option",
        "failures=study",
    )
    result = run("simulate", "cluster", *words)
    assert result.exit_code == 0, result.output
    said = result.stderr
    for line in ("3 jobs", "left out: 1 job without run time, 1 job larger than the cluster", "were sorted",
                 "at the same time as another", "drawn from tables 6 and 7"):  # fmt: skip
        assert line in said


def test_finished_rows_are_kept_and_the_same_command_goes_on(trace, tmp_path):
    def words(policies, *more):
        return (
            "simulate",
            "cluster",
            "--trace",
            trace,
            "--gpus",
            "1x2",
            "--policy",
            policies,
            "--format",
            "json",
            *more,
        )

    results, log = tmp_path / "rows.jsonl", tmp_path / "run.npz"
    first = run(*words("srsf", "--results", results, "--log", log))
    assert first.exit_code == 0, first.output
    second = run(*words("srsf,fifo", "--results", results, "--log", log))
    assert "1 rows were reused from earlier runs" in second.stderr
    assert second.stdout.splitlines()[:2] == first.stdout.splitlines()
    assert run("verify", log).stdout.count("yes") == 3
    assert len(results.read_text().splitlines()) == 2
    other = run(*words("srsf,fifo", "--results", results, "--seed", "1"))
    assert "reused from earlier" not in other.stderr
    without_events = run(*words("srsf,fifo", "--results", results))
    assert "2 rows were reused" in without_events.stderr
    assert without_events.stdout == second.stdout
    before = results.read_text()
    renamed = run(*words("srsf,fifo", "--results", results, "--log", tmp_path / "other.npz"))
    assert "2 stored rows were simulated again, because --log" in renamed.stderr
    assert "needs events and no log contains them" in renamed.stderr
    assert renamed.stdout == second.stdout
    assert "holds events of" not in second.stderr + without_events.stderr + renamed.stderr
    fewer = run(*words("fifo", "--results", results, "--log", log))
    assert f"{log} also contains events of srsf, which this command removes" in fewer.stderr
    assert results.read_text() == before
    results.write_text("nonsense\n")
    assert run(*words("srsf", "--results", results)).exit_code == 2


@pytest.mark.prove
def test_the_answer_is_the_same_in_two_processes(trace, tmp_path):
    logs = []
    for processes in (1, 2):
        logs.append(tmp_path / f"{processes}.npz")
        result = run("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "srsf,las,random", "--processes",
                     processes, "--log", logs[-1], "--format", "json")  # fmt: skip
        assert result.exit_code == 0, result.output
    one, two = (load_run(log) for log in logs)
    assert [run.policy for run in one.runs] == [run.policy for run in two.runs] == ["srsf", "las", "random"]
    assert [run.log.rows() for run in one.runs] == [run.log.rows() for run in two.runs]
    assert [run.metrics for run in one.runs] == [run.metrics for run in two.runs]


def test_the_study_is_printed_and_a_page_written(trace, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    monkeypatch.setattr(cluster, "cluster_figures", lambda record: [])
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "fifo", "--study")
    result = run(*words, "--report", page)
    assert result.exit_code == 0, result.output
    assert "fifo: Waiting by gang and cause (table 2)" in result.stdout
    assert "not in this trace" in result.stdout
    assert "The Philly study under fifo" in page.read_text()
    tables = [json.loads(line) for line in run(*words, "--format", "json").stdout.splitlines()[2:]]
    assert [table["study"] for table in tables][:2] == ["waiting-by-gang", "waiting-by-virtual-cluster"]
    assert tables[0]["rows"][0][0] == "1 GPU"


@pytest.mark.prove
def test_events_are_the_same_in_two_runs_and_under_two_hash_seeds(tmp_path):
    logs = []
    for number, hash_seed in enumerate(("0", "0", "7")):
        logs.append(tmp_path / f"{number}.npz")
        words = ("simulate", "cluster", "--generate", "philly", "--jobs", "300", "--gpus", "6x8", "--policy",
                 "fifo,las,tiresias-gittins,random,drf,yarn-cs,tetris", "--option", "oversized=drop",
                 "--bound-steps", "2", "--log", logs[-1])  # fmt: skip
        command = [sys.executable, "-m", "optim.cli", *map(str, words)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True)
    first, *others = (load_run(log) for log in logs)
    for other in others:
        assert [run.log.rows() for run in first.runs] == [run.log.rows() for run in other.runs]
        assert [run.metrics for run in first.runs] == [run.metrics for run in other.runs]
        assert first.bounds == other.bounds


def test_a_job_that_no_machine_has_vcpus_for_is_one_line_before_anything_is_printed(tmp_path):
    path = tmp_path / "hungry.csv"
    path.write_text("submit,gpus,duration,cpus\n0,2,10,40\n")
    small = tmp_path / "small.json"
    small.write_text('{"schema": "optim/cluster/1", "machines": [{"count": 2, "gpus": 2, "cpus": 16}]}')
    assert run("simulate", "cluster", "--trace", path, "--gpus", "2x2", "--policy", "fifo").exit_code == 0
    result = run("simulate", "cluster", "--trace", path, "--gpus", small, "--policy", "fifo", "--format", "json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "needs 2 GPUs with 20 vCPU" in result.stderr


def test_the_table_fits_a_hundred_signs_and_leaves_nothing_out(trace):
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "fifo,srtf")
    brief, result = run(*words).stdout.splitlines(), run(*words, "--details")
    lines = result.stdout.splitlines()
    assert lines[0] == brief[0] == "3 jobs on 2 GPUs"
    assert max(map(len, brief)) <= 100
    assert any("more columns (" in line and "to rho_static_max)" in line for line in brief)
    assert "more columns" not in result.stdout
    assert len(brief) <= 25
    assert max(map(len, lines)) <= 100
    for shown in ("lower bound", "fifo (strict)", "srtf (backfill)"):
        assert sum(line.strip().startswith(shown) for line in lines) == result.stdout.count("lower bound")
    heads = re.findall(r"[a-z_0-9]+", " ".join(line for line in lines[1:] if "no schedule" not in line))
    for name in simulate_cluster.SHOWN:
        assert any(name.startswith(word) for word in heads), name


def test_a_policy_named_twice_is_refused(trace):
    for words in (("--policy", "fifo,srtf,fifo"), ("--policy", "fifo", "--policy", "fifo")):
        result = run("simulate", "cluster", "--trace", trace, "--gpus", "1x2", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "'fifo' is given twice; give it once" in result.stderr


def test_an_option_without_a_policy_is_that_of_all_that_have_it(trace):
    words = ("simulate", "cluster", "--trace", trace, "--gpus", "2", "--policy", "fifo,random,las", "--format", "json")
    both = run(*words, "--option", "backfill=true", "--option", "random.backfill=false")
    assert [json.loads(line).get("queue") for line in both.stdout.splitlines()[1:]] == [
        "backfill",
        "strict",
        "backfill",
    ]
    unknown = run(*words, "--option", "round_s=5")
    assert unknown.exit_code == 2
    assert "`optim solvers cluster` lists them" in unknown.stderr


def test_the_log_knows_the_names_of_the_jobs(tmp_path):
    path, log = tmp_path / "named.csv", tmp_path / "run.npz"
    path.write_text("submit,gpus,duration,id\n5,1,10,b\n0,1,10,a\n")
    words = ("simulate", "cluster", "--trace", path, "--gpus", "1x1", "--policy", "fifo", "--log", log)
    assert run(*words).exit_code == 0
    record = load_run(log)
    assert record.jobs.ids == ("a", "b")
    assert (record.settings["trace"], record.settings["gpus"]) == (str(path), "1x1")
    assert run("verify", log).exit_code == 0


def test_the_limit_of_price_bounds_is_a_detail(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration\n0,1,10\n0,1,20\n")
    words = ("simulate", "cluster", "--trace", path, "--gpus", "1x1", "--policy", "fifo")
    assert "price bounds" not in run(*words).stdout
    assert "limit of price bounds" in run(*words, "--details").stdout


@pytest.mark.prove
def test_what_is_left_out_stands_in_the_answer_the_page_and_the_first_screen(tmp_path):
    path, page = tmp_path / "sacct.txt", tmp_path / "page.html"
    head = "JobID|Partition|Submit|ElapsedRaw|AllocTRES|State"
    rows = ["1|g|2025-03-01T00:00:00|36000|gres/gpu=1|COMPLETED", "2|g|2025-03-01T00:00:00|36000|gres/gpu=1|RUNNING"]
    path.write_text("\n".join([head, *rows]) + "\n")
    words = ("simulate", "cluster", "--trace", path, "--trace-format", "sacct", "--gpus", "1x8", "--policy", "fifo")
    warning = (
        "at least 10.0 of 20.0 GPU-hours (50%) are left out: jobs still running or pending; the cluster was fuller"
    )
    table = run(*words, "--report", page)
    assert table.stdout.startswith(f"warning: {warning}")
    assert "warning" not in table.stderr
    first = json.loads(run(*words, "--format", "json").stdout.splitlines()[0])
    assert first["left_out"] == {"jobs still running or pending": {"rows": 1, "gpu_hours": 10.0, "at_least": True}}
    assert first["notes"][0].startswith(f"warning: {warning}")
    assert f"Warning: {warning}" in page.read_text()
    path.write_text("\n".join([head, rows[0].replace("36000", "3600000"), rows[1]]) + "\n")
    assert "warning" not in run(*words).stdout


@pytest.mark.prove
def test_turns_that_reach_no_checkpoint_are_told_before_they_are_played(trace):
    """A quantum of 5 minutes with a restart of 30 s: a message for checkpoints every 30 or 5 minutes, none for 4.5 or without."""
    words = ["simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--bound-steps", "0"]
    lost = [*words, "--option", "preempted=checkpoint", "--policy", "fifo,las"]
    said = "las gives turns of 5 min, too short to reach the next checkpoint (one every 30 min, after 30 s of restart)"
    assert said in run(*lost).stderr
    assert "set checkpoint_min=4.5 or less" in run(*lost, "--option", "checkpoint_min=5").stderr
    assert "fifo gives turns" not in run(*lost).stderr
    assert "gives turns" not in run(*lost, "--option", "checkpoint_min=4.5").stderr
    assert "gives turns" not in run(*lost, "--option", "checkpoint_min=5", "--option", "overhead_s=0").stderr
    assert "gives turns" not in run(*words, "--policy", "las").stderr


@pytest.mark.parametrize("name", ["partition", "vc", "group", "virtual_cluster"])
def test_a_virtual_cluster_is_chosen_by_any_of_its_names(tmp_path, name):
    table = tmp_path / "jobs.csv"
    table.write_text("submit,duration,gpus,partition\n0,3600,1,a\n0,7200,2,b\n")
    words = ["simulate", "cluster", "--trace", table, "--gpus", "1x2", "--policy", "fifo", "--format", "json"]
    result = run(*words, "--option", f"trace.{name}=a")
    first = json.loads(result.stdout.splitlines()[0])
    assert (first["jobs"], first["left_out"]) == (1, {"jobs in other virtual clusters": {"rows": 1, "gpu_hours": 4.0}})
    assert "warning" not in result.stderr
    wrong = run(*words, "--option", "trace.partitoin=a")
    assert wrong.exit_code == 2
    assert "unknown option 'partitoin'; there are: gpu_type," in wrong.stderr


def test_a_virtual_cluster_is_chosen_by_one_name_only(trace):
    given = ("--option", "trace.vc=a", "--option", "trace.partition=a")
    result = run("simulate", "cluster", "--trace", trace, "--gpus", "1x2", *given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "trace.partition and trace.vc mean the same" in result.stderr
        or "trace.vc and trace.partition mean the same" in result.stderr
    )


def test_orders_that_differ_in_who_may_pass_are_said_to(trace):
    words = ["simulate", "cluster", "--trace", trace, "--gpus", "1x2"]
    said = "only with --option backfill=true"
    assert said in run(*words, "--policy", "fifo,srtf").stdout
    assert said not in run(*words, "--policy", "fifo,srtf", "--option", "backfill=true").stdout


@pytest.mark.parametrize("name", ["gpu", "gpu_count", "num_gpus", "n_gpu"])
def test_a_column_that_is_nearly_the_one_that_is_missing_is_named(tmp_path, name):
    table = tmp_path / "jobs.csv"
    table.write_text(f"submit,duration,{name}\n0,3600,1\n")
    result = run("simulate", "cluster", "--trace", table, "--gpus", "1x2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        f"column 'gpus' is missing (there are: submit, duration, {name}); is '{name}' meant? rename it" in result.stderr
    )


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ("gres/gpu:1g.5gb=2", "1 job with MIG slices"),
        ("gres/gpu:a100=1,gres/gpu:v100=1", "1 job with GPUs of several types"),
    ],
)
def test_where_nothing_can_be_played_no_remedy_is_offered(tmp_path, resources, said):
    table = tmp_path / "jobs.txt"
    head = "JobID|User|Partition|Submit|ElapsedRaw|AllocTRES|State"
    table.write_text(f"{head}\n1|u|p|2024-01-01T00:00:00|60|{resources}|COMPLETED\n")
    result = run("simulate", "cluster", "--trace", table, "--trace-format", "sacct", "--gpus", "1x2")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "only finished jobs of full GPUs of one type can be simulated" in result.stderr
    assert "larger cluster" not in result.stderr


def test_lost_work_every_policy_and_the_makespans_ratio(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("id,submit,gpus,duration,vc\na,0,8,7200,x\nb,600,8,900,y\nc,2400,8,600,y\nd,2500,8,60,x\n")
    words = ("--trace", path, "--gpus", "1x8", "--policy", "srtf", "--option", "preempted=restart")
    result = RUNNER.invoke(app, ["simulate", "cluster", *map(str, words), "--lost-by", "vc", "--format", "json"])
    assert result.exit_code == 0, result.output
    bounds, row, *lost = map(json.loads, result.stdout.splitlines())
    assert row["makespan_ratio_to_bound"] == pytest.approx(row["makespan_h"] / bounds["bounds"]["makespan_h"])
    assert row["rho_static_max"] == pytest.approx(row["slowdown_max"])  # 4 jobs, 8 GPUs
    assert {each["name"]: each["lost_gpu_hours"] for each in lost} == {
        "x": pytest.approx(8 * (600 + 870) / 3600),
        "y": pytest.approx(8 * 100 / 3600),
    }
    table = RUNNER.invoke(app, ["simulate", "cluster", *map(str, words), "--lost-by", "gang"])
    assert "srtf: lost work by gang" in table.stdout
    for more, message in ((("--lost-by", "colour"), "unknown column of --lost-by"), (("--every-policy",), "exclude")):
        wrong = RUNNER.invoke(app, ["simulate", "cluster", *map(str, words), *more])
        assert wrong.exit_code == 2
        assert message in wrong.stderr


def test_every_policy_leaves_out_those_that_cannot_play(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("id,submit,gpus,duration\na,0,1,60\nb,10,1,60\n")
    result = RUNNER.invoke(
        app, ["simulate", "cluster", "--trace", str(path), "--gpus", "1x1", "--every-policy", "--format", "json"]
    )
    assert result.exit_code == 0, result.output
    names = [json.loads(line)["policy"] for line in result.stdout.splitlines()[1:]]
    assert {"fifo", "srtf", "drf", "max-min"} <= set(names)
    assert "slaq" not in names
    assert "slaq is skipped" in result.stderr


def test_machines_leave_by_plan_and_the_log_verifies(tmp_path):
    jobs, plan, log = tmp_path / "jobs.csv", tmp_path / "outages.csv", tmp_path / "run.npz"
    jobs.write_text("id,submit,gpus,duration,estimate\na,0,1,100,100\nb,10,1,100,100\n")
    plan.write_text("machine,start,end\n0,50,60\n")
    words = ("simulate", "cluster", "--trace", jobs, "--gpus", "1x2", "--outages", plan, "--policy", "easy,fifo")
    result = run(*words, "--log", log, "--format", "json")
    assert result.exit_code == 0, result.output
    assert "1 planned outages of 1 of 1 machines" in result.stderr
    _, easy, fifo = (json.loads(line) for line in result.stdout.splitlines())
    assert (easy["crashes"], fifo["crashes"], easy["machine_failures"]) == (0, 2, 1)
    assert easy["wait_max_1_h"] == pytest.approx(60 / 3600)
    assert run("verify", log).stdout.count("yes") == 3
    plan.write_text("machine,start,end\n7,50,60\n")
    refused = run(*words)
    assert (refused.exit_code, refused.stderr.strip().count("\n")) == (2, 0)
    assert "a number in 0..0" in refused.stderr


def test_waits_that_reservations_promised_are_printed(tmp_path):
    rows = [f"s{nth},{225 * nth},1,1800,1800" for nth in range(12)]
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("\n".join(["id,submit,gpus,duration,estimate", *rows, "gang,450,8,1800,1800"]) + "\n")
    words = ("simulate", "cluster", "--trace", jobs, "--gpus", "1x8", "--policy", "easy,fifo")
    said = run(*words, "--option", "fifo.backfill=true", "--details").stdout
    assert re.search(r"easy +5 to 8 +0 +0\.5 +0\.5", said)
    assert "reserved jobs started later than first reserved" in said
