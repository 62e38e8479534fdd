"""What memory this process holds and is allowed, and how large the processor's caches are said to be."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHE = 32 * 2**20
"""Bytes of last-level cache where the system doesn't tell."""

CONTROL_GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
FREE_MEMORY, OWN_MEMORY = Path("/proc/meminfo"), Path("/proc/self/status")
USUAL_MEMORY = 2 * 2**30
"""Bytes taken for allowed where the system doesn't tell."""

MEASURED_CACHES, MEASURED_SHARE = 4, 0.25
"""A working set of so many caches is in memory; one of such a share of the memory allowed disturbs nobody."""


def last_level_cache() -> int:
    """Return bytes of the first core's largest cache, a usual size where the system doesn't tell."""
    largest = 0
    for size in CACHES.glob("index*/size"):
        text = size.read_text().strip()
        factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        largest = max(largest, int(digits) * factor if digits.isdecimal() else 0)
    return largest or USUAL_CACHE


def memory_allowed() -> int:
    """Return the bytes that this process may fill: the least of its control groups' limits and of what is free."""
    return min([*_group_limits(), *_free()], default=USUAL_MEMORY)


def own_memory(name: str) -> int | None:
    """Return bytes that this process holds (``VmRSS``) or has held (``VmHWM``); None where the system doesn't tell (it takes Linux)."""
    return _line(OWN_MEMORY, name)


def peak_memory() -> int:
    """Return the most bytes that this process has held, since a benchmark began to count anew where one has.

    `getrusage` tells no less than its parent held as it was started: it is asked only where the system tells nothing else.
    """
    own = own_memory("VmHWM")
    if own is not None:
        return own
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def working_set(cache_bytes: int, allowed_bytes: int) -> int:
    """Return the bytes of a working set that is to show the memory and not the cache, as far as memory allows."""
    return int(min(MEASURED_CACHES * cache_bytes, MEASURED_SHARE * allowed_bytes))


def _group_limits() -> Iterator[int]:
    """Yield the limits of the process' control group and of all above it, of either version."""
    try:
        own = [line.split(":", 2)[2].strip("/\n") for line in OWN_GROUP.read_text().splitlines()]
    except (OSError, IndexError):
        own = []
    for group in {Path(), *(part for path in own for part in (Path(path), *Path(path).parents))}:
        for name in (Path(group, "memory.max"), Path("memory", group, "memory.limit_in_bytes")):
            try:
                text = (CONTROL_GROUPS / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():  # "max" is no limit
                yield int(text)


def _free() -> Iterator[int]:
    """Yield what the machine says is free, or else what it has."""
    available = _line(FREE_MEMORY, "MemAvailable")
    if available is not None:
        yield available
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _line(path: Path, wanted: str) -> int | None:
    """Return the bytes that a line ``wanted: NUMBER kB`` of a file tells, None without one."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == wanted:
                return int(rest.split()[0]) * 1024
    return None
