"""`optim bench --profile`: all three problems on measured jobs."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.profiling.document import write_profiles
from optim.workloads.profiles import published_profiles


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*words):
    result = CliRunner().invoke(app, ["bench", *words, "--format", "json", "--no-report"])
    return result, [json.loads(line) for line in result.stdout.splitlines()]


def test_draws_jobs_of_a_files_kinds_in_the_sizes_asked_for(folder):
    write_profiles(published_profiles(), folder / "profile.json")
    result, rows = bench("admission", "--profile", "profile.json", "--jobs", "12", "--slots", "10", "--solver", "rrh")
    assert result.exit_code == 0
    assert [row["instance"] for row in rows] == ["profiled-12-10-6-6-0"]
    assert rows[0]["verified"]


@pytest.mark.parametrize(("problem", "solver"), [("admission", "fifo"), ("auction", "greedy"), ("bidding", "greedy")])
def test_each_problem_has_small_instances_of_the_built_in_kinds(problem, solver):
    result, rows = bench(problem, "--profile", "published", "--solver", solver, "--time-limit", "20")
    assert result.exit_code == 0
    assert len(rows) == 1
    assert rows[0]["verified"]


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("admission", "--profile", "none.json"), "none.json"),
        (("admission", "--profile", "published", "--instance", "tiny-0"), "--profile"),
        (("paper", "--profile", "published"), "paper"),
    ],
)
def test_says_in_one_line_what_is_wrong(words, cause):
    result, _ = bench(*words)
    assert result.exit_code == 2
    assert cause in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
