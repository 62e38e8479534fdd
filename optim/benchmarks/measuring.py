"""Measurement from outside: wall and processor seconds, memory, and alternating timings of several functions."""

import ctypes
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from optim.core.limits import own_memory
from optim.core.progress import Progress
from optim.core.stopping import SolveState, StoppingCriterion

_CLEAR = Path("/proc/self/clear_refs")

_PIECE = 2**14
"""Bytes of a test allocation: more than a thread caches, less than malloc maps separately."""


class Meter:
    """The cost of a block, measured from outside.

    Attributes
    ----------
    wall_s, processor_s
        Seconds of the wall clock, and of all threads of this process together.
    memory_mb
        Peak of the resident memory in MiB above its size at the beginning of the block. Free memory of the heap is
        returned to the system first, so that earlier work has no influence. None outside Linux, and if the C library
        cannot return free memory: in threads other than the first, and in the first after a failed allocation.
    """

    wall_s: float
    processor_s: float
    memory_mb: float | None

    def __enter__(self) -> "Meter":
        self._resident_bytes = _restart_peak() if _give_back_free_memory() else None
        self._begun = time.perf_counter(), time.process_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall, processor = self._begun
        self.wall_s, self.processor_s = time.perf_counter() - wall, time.process_time() - processor
        peak = own_memory("VmHWM")
        known = self._resident_bytes is not None and peak is not None
        self.memory_mb = max(0, (peak or 0) - (self._resident_bytes or 0)) / 2**20 if known else None

    @property
    def figures(self) -> dict[str, Any]:
        """The measurements, by the names of a record's fields."""
        return {"wall_s": self.wall_s, "processor_s": self.processor_s, "memory_mb": self.memory_mb}


def _give_back_free_memory() -> bool:
    """Return the heap's free pages to the system, and whether this thread allocates from that heap.

    The GNU C library trims only the arena that ends at the program break.
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
    """Reset the peak; return the resident bytes, None if the system cannot reset it."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return None
    return own_memory("VmRSS")


MIN_ROUNDS, SIDE_S = 3, 4.0
"""Minimum number of rounds of each function, and total seconds after which a slow function is no longer timed."""

Call = Callable[[], Any]

Times = dict[str, list[tuple[float, float]]]
"""Wall and processor seconds of every call, by function."""


def timed(call: Call) -> tuple[float, float]:
    """Return wall and processor seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def race(
    calls: Mapping[str, Call],
    rounds: int,
    stop: StoppingCriterion,
    progress: Progress,
    *,
    always: Collection[str] = (),
    side_s: float = SIDE_S,
) -> Times:
    """Run all functions in turn, round after round.

    Parameters
    ----------
    calls
        The functions by name; each must have run once, so that compilation is not timed.
    rounds
        Number of rounds.
    stop
        Stopping rule, called after each round.
    progress
        Receives the number of each round, and the milliseconds of the first function of `always`, or else of `calls`.
    always
        Functions that are timed in every round.
    side_s
        Total seconds after which a function that is not in `always` is no longer timed. The rounds end when no function
        remains.
    """
    times: Times = {name: [] for name in calls}
    shown = next(iter(always or calls))
    begun = time.perf_counter()
    progress.start("rounds", rounds)
    racing = dict(calls)
    for number in range(rounds):
        for name, call in list(racing.items()):
            times[name].append(timed(call))
            spent = sum(wall for wall, _ in times[name])
            if name not in always and len(times[name]) >= MIN_ROUNDS and spent > side_s:
                del racing[name]
        progress.update(number + 1, {"ms": 1e3 * times[shown][-1][0]})
        if not racing:
            break
        if stop(SolveState(elapsed_s=time.perf_counter() - begun, iterations=number)) is not None:
            break
    progress.finish()
    return times


def medians(times: Times, which: int = 0) -> dict[str, float]:
    """Return the median seconds of each function: of the wall clock (0) or of the processor (1)."""
    return {name: float(np.median([each[which] for each in seconds])) for name, seconds in times.items()}
