"""The memory of this process, as the system tells it."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")


def status_kib(name: str) -> int | None:
    """Return a line of the process' status in KiB, such as ``VmRSS``; None where the system doesn't tell (it takes Linux)."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return None


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process.

    `getrusage` tells no less than its parent held as it was started: it is asked only where the system tells nothing else.
    """
    own = status_kib("VmHWM")
    if own is not None:
        return own * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
