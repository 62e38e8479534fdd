"""`optim simulate packing` and `servers`: a row a sizing or a way of asking, and one clear line for bad input."""

import json
import os
import signal
import time

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.messages import ExitCode
from optim.core.stopping import Interruption
from optim.rightsizing.packing import study

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["simulate", "packing", "--encoder", "truth", *map(str, words)])


def test_a_row_a_sizing_as_json():
    result = run("--jobs", 8, "--learned", 10, "--servers", 1, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["sizing"] for row in rows] == ["peak", "flat", "phase"]
    assert rows[0]["overload"] == {"cpu": 0.0, "memory": 0.0}
    assert all(row["admitted"] <= row["jobs"] == 8 for row in rows)


@pytest.mark.parametrize(
    ("risk", "needed"),
    [("0.0001", "that needs 9999 or a larger --risk"), ("0", "more than there ever are"), ("0.05", None)],
)
def test_a_risk_that_no_phase_is_known_well_enough_for_is_told(risk, needed):
    result = run("--jobs", 4, "--learned", 6, "--servers", 1, "--risk", risk, "--format", "json")
    assert result.exit_code == 0, result.output
    assert ("requests by phase can't keep a risk of" in result.stderr) == (needed is not None)
    assert needed is None or needed in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--risk", "1"), "risk must be in [0, 1), got 1.0"),
        (("--profile-error", "-1"), "profile_error must be in [0, 1], got -1.0"),
        (("--jobs", "4", "--learned", "4", "--solver", "magic"), "magic"),
        (
            ("--jobs", "4", "--learned", "4", "--servers", "1", "--solver", "column-generation"),
            "'column-generation' found no plan for requests by peak",
        ),
    ],
)
def test_wrong_use_is_one_line_and_two(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def servers(*words):
    return RUNNER.invoke(app, ["simulate", "servers", *map(str, words)])


def test_a_row_a_way_of_asking():
    result = servers("--jobs", 12, "--seeds", 2, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["asking"] for row in rows] == ["flat", "peak", "slot"]
    assert rows[0]["saved"] == rows[0]["saved_low"] == 0.0
    assert all(row["least"] <= row["servers"] for row in rows)


def test_too_few_jobs_to_tune_on_and_what_no_multiplier_keeps_are_told():
    few = servers("--jobs", 2, "--seeds", 2, "--kills", 0.05, "--error", 1, "--format", "json")
    assert few.exit_code == 0, few.output
    assert "warning: 5 % of jobs killed can't be kept by tuning on 4 jobs, 2 sets of 2: that needs 19" in few.stderr
    words = ("--jobs", 30, "--seeds", 2, "--runs", 1, "--kills", 0.01, "--error", 1)
    lost = servers(*words, "--format", "json", "--seed", 1)
    rows = {row["asking"]: row for row in map(json.loads, lost.stdout.splitlines())}
    assert [row["is_reached"] for row in rows.values()] == [True, True, False]
    for name, row in rows.items():
        told = f"warning: no multiplier up to 3 keeps what is held equal of requests by {name};"
        assert (told in lost.stderr) == (not row["is_reached"])
        assert row["is_reached"] or row["multiplier"] == 3.0
    enough = servers("--jobs", 10, "--seeds", 2, "--kills", 0.05, "--format", "json")
    assert "warning" not in enough.stderr


def test_kills_out_of_their_range_are_refused():
    result = servers("--kills", 0)
    assert result.exit_code == 2
    assert "kills must be in (0, 1), got 0" in result.stderr


@pytest.mark.parametrize("words", [(), ("--format", "json")])
def test_ctrl_c_leaves_the_ways_that_were_counted(monkeypatch, words):
    whole, seen = servers("--jobs", 12, "--seeds", 2, *words), []
    counted = study._violations

    def then_interrupted(sets, placed):
        """Ctrl-C comes while the second way is tuned."""
        seen.append(len(sets))
        if len(seen) == study.HALVINGS + 3:
            os.kill(os.getpid(), signal.SIGINT)
            while not stops:
                time.sleep(0.001)
        return counted(sets, placed)

    stops = []
    requested = Interruption.request
    monkeypatch.setattr(Interruption, "request", lambda self: (requested(self), stops.append(1)))
    monkeypatch.setattr(study, "_violations", then_interrupted)
    result = servers("--jobs", 12, "--seeds", 2, *words)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert len(seen) == study.HALVINGS + 3
    rows = [[line.split() for line in out.stdout.splitlines() if "flat" in line] for out in (whole, result)]
    assert rows[0] == rows[1] != []
    assert "peak" not in result.stdout
    assert "the rows so far are printed" in result.stderr
