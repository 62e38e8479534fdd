"""Ctrl-C, kill -9, a closed pipe, a full disk: finished results stay, without duplicates or partial records."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dummy_solvers import STARTED, STUCK_ON
from typer.testing import CliRunner

from optim.benchmarks.records import read_records
from optim.cli.main import app
from tests.support.default_signals import DEFAULT_SIGNALS

PATIENCE_S = 60
"""Time limit that only a run that hangs reaches."""


@pytest.fixture
def started(tmp_path):
    """Return the path of the file that a solve of a minute creates when it begins."""
    return tmp_path / "started"


@pytest.fixture
def start(plugin_environment, tmp_path, started, monkeypatch):
    """Start the command in an empty folder, with the dummy solvers installed as a plug-in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    running = []

    def begin(*arguments, stuck_on="", prelude="", **popen):
        environment = plugin_environment | {STUCK_ON: stuck_on, STARTED: str(started)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | popen
        script = f"{DEFAULT_SIGNALS}\n{prelude}\nfrom optim.cli.main import main\nif __name__ == '__main__': main()"
        command = [sys.executable, "-c", script, *arguments]
        running.append(subprocess.Popen(command, env=environment, **pipes))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def end(process):
    """Wait for the end, and return (exit code, lines of stdout, lines of stderr)."""
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    return process.returncode, stdout.splitlines(), stderr.splitlines()


def wait_until(condition):
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.02)


BENCH = ("bench", "dummy", "--format", "json", "--no-report")
RESULTS = Path("results") / "bench.jsonl"


def assert_resumes_whole():
    """Run the same command to its end, in this process: one record for each of the three pieces of work, no more."""
    before = [record.key for record in read_records(RESULTS)]
    done = CliRunner().invoke(app, BENCH)
    assert done.exit_code == 0
    keys = [json.loads(line)["key"] for line in done.stdout.splitlines()]
    assert len(set(keys)) == 3
    after = [record.key for record in read_records(RESULTS)]
    assert sorted(after) == sorted(keys)
    assert after[: len(before)] == before


@pytest.fixture
def interrupted(dummies, tmp_path, monkeypatch):
    """Run a command in this process, and send Ctrl-C as soon as a solve of a minute has begun."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stuck_on):
        with monkeypatch.context() as patched:
            patched.setenv(STUCK_ON, stuck_on)
            patched.setattr("dummy_solvers.tell_started", lambda wait_s: wait_s and os.kill(os.getpid(), signal.SIGINT))
            done = CliRunner().invoke(app, arguments)
        return done.exit_code, done.stdout.splitlines(), done.stderr.splitlines()

    return run


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(interrupted):
    assert_stops_whole(*interrupted(*BENCH, stuck_on="tiny-1"))


@pytest.mark.prove
@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "two processes"])
def test_ctrl_c_in_a_terminal_keeps_it_too(dummies, start, started, processes):
    process = start(*BENCH, *processes, stuck_on="tiny-1")
    first = process.stdout.readline()
    wait_until(started.exists)
    process.send_signal(signal.SIGINT)
    code, stdout, stderr = end(process)
    assert_stops_whole(code, [first, *stdout], stderr)


def assert_stops_whole(code, stdout, stderr):
    """Check that an interrupted run reported and stored its finished results, and resume it."""
    assert code == 130
    rows = [json.loads(line) for line in stdout]
    assert [record.key for record in read_records(RESULTS)] == [row["key"] for row in rows]
    assert "tiny-1" not in {row["instance"] for row in rows}
    assert f"optim: stopped: {len(rows)} of 3 records are in {RESULTS}; the same command resumes" in stderr
    assert "Traceback" not in "".join(stderr)
    assert_resumes_whole()


LEARNING = """
import time
from optim.rightsizing import world

def learn(*given, **named):
    open("learning", "w").close()
    for _ in range(600):
        time.sleep(0.1)

world.prepare_split = learn
"""
"""Phases that take a minute to learn."""


def test_ctrl_c_ends_the_learning_of_phases_at_once(start):
    """No result is finished yet. A shell's background jobs start with Ctrl-C ignored; this one handles it."""
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + LEARNING
    process = start("simulate", "containers", "--generate", "20", "--format", "json", prelude=deaf)
    wait_until(Path("learning").exists)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, stdout, stderr = end(process)
    assert (code, stdout) == (130, [])
    assert time.monotonic() - begun < 20
    assert stderr[-1] == "optim: interrupted"


