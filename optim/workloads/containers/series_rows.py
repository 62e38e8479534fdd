"""Rows of samples in any order become series, in units told by the metric's name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.containers.series import CPU, KNOWN_RESOURCES, MEMORY, NETWORK, ContainerSeries, Resource

GIB = 2.0**30

MB = 1e6

_BYTES = {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}

LEVELS: Mapping[str, Mapping[str, float]] = {
    CPU.name: {"cores": 1.0, "millicores": 1e-3, "nanocores": 1e-9},
    MEMORY.name: {unit: size / GIB for unit, size in _BYTES.items()},
    NETWORK.name: {f"{unit}/s": size / MB for unit, size in _BYTES.items()} | {"bits/s": 1 / 8 / MB},
}

"""Units that a resource may be given in, and what one is in the resource's own unit."""

TOTALS: Mapping[str, Mapping[str, float]] = {
    CPU.name: {"seconds": 1.0, "milliseconds": 1e-3, "nanoseconds": 1e-9},
    MEMORY.name: {},
    NETWORK.name: {unit: size / MB for unit, size in _BYTES.items()},
}

"""Likewise of counters, whose rate is meant."""

KNOWN_METRICS: Mapping[str, Resource] = {
    "container_cpu_usage_seconds_total": CPU,
    "container_memory_working_set_bytes": MEMORY,
    "container_memory_usage_bytes": MEMORY,
    "container_network_receive_bytes_total": NETWORK,
}

LIMIT_METRICS = (
    "container_spec_memory_limit_bytes",
    "kube_pod_container_resource_limits_memory_bytes",
    "kube_pod_container_resource_limits",
)

"""Limits of memory, 0 for none; the last one's label ``resource`` says of what."""

_UNNAMED_UNITS = {"container_memory_rss": "bytes", "container_memory_cache": "bytes", "container_memory_swap": "bytes"}

"""Of metrics whose name doesn't tell."""

UNIT_WORDS: Mapping[str, str] = {
    **{unit.lower(): unit for unit in (*_BYTES, *TOTALS[CPU.name], "cores", "millicores", "nanocores")},
    **{
        "kilobytes": "kB",
        "megabytes": "MB",
        "gigabytes": "GB",
        "kibibytes": "KiB",
        "mebibytes": "MiB",
        "gibibytes": "GiB",
    },
}

