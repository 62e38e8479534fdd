"""Names from files on a terminal and in plots: shown as they are, without effect of control characters."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

import optim
from optim.cli.output import (
    OutputFormat,
    print_fields,
    print_json,
    print_line,
    print_rows,
    print_table,
    terminal_progress,
)
from optim.core.text import (
    MAX_CELLS,
    MAX_ROWS,
    Cell,
    grid,
    keep_texts_plain,
    printable,
    printable_json,
    printable_lines,
)
from optim.report.plots import as_svg, canvas

HOSTILE = [
    "see [/red] this", "[link=https://e.example]here[/link]", "a\x1b[2Jb", "a\rb", "a\u202egpj.exe", "a\x9b31mb", "a\nb",
    "$x^$", "$x^$ and $y_$", r"\input{x} $\alpha$", r"\$5", "a\x00b", "<b>&amp;", "_hidden",
]  # fmt: skip
SOME_HOSTILE = [*HOSTILE[:2], *(pytest.param(name, marks=pytest.mark.prove) for name in HOSTILE[2:])]
"""Before a release, plots are drawn with all of them."""
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))


@given(st.text())
def test_nothing_that_is_printed_steers_a_terminal_and_plain_text_stays(text):
    assert printable(text).isprintable()
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))
    plain = "".join(filter(str.isprintable, text))
    assert printable(plain) == printable_lines(plain) == plain


@given(st.recursive(NAMES | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_escaped_json_says_the_same(value):
    for indent in (None, 1):
        text = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert all(line.isprintable() for line in text.split("\n"))
        assert json.loads(text) == value


@pytest.mark.parametrize("name", HOSTILE)
def test_tables_and_fields_show_names_as_they_are(name, capsys):
    print_table([name, "b"], [[name, 1]], title=name)
    print_fields({name: name, "in": {name: [name]}}, title=name)
    print_rows([{name: name}], OutputFormat.TABLE)
    print_line(name)
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count(printable(name)) == 11
    print_json({name: name})
    out = capsys.readouterr().out.rstrip("\n")
    assert out.isprintable()
    assert json.loads(out) == {name: name}


@pytest.mark.parametrize("name", HOSTILE)
def test_progress_shows_names_as_they_are(name, monkeypatch):
    from rich.console import Console

    shown = StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=shown, force_terminal=True, width=120))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with terminal_progress(patience_s=60.0) as progress:
        progress.start(name, 2)
        progress.update(1, {"x": 1.0})
        progress._bars.refresh()
        progress._bars.console.print(progress._bars.get_renderable())
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue())
    assert printable(name) in plain
    assert "\x1b]8;" not in shown.getvalue()


def texts_of(svg):
    root = ET.fromstring(svg)
    return ["".join(each.itertext()).strip() for each in root.iter() if each.tag.endswith("text")]


def as_file(figure):
    pytest.importorskip("matplotlib")
    from matplotlib import rc_context

    buffer = StringIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", SOME_HOSTILE)
def test_pictures_show_names_as_they_are(name):
    instance = optim.reference_instance("tiny-0")
    ids = tuple(f"{name} {number}" for number in range(instance.num_jobs))
    named = replace(instance, name=name, jobs=replace(instance.jobs, ids=ids))
    figure = optim.plot.gantt(named, optim.solve(named, "online"))
    shown = " ".join(texts_of(as_file(figure)))
    for line in printable_lines(name).split("\n"):
        assert shown.count(line.strip()) >= 2


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", SOME_HOSTILE)
def test_a_reports_pictures_show_names_in_every_place(name):
    with canvas(6.0, 4.0) as (drawing, (panel,)):
        panel.plot([1, 2], [1, 1000], label=f".{name}")
        panel.set(yscale="log", title=name, xlabel=name, ylabel=name)
        panel.set_xticks([1, 2], [name, "other"])
        panel.annotate(name, (1, 1))
        panel.legend()
        svg = as_svg(drawing, "picture")
    shown = texts_of(svg)
    for line in printable_lines(name).split("\n"):
        assert sum(line.strip() in text for text in shown) >= 6
    assert not any("mathdefault" in text for text in shown)


def test_ticks_of_a_logarithmic_axis_keep_their_exponents_and_settings_of_a_folder_do_not_bring_tex():
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"text.usetex": True}):
        panel = Figure().subplots()
        panel.set(title="a", yscale="log", ylim=(1, 1000))
    keep_texts_plain(panel)
    keep_texts_plain(panel)
    assert not panel.title.get_usetex()
    assert not panel.yaxis.label.get_parse_math()
    assert all(tick.label1.get_parse_math() for tick in panel.yaxis.get_major_ticks())


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter("text")]


def test_draws_each_cell_in_its_place_and_names_rows():
    svg = grid(["a", "b"], [Cell(0, 0, 1.0, "first"), Cell(1, 3, 0.25, "second")], "slots", "Two cells")
    root = ET.fromstring(svg)
    assert root.get("aria-label") == "Two cells"
    first, second = root.iter("rect")
    assert float(second.get("x")) - float(first.get("x")) == 3 * 560 / 4
    assert float(second.get("y")) > float(first.get("y"))
    assert [title.text for title in root.iter("title")] == ["first", "second"]
    assert texts(svg) == ["a", "b", "0", "1", "2", "3", "slots"]


def test_names_are_escaped():
    svg = grid(["<script>'\""], [Cell(0, 0, 1.0, "<b>")], "<i>", "'<u>'")
    assert "<script>" not in svg
    assert texts(svg)[0] == "<script>'\""


def test_says_how_many_rows_are_left_out():
    rows = MAX_ROWS + 7
    svg = grid([f"r{k}" for k in range(rows)], [Cell(k, 0, 1.0, "") for k in range(rows)], "slots", "Many")
    assert svg.count("<rect") == MAX_ROWS
    assert "and 7 more rows" in texts(svg)
    many = grid(["a"], [Cell(0, k, 1.0, "") for k in range(MAX_CELLS + 5)], "slots", "Many")
    assert many.count("<rect") == MAX_CELLS


def test_nothing_is_an_empty_picture():
    assert grid([], [], "slots", "Nothing").count("<rect") == 0
