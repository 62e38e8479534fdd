"""Progress for whatever runs longer than two seconds: bars on a terminal, a line every half minute in a pipe."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optim.cli.border import note
from optim.core.compiling import COMPILING, XLA
from optim.core.progress import Progress, SilentProgress
from optim.core.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

PATIENCE_S = 2.0
"""Work that is done sooner shows no progress."""

LINE_EVERY_S = 30.0
"""In a pipe."""

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


def be_quiet(is_quiet: bool) -> None:
    """Say nothing of progress from now on, or speak again."""
    _QUIET.set(is_quiet)


class TerminalProgress:
    """A line for the whole and a line for the running solve, on stderr.

    Tasks may be nested: each `start` opens a line below the others, `finish` removes the last.
    """

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._tasks: list[TaskID] = []

    def start(self, task: str, total: float | None = None) -> None:
        """Open a line."""
        self._tasks.append(self._bars.add_task(printable(task), total=total, figures=""))

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Move the last line on, and show figures beside it."""
        if self._tasks:
            self._bars.update(self._tasks[-1], completed=completed, figures=_figures(values))

    def finish(self) -> None:
        """Remove the last line."""
        if self._tasks:
            self._bars.remove_task(self._tasks.pop())


@dataclass(slots=True)
class _Task:
    """A task, and how far it is."""

    name: str
    total: float | None
    begun_s: float
    completed: float = 0.0
    values: Mapping[str, float | None] | None = None


class LineProgress:
    """The same news for a pipe: `line` tells them in one line, whenever it is asked."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._begun_s = time.monotonic()

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task within the present one."""
        self._tasks.append(_Task(task, total, time.monotonic()))

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Note how far the last task is."""
        if self._tasks:
            self._tasks[-1].completed, self._tasks[-1].values = completed, values

    def finish(self) -> None:
        """End the last task."""
        if self._tasks:
            self._tasks.pop()

    def line(self) -> str:
        """Return what is done, for how long, and where the total is known for about how much longer."""
        now = time.monotonic()
        told = [_told(task, now) for task in list(self._tasks)] or ["working"]
        return "; ".join([f"{_clock(now - self._begun_s)} gone: {told[0]}", *told[1:], *filter(None, [_compiling()])])


@contextmanager
def terminal_progress(patience_s: float = PATIENCE_S, line_every_s: float = LINE_EVERY_S) -> Iterator[Progress]:
    """Give a progress: bars once the block has taken `patience_s` if stderr is a terminal, else a line now and then."""
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

    def tell() -> None:
        while not is_over.wait(every_s):
            note(lines.line())

    # A thread, as below: compiled code reports nothing for long.
    thread = threading.Thread(target=tell, daemon=True)
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
        """The figures of a task, and on the last line whether loops are compiled."""

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
    # A timer, not a look at the clock in `update`: a solver inside compiled code reports nothing for long.
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
    """Say that something is being compiled: loops at first use, what JAX compiles anew in each run."""
    name = COMPILING.name
    often = "once a run" if name == XLA else "first use only"
    return "" if name is None else f"compiling ({COMPILING.done + 1}; {often})"


def _told(task: _Task, now: float) -> str:
    """Return a task with its progress, and about how long it takes yet."""
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
    """Return seconds as people write them: 45 s, 3:05, 1:02:03."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