"""Words of metrics' names, and the units that they mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What somebody says of resources, which counts more than a metric's name.

    Attributes
    ----------
    units
        Unit by resource.
    counters
        Resources that are counters.
    """

    units: Mapping[str, str]
    counters: Collection[str]

    def require_resources(self, names: Collection[str]) -> None:
        """Raise InvalidOptionError if something is said of a resource that isn't there."""
        for flag, told in (("--unit", self.units), ("--counter", self.counters)):
            for name in told:
                if name not in names:
                    raise InvalidOptionError(f"{flag} {name}: there is no such resource; there are: {', '.join(names)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a metric's samples are read.

    Attributes
    ----------
    resource
        What it is.
    factor
        What one is in the resource's unit.
    is_counter
        Whether rates of it are meant.
    """

    resource: Resource
    factor: float
    is_counter: bool


def reading_of(path: object, name: str, metric: str, given: Given) -> Reading:
    """Return how samples are read.

    Parameters
    ----------
    path
        Where they are, for messages.
    name
        The resource's name, or one that starts with ``#`` for none.
    metric
        The metric's name, "" if the answer has none.
    given
        What somebody says of it.

    Raises
    ------
    InvalidProblemError
        If the unit isn't known, or the metric is of another resource.
    InvalidOptionError
        If a unit that is given isn't one of the resource.
    """
    is_named = not name.startswith("#")
    if not is_named and not metric:
        raise InvalidProblemError(f"{path}: the series have no name; say which resource they are: NAME={path}")
    known = KNOWN_METRICS.get(metric)
    own = name if is_named else metric if known is None else known.name
    if known is not None and own != known.name and own in KNOWN_RESOURCES:
        raise InvalidProblemError(f"{path}: {metric} is {known.name}, not {own}; give {known.name}={path}")
    unit = given.units.get(own)
    if unit is None and own not in given.counters:
        return _by_name(path, own, metric)
    is_counter = own in given.counters or unit in TOTALS.get(own, {})
    if own not in KNOWN_RESOURCES:
        return _of_other(own, unit or "", is_counter=is_counter)
    allowed = TOTALS[own] if is_counter else LEVELS[own]
    if is_counter and not allowed:
        raise InvalidOptionError(f"--counter {own}: {own} is held, and no counter; leave it out")
    unit = unit or next(iter(allowed))
    if unit not in allowed:
        what = f"a counter of {own}" if is_counter else own
        counted = next((each for each, size in allowed.items() if size == LEVELS[own].get(unit)), None)
        remedy = "" if counted is None else f"; give --unit {own}={counted} for rates in {unit}"
        raise InvalidOptionError(f"--unit {own}={unit}: {what} is in one of {', '.join(allowed)}{remedy}")
    reading = Reading(resource=KNOWN_RESOURCES[own], factor=allowed[unit], is_counter=is_counter)
    if _told(metric)[0] is not None and _by_name(path, own, metric) != reading:
        raise InvalidOptionError(
            f"{path}: {metric} tells another unit of {own} than --unit or --counter; leave them out"
        )
    return reading


def scale_of(own: str, unit: str) -> float:
    """Return what one of a unit is in the resource's own unit, where nothing counts up.

    Raises
    ------
    InvalidOptionError
        If it isn't a unit of the resource.
    """
    if own not in KNOWN_RESOURCES:
        return 1.0
    if unit not in LEVELS[own]:
        raise InvalidOptionError(f"--unit {own}={unit}: {own} is in one of {', '.join(LEVELS[own])}")
    return LEVELS[own][unit]


def _by_name(path: object, own: str, metric: str) -> Reading:
    """Return how samples are read whose metric's name says all that is known."""
    unit, is_counter, is_rate = _told(metric)
    if own not in KNOWN_RESOURCES:
        if not metric:
            raise InvalidProblemError(
                f"{path}: the series of {own} have no name, so that neither their unit nor whether they count up is known; "
                f"give --unit {own}=UNIT, or --counter {own} with it"
            )
        if is_rate and unit == "bytes":
            unit = "bytes/s"
        return _of_other(own, unit or "", is_counter=is_counter, is_level=not is_counter and not is_rate)
    allowed = TOTALS[own] if is_counter or is_rate else LEVELS[own]
    if unit is None or unit not in allowed:
        why = f"{metric} doesn't say in which unit it is" if metric else "the series have no name that tells their unit"
        counted = f", or --counter {own} if it counts up" if TOTALS[own] else ""
        raise InvalidProblemError(
            f"{path}: {own}: {why}; give --unit {own}=UNIT with one of {', '.join(LEVELS[own])}{counted}"
        )
    return Reading(resource=KNOWN_RESOURCES[own], factor=allowed[unit], is_counter=is_counter)


def _told(metric: str) -> tuple[str | None, bool, bool]:
    """Return the unit that a name tells, whether it is a counter's name, and whether a rate's: ``level:metric:operations``."""
    parts = metric.split(":")
    base, operations = (parts[1], parts[-1]) if len(parts) > 2 else (metric, "")
    is_rate = "rate" in operations
    is_total = base.endswith("_total")
    words = base.removesuffix("_total").lower().split("_")
    unit = _UNNAMED_UNITS.get(base) or next((UNIT_WORDS[word] for word in reversed(words) if word in UNIT_WORDS), None)
    return unit, is_total and not is_rate, is_rate


def _of_other(own: str, unit: str, *, is_counter: bool, is_level: bool = False) -> Reading:
    """Return how a resource is read that only somebody's files know: bytes as GiB, or MB/s, and else in its own unit."""
    held, flowing = LEVELS[MEMORY.name], TOTALS[NETWORK.name] if is_counter else LEVELS[NETWORK.name]
    if unit in flowing:
        resource, factor = Resource(name=own, unit=NETWORK.unit), flowing[unit]
    elif unit in held and not is_counter:
        resource, factor = Resource(name=own, unit=MEMORY.unit, is_level=True), held[unit]
    else:
        resource, factor = Resource(name=own, unit=f"{unit}/s" if unit and is_counter else unit, is_level=is_level), 1.0
    return Reading(resource=resource, factor=factor, is_counter=is_counter)


MOST: Mapping[str, float] = {"cpu": 1e4, "memory": 1e5, "network": 1e6}

"""More cores, GiB and MB/s than any machine has."""

MAX_SHOWN = 5

"""Containers that a message names."""

MAX_LACKING = 0.05

"""Share of samples that are left out without a word: of a counter the first one is."""


def series_of_rows(
    path: str | Path,
    keys: NDArray[np.object_],
    time_s: FloatArray,
    values: FloatArray,
    resources: tuple[Resource, ...],
    limit: FloatArray | None = None,
    phase: IntArray | None = None,
    phase_names: tuple[str, ...] = (),
    units: Mapping[str, str] = MappingProxyType({}),
    *,
    remarks: tuple[str, ...] = (),
    drop_incomplete: bool = False,
) -> ContainerSeries:
    """Sort rows by container and time.

    Containers stay in the order of their first row. Rows that lack a value are left out, and it is remarked how many; of rows
    with the same container and time the last one counts.

    Parameters
    ----------
    path
        Where the rows come from, for messages.
    keys
        Container of each row.
    time_s
        Time stamp of each row in seconds.
    values
        Shape (rows, R); NaN where a value is lacking.
    resources
        The R columns.
    limit
        Shape (rows, R) or None, NaN where a limit isn't told; of each container and column the last known one counts.
    phase, phase_names
        True phase of each row and names of phases, where they are known.
    units, remarks
        Of containers, see `ContainerSeries`.
    drop_incomplete
        Whether to go on where more than half of the containers have no whole row.

    Raises
    ------
    InvalidProblemError
        If no whole row is left, more than half of the containers have none, or a value is more than any machine has.
    """
    whole = np.flatnonzero(np.isfinite(values).all(axis=1) & np.isfinite(time_s))
    if not len(whole):
        raise InvalidProblemError(f"{path}: no row has all of {', '.join(r.name for r in resources)}; check the file")
    _require_possible(path, keys, values, resources)
    names = tuple(dict.fromkeys(map(str, keys[whole])))
    remarks = (*remarks, *_lacking(path, keys, values, resources, names, drop_incomplete=drop_incomplete))
    number = {name: place for place, name in enumerate(names)}
    place = np.array([number[str(key)] for key in keys[whole]])
    order = whole[np.lexsort((whole, time_s[whole], place))]
    group = np.array([number[str(key)] for key in keys[order]])
    is_last = np.ones(len(order), dtype=bool)
    is_last[:-1] = (group[1:] != group[:-1]) | (time_s[order][1:] != time_s[order][:-1])
    order, group = order[is_last], group[is_last]
    lengths = np.bincount(group, minlength=len(names)).astype(np.int64)
    return ContainerSeries(
        resources=resources,
        containers=names,
        lengths=lengths,
        values=values[order],
        time_s=time_s[order],
        phase=None if phase is None else phase[order],
        phase_names=phase_names,
        limit=None if limit is None else _last_known(limit[order], lengths),
        units=units,
        remarks=remarks,
    )


def _require_possible(
    path: str | Path, keys: NDArray[np.object_], values: FloatArray, resources: tuple[Resource, ...]
) -> None:
    """Raise InvalidProblemError at the first value that no machine can have: its unit is another."""
    for column, resource in enumerate(resources):
        most = MOST[resource.name] if resource in KNOWN_RESOURCES.values() else np.inf
        for row in np.flatnonzero(values[:, column] > most)[:1]:
            raise InvalidProblemError(
                f"{path}: {resource.name} of container {keys[row]!r} is {values[row, column]:.6g} {resource.unit}, and no machine has "
                f"more than {most:g}; say in which unit it is (--unit {resource.name}=UNIT), or whether it counts up (--counter)"
            )


def _lacking(
    path: str | Path,
    keys: NDArray[np.object_],
    values: FloatArray,
    resources: tuple[Resource, ...],
    names: tuple[str, ...],
    *,
    drop_incomplete: bool,
) -> list[str]:
    """Return which containers, and how many rows, are left out because they lack a resource."""
    every = dict.fromkeys(map(str, keys))
    kept = set(names)
    lacking = [name for name in every if name not in kept]
    said = []
    if lacking:
        shown = ", ".join(lacking[:MAX_SHOWN]) + (", ..." if len(lacking) > MAX_SHOWN else "")
        has = {own.name: {str(key) for key in keys[np.isfinite(values[:, at])]} for at, own in enumerate(resources)}
        by = ", ".join(
            f"{count} {name}" for name, own in has.items() if (count := sum(who not in own for who in lacking))
        )
        text = f"{len(lacking)} of {len(every)} containers are left out, as they lack a resource ({by or 'at the same time'}): {shown}"
        if 2 * len(lacking) > len(every) and not drop_incomplete:
            raise InvalidProblemError(f"{path}: {text}; check the queries, or go on with --drop-incomplete")
        said.append(text)
    rows = np.array([str(key) in kept for key in keys], dtype=bool)
    num_lacking = int((rows & ~np.isfinite(values).all(axis=1)).sum())
    if num_lacking > MAX_LACKING * rows.sum():
        said.append(f"{num_lacking} of {int(rows.sum())} samples are left out, as they lack a resource")
    return said


def _last_known(limit: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the last finite value of each container and column, NaN where there is none; rows stand by container."""
    end = np.cumsum(lengths)
    row = np.where(np.isfinite(limit), np.arange(len(limit))[:, None], -1)
    latest = np.maximum.accumulate(row, axis=0)[end - 1]
    known = np.take_along_axis(limit, np.maximum(latest, 0), axis=0)
    return np.where(latest >= (end - lengths)[:, None], known, np.nan)
