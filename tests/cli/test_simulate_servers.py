"""`optim simulate servers`: a row a way of asking."""

import json

from typer.testing import CliRunner

from optim.cli.main import app

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["simulate", "servers", *map(str, words)])


def test_rows_as_json():
    result = run("--jobs", 12, "--seeds", 2, "--format", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["asking"] for row in rows] == ["peak", "flat", "slot"]
    assert rows[1]["saved"] == rows[1]["saved_low"] == 0.0
    assert all(row["least"] <= row["servers"] for row in rows)


def test_wrong_use_is_one_line_and_two():
    result = run("--kills", 0)
    assert result.exit_code == 2
    assert "kills must be in (0, 1), got 0" in result.stderr
