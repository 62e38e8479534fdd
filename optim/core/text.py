"""Safe display of text from files on terminals and in plots, and small SVG pictures."""

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.artist import Artist


def printable(text: str) -> str:
    r"""Replace non-printable characters, such as terminal escapes, by their codes.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Apply `printable` to each line of a text."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    r"""Escape terminal control characters in JSON without changing its meaning.

    Examples
    --------
    >>> printable_json('"a\x9b2Jb"')
    '"a\\u009b2Jb"'
    """
    return "\n".join(
        line if line.isprintable() else "".join(c if c.isprintable() else _json_escape(c) for c in line)
        for line in text.split("\n")
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def keep_texts_plain(artist: "Artist") -> None:
    """Show the texts of a plot literally: no mathematics between dollar signs, no TeX, control characters as codes.

    Tick labels of a logarithmic axis, which do not come from files, keep their exponents.
    """
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogFormatter

    ticks: set[Any] = set()
    for axes in artist.findobj(Axes):
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FuncFormatter):  # tick labels from names
                formatter.func = partial(_shown, formatter.func)
                axis.get_major_ticks(
                    len(axis.get_majorticklocs())
                )  # create all ticks now, because later ones would use TeX
            if isinstance(formatter, LogFormatter):
                ticks.update(axis.findobj(Text))
                ticks.discard(axis.label)
    for text in artist.findobj(Text):
        if text not in ticks:
            text.set_parse_math(False)
            text.set_usetex(False)
            text.set_text(printable_lines(text.get_text()))


def _shown(name_of: Any, value: float, place: int | None = None) -> str:
    """Return the label of a tick."""
    return printable_lines(str(name_of(value, place)))


ROW, LEFT, FOOT, WIDTH = 16, 64, 30, 560
"""Height of a row, left margin for names, bottom margin for the axis, and width of the cells, in pixels."""

MAX_ROWS = 60
"""Maximum rows to draw; a line gives the number of further rows."""

MAX_CELLS = 4000
"""Maximum cells to draw."""

COLOUR = "#2f74b5"


class Cell(NamedTuple):
    """A filled cell: position, darkness (0 to 1) and tooltip."""

    row: int
    column: int
    strength: float
    title: str


def grid(names: Sequence[str], cells: Sequence[Cell], axis: str, label: str) -> str:
    """Return cells in named rows as an ``<svg>`` element.

    Parameters
    ----------
    names
        Row names from the top.
    cells
        The filled cells; columns begin with 0.
    axis
        Label of the column axis.
    label
        Description for screen readers.

    Examples
    --------
    >>> grid(["a"], [Cell(0, 1, 1.0, "here")], "slots", "One cell").count("<rect")
    1
    """
    columns = max((cell.column for cell in cells), default=0) + 1
    shown = names[:MAX_ROWS]
    shown_cells = [cell for cell in cells if cell.row < MAX_ROWS][:MAX_CELLS]
    num_hidden = len(names) - len(shown)
    height = ROW * (len(shown) + bool(num_hidden)) + FOOT
    unit = WIDTH / columns
    parts = [
        f"<text x='{LEFT - 6}' y='{ROW * row + 12}' text-anchor='end'>{escape(name)}</text>"
        for row, name in enumerate(shown)
    ]
    parts += [
        f"<rect x='{LEFT + unit * cell.column:.1f}' y='{ROW * cell.row + 2}' width='{0.94 * unit:.2f}' height='{ROW - 3}' "
        f"fill='{COLOUR}' fill-opacity='{cell.strength:.2f}'><title>{escape(cell.title)}</title></rect>"
        for cell in shown_cells
    ]
    if num_hidden:
        parts.append(f"<text x='{LEFT}' y='{ROW * len(shown) + 12}'>and {num_hidden} more rows</text>")
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
