"""A small picture without a drawing package: a grid of filled cells, for notebooks."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

ROW, LEFT, FOOT, WIDTH = 16, 64, 30, 560
"""Height of a row, room for the names at the left and the axis below, and width of the cells, in pixels."""

MOST_ROWS = 60
"""Rows drawn at most; a line says how many are left out."""

MOST_CELLS = 4000
"""Cells drawn at most."""

COLOUR = "#2f74b5"


class Cell(NamedTuple):
    """A filled cell: where, how dark (0 to 1), and what a pointer is told."""

    row: int
    column: int
    strength: float
    title: str


def grid(names: Sequence[str], cells: Sequence[Cell], axis: str, label: str) -> str:
    """Return cells in named rows as an ``<svg>`` element.

    Parameters
    ----------
    names
        Of the rows, from the top.
    cells
        What is filled; the columns begin with 0.
    axis
        What the columns are.
    label
        Says what is shown to those who don't see it.

    Examples
    --------
    >>> grid(["a"], [Cell(0, 1, 1.0, "here")], "slots", "One cell").count("<rect")
    1
    """
    columns = max((cell.column for cell in cells), default=0) + 1
    shown = names[:MOST_ROWS]
    drawn = [cell for cell in cells if cell.row < MOST_ROWS][:MOST_CELLS]
    left_out = len(names) - len(shown)
    height = ROW * (len(shown) + bool(left_out)) + FOOT
    unit = WIDTH / columns
    parts = [
        f"<text x='{LEFT - 6}' y='{ROW * row + 12}' text-anchor='end'>{escape(name)}</text>"
        for row, name in enumerate(shown)
    ]
    parts += [
        f"<rect x='{LEFT + unit * cell.column:.1f}' y='{ROW * cell.row + 2}' width='{0.94 * unit:.2f}' height='{ROW - 3}' "
        f"fill='{COLOUR}' fill-opacity='{cell.strength:.2f}'><title>{escape(cell.title)}</title></rect>"
        for cell in drawn
    ]
    if left_out:
        parts.append(f"<text x='{LEFT}' y='{ROW * len(shown) + 12}'>and {left_out} more rows</text>")
    step = max(1, -(-columns // 12))
    parts += [
        f"<text x='{LEFT + unit * (column + 0.5):.1f}' y='{height - 16}' text-anchor='middle'>{column}</text>"
        for column in range(0, columns, step)
    ]
    parts.append(f"<text x='{LEFT + WIDTH / 2}' y='{height - 3}' text-anchor='middle'>{escape(axis)}</text>")
    return (
        f"<svg role='img' aria-label='{escape(label)}' viewBox='0 0 {LEFT + WIDTH} {height}' width='100%' "
        f"style='max-width:{LEFT + WIDTH}px;font:11px sans-serif' fill='currentColor'>{''.join(parts)}</svg>"
    )
