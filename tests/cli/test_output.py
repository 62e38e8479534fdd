"""Tables and fields for people."""

import re

import pytest

from optim.cli import output
from optim.cli.output import print_fields, print_table, show

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
    print_table(HEADER, ROWS, least_wanted=("value", "remark"))
    text = capsys.readouterr().out
    assert "value" not in text
    assert "long text here" in text


def test_leaves_out_nothing_where_there_is_room(capsys):
    print_table(HEADER, ROWS, least_wanted=HEADER)
    assert capsys.readouterr().out.split()[:3] == list(HEADER)


def test_pipes_get_every_cell_whole(capsys):
    words = [f"word{k:03}" for k in range(30)]
    print_table(words, [words])
    assert [word for word in capsys.readouterr().out.split() if word.isalnum()] == [*words, *words]


@pytest.mark.parametrize(
    ("width", "kept", "left_out"),
    [(80, ["name", "value", "remark"], []), (26, ["name", "remark"], ["value"]), (10, ["name"], ["value", "remark"])],
)
def test_terminals_leave_columns_out_and_name_them(width, kept, left_out, capsys, monkeypatch):
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(HEADER, ROWS, least_wanted=["value"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert text.splitlines()[1].split() == kept
    assert "…" not in text
    assert text.splitlines()[-1].strip() == (
        f"left out, as there is no room: {', '.join(left_out)}" if left_out else ""
    )


def test_writes_nested_fields_with_dots(capsys):
    print_fields({"a": 1, "inner": {"b": 2.5, "deep": {"c": None}}})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", "1"],
        ["inner.b", "2.5"],
        ["inner.deep.c", "-"],
    ]
