"""Signs of life: which machines have been silent for too long."""

import threading
import time
from collections.abc import Callable, Mapping

BEAT_S = 0.5
"""Seconds between two signs of life."""


class Watch:
    """Tells which machines are silent: since when each count has stood still, by a clock that stands still with ours.

    A controller that was stopped itself, or had no processor, must not take everybody else for dead: so the time between
    two looks counts for `period_s` at most.
    """

    def __init__(self, silence_s: float, start_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period_s = min(BEAT_S, silence_s / 4)
        self._silence_s, self._start_s = silence_s, start_s
        self._clock = clock
        self._last_look = clock()
        self._now = 0.0
        self._seen: dict[str, tuple[int, float]] = {}
        self._is_ready: dict[str, bool] = {}
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    def expect(self, machine: str) -> None:
        """Begin to wait for a machine."""
        with self._lock:
            self._seen[machine], self._is_ready[machine] = (-1, self._now), False

    def arrive(self, machine: str, count: int) -> None:
        """Expect signs of a machine from now on."""
        with self._lock:
            self._seen[machine], self._is_ready[machine] = (int(count), self._now), True

    def silent(self, beats: Mapping[str, int]) -> list[str]:
        """Look at all counts; return the machines that have been silent for too long, each once."""
        look = self._clock()
        self._now += min(look - self._last_look, 2 * self.period_s)
        self._last_look = look
        found = []
        with self._lock:
            for machine, (count, since) in self._seen.items():
                if machine in self._reasons:
                    continue
                is_ready = self._is_ready[machine]
                allowed = self._silence_s if is_ready else self._start_s
                if is_ready and beats.get(machine, count) != count:
                    self._seen[machine] = beats[machine], self._now
                elif self._now - since > allowed:
                    self._reasons[machine] = f"without a sign of life for {allowed:g} s"
                    found.append(machine)
        return found

    def reason(self, machine: str) -> str | None:
        """Return why a machine was killed, None if it wasn't."""
        return self._reasons.get(machine)

    def forget(self, machine: str) -> None:
        """Watch a machine no more."""
        with self._lock:
            self._seen.pop(machine, None)
            self._is_ready.pop(machine, None)
            self._reasons.pop(machine, None)
