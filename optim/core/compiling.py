"""Whether this process is compiling just now: first use takes its time, and progress says why."""

from collections.abc import Callable
from typing import Any

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
