"""Results on stdout, as tables or JSON lines, and progress on stderr."""

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optim.cli.messages import info
from optim.core.documents import encode_line
from optim.core.files import write_bytes
from optim.core.progress import COMPILING, XLA, Progress, SilentProgress
from optim.core.text import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID
    from rich.table import Table

PIPE_WIDTH = 200
"""Minimum width of a table that is not printed to a terminal."""

STACKED_WIDTH = 100
"""Width of stacked tables that are not printed to a terminal."""

NAME_WIDTH = 9
"""Maximum characters per line of a column name in a stacked table."""


class OutputFormat(StrEnum):
    """Format of printed results."""

    TABLE = "table"
    JSON = "json"


def print_json(value: Any) -> None:
    """Print one JSON object on a line, and flush."""
    sys.stdout.write(printable_json(encode_line(value).decode()) + "\n")
    sys.stdout.flush()


def print_line(text: str = "") -> None:
    """Print a line of text."""
    sys.stdout.write(printable(text) + "\n")


def print_document(text: str, *, is_json: bool = False) -> None:
    """Print a text of several lines."""
    sys.stdout.write((printable_json if is_json else printable_lines)(text).rstrip("\n") + "\n")


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    min_wanted: Sequence[str] = (),
    is_wrapped: bool = False,
    breaks: bool = False,
) -> None:
    """Print a table with right-aligned numeric columns.

    Parameters
    ----------
    header, rows
        Column names and cell values.
    title
        Line above the table.
    min_wanted
        Columns to omit, in this order, while the table is too wide; on a terminal, the remaining columns are then
        omitted from the last to the second.
    is_wrapped
        Whether long texts wrap; then only columns of `min_wanted` are omitted.
    breaks
        Whether line feeds in the header break lines; the rest of the header must be printable.

    Notes
    -----
    Cells are never truncated. A line below the table names the omitted columns. A first column that is too wide wraps.
    """
    from rich.console import Console

    body = [list(row) for row in rows]
    names, left_out = [name if breaks else printable(name) for name in header], []
    is_terminal = sys.stdout.isatty()
    width = Console(file=sys.stdout).width if is_terminal else PIPE_WIDTH
    others = names[:0:-1] if is_terminal and not is_wrapped else []
    for name in dict.fromkeys([*min_wanted, *others]):
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
        print_line(f"columns omitted, terminal too narrow: {', '.join(left_out)}")


def print_stacked(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, is_brief: bool = False
) -> tuple[str, ...]:
    """Print a table of many columns as several parts, one below the other, each with the first column.

    Each part fits the terminal, or in a pipe the width `COLUMNS` (if set) or `STACKED_WIDTH`. Column names wrap before
    underscores.

    Parameters
    ----------
    header, rows, title
        As for `print_table`.
    is_brief
        Whether to print only the first part.

    Returns
    -------
    tuple
        Names of the columns that were not printed.
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
    printed = parts[:1] if is_brief else parts
    for part in printed:
        print_table([names[k] for k in part], [[row[k] for k in part] for row in body], title=title, breaks=True)
        title = None
    return tuple(header[k] for part in parts[len(printed) :] for k in part[1:])


def _broken(name: str) -> str:
    """Wrap a name to lines of at most `NAME_WIDTH` characters, before underscores where possible."""
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
    """Print rows (mappings or objects) as JSON lines, or selected fields as a table.

    Parameters
    ----------
    rows
        Rows of the same type.
    output
        Output format.
    header
        Fields of the table; default: all fields of the first row, which must be a mapping.
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


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file with a header, atomically."""
    import csv
    from io import StringIO

    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def _table(header: Sequence[str], body: Sequence[Sequence[object]], is_wrapped: bool) -> "Table":
    """Return a table without borders."""
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
    """Return the width that the table needs without wrapping."""
    from rich.cells import cell_len

    columns = zip(header, *body, strict=True)
    lines = ([*str(name).split("\n"), *map(show, values)] for name, *values in columns)
    return sum(max(map(cell_len, column)) + 3 for column in lines) - 1


def print_fields(fields: Mapping[str, object], title: str | None = None) -> None:
    """Print one name and value per line; nested mappings become `name.name`."""
    pairs = [(printable(name), value) for name, value in _flatten(fields)]
    width = max((len(name) for name, _ in pairs), default=0)
    if title is not None:
        print_line(title)
    for name, value in pairs:
        print_line(f"{name:<{width}}  {show(value)}".rstrip())


def print_one(fields: Mapping[str, object], output: OutputFormat) -> None:
    """Print one row as JSON, or one field per line."""
    if output is OutputFormat.JSON:
        print_json(fields)
    else:
        print_fields(fields)


def show(value: object) -> str:
    """Return a value as text: six significant digits, a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(entry) for entry in value)
    return printable(str(value))


def show_default(value: object) -> str:
    """Return an option's default in the syntax of --option: true or false; list entries separated by commas."""
    if isinstance(value, list | tuple):
        return ",".join(show(entry) for entry in value)
    return str(value).lower() if isinstance(value, bool) else show(value)


