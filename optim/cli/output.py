"""Results on stdout: tables for people, one JSON object a line for programs."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from optim.core.documents import encode_line
from optim.core.text import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.table import Table

PIPE_WIDTH = 200
"""Width of a table that doesn't go to a terminal, unless cells would be cut."""

STACKED_WIDTH = 100
"""Width of tables that are stacked and don't go to a terminal."""
NAME_WIDTH = 9
"""Signs of a column's name in a line of such a table."""


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """Print one JSON object on a line, at once."""
    sys.stdout.write(printable_json(encode_line(value).decode()) + "\n")
    sys.stdout.flush()


def print_line(text: str = "") -> None:
    """Print a line of text."""
    sys.stdout.write(printable(text) + "\n")


def print_document(text: str, *, is_json: bool = False) -> None:
    """Print a text of many lines."""
    sys.stdout.write((printable_json if is_json else printable_lines)(text).rstrip("\n") + "\n")


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    least_wanted: Sequence[str] = (),
    is_wrapped: bool = False,
    breaks: bool = False,
) -> None:
    """Print a table; columns of numbers are set to the right.

    Parameters
    ----------
    header, rows
        Names and values.
    title
        A line above it.
    least_wanted
        Columns to leave out, first to last, while there is no room for all; on a terminal the others follow from the last to
        the second.
    is_wrapped
        Whether long texts go on in the next line; then only what is least wanted is left out.
    breaks
        Whether line feeds in the header are meant, and everything else in it is printable.

    Notes
    -----
    No cell is cut, and what is left out is named below the table. Where not even the first column fits it goes on in the next line.
    """
    from rich.console import Console

    body = [list(row) for row in rows]
    names, left_out = [name if breaks else printable(name) for name in header], []
    is_terminal = sys.stdout.isatty()
    width = Console(file=sys.stdout).width if is_terminal else PIPE_WIDTH
    others = names[:0:-1] if is_terminal and not is_wrapped else []
    for name in dict.fromkeys([*least_wanted, *others]):
        if len(names) > 1 and _natural_width(names, body) > width and name in names:
            column = names.index(name)
            del names[column]
            for row in body:
                del row[column]
            left_out.append(name)
    if not is_terminal and not is_wrapped:
        width = max(width, _natural_width(names, body))
    if title is not None:
        print_line(title)
    Console(file=sys.stdout, width=width).print(_table(names, body, is_wrapped))
    if left_out:
        print_line(f"left out, as there is no room: {', '.join(left_out)}")


def print_stacked(header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table of many columns as several, one below the other, each with the first column; nothing is left out.

    Each is as wide as the terminal, or in a pipe as `COLUMNS` says, else `STACKED_WIDTH`; names of columns go on in the next line after a low line.
    """
    from rich.console import Console

    is_told = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    width = Console(file=sys.stdout).width if is_told else STACKED_WIDTH
    names, body = [_broken(printable(name)) for name in header], [list(row) for row in rows]
    parts: list[list[int]] = [[0]]
    for column in range(1, len(names)):
        tried = [*parts[-1], column]
        if (
            len(tried) > 2
            and _natural_width([names[k] for k in tried], [[row[k] for k in tried] for row in body]) > width
        ):
            tried = [0, column]
            parts.append(tried)
        parts[-1] = tried
    for part in parts:
        print_table([names[k] for k in part], [[row[k] for k in part] for row in body], title=title, breaks=True)
        title = None


def _broken(name: str) -> str:
    """Return a name in lines of at most `NAME_WIDTH` signs, broken before low lines where there are any."""
    lines = [""]
    for number, part in enumerate(name.split("_")):
        word = part if number == 0 else f"_{part}"
        if lines[-1] and len(lines[-1]) + len(word) > NAME_WIDTH:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def print_rows(
    rows: Sequence[Any],
    output: OutputFormat,
    header: Sequence[str] | None = None,
    *,
    title: str | None = None,
    is_wrapped: bool = False,
) -> None:
    """Print rows, mappings or objects: each as JSON, or some of their fields as a table.

    Parameters
    ----------
    rows
        All of one kind.
    output
        How.
    header
        Fields of the table; all those of the first row, a mapping, if absent.
    title, is_wrapped
        As for `print_table`.
    """
    if output is OutputFormat.JSON:
        for row in rows:
            print_json(row)
        return
    names = header if header is not None else tuple(rows[0]) if rows else ()
    body = [[row[name] if isinstance(row, Mapping) else getattr(row, name) for name in names] for row in rows]
    print_table(names, body, title=title, is_wrapped=is_wrapped)


def _table(header: Sequence[str], body: Sequence[Sequence[object]], is_wrapped: bool) -> "Table":
    """Return a table without lines around it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, name in enumerate(header):
        values = [row[column] for row in body if row[column] is not None]
        is_numeric = bool(values) and all(isinstance(value, (int, float)) for value in values)
        is_numeric = is_numeric and not any(isinstance(value, bool) for value in values)
        is_text = is_wrapped and any(" " in show(value) for value in values)
        table.add_column(
            Text(name),
            justify="right" if is_numeric else "left",
            no_wrap=not is_text and len(header) > 1,
            overflow="fold",
        )
    for row in body:
        table.add_row(*(Text(show(value)) for value in row))
    return table


def _natural_width(header: Sequence[str], body: Sequence[Sequence[object]]) -> int:
    """Return the width of a table in which nothing is cut."""
    from rich.cells import cell_len

    columns = zip(header, *body, strict=True)
    lines = ([*str(name).split("\n"), *map(show, values)] for name, *values in columns)
    return sum(max(map(cell_len, column)) + 3 for column in lines) - 1


def print_fields(fields: Mapping[str, object], title: str | None = None) -> None:
    """Print names and values, one pair a line; nested mappings are written as `name.name`."""
    pairs = [(printable(name), value) for name, value in _flatten(fields)]
    width = max((len(name) for name, _ in pairs), default=0)
    if title is not None:
        print_line(title)
    for name, value in pairs:
        print_line(f"{name:<{width}}  {show(value)}".rstrip())


def print_one(fields: Mapping[str, object], output: OutputFormat) -> None:
    """Print one row: as JSON, or a field a line."""
    if output is OutputFormat.JSON:
        print_json(fields)
    else:
        print_fields(fields)


def show(value: object) -> str:
    """Return a value for people: six figures, a dash for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(entry) for entry in value)
    return printable(str(value))


def _flatten(fields: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