@pytest.mark.prove
def test_kill_9_loses_only_the_record_in_flight(dummies, start, started):
    process = start(*BENCH, stuck_on="tiny-2")
    wait_until(started.exists)
    process.kill()
    end(process)
    assert [record.instance for record in read_records(RESULTS)] == ["tiny-0", "tiny-1"]
    assert_resumes_whole()


@pytest.mark.prove
def test_kill_9_takes_the_child_processes_along(start, started):
    process = start(*BENCH, "--processes", "2", stuck_on="tiny-0")
    wait_until(started.exists)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.kill()
    wait_until(lambda: not any(is_alive(child) for child in children))


SPOT = ("simulate", "spot", "--processes", "2", "--starts", "5000", "--policy", "on-demand", "--format", "json")
TRAINING = ("simulate", "training", "--policy", "on-demand", "--hour-seconds", "5", "--clocks", "5000")


@pytest.mark.parametrize(
    ("words", "number"),
    [
        pytest.param(SPOT, signal.SIGTERM, marks=pytest.mark.prove),
        pytest.param(SPOT, signal.SIGHUP, marks=pytest.mark.prove),
        pytest.param(TRAINING, signal.SIGTERM, marks=pytest.mark.prove),
        pytest.param(TRAINING, signal.SIGHUP, marks=pytest.mark.prove),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else value.name,
)
def test_a_command_that_is_ended_by_a_signal_leaves_no_process_alive(start, words, number):
    process = start(*words)

    def children():
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

    wait_until(lambda: len(children()) >= 2)
    mine = children()
    process.send_signal(number)
    wait_until(lambda: not any(is_alive(child) for child in mine))
    assert end(process)[0] != 0


def is_alive(pid):
    """Return whether a process exists and isn't a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


SOLVE = ("solve", "tiny-0", "--solver", "idle", "--out", "s.json")


def test_ctrl_c_during_a_solve_keeps_the_best_so_far(interrupted):
    assert_keeps_the_best(*interrupted(*SOLVE, stuck_on="tiny-0"))


@pytest.mark.prove
def test_ctrl_c_in_a_terminal_keeps_the_best_too(start, started):
    process = start(*SOLVE, stuck_on="tiny-0")
    wait_until(started.exists)
    process.send_signal(signal.SIGINT)
    assert_keeps_the_best(*end(process))


def assert_keeps_the_best(code, stdout, stderr):
    """Check that an interrupted solve wrote and reported its result so far."""
    assert code == 130
    assert ["termination", "interrupted"] in [line.split() for line in stdout]
    assert ["verified", "yes"] in [line.split() for line in stdout]
    assert stderr == ["optim: stopping; the best solution so far will be returned (Ctrl-C again to abort)"]
    assert Path("s.json").exists()


@pytest.mark.prove
def test_a_second_ctrl_c_aborts_even_inside_compiled_code(start, started):
    process = start("solve", "tiny-0", "--solver", "stubborn", "--out", "s.json")
    wait_until(started.exists)
    process.send_signal(signal.SIGINT)
    assert "Ctrl-C again to abort" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert end(process) == (130, [], ["optim: aborted"])
    assert list(Path().iterdir()) == []


@pytest.mark.prove
def test_a_closed_pipe_ends_the_run_quietly(start, started):
    process = start(*BENCH, "--option", "wait_s=0.2")
    assert json.loads(process.stdout.readline())["instance"] == "tiny-0"
    process.stdout.close()
    process.wait(timeout=PATIENCE_S)
    assert process.returncode == 141
    assert process.stderr.read() == ""


def test_text_into_a_closed_pipe_ends_quietly_too(start):
    reader, writer = os.pipe()
    os.close(reader)
    process = start("instance", "schema", "admission", stdout=writer)
    os.close(writer)
    process.wait(timeout=PATIENCE_S)
    assert process.returncode == 141
    assert process.stderr.read() == ""


@pytest.mark.prove
def test_a_full_disk_is_one_line_and_leaves_whole_records(start):
    process = start(*BENCH, prelude="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))")
    code, stdout, stderr = end(process)
    assert code == 1
    assert len(stderr) == 1
    assert stderr[0].startswith("optim: error: ")
    assert "File too large" in stderr[0]
    assert [record.key for record in read_records(RESULTS)] == [json.loads(line)["key"] for line in stdout]
    assert RESULTS.read_bytes().endswith(b"}\n")
