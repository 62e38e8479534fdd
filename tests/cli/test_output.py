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
    print_table(HEADER, ROWS, min_wanted=("value", "remark"))
    text = capsys.readouterr().out
    assert "value" not in text.splitlines()[1]
    assert "long text here" in text
    assert text.splitlines()[-1] == "left out, as there is no room: value"


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
        f"left out, as there is no room: {', '.join(left_out)}" if left_out else ""
    )


def test_writes_nested_fields_with_dots(capsys):
    print_fields({"a": 1, "inner": {"b": 2.5, "deep": {"c": None}}})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", "1"],
        ["inner.b", "2.5"],
        ["inner.deep.c", "-"],
    ]
