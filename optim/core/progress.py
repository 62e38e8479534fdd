"""Progress of long work, and whether loops are compiled just now; silent unless somebody listens."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from optim.core.errors import InvalidOptionError

IMPROVEMENT = 1e-4
"""A line is printed if objective or bound changed by more than this share of themselves."""


class Progress(Protocol):
    """Receive news of a running solve. Implementations must be quick."""

    def start(self, task: str, total: float | None = None) -> None:
        """Begin a task of `total` steps, or of unknown length."""
        ...

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Report steps done so far, with figures worth showing (objective, bound, gap)."""
        ...

    def finish(self) -> None:
        """End the present task."""
        ...


class SilentProgress:
    """Say nothing: the default of the library and of pipes."""

    def start(self, task: str, total: float | None = None) -> None:
        """Ignore the news."""

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Ignore the news."""

    def finish(self) -> None:
        """Ignore the news."""


class PrintedProgress:
    """Print a line when a task begins, and at each improvement of objective or bound, as solvers do that are verbose.

    Parameters
    ----------
    stream
        Where to; standard error by default.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._begun_s = time.perf_counter()
        self._tasks: list[str] = []
        self._shown: dict[str, float | None] = {}

    def start(self, task: str, total: float | None = None) -> None:
        """Print the task's name, and how many steps it has."""
        self._tasks.append(task)
        self._print(task if total is None else f"{task}, {total:g} steps")

    def update(self, completed: float, values: Mapping[str, float | None] | None = None) -> None:
        """Print the figures if objective or bound moved."""
        known = values or {}
        now = {name: known.get(name) for name in ("objective", "bound")}
        if all(_is_close(now[name], self._shown.get(name)) for name in now):
            return
        self._shown = now
        figures = "".join(f", {name} {value:.6g}" for name, value in known.items() if value is not None)
        self._print(f"{self._tasks[-1] if self._tasks else 'solve'}: step {completed:g}{figures}")

    def finish(self) -> None:
        """Go back to the task around this one."""
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
    """Return who hears the news: an object as it is, printed lines for True, nobody for False and None.

    Raises
    ------
    InvalidOptionError
        If it is something else.
    """
    if isinstance(progress, bool) or progress is None:
        return PrintedProgress() if progress else SilentProgress()
    if not all(callable(getattr(progress, name, None)) for name in ("start", "update", "finish")):
        raise InvalidOptionError(
            f"progress must be True, False or an object with start, update and finish, got {progress!r}"
        )
    return progress


XLA = "XLA"
"""Name of what JAX compiles, which no later process can load."""

_COMPILES = "/jax/core/compile/backend_compile_duration"
"""JAX's event; it tells a scalar of that name when it begins, and the duration when it ends, well or badly."""


class Compiling:
    """What is being compiled, innermost last, and how much has been.

    Attributes
    ----------
    tell
        Called with whether anything is compiled, whenever that may have changed; None by default.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self.done = 0
        self.tell: Callable[[bool], None] | None = None

    @property
    def name(self) -> str | None:
        """What is compiled now, None if nothing is."""
        names = self._names[-1:]  # a copy: another thread may end it meanwhile
        return names[0] if names else None

    def begin(self, name: str) -> None:
        """Note that something is compiled from now on."""
        self._names.append(name)
        self._changed()

    def end(self, name: str) -> None:
        """Note that something is compiled; those begun within it and never ended, for they failed, are forgotten."""
        if name in self._names:
            del self._names[len(self._names) - 1 - self._names[::-1].index(name) :]
            self.done += 1
            self._changed()

    def _changed(self) -> None:
        if self.tell is not None:
            self.tell(bool(self._names))


COMPILING = Compiling()
"""Of this process."""


def watch_jax() -> None:
    """Note what JAX compiles from now on, too. Loads JAX: what uses it calls this, once."""
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
