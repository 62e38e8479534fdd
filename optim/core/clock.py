"""Seconds by phase of a solve."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PhaseClock:
    """Collect wall-clock seconds by named phase."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside the block to phase `name`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made, less the phase ``compile`` (compiling is no solving)."""
        return time.perf_counter() - self._started - self.seconds.get("compile", 0.0)
