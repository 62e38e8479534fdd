"""`optim run` plays a plan with processes, and says what came of it."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

import optim
from optim.cli.main import app
from optim.simulation.emulation.job_run import JobRow
from optim.training.drill import KillRow
from tests.simulation.emulation.test_lease_rounds import app as rounds_app
from tests.simulation.emulation.test_lease_rounds import instance_of


def run(*words):
    command = [sys.executable, "-m", "optim.cli", "run", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture(scope="module")
def solution(tmp_path_factory):
    """The online algorithm's answer to tiny-0, as a file."""
    path = tmp_path_factory.mktemp("run") / "solution.json"
    instance = optim.reference_instance("tiny-0")
    optim.save_solution(optim.solve(instance, "online"), instance, path)
    return path


@pytest.mark.prove
def test_every_admitted_job_is_trained_to_the_bits_of_an_undisturbed_run(solution):
    done = run("tiny-0", solution, "--slot-seconds", "1", "--cores", "0.2", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["job"] for row in rows} == {"j0000", "j0001"}
    for row in rows:
        assert row["is_exact"] is True
        assert row["realised_slots"] > 0
        assert row["last_loss"] < row["first_loss"]
        assert row["changes"] >= 2
        assert row["error"] > -1
    assert "slot 0" in done.stderr
    assert "scale of time: a slot of " in done.stderr
    assert "error of completion: median " in done.stderr
    assert "utility planned " in done.stderr


