"""Numbers that all processes of a run see at once: how fast it goes, and what time it is."""

import mmap
import os
import struct
import time
import weakref
from typing import Any

NUMBER = struct.Struct("d")

RUNNING = -1.0
"""What is held, of a clock that isn't."""

LOOK_S = 0.002
"""How often those who sleep look whether a clock that is held goes on."""


class Shared:
    """Numbers in a file that is mapped into memory, so that a change is seen by processes in the midst of their work.

    The file has no name in any folder: it needs no room on a disk, and goes with its owner, however that one ends.

    Parameters
    ----------
    values
        What they are at first.
    """

    def __init__(self, *values: float) -> None:
        descriptor = os.memfd_create("optim-shared")
        os.write(descriptor, b"".join(map(NUMBER.pack, values)))
        self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
        self._map: mmap.mmap | None = None
        self._finalizer = weakref.finalize(self, os.close, descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_map": None}  # whoever is handed it doesn't close the owner's file

    def close(self) -> None:
        """Close the file, as also happens once nobody has it; processes that have it mapped keep what they see."""
        self._finalizer()

    def _get(self, place: int) -> float:
        return float(NUMBER.unpack_from(self._memory(), place * NUMBER.size)[0])

    def _set(self, place: int, value: float) -> None:
        NUMBER.pack_into(self._memory(), place * NUMBER.size, value)

    def _memory(self) -> mmap.mmap:
        if self._map is None:
            with open(self.path, "r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        return self._map


class Pace(Shared):
    """How many times as long a gradient takes as a lone worker's; the runner writes it, all workers read it."""

    def __init__(self) -> None:
        super().__init__(1.0)

    def write(self, value: float) -> None:
        """Set it."""
        self._set(0, value)

    def read(self) -> float:
        """Return it."""
        return self._get(0)


class SharedClock(Shared):
    """Seconds of a run, the same in all its processes; the runner may hold them. At first they are held, at 0.

    Its two functions are those of the module `time`, and stand for them.

    Attributes
    ----------
    held_s
        Seconds for which it was held so far, as its owner knows.
    """

    def __init__(self) -> None:
        super().__init__(0.0, 0.0)
        self.held_s = 0.0
        self._since = time.monotonic()

    def monotonic(self) -> float:
        """Return the seconds that it has gone for."""
        held = self._get(1)
        return time.monotonic() - self._get(0) if held == RUNNING else held

    def sleep(self, seconds: float) -> None:
        """Sleep until so many of its seconds are over."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            time.sleep(left if self._get(1) == RUNNING else LOOK_S)

    def hold(self) -> None:
        """Let it stand still."""
        self._set(1, self.monotonic())
        self._since = time.monotonic()

    def go(self) -> None:
        """Let it go on from where it stands."""
        now = time.monotonic()
        self.held_s += now - self._since
        # First what it counts from: whoever sees it go sees that, too.
        self._set(0, now - self._get(1))
        self._set(1, RUNNING)
