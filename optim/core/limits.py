"""Limits on the size of inputs and generated data, and the memory that this process uses and may use."""

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
    """Limits of all readers and generators. Raise one with `read_limits`, or with ``--limit NAME=VALUE`` on the command line.

    The defaults admit an instance of 10,000 jobs and 1,000 slots, a table of 300,000 rows, and series of 10,000
    containers with 40,320 samples each.

    Parameters
    ----------
    document_bytes
        Size of a JSON, TOML or .npz file, uncompressed.
    table_bytes
        Size of a CSV file, uncompressed; it is read in blocks.
    pipe_bytes
        Size of input from a pipe or device, uncompressed.
    line_bytes
        Length of a line in a CSV file.
    expansion
        Ratio of uncompressed to compressed size of a gzip file; not limited up to 16 MiB uncompressed.
    columns
        Columns of a CSV file.
    rows
        Rows of a CSV file, generated samples of containers, or points of a grid.
    count
        Number of servers of a class, slots, machines, GPUs or chunks of a job in an instance. Also the number of
        generated jobs, apps, windows or containers.
    gpus
        GPUs of a simulated cluster, over all machines.
    cells
        Cells of a table that an instance implies, such as jobs times slots.
    objects, lists, values
        Counts in a JSON document: objects (such as jobs), lists (such as rows of a plan), and entries of all objects
        and lists.
    steps
        Steps of a checker; each takes 0.1 to 1 microsecond.
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
    """Return the limits in force."""
    return _CURRENT.get(DEFAULTS)


@contextmanager
def read_limits(**changed: int) -> Iterator[ReadLimits]:
    """Change limits inside the block.

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
    """Raise if `number` exceeds the limit `name`; `what` describes the counted objects.

    Raises
    ------
    InvalidProblemError
        If the number exceeds the limit; the message names the limit and how to raise it.
    """
    most = getattr(current_limits(), name)
    if number > most:
        raise InvalidProblemError(f"{what}: at most {most} are read, got {number}; {remedy(name)}")


def check_drawn(name: str, number: float, what: str) -> None:
    """Raise if the number to generate exceeds the limit `name` of readers.

    Raises
    ------
    InvalidOptionError
        If the number exceeds the limit; the message names the limit and how to raise it.
    """
    most = getattr(current_limits(), name)
    if number > most:
        raise InvalidOptionError(
            f"{what}: at most {most} are generated, got {number:.15g}; generate fewer, or {_how_to_raise(name)}"
        )


class Effort:
    """Count the steps of a checker, and raise if they exceed the limit `steps`.

    Parameters
    ----------
    what
        Name of the check, for the error message.
    """

    def __init__(self, what: str) -> None:
        self._what, self._most, self._num_steps = what, current_limits().steps, 0

    def spend(self, steps: int) -> None:
        """Add to the number of steps.

        Raises
        ------
        InvalidProblemError
            If the total exceeds the limit; the message names the limit and how to raise it.
        """
        self._num_steps += steps
        if self._num_steps > self._most:
            raise InvalidProblemError(f"{self._what} takes more than {self._most} steps; {remedy('steps')}")


def remedy(name: str) -> str:
    """Return the advice in errors about a limit."""
    return f"check that it is the right file, or {_how_to_raise(name)}"


def _how_to_raise(name: str) -> str:
    return f"raise the limit with 'optim --limit {name}=N' (in Python: 'with optim.core.limits.read_limits({name}=N)')"


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

USUAL_CACHE = 32 * 2**20
"""Assumed bytes of last-level cache if the system does not report them."""

CONTROL_GROUPS, OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

FREE_MEMORY, OWN_MEMORY = Path("/proc/meminfo"), Path("/proc/self/status")

USUAL_MEMORY = 2 * 2**30
"""Assumed bytes of allowed memory if the system does not report them."""

MEASURED_CACHES, MEASURED_SHARE = 4, 0.25
"""A `working_set` has this many times the size of the last-level cache, but at most this share of the allowed memory."""


def last_level_cache() -> int:
    """Return the bytes of the first core's largest cache, or `USUAL_CACHE` if unknown."""
    largest = 0
    for size in CACHES.glob("index*/size"):
        text = size.read_text().strip()
        factor = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        largest = max(largest, int(digits) * factor if digits.isdecimal() else 0)
    return largest or USUAL_CACHE


def memory_allowed() -> int:
    """Return the bytes that this process may use: the minimum of its control groups' limits and of free memory."""
    return min([*_group_limits(), *_free()], default=USUAL_MEMORY)


def own_memory(name: str) -> int | None:
    """Return the current (``VmRSS``) or peak (``VmHWM``) resident bytes of this process; None on systems other than Linux."""
    return _line(OWN_MEMORY, name)


def peak_memory() -> int:
    """Return the peak resident bytes of this process, since the last reset if a benchmark reset the counter.

    `getrusage` is the fallback, because its value includes the parent's memory at the fork.
    """
    high_water = own_memory("VmHWM")
    if high_water is not None:
        return high_water
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def working_set(cache_bytes: int, allowed_bytes: int) -> int:
    """Return the bytes that a benchmark must touch to measure memory rather than the cache, within the allowed memory."""
    return int(min(MEASURED_CACHES * cache_bytes, MEASURED_SHARE * allowed_bytes))


def _group_limits() -> Iterator[int]:
    """Yield the memory limits of the process's control group and its ancestors (cgroup v1 and v2)."""
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
            if text.isdecimal():  # "max" means unlimited
                yield int(text)


def _free() -> Iterator[int]:
    """Yield the available memory, or the total memory if that is unknown."""
    available = _line(FREE_MEMORY, "MemAvailable")
    if available is not None:
        yield available
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _line(path: Path, wanted: str) -> int | None:
    """Return the bytes in the line ``wanted: NUMBER kB`` of a file, None without such a line."""
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == wanted:
                return int(rest.split()[0]) * 1024
    return None
