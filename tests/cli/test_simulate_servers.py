"""`optim simulate servers`: a row a way of asking."""

import json
import os
import signal
import time

import pytest
from typer.testing import CliRunner

from optim.cli.exit_code import ExitCode
from optim.cli.main import app
from optim.core.stopping import Interruption
from optim.simulation.packing import servers_study

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["simulate", "servers", *map(str, words)])


def test_rows_as_json():
    result = run("--jobs", 12, "--seeds", 2, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["asking"] for row in rows] == ["flat", "peak", "slot"]
    assert rows[0]["saved"] == rows[0]["saved_low"] == 0.0
    assert all(row["least"] <= row["servers"] for row in rows)


def test_wrong_use_is_one_line_and_two():
    result = run("--kills", 0)
    assert result.exit_code == 2
    assert "kills must be in (0, 1), got 0" in result.stderr


@pytest.mark.parametrize("words", [(), ("--format", "json")])
def test_ctrl_c_leaves_the_ways_that_were_counted(monkeypatch, words):
    whole, seen = run("--jobs", 12, "--seeds", 2, *words), []
    counted = servers_study._harm

    def then_interrupted(sets, placed):
        """Ctrl-C comes while the second way is tuned."""
        seen.append(len(sets))
        if len(seen) == servers_study.HALVINGS + 3:
            os.kill(os.getpid(), signal.SIGINT)
            while not stops:
                time.sleep(0.001)
        return counted(sets, placed)

    stops = []
    requested = Interruption.request
    monkeypatch.setattr(Interruption, "request", lambda self: (requested(self), stops.append(1)))
    monkeypatch.setattr(servers_study, "_harm", then_interrupted)
    result = run("--jobs", 12, "--seeds", 2, *words)
    assert result.exit_code == ExitCode.INTERRUPTED
    assert len(seen) == servers_study.HALVINGS + 3
    rows = [[line.split() for line in out.stdout.splitlines() if "flat" in line] for out in (whole, result)]
    assert rows[0] == rows[1] != []
    assert "peak" not in result.stdout
    assert "the rows so far are printed" in result.stderr
