"""How much a reader takes in and a generator draws, and what memory this process holds and may hold."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path

from optim.core.errors import InvalidOptionError, InvalidProblemError, unknown_name

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """Limits of all readers and generators; each can be raised with `read_limits`, on the command line with ``--limit NAME=VALUE``.

    The defaults are above an instance of 10,000 jobs and 1,000 slots, a table of 300,000 rows, and series of 10,000
    containers with 40,320 samples each.

    Parameters
    ----------
    document_bytes
        Of a JSON, TOML or .npz file, unpacked.
    table_bytes
        Of a CSV file, unpacked; it is read in blocks.
    pipe_bytes
        Of whatever isn't a regular file (a pipe, a device), unpacked.
    line_bytes
        Of one line of a CSV file.
    expansion
        Unpacked bytes over packed ones, of a gzip file that is larger than 16 MiB unpacked.
    columns, rows
        Of a CSV file.
    count
        Of equal or numbered things that an instance may hold: servers of a class, slots, machines, GPUs, a job's chunks; and of what is drawn:
        jobs, apps, windows, containers.
    gpus
        Of a cluster that jobs queue for, all machines together.
    cells
        Of a table that an instance spans, such as jobs times slots.
    objects, lists, values
        Of a JSON document: objects with names (a tree's nodes, jobs), lists (rows of a plan, nodes of a tree of bids), and
        entries of lists and objects in all.
    steps
        That a checker takes to find out whether claims hold, each of some tenth of a microsecond to a microsecond.
    """

    document_bytes: int = 256 * MIB
    table_bytes: int = 2**15 * MIB
    pipe_bytes: int = 128 * MIB
    line_bytes: int = MIB
    expansion: int = 250
    columns: int = 4_096
    rows: int = 500_000_000
    count: int = 100_000
    gpus: int = 1_000_000
    cells: int = 50_000_000
    objects: int = 1_000_000
    lists: int = 2_000_000
    values: int = 20_000_000
    steps: int = 50_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InvalidOptionError(f"limit {field.name} must be at least 1, got {getattr(self, field.name)}")


DEFAULTS = ReadLimits()

_CURRENT: ContextVar[ReadLimits] = ContextVar("read_limits")


def current_limits() -> ReadLimits:
    """Return the limits that hold here."""
    return _CURRENT.get(DEFAULTS)


@contextmanager
def read_limits(**changed: int) -> Iterator[ReadLimits]:
    """Read with other limits inside the block.

    Raises
    ------
    InvalidOptionError
        If a limit is unknown or below 1.

    Examples
    --------
    >>> from optim.core.limits import read_limits
    >>> with read_limits(columns=10_000):
    ...     pass  # read a very wide table
    """
    known = [field.name for field in fields(ReadLimits)]
    for name in changed:
        if name not in known:
            raise unknown_name("limit", name, known)
    token = _CURRENT.set(replace(current_limits(), **changed))
    try:
        yield current_limits()
    finally:
        _CURRENT.reset(token)


def check_limit(name: str, number: int, what: str) -> None:
    """Raise if there is more of something than a limit allows.

    Raises
    ------
    InvalidProblemError
        Naming the limit and how to raise it.
    """
    most = getattr(current_limits(), name)
    if number > most:
        raise InvalidProblemError(f"{what}: at most {most} are read, got {number}; {remedy(name)}")


def check_drawn(name: str, number: float, what: str) -> None:
    """Raise if more of something is to be drawn than a reader would take.

    Raises
    ------
    InvalidOptionError
        Naming the limit and how to raise it.
    """
    most = getattr(current_limits(), name)
    if number > most:
        raise InvalidOptionError(
            f"{what}: at most {most} are drawn, got {number:.15g}; draw fewer, or {_how_to_raise(name)}"
        )


class Effort:
    """Steps that a checker takes: more than the limit allows end it.

    Parameters
    ----------
    what
        What takes them, for the error's text.
    """

    def __init__(self, what: str) -> None:
        self._what, self._most, self._num_steps = what, current_limits().steps, 0

    def spend(self, steps: int) -> None:
        """Count steps.

        Raises
        ------
        InvalidProblemError
            If these are too many in all, naming the limit and how to raise it.
        """
        self._num_steps += steps
        if self._num_steps > self._most:
            raise InvalidProblemError(f"{self._what} takes more than {self._most} steps; {remedy('steps')}")


def remedy(name: str) -> str:
    """Tell how a limit is raised."""
    return f"check that it is the right file, or {_how_to_raise(name)}"


def _how_to_raise(name: str) -> str:
    return f"raise the limit with 'optim --limit {name}=N' (in Python: 'with optim.core.limits.read_limits({name}=N)')"


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
    high_water = own_memory("VmHWM")
    if high_water is not None:
        return high_water
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def working_set(cache_bytes: int, allowed_bytes: int) -> int:
    """Return the bytes of a working set that is to show the memory and not the cache, as far as memory allows."""
    return int(min(MEASURED_CACHES * cache_bytes, MEASURED_SHARE * allowed_bytes))


def _group_limits() -> Iterator[int]:
    """Yield the limits of the process' control group and of all above it, of either version."""
    try:
        groups = [line.split(":", 2)[2].strip("/\n") for line in OWN_GROUP.read_text().splitlines()]
    except (OSError, IndexError):
        groups = []
    for group in {Path(), *(part for path in groups for part in (Path(path), *Path(path).parents))}:
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
