"""Progress on a terminal, for whatever runs longer than two seconds; silent in a pipe."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from optim.core.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

PATIENCE_S = 2.0
"""Work that is done sooner shows no progress."""


class TerminalProgress:
    """A line for the whole and a line for the running solve, on stderr.

    Tasks may be nested: each `start` opens a line below the others, `finish` removes the last.
    """

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._tasks: list[TaskID] = []

    def start(self, task: str, total: float | None = None) -> None:
        """Open a line."""
        self._tasks.append(self._bars.add_task(task, total=total, figures=""))

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Move the last line on, and show figures beside it."""
        if self._tasks:
            shown = ((name, value) for name, value in (values or {}).items() if value is not None)
            figures = "  ".join(f"{name} {value:.5g}" for name, value in shown)
            self._bars.update(self._tasks[-1], completed=completed, figures=figures)

    def finish(self) -> None:
        """Remove the last line."""
        if self._tasks:
            self._bars.remove_task(self._tasks.pop())


@contextmanager
def terminal_progress(patience_s: float = PATIENCE_S) -> Iterator[Progress]:
    """Give a progress that is shown once the block has taken `patience_s`, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield SilentProgress()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as NewBars

    bars = NewBars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[figures]}"),
        console=Console(stderr=True),
        transient=True,
    )
    # A timer, not a look at the clock in `update`: a solver inside compiled code reports nothing for long.
    timer = threading.Timer(patience_s, bars.start)
    timer.daemon = True
    timer.start()
    try:
        yield TerminalProgress(bars)
    finally:
        timer.cancel()
        timer.join()
        bars.stop()
