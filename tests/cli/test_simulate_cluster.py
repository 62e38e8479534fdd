"""`optim simulate cluster` and the replay of what it logs."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app

RUNNER = CliRunner()
ROWS = "submit,gpus,duration,id\n0,2,2000,a\n0,1,8000,b\n0,2,6000,c\n"


@pytest.fixture
def trace(tmp_path):
    """Three jobs of one's own table."""
    path = tmp_path / "mine.csv"
    path.write_text(ROWS)
    return path


def run(*words):
    """Return what a command gave, run in this process."""
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


def test_the_table_shows_the_bounds_first(trace):
    result = run("simulate", "cluster", "--trace", trace, "--gpus", "1x2", "--policy", "fifo")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.strip().startswith("no schedule beats") for line in lines)


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("--gpus", "60"), "60x8"),
        (("--gpus", "0x8"), "1 to"),
        (("--policy", "nonsense"), "there are: borg"),
        (("--trace-format", "nonsense"), "one of philly"),
        (("--gpus", "1x1"), "oversized=drop"),
        (("--option", "oversized=maybe"), "refuse or drop"),
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
