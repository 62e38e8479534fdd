"""A grid of cells as SVG: whole, bounded, and harmless whatever it is named."""

import xml.etree.ElementTree as ET

from optim.core.text import MAX_CELLS, MAX_ROWS, Cell, grid


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
