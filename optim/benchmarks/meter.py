"""Measure a block from outside: seconds of the wall clock and of the processor, and the memory that it took."""

import ctypes
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from optim.core.memory import own_memory

_CLEAR = Path("/proc/self/clear_refs")
_PIECE = 2**14
"""Bytes that show where memory comes from: more than a thread has at hand, less than gets pages of its own."""


class Meter:
    """What a block costs; nothing that runs inside it can leave work out.

    Attributes
    ----------
    wall_s, processor_s
        Seconds of the wall clock, and of all threads of this process together.
    memory_mb
        By how many MiB the resident memory stood at its peak above what the process held when the block began. What was
        free in the heap is given back to the system first, so that a block pays for what it uses, whatever ran before it.
        None where the system doesn't tell (it takes Linux), and where the C library keeps what is free: in a thread that
        isn't the first, and in the first after it was refused memory.
    """

    wall_s: float
    processor_s: float
    memory_mb: float | None

    def __enter__(self) -> "Meter":
        self._held = _restart_peak() if _give_back_free_memory() else None
        self._begun = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall, processor = self._begun
        self.wall_s, self.processor_s = time.perf_counter() - wall, time.process_time() - processor
        peak = own_memory("VmHWM")
        known = self._held is not None and peak is not None
        self.memory_mb = max(0, (peak or 0) - (self._held or 0)) / 2**20 if known else None

    @property
    def figures(self) -> dict[str, Any]:
        """What was measured, by the names of a record's fields."""
        return {"wall_s": self.wall_s, "processor_s": self.processor_s, "memory_mb": self.memory_mb}


def _give_back_free_memory() -> bool:
    """Return the heap's free pages to the system, and tell whether this thread's memory comes from that heap.

    Of all arenas of the GNU C library, only the one that ends at the program break is trimmed at its end.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):
        return True
    library.malloc_trim(0)
    library.malloc.restype, library.sbrk.restype = ctypes.c_void_p, ctypes.c_void_p
    piece = ctypes.c_void_p(library.malloc(_PIECE))
    library.free(piece)
    end = ctypes.c_void_p(library.sbrk(ctypes.c_ssize_t(0)))
    return (piece.value or 0) < (end.value or 0)


def _restart_peak() -> int | None:
    """Begin counting the peak anew; return the bytes held now, None where the system can't."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return None
    return own_memory("VmRSS")
