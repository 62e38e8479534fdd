"""The options that select where tasks run."""

import sys
from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from optim.cli.main import app
from optim.cli.parameters import EngineChoice
from optim.execution import ProcessExecutor, SerialExecutor


@pytest.fixture(autouse=True)
def folder(dummies, tmp_path, monkeypatch):
    """Register the dummy solvers, and change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*arguments):
    command = ["bench", "admission", "--instance", "tiny-0", "--no-report", "--solver", "idle"]
    return CliRunner().invoke(app, [*command, *arguments])


@pytest.mark.parametrize(("processes", "engine"), [(1, SerialExecutor), (3, ProcessExecutor)])
def test_processes_of_this_machine_are_the_default(processes, engine):
    with EngineChoice(processes=processes).opened() as opened:
        assert isinstance(opened, engine)


@pytest.mark.parametrize(("short", "engine"), [(None, ProcessExecutor), (6, ProcessExecutor), (5, SerialExecutor)])
def test_a_few_short_pieces_are_done_sooner_in_this_process(short, engine):
    with EngineChoice(processes=3).opened(num_short=short) as opened:
        assert isinstance(opened, engine)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("--scheduler tcp://127.0.0.1:1 --processes 2", "omit --processes, or --scheduler"),
        ("--dashboard", "add --engine dask or --scheduler ADDRESS"),
    ],
)
def test_engines_options_that_contradict_one_another_are_one_line(folder, wrong, line):
    result = bench(*wrong.split())
    assert result.exit_code == 2
    assert line in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_an_engine_that_is_not_installed_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "optim.execution.dask_cluster", raising=False)
    result = bench("--engine", "dask")
    assert result.exit_code == 2
    assert "pip install 'mlcluster-optim[dask]'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_says_what_was_sent_to_workers_and_where_the_page_is(monkeypatch):
    pytest.importorskip("distributed")

    class Cluster(SerialExecutor):
        page, sent_bytes = "http://here/status", 2_500_000

    monkeypatch.setattr("optim.execution.dask_cluster.dask_cluster", lambda *how: nullcontext(Cluster()))
    result = bench("--engine", "dask", "--processes", "2", "--dashboard")
    assert result.exit_code == 0
    assert "Dask dashboard: http://here/status" in result.stderr
    assert "shared data sent to workers: 2.5 MB" in result.stderr


class Counting(SerialExecutor):
    """An engine that does the pieces in this process, and counts them."""

    page, sent_bytes = "http://here/status", 0

    def __init__(self):
        self.num_pieces = 0

    def run(self, task, pieces, stop, progress):
        for entry in super().run(task, pieces, stop, progress):
            self.num_pieces += 1
            yield entry


QUICK = {
    "simulate cluster --generate themis --apps 3 --gpus 2x4 --policy fifo,srtf --bound-steps 1": 2,
    "simulate spot --policy on-demand --starts 3 --job-hours 1": 3,
    "simulate containers --generate 30 --policy static,prev-step-max --resamples 2": 3,
}
SLOW = {
    "simulate packing --jobs 4 --learned 10 --encoder raw-window --phases 2": 3,
    "phases score --generate 5 --encoder raw-window --seeds 0,1": 2,
}
SWEEPS = QUICK | SLOW
"""Commands, each with the number of its pieces."""


@pytest.mark.parametrize(
    ("sweep", "num_pieces"), [*QUICK.items(), *(pytest.param(*one, marks=pytest.mark.prove) for one in SLOW.items())]
)
def test_every_sweep_runs_where_it_is_told(sweep, num_pieces, monkeypatch):
    pytest.importorskip("distributed")
    command = [*sweep.split(), "--format", "json"]
    here = CliRunner().invoke(app, command)
    assert here.exit_code == 0
    engine = Counting()
    monkeypatch.setattr("optim.execution.dask_cluster.dask_cluster", lambda *how: nullcontext(engine))
    there = CliRunner().invoke(app, [*command, "--scheduler", "tcp://somewhere:1"])
    assert (there.exit_code, there.stdout, engine.num_pieces) == (0, here.stdout, num_pieces)


@pytest.mark.prove
@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_dask_cluster_gives_every_sweep_the_same_rows(sweep):
    pytest.importorskip("distributed")
    command = [*sweep.split(), "--format", "json"]
    rows = [CliRunner().invoke(app, [*command, *where.split()]) for where in ("", "--engine dask --processes 2")]
    assert [result.exit_code for result in rows] == [0, 0]
    assert rows[0].stdout == rows[1].stdout
