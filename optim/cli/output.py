"""Results on stdout: tables for people, one JSON object a line for programs."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from optim.core.documents import encode_line

PIPE_WIDTH = 200
"""Width of a table that doesn't go to a terminal: wide enough to cut nothing."""


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """Print one JSON object on a line, at once."""
    sys.stdout.write(encode_line(value).decode() + "\n")
    sys.stdout.flush()


def print_line(text: str = "") -> None:
    """Print a line of text."""
    sys.stdout.write(text + "\n")


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table; columns of numbers are set to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column, name in enumerate(header):
        values = [row[column] for row in body if row[column] is not None]
        is_numeric = bool(values) and all(
            isinstance(v, (int, float)) and not isinstance(v, bool) for v in values
        )
        table.add_column(
            name, justify="right" if is_numeric else "left", overflow="fold", no_wrap=len(header) > 2
        )
    for row in body:
        table.add_row(*(Text(show(value)) for value in row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)


def print_fields(fields: Mapping[str, object], title: str | None = None) -> None:
    """Print names and values, one pair a line; nested mappings are written as `name.name`."""
    pairs = list(_flatten(fields))
    width = max((len(name) for name, _ in pairs), default=0)
    if title is not None:
        print_line(title)
    for name, value in pairs:
        print_line(f"{name:<{width}}  {show(value)}".rstrip())


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
    return str(value)


def _flatten(fields: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
