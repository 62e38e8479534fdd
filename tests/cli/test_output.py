"""Tables and fields for readers, and progress on terminals and during long operations."""

import io
import re
import sys
import threading
import time

import pytest

from optim.cli import output
from optim.cli.output import (
    LineProgress,
    TerminalProgress,
    be_quiet,
    print_fields,
    print_table,
    show,
    terminal_progress,
)
from optim.core.progress import XLA, Compiling, SilentProgress

HEADER = ("name", "value", "remark")
ROWS = [("a", 1.23456789, "long text here"), ("b", None, "x")]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        (1.23456789, "1.23457"),
        (3, "3"),
        ([1, None], "1, -"),
        ("a", "a"),
    ],
)
def test_shows_six_figures_and_a_dash_for_none(value, shown):
    assert show(value) == shown


def test_sets_numbers_to_the_right_and_texts_to_the_left(capsys):
    print_table(HEADER, ROWS, title="a title")
    title, _, header, _, first, second, _ = capsys.readouterr().out.splitlines()
    assert title == "a title"
    assert header.split() == list(HEADER)
    assert first.index("1.23457") + len("1.23457") == second.index("-") + 1
    assert first.index("long") == second.index("x")


def test_leaves_out_what_is_least_wanted_where_there_is_no_room(capsys, monkeypatch):
    monkeypatch.setattr(output, "PIPE_WIDTH", 24)
    print_table(HEADER, ROWS, min_wanted=("value", "remark"))
    text = capsys.readouterr().out
    assert "value" not in text.splitlines()[1]
    assert "long text here" in text
    assert text.splitlines()[-1] == "columns omitted, terminal too narrow: value"


@pytest.mark.parametrize("missing", [0, 1])
def test_leaves_out_nothing_where_the_table_just_fits(missing, capsys, monkeypatch):
    print_table(HEADER, ROWS)
    whole = capsys.readouterr().out
    monkeypatch.setattr(output, "PIPE_WIDTH", max(map(len, whole.splitlines())) - missing)
    print_table(HEADER, ROWS, min_wanted=HEADER)
    assert (capsys.readouterr().out == whole) == (missing == 0)


def test_leaves_out_nothing_where_there_is_room(capsys):
    print_table(HEADER, ROWS, min_wanted=HEADER)
    assert capsys.readouterr().out.split()[:3] == list(HEADER)


def test_pipes_get_every_cell_whole(capsys):
    words = [f"word{k:03}" for k in range(30)]
    print_table(words, [words])
    assert [word for word in capsys.readouterr().out.split() if word.isalnum()] == [*words, *words]


@pytest.fixture
def seen(capsys, monkeypatch):
    """Return a table's lines as a terminal of some width shows them."""

    def lines(width, *table, **options):
        monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(*table, **options)
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)

    return lines


@pytest.mark.parametrize("header", [["instance", "solver", "more"], ["solver"]])
def test_signs_of_two_cells_count_twice_and_the_first_column_is_not_cut_either(seen, header):
    text = seen(40, header, [["日本語の名前です" * 3, "b", "c"][-len(header) :] if len(header) > 1 else ["日本語" * 9]])
    assert "…" not in text
    assert text.count("日") == 3 if len(header) > 1 else text.count("日") == 9


@pytest.mark.parametrize("width", [30, 60])
def test_texts_go_on_in_the_next_line_and_names_and_numbers_do_not(seen, width):
    rows = [["branch-and-price", 1234.5678, "a long text of many words that needs several lines"]]
    text = seen(width, ["solver", "value", "what it does"], rows, is_wrapped=True)
    assert "branch-and-price" in text
    assert "1234.57" in text
    assert "…" not in text


@pytest.mark.parametrize(
    ("width", "kept", "left_out"),
    [(80, ["name", "value", "remark"], []), (26, ["name", "remark"], ["value"]), (10, ["name"], ["value", "remark"])],
)
def test_terminals_leave_columns_out_and_name_them(width, kept, left_out, seen):
    text = seen(width, HEADER, ROWS, min_wanted=["value"])
    assert text.splitlines()[1].split() == kept
    assert "…" not in text
    assert text.splitlines()[-1].strip() == (
        f"columns omitted, terminal too narrow: {', '.join(left_out)}" if left_out else ""
    )


def test_writes_nested_fields_with_dots(capsys):
    print_fields({"a": 1, "inner": {"b": 2.5, "deep": {"c": None}}})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", "1"],
        ["inner.b", "2.5"],
        ["inner.deep.c", "-"],
    ]


LONG_S = 60.0


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def become_terminal(monkeypatch):
    """Return a function that makes stderr a terminal; called within the test, since pytest replaces stderr after fixtures."""

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
        r"optim: \d+ s elapsed: the whole, 1 of 4, about \d+ s left; a part, 7 done, objective 12.346", line
    )
    told = pipe.getvalue()
    time.sleep(0.05)
    assert pipe.getvalue() == told  # no output after the block


def test_what_is_left_is_reckoned_from_what_was_done(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("optim.cli.output.time.monotonic", lambda: now[0])
    lines = LineProgress()
    assert lines.line() == "0 s elapsed: working"
    lines.start("bench", 10)
    now[0] += 90
    assert lines.line() == "1:30 elapsed: bench, 0 of 10"
    lines.update(2)
    assert lines.line() == "1:30 elapsed: bench, 2 of 10, about 6:00 left"
    now[0] += 7200
    lines.update(10)
    assert lines.line() == "2:01:30 elapsed: bench, 10 of 10"


def test_says_that_it_compiles(monkeypatch, become_terminal):
    compiling = Compiling()
    monkeypatch.setattr("optim.cli.output.COMPILING", compiling)
    compiling.begin("outer")
    compiling.begin("inner")
    assert LineProgress().line() == "0 s elapsed: working; compiling (1; first use only)"
    terminal = become_terminal()
    with terminal_progress(patience_s=0.0) as progress:
        progress.start("a task")
        wait_for(terminal, "compiling (1; first use only)")
    compiling.end("inner")
    assert (compiling.name, compiling.done) == ("outer", 1)
    compiling.end("outer")
    assert LineProgress().line() == "0 s elapsed: working"
    compiling.begin(XLA)
    assert LineProgress().line() == "0 s elapsed: working; compiling (3; once per run)"


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
