"""The auction through the command: generate, solve, verify, bench, the study."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(text):
    return CliRunner().invoke(app, text.split())


def rows(text):
    result = run(text)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_auction_goes_from_the_generator_to_the_checker():
    assert run("instance generate auction --apps 6 --gpus 16 --machines 4 --seed 3 --out a.json").exit_code == 0
    assert run("solve a.json --solver exact --out s.json").exit_code == 0
    (verified,) = rows("verify a.json s.json --format json")
    assert verified["verified"]
    assert run("solve auction a.json --solver greedy --option rule=lottery").exit_code == 0
    (described,) = rows("instance describe a.json --format json")
    assert described["apps"] == 6
    assert described["contention"] >= 3.0


def test_a_tampered_solution_is_refused(folder):
    run("instance generate auction --apps 6 --gpus 16 --machines 4 --out a.json")
    run("solve a.json --solver exact --out s.json")
    solution = json.loads((folder / "s.json").read_text())
    solution["decision"]["awards"][0]["share"] = [1.0, 1.0]
    (folder / "t.json").write_text(json.dumps(solution))
    result = run("verify a.json t.json")
    assert result.exit_code == 3
    assert "share" in result.stderr


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
    result = run("bench auction --jobs 3")
    assert result.exit_code == 2
    assert "--jobs is no size of 'auction' instances" in result.stderr
    assert "--apps is no size of 'admission' instances" in run("instance generate admission --apps 3").stderr


def test_own_files_run_the_suites_of_their_problem_only():
    run("instance generate auction --apps 3 --gpus 8 --machines 2 --out a.json")
    result = run("bench --instance a.json --solver exact --format json --no-report")
    assert "optim: only suites that take these instances are run: auction\n" in result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["problem"] for row in found} == {"auction"}
