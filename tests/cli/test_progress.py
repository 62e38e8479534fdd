"""Progress is for terminals, and for what takes its time."""

import io
import re
import sys
import threading
import time

import pytest

from optim.cli.output import LineProgress, TerminalProgress, be_quiet, terminal_progress
from optim.core.progress import XLA, Compiling, SilentProgress

LONG_S = 60.0


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def become_terminal(monkeypatch):
    """Let stderr be a terminal from the call on (between fixture and test pytest takes it back)."""

    def become():
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        return stream

    return become


@pytest.fixture
def become_pipe(monkeypatch):
    """Let stderr be a pipe from the call on, as above."""

    def become():
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return become


def wait_for(stream, text):
    begun = time.monotonic()
    while text not in stream.getvalue():
        assert time.monotonic() - begun < LONG_S
        time.sleep(0.005)


def test_says_nothing_in_a_pipe_of_what_is_done_soon(become_pipe):
    pipe = become_pipe()
    with terminal_progress() as progress:
        progress.start("a task", 10)
        progress.update(5)
        progress.finish()
        progress.finish()
    assert pipe.getvalue() == ""


def test_says_a_line_now_and_then_in_a_pipe(become_pipe):
    pipe = become_pipe()
    with terminal_progress(line_every_s=0.01) as progress:
        progress.start("the whole", 4)
        progress.update(1)
        progress.start("a part")
        progress.update(7, {"objective": 12.345678, "bound": None})
        wait_for(pipe, "left; a part, 7 done, objective 12.346\n")
    line = pipe.getvalue().splitlines()[-1]
    assert re.fullmatch(
        r"optim: \d+ s gone: the whole, 1 of 4, about \d+ s left; a part, 7 done, objective 12.346", line
    )
    told = pipe.getvalue()
    time.sleep(0.05)
    assert pipe.getvalue() == told  # nothing once the block is through


def test_what_is_left_is_reckoned_from_what_was_done(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("optim.cli.output.time.monotonic", lambda: now[0])
    lines = LineProgress()
    assert lines.line() == "0 s gone: working"
    lines.start("bench", 10)
    now[0] += 90
    assert lines.line() == "1:30 gone: bench, 0 of 10"
    lines.update(2)
    assert lines.line() == "1:30 gone: bench, 2 of 10, about 6:00 left"
    now[0] += 7200
    lines.update(10)
    assert lines.line() == "2:01:30 gone: bench, 10 of 10"


def test_says_that_it_compiles(monkeypatch, become_terminal):
    compiling = Compiling()
    monkeypatch.setattr("optim.cli.output.COMPILING", compiling)
    compiling.begin("outer")
    compiling.begin("inner")
    assert LineProgress().line() == "0 s gone: working; compiling (1; first use only)"
    terminal = become_terminal()
    with terminal_progress(patience_s=0.0) as progress:
        progress.start("a task")
        wait_for(terminal, "compiling (1; first use only)")
    compiling.end("inner")
    assert (compiling.name, compiling.done) == ("outer", 1)
    compiling.end("outer")
    assert LineProgress().line() == "0 s gone: working"
    compiling.begin(XLA)
    assert LineProgress().line() == "0 s gone: working; compiling (3; once a run)"


def test_a_loop_that_failed_within_another_is_forgotten():
    compiling = Compiling()
    for name in ("outer", "failed", "other"):
        compiling.begin(name)
    compiling.end("outer")
    compiling.end("never begun")
    assert (compiling.name, compiling.done) == (None, 1)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_is_silent_if_asked(become_pipe, become_terminal, is_terminal):
    stream = become_terminal() if is_terminal else become_pipe()
    be_quiet(True)
    try:
        with terminal_progress(patience_s=0.0, line_every_s=0.001) as progress:
            assert isinstance(progress, SilentProgress)
            time.sleep(0.02)
    finally:
        be_quiet(False)
    assert stream.getvalue() == ""


def test_says_nothing_of_what_is_done_soon(become_terminal):
    terminal = become_terminal()
    with terminal_progress(patience_s=LONG_S) as progress:
        progress.start("a task", 10)
        progress.update(5, {"gap": 0.1})
        progress.finish()
    assert terminal.getvalue() == ""


def test_shows_tasks_and_figures_of_what_takes_long(become_terminal):
    terminal = become_terminal()
    with terminal_progress(patience_s=0.0) as progress:
        assert isinstance(progress, TerminalProgress)
        progress.start("the whole", 3)
        progress.start("a part")
        progress.update(7, {"objective": 12.345678, "bound": None})
        wait_for(terminal, "12.346")
    assert "the whole" in terminal.getvalue()
    assert "a part" in terminal.getvalue()
    assert "bound" not in terminal.getvalue()


def test_finishing_more_often_than_starting_does_no_harm(become_terminal):
    become_terminal()
    with terminal_progress(patience_s=LONG_S) as progress:
        progress.finish()
        progress.update(1)


def test_a_bar_that_still_waits_keeps_no_process_alive(become_terminal):
    become_terminal()
    with terminal_progress():
        waiting = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        assert waiting
        assert all(thread.daemon for thread in waiting)
