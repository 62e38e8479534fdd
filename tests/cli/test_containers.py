"""`optim containers recommend`: files in, requests and limits out."""

import json

import pytest
from typer.testing import CliRunner

from optim.cli import containers
from optim.cli.main import app

RUNNER = CliRunner()


def run(*words):
    return RUNNER.invoke(app, ["containers", "recommend", *map(str, words)])


def test_metrics_in_json_out(tmp_path):
    path, out = tmp_path / "series.csv", tmp_path / "new" / "found.json"
    rows = [f"c{c},{15 * t},{1 + c % 2 + t % 3},{1 + t / 40}" for c in range(8) for t in range(120)]
    path.write_text("container,time_s,cpu,memory\n" + "\n".join(rows) + "\n")
    result = run("--input", path, "--cycle-minutes", 10, "--out", out)
    assert result.exit_code == 0, result.output
    assert "tuned on 4 containers" in result.stderr
    assert "8 containers written" in result.stderr
    found = json.loads(out.read_text())["containers"]
    assert [own["container"] for own in found] == [f"c{c}" for c in range(8)]
    # Memory grows by a GiB in ten minutes, of 3.975 now, and is to hold for all of them.
    assert all(4.975 <= own["amounts"]["memory"]["request"] < 8 for own in found)


@pytest.mark.parametrize("block", [1, 3, 4, 11])
def test_no_container_is_left_out_however_they_are_parted(block, monkeypatch):
    whole = run("--generate", 4, "--cycle-minutes", 10)
    monkeypatch.setattr(containers, "BLOCK", block)
    parted = run("--generate", 4, "--cycle-minutes", 10)
    assert parted.exit_code == 0, parted.output
    assert len(json.loads(parted.stdout)["containers"]) == 4
    assert parted.stdout == whole.stdout


def test_generated_containers_as_patches():
    result = run("--generate", 12, "--cycle-minutes", 10, "--format", "yaml", "--require", "kills=0.2")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("kind: Pod") == 12
    assert "memory: " in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give either --input FILE or --generate N"),
        (("--generate", 1), "at least two containers of different pods"),
        (("--generate", 4, "--cycle-minutes", 0), "cycle_s must be positive"),
        (("--generate", 4, "--require", "kills=2"), "kills must be in"),
        (("--generate", 4, "--require", "measure=under-time"), "kills and throttled, not measure"),
        (("--generate", 4, "--require", "startup_s=9"), "kills and throttled, not startup_s"),
        (("--generate", 4, "--cycle-minutes", 0.1), "cycle_s must be at least the interval"),
        (("--input", "absent.csv"), "absent.csv"),
    ],
)
def test_wrong_use_is_one_line_and_two(words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
