"""`optim simulate packing`: one row per sizing rule, and one clear line for bad input."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli.main import app

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
    [
        ("0.0001", "the risk needs 9999 samples, or a larger --risk"),
        ("0", "the risk needs a --risk above 0"),
        ("0.05", None),
    ],
)
def test_a_risk_that_no_phase_is_known_well_enough_for_is_told(risk, needed):
    result = run("--jobs", 4, "--learned", 6, "--servers", 1, "--risk", risk, "--format", "json")
    assert result.exit_code == 0, result.output
    assert ("requests per phase cannot guarantee a risk of" in result.stderr) == (needed is not None)
    assert needed is None or needed in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--risk", "1"), "risk must be in [0, 1), got 1.0"),
        (("--profile-error", "-1"), "profile_error must be in [0, 1], got -1.0"),
        (("--jobs", "4", "--learned", "4", "--solver", "magic"), "magic"),
        (
            ("--jobs", "4", "--learned", "4", "--servers", "1", "--solver", "column-generation"),
            "'column-generation' found no plan for sizing peak",
        ),
    ],
)
def test_wrong_use_is_one_line_and_two(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
