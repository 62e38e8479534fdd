"""Progress is for terminals, and for what takes its time."""

import io
import sys
import time

import pytest

from optim.cli.progress import TerminalProgress, terminal_progress
from optim.core.progress import SilentProgress

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


def test_says_nothing_in_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with terminal_progress(patience_s=0.0) as progress:
        assert isinstance(progress, SilentProgress)


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
        begun = time.monotonic()
        while "12.346" not in terminal.getvalue():
            assert time.monotonic() - begun < LONG_S
            time.sleep(0.01)
    assert "the whole" in terminal.getvalue()
    assert "a part" in terminal.getvalue()
    assert "bound" not in terminal.getvalue()


def test_finishing_more_often_than_starting_does_no_harm(become_terminal):
    become_terminal()
    with terminal_progress(patience_s=LONG_S) as progress:
        progress.finish()
        progress.update(1)
