"""No command overwrites a file that it reads, under any name, or writes two results into one file."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.parameters import check_inputs_stay

ROWS = "id,submit,duration,gpus\na,0,60,1\nb,0,60,2\n"
COMMANDS = [
    "solve FILE --solver fifo --out FILE",
    "instance convert FILE --out FILE",
    "instance convert --trace FILE --trace-format csv --jobs 2 --slots 4 --out FILE",
    "simulate cluster --trace FILE --gpus 1x4 --policy fifo --log FILE",
    "simulate cluster --trace FILE --gpus 1x4 --policy fifo --report FILE",
    "simulate cluster --trace FILE --gpus 1x4 --policy fifo --results FILE",
    "phases fit --input cpu=FILE --out FILE",
    "phases report FILE --out FILE",
    "containers recommend --input cpu=FILE --out FILE",
    "bench admission --instance tiny-0,FILE --report FILE",
]


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.csv"
    path.write_text(ROWS)
    (tmp_path / "link.csv").symlink_to("mine.csv")
    (tmp_path / "there").mkdir()
    os.link(path, tmp_path / "hard.csv")
    return path


@pytest.mark.parametrize("written", ["mine.csv", "there/../mine.csv", "link.csv", "hard.csv"])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_read_is_not_written_over(mine, command, written):
    first, _, last = command.rpartition("FILE")
    words = f"{first.replace('FILE', 'mine.csv')}{written}{last}".split()
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert f"would overwrite the input file {written}; choose another file" in " ".join(result.stderr.split())
    assert mine.read_text() == ROWS


def test_two_results_go_into_two_files(mine):
    words = "simulate cluster --trace mine.csv --gpus 1x4 --policy fifo --log run.npz --report ./run.npz"
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2
    assert "--log and report name the same file, run.npz" in result.stderr
    assert not (mine.parent / "run.npz").exists()


def test_what_keeps_nothing_may_be_named_twice():
    check_inputs_stay({"log": Path("/dev/null"), "report": Path("/dev/null"), "trace": Path("/dev/null")})


def test_a_file_that_is_not_read_may_be_written_anew(mine):
    (mine.parent / "i.json").write_text("{}")
    words = "instance convert --trace mine.csv --trace-format csv --jobs 2 --slots 4 --slot-minutes 1 --out i.json"
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 0, result.stderr
    assert (mine.parent / "i.json").stat().st_size > 2