def test_what_was_planned_is_told_beside_what_came_of_it(solution, monkeypatch):
    """Nothing is trained: only what is said of rows counts here."""
    row = JobRow(
        job="j", application="a", planned_slots=2.0, realised_slots=3.0, error=0.5, planned_utility=8.0,
        realised_utility=4.0, clocks=1, gradients=1, changes=0, first_loss=1.0, last_loss=0.5, is_exact=True,
    )  # fmt: skip
    monkeypatch.setattr("optim.simulation.emulation.plan_run.run_plan", lambda *_, **__: [row])
    done = CliRunner().invoke(app, ["run", "tiny-0", str(solution), "--format", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"instance": "tiny-0", "seed": 0, **asdict(row)}
    scale, error, utility = done.stderr.strip().splitlines()
    assert "scale of time: a slot of " in scale
    assert "median 50.0%" in error
    assert error.endswith("0 of 1 jobs not done")
    assert utility.endswith("utility planned 8, realised 4")


@pytest.mark.prove
def test_every_app_with_a_lease_trains_on_what_it_was_granted(tmp_path):
    instance = optim.reference_instance("auction-tiny-0")
    decision = optim.solve(instance, "exact")
    optim.save_solution(decision, instance, tmp_path / "a.json")
    words = ("--slot-seconds", "3", "--gradient-seconds", "0.3", "--cores", "0.1", "--format", "json")
    done = run("auction-tiny-0", tmp_path / "a.json", *words)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    granted = decision.decision.granted_gpus(instance.num_apps)
    assert {row["job"]: row["gpus"] for row in rows} == {
        name: count for name, count in zip(instance.apps.ids, granted.tolist(), strict=True) if count
    }
    for row in rows:
        assert row["is_exact"] is True
        assert row["realised_min"] <= row["planned_min"]
        assert (row["realised_rho"] > row["planned_rho"]) == (row["realised_slots"] > row["planned_slots"])
    assert "scale of time: a lease of 1200 s lasts 3 s here" in done.stderr
    assert "error of completion: median " in done.stderr
    assert "log welfare of the apps with leases planned " in done.stderr


@pytest.mark.prove
def test_rounds_of_leases_tell_what_was_planned_and_what_it_came_to(tmp_path):
    instance = instance_of(rounds_app("a", 60.0, 2), rounds_app("b", 30.0, 1), gpus=2)
    optim.save(instance, tmp_path / "auction.json")
    optim.save_solution(optim.solve(instance, "exact"), instance, tmp_path / "a.json")
    words = ("--rounds", "2", "--slot-seconds", "1.5", "--cores", "0.4", "--format", "json")
    done = run(tmp_path / "auction.json", tmp_path / "a.json", *words)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    leases, apps = ([row for row in rows if ("round" in row) == is_lease] for is_lease in (True, False))
    assert {row["round"] for row in leases} == {0, 1}
    assert [row["app"] for row in apps] == ["a", "b"]
    for row in apps:
        own = [each for each in leases if each["app"] == row["app"]]
        assert row["realised_leases"] == len(own)
        assert row["realised_min"] == pytest.approx(sum(each["realised_min"] for each in own))
        assert row["is_exact"] in (True, None)
    assert "round 1: " in done.stderr
    assert "all leases: " in done.stderr
    assert "serial GPU minutes planned" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected INSTANCE SOLUTION, got 0 words"),
        (("--application", "chess"), "unknown application 'chess'"),
        (("--application", "none_such:Thing"), "the module must be on PYTHONPATH"),
        (("--data", "x.csv"), "belong to --application NAME"),
        (("tiny-0", "x.json", "--clocks", "5"), "belong to --application NAME"),
        (("tiny-0", "x.json", "--workers", "3"), "belong to --application NAME"),
        (("--kill-servers", "2", "--rate", "0.5"), "belong to --application NAME"),
        (("--application", "topic-model", "--cores", "1"), "are of INSTANCE SOLUTION"),
        (("--kill-servers", "2", "--slot-seconds", "1"), "are of INSTANCE SOLUTION"),
        (("tiny-0", "--application", "topic-model"), "--application is trained alone"),
        (("tiny-0",), "expected INSTANCE SOLUTION, got 1 words"),
        (("tiny-0", "nowhere.json"), "nowhere.json"),
        (("spot-hour-0", "nowhere.json"), "spot-hour-0 is neither an admission instance nor an auction"),
        (
            ("tiny-0", "x.json", "--kill-servers", "2"),
            "--kill-servers trains a job of its own; leave tiny-0 x.json out",
        ),
        (("--kill-servers", "2", "--rounds", "2"), "leave --rounds and --fairness out"),
        (("--application", "topic-model", "--rounds", "2"), "--application is trained alone"),
        (("tiny-0", "x.json", "--rounds", "2"), "are of an auction's rounds of leases"),
        (("auction-tiny-0", "x.json", "--fairness", "0.5"), "are of an auction's rounds of leases, two at least"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_two(words, message):
    done = CliRunner().invoke(app, ["run", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_drill_tells_its_kills_as_a_table_or_as_lines_of_json(is_equal, monkeypatch):
    kills = [
        KillRow(machine="m", process_id=7, from_clock=9, to_clock=6, replayed_to=6, clocks_compared=4, is_equal=equal)
        for equal in (True, is_equal)
    ]
    monkeypatch.setattr("optim.training.drill.kill_servers", lambda *_: iter(kills))
    lines = CliRunner().invoke(app, ["run", "--kill-servers", "2", "--format", "json"])
    assert [json.loads(line) for line in lines.stdout.splitlines()] == [asdict(kill) for kill in kills]
    table = CliRunner().invoke(app, ["run", "--kill-servers", "2", "--format", "table"])
    assert table.stdout.endswith(f"{1 + is_equal} of 2 runs on have the undisturbed run's losses\n")
    assert "process_id" in table.stdout
    assert lines.exit_code == table.exit_code == (0 if is_equal else 3)


@pytest.mark.prove
def test_an_application_goes_on_from_its_checkpoints_on_data_of_ones_own(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(f"{u} {i} {(u * i) % 5}" for u in range(12) for i in range(6)))
    words = ("--application", "matrix-factorisation", "--data", path, "--workers", "1", "--format", "json")
    whole = run(*words, "--clocks", "15")
    assert whole.returncode == 0, whole.stderr
    first = run(*words, "--clocks", "10", "--checkpoint", tmp_path / "run")
    again = run(*words, "--clocks", "15", "--checkpoint", tmp_path / "run")
    assert "going on from clock 10" in again.stderr
    assert again.stdout == whole.stdout
    assert whole.stdout.startswith(first.stdout)
    losses = [json.loads(line)["loss"] for line in whole.stdout.splitlines()]
    assert losses[-1] < losses[0]