def _flatten(fields: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


PATIENCE_S = 2.0
"""Seconds before the first progress display; shorter work shows none."""

LINE_EVERY_S = 30.0
"""Seconds before the first line of progress in a pipe; each later wait is twice as long, up to `MAX_LINE_S`."""

MAX_LINE_S = 600.0
"""Longest wait between two lines of progress in a pipe, in seconds."""

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


def be_quiet(is_quiet: bool) -> None:
    """Turn progress displays off or on."""
    _QUIET.set(is_quiet)


class TerminalProgress:
    """Progress bars on stderr, one line per nested task.

    Each `start` adds a line below the others, and `finish` removes the last.
    """

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._tasks: list[TaskID] = []

    def start(self, task: str, total: float | None = None) -> None:
        """Add a line."""
        self._tasks.append(self._bars.add_task(printable(task), total=total, figures=""))

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Update the last line and its values."""
        if self._tasks:
            self._bars.update(self._tasks[-1], completed=completed, figures=_figures(values))

    def finish(self) -> None:
        """Remove the last line."""
        if self._tasks:
            self._bars.remove_task(self._tasks.pop())


@dataclass(slots=True)
class _Task:
    """A task and its progress."""

    name: str
    total: float | None
    begun_s: float
    completed: float = 0.0
    values: Mapping[str, float | None] | None = None


class LineProgress:
    """Progress for a pipe: `line` describes the state of all tasks in one line."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._begun_s = time.monotonic()

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task within the current one."""
        self._tasks.append(_Task(task, total, time.monotonic()))

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Set the progress of the last task."""
        if self._tasks:
            self._tasks[-1].completed, self._tasks[-1].values = completed, values

    def finish(self) -> None:
        """End the last task."""
        if self._tasks:
            self._tasks.pop()

    def line(self) -> str:
        """Return the tasks with completed work, elapsed time and, if the total is known, the estimated time left."""
        now = time.monotonic()
        told = [_told(task, now) for task in list(self._tasks)] or ["working"]
        return "; ".join(
            [f"{_clock(now - self._begun_s)} elapsed: {told[0]}", *told[1:], *filter(None, [_compiling()])]
        )


@contextmanager
def terminal_progress(patience_s: float = PATIENCE_S, line_every_s: float = LINE_EVERY_S) -> Iterator[Progress]:
    """Yield a progress: on a terminal bars that appear after `patience_s`, otherwise lines from `line_every_s` on."""
    if _QUIET.get():
        yield SilentProgress()
    elif sys.stderr.isatty():
        with _bars(patience_s) as bars:
            yield TerminalProgress(bars)
    else:
        with _lines(line_every_s) as lines:
            yield lines


@contextmanager
def _lines(every_s: float) -> Iterator[LineProgress]:
    lines, is_over = LineProgress(), threading.Event()

    def report() -> None:
        wait_s = every_s
        while not is_over.wait(wait_s):
            info(lines.line())
            wait_s = min(2 * wait_s, max(MAX_LINE_S, every_s))

    # A thread, because compiled code may not call `update` for a long time.
    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _bars(patience_s: float) -> Iterator["Bars"]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as NewBars
    from rich.text import Text

    class Figures(TextColumn):
        """A column of the progress bars: the values of a task and, on the last line, whether code is being compiled."""

        max_refresh = None

        def render(self, task: Task) -> Text:
            told = [str(task.fields["figures"])]
            if task.id == max(bars.task_ids, default=task.id):
                told.insert(0, _compiling())
            return Text("  ".join(filter(None, told)))

    bars = NewBars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        Figures(""),
        console=Console(stderr=True),
        transient=True,
    )
    # A timer rather than a check in `update`, because compiled code may not call `update` for a long time.
    timer = threading.Timer(patience_s, bars.start)
    timer.daemon = True
    timer.start()
    try:
        yield bars
    finally:
        timer.cancel()
        timer.join()
        bars.stop()


def _figures(values: Mapping[str, float | None] | None) -> str:
    shown = ((name, value) for name, value in (values or {}).items() if value is not None)
    return "  ".join(f"{name} {value:.5g}" for name, value in shown)


def _compiling() -> str:
    """Return a note on a running compilation: Numba compiles at first use, JAX in each run."""
    name = COMPILING.name
    often = "once per run" if name == XLA else "first use only"
    return "" if name is None else f"compiling ({COMPILING.done + 1}; {often})"


def _told(task: _Task, now: float) -> str:
    """Return a task with its progress and the estimated time left."""
    parts = [task.name]
    if task.total:
        parts.append(f"{task.completed:g} of {task.total:g}")
        if 0 < task.completed < task.total:
            left = (now - task.begun_s) * (task.total - task.completed) / task.completed
            parts.append(f"about {_clock(left)} left")
    elif task.completed:
        parts.append(f"{task.completed:g} done")
    return ", ".join(filter(None, [*parts, _figures(task.values)]))


def _clock(seconds: float) -> str:
    """Format seconds as 45 s, 3:05 or 1:02:03."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
