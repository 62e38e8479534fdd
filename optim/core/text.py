"""Text from files where people see it: on a terminal, and in pictures. What would steer either is shown as its code."""

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist


def printable(text: str) -> str:
    r"""Return a text with whatever isn't shown as a character, such as a terminal's escapes, written as its code.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """Return lines of text, each as `printable` shows it."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    r"""Return JSON that says the same, in which what steers a terminal is escaped as JSON escapes it.

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


def keep_texts_plain(drawn: "Artist") -> None:
    """Have a picture show its texts as they are: no mathematics between dollar signs, no TeX, control characters as codes.

    Ticks of a logarithmic axis, which no file names, keep their exponents.
    """
    from matplotlib.axes import Axes
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogFormatter

    ticks: set[Any] = set()
    for axes in drawn.findobj(Axes):
        for axis in (axes.xaxis, axes.yaxis):
            formatter = axis.get_major_formatter()
            if isinstance(formatter, FuncFormatter):  # names of ticks
                formatter.func = partial(_shown, formatter.func)
                axis.get_major_ticks(len(axis.get_majorticklocs()))  # those that are made later would be as usual
            if isinstance(formatter, LogFormatter):
                ticks.update(axis.findobj(Text))
                ticks.discard(axis.label)
    for text in drawn.findobj(Text):
        if text not in ticks:
            text.set_parse_math(False)
            text.set_usetex(False)
            text.set_text(printable_lines(text.get_text()))


def _shown(name_of: Any, value: float, place: int | None = None) -> str:
    """Return the name of a tick."""
    return printable_lines(str(name_of(value, place)))
