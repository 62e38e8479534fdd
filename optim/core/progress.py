"""Progress of long computations and of compilation; silent by default."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from optim.core.errors import InvalidOptionError

IMPROVEMENT = 1e-4
"""Relative change of objective or bound above which a line is printed."""


class Progress(Protocol):
    """Receiver of a solve's progress. Implementations must be fast."""

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task of `total` steps, or of unknown length."""
        ...

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Report completed steps, with values to show (objective, bound, gap)."""
        ...

    def finish(self) -> None:
        """End the current task."""
        ...


class SilentProgress:
    """Show no progress, the default of the library."""

    def start(self, task: str, total: float | None = None) -> None:
        """Do nothing."""

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


class PrintedProgress:
    """Print a line at the start of a task, and at each improvement of objective or bound.

    Parameters
    ----------
    stream
        Output stream; default: standard error.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._begun_s = time.perf_counter()
        self._tasks: list[str] = []
        self._shown: dict[str, float | None] = {}

    def start(self, task: str, total: float | None = None) -> None:
        """Print the task's name and number of steps."""
        self._tasks.append(task)
        self._print(task if total is None else f"{task}, {total:g} steps")

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Print the values if objective or bound changed."""
        known = values or {}
        now = {name: known.get(name) for name in ("objective", "bound")}
        if all(_is_close(now[name], self._shown.get(name)) for name in now):
            return
        self._shown = now
        figures = "".join(f", {name} {value:.6g}" for name, value in known.items() if value is not None)
        self._print(f"{self._tasks[-1] if self._tasks else 'solve'}: step {completed:g}{figures}")

    def finish(self) -> None:
        """Return to the enclosing task."""
        if self._tasks:
            self._tasks.pop()

    def _print(self, text: str) -> None:
        stream = sys.stderr if self._stream is None else self._stream
        stream.write(f"{time.perf_counter() - self._begun_s:8.1f} s  {text}\n")
        stream.flush()


def _is_close(now: float | None, before: float | None) -> bool:
    if now is None or before is None:
        return now is before
    return now == before or abs(now - before) <= IMPROVEMENT * max(abs(now), abs(before))


def listener_of(progress: Progress | bool | None) -> Progress:
    """Return a `Progress`: the object itself, `PrintedProgress` for True, `SilentProgress` for False and None.

    Raises
    ------
    InvalidOptionError
        If the object lacks a method of `Progress`.
    """
    if isinstance(progress, bool) or progress is None:
        return PrintedProgress() if progress else SilentProgress()
    if not all(callable(getattr(progress, name, None)) for name in ("start", "update", "finish")):
        raise InvalidOptionError(
            f"progress must be True, False or an object with start, update and finish, got {progress!r}"
        )
    return progress


XLA = "XLA"
"""Name of compilations by JAX in `COMPILING`; later processes cannot reuse their results."""

_COMPILES = "/jax/core/compile/backend_compile_duration"
"""JAX's name for a compilation: it records a scalar with this name at the beginning, and a duration at the end or failure."""


class Compiling:
    """State of compilation in a process: running compilations, innermost last, and the number of finished ones.

    Attributes
    ----------
    on_change
        Called after each change with whether a compilation is running; None by default.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self.done = 0
        self.on_change: Callable[[bool], None] | None = None

    @property
    def name(self) -> str | None:
        """Name of the innermost running compilation, None if there is none."""
        names = self._names[-1:]  # a copy, because another thread may end it
        return names[0] if names else None

    def begin(self, name: str) -> None:
        """Record the beginning of a compilation."""
        self._names.append(name)
        self._changed()

    def end(self, name: str) -> None:
        """Record the end of a compilation, and drop compilations within it whose end was not recorded because they failed."""
        if name in self._names:
            del self._names[len(self._names) - 1 - self._names[::-1].index(name) :]
            self.done += 1
            self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change(bool(self._names))


COMPILING = Compiling()
"""Compilation state of this process."""


def watch_jax() -> None:
    """Record JAX compilations in `COMPILING`. Imports JAX; call once from code that uses it."""
    from jax import monitoring

    def begins(event: str, value: float, **_: Any) -> None:
        del value
        if event == _COMPILES:
            COMPILING.begin(XLA)

    def ends(event: str, duration: float, **_: Any) -> None:
        del duration
        if event == _COMPILES:
            COMPILING.end(XLA)

    monitoring.register_scalar_listener(begins)
    monitoring.register_event_duration_secs_listener(ends)
