"""`optim solve`, `optim verify` and the auction's commands: printed results are verified, rejected ones are not written."""

import json

import pytest
from typer.testing import CliRunner

import optim
from optim.cli.main import app


@pytest.fixture(autouse=True)
def folder(dummies, tmp_path, monkeypatch):
    """Register the dummy solvers, and change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("words", [("tiny-0",), ("admission", "tiny-0"), ("admission", "tiny-0.json.gz")])
def test_solves_and_prints_a_verified_record(words):
    result = run("solve", *words, "--solver", "idle", "--format", "json")
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    row = json.loads(line)
    assert row["verified"] is True
    assert row["objective"] == 0.0
    assert row["suite"] is None


@pytest.mark.parametrize(
    ("name", "solver"),
    [("tiny-0", "exact"), ("medium-0", "search"), ("auction-tiny-0", "exact"), ("spot-vector", "dinkelbach")],
)
def test_an_instance_is_solved_by_its_problems_default_where_no_solver_is_named(name, solver):
    result = run("solve", name, "--time-limit", "0", "--format", "json")
    assert json.loads(result.stdout)["solver"] == solver
    assert optim.solve(optim.reference_instance(name), time_limit_s=0).solver == solver


def test_prints_a_competitive_ratio_only_where_it_is_proven():
    name = "adversary-zero-start-strict-small"
    solved = run("solve", name, "--solver", "online", "--option", "strict=true", "--out", "s.json")
    verified = run("verify", name, "s.json")
    for result in (solved, verified):
        assert dict(line.split(maxsplit=1) for line in result.stdout.splitlines())["competitive_ratio"] == "9.31386"
    assert "competitive_ratio" not in run("solve", name, "--solver", "online").stdout


def test_prints_what_people_want_to_see():
    command = ("solve", "tiny-0", "--solver", "idle")
    lines = dict(line.split(maxsplit=1) for line in run(*command).stdout.splitlines())
    assert lines["seed"] == "0"
    assert lines["verified"] == "yes"
    assert len(lines) <= 15
    details = dict(line.split(maxsplit=1) for line in run(*command, "--details").stdout.splitlines())
    assert details.items() >= {name: lines[name] for name in ("objective", "bound", "verified")}.items()
    assert float(details["seconds.solve"]) == 0.002
    assert "decision_ms.p99" in details


def test_verifies_the_file_that_solve_wrote():
    assert run("solve", "tiny-0", "--solver", "idle", "--out", "s.json.gz").exit_code == 0
    result = run("verify", "admission", "tiny-0", "s.json.gz", "--format", "json")
    assert result.exit_code == 0
    row = json.loads(result.stdout)
    assert row["verified"] is True
    assert row["violations"] == []
    assert row["proven"]


def test_refuses_a_tampered_file_with_the_row_named(folder):
    run("solve", "tiny-0", "--solver", "idle", "--out", "s.json")
    document = json.loads((folder / "s.json").read_text())
    document["objective"] = 5.0
    (folder / "s.json").write_text(json.dumps(document))
    result = run("verify", "tiny-0", "s.json")
    assert result.exit_code == 3
    assert "objective" in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("optim: error: s.json: ")
    assert json.loads(run("verify", "tiny-0", "s.json", "--format", "json").stdout)["verified"] is False


def test_writes_nothing_that_the_checker_refuses(folder):
    result = run("solve", "tiny-0", "--solver", "liar", "--out", "s.json")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert "the checker refused the solution of 'liar'" in result.stderr
    assert list(folder.iterdir()) == []


def test_finding_nothing_exits_with_1():
    assert run("solve", "tiny-0", "--solver", "nothing").exit_code == 1


def test_an_instance_that_the_solver_does_not_support_is_one_line():
    result = run("solve", "small-0", "--solver", "tiny-only")
    assert result.exit_code == 2
    assert "does not support instance 'small-0': more than 6 jobs" in result.stderr


def test_options_come_from_a_file_and_from_the_line(folder):
    (folder / "o.toml").write_text("number = 3\nwait_s = 0.001\n")
    given = ("--options-file", "o.toml", "--option", "number=4", "--format", "json")
    row = json.loads(run("solve", "tiny-0", "--solver", "idle", *given).stdout)
    assert row["options"] == {"number": 4, "wait_s": 0.001}


def test_unknown_keys_of_an_options_file_are_errors(folder):
    (folder / "o.toml").write_text("colour = 3\n")
    result = run("solve", "tiny-0", "--solver", "idle", "--options-file", "o.toml")
    assert result.exit_code == 2
    assert "unknown option 'colour'" in result.stderr


def test_the_seed_is_recorded():
    row = json.loads(run("solve", "tiny-0", "--solver", "idle", "--seed", "9", "--format", "json").stdout)
    assert row["seed"] == 9


def typed(text):
    return run(*text.split())


def rows(text):
    result = typed(text)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_auction_goes_from_the_generator_to_the_checker():
    assert typed("instance generate auction --apps 6 --gpus 16 --machines 4 --seed 3 --out a.json").exit_code == 0
    assert typed("solve a.json --solver exact --out s.json").exit_code == 0
    (verified,) = rows("verify a.json s.json --format json")
    assert verified["verified"]
    assert typed("solve auction a.json --solver greedy --option rule=lottery").exit_code == 0
    (described,) = rows("instance describe a.json --format json")
    assert described["apps"] == 6
    assert described["contention"] >= 3.0


def test_bench_rows_hold_welfare_payments_leftover_and_winners():
    found = rows(
        "bench auction --apps 12 --gpus 32 --machines 4 --seed 0 --solver exact,greedy --format json --no-report"
    )
    assert [row["solver"] for row in found] == ["exact", "greedy"]
    for row in found:
        assert row["verified"]
        assert row["parameters"]["contention"] >= 3.0
        load = row["load"]
        assert load["winners"] == len(load["payments"])
        assert load["leftover"] == load["awarded_gpus"] - load["granted_gpus"]
        assert all(0 <= low <= high <= 1 for low, high in load["payments"].values())


def test_sizes_of_another_problem_are_refused():
    result = typed("bench auction --jobs 3")
    assert result.exit_code == 2
    assert "--jobs isn't a size of 'auction' instances" in result.stderr
    assert "--apps isn't a size of 'admission' instances" in typed("instance generate admission --apps 3").stderr


def test_own_files_run_the_suites_of_their_problem_only():
    typed("instance generate auction --apps 3 --gpus 8 --machines 2 --out a.json")
    result = typed("bench --instance a.json --solver exact --format json --no-report")
    assert "optim: running only the suites that accept these instances: auction\n" in result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["problem"] for row in found} == {"auction"}
