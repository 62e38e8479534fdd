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

OOM_METRIC, RESTART_METRIC = "container_oom_events_total", "kube_pod_container_status_restarts_total"
"""Counters of kills for lack of memory (cAdvisor), and of restarts for any reason (kube-state-metrics)."""

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
class ResourceOverrides:
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
        for flag, overrides in (("--unit", self.units), ("--counter", self.counters)):
            for name in overrides:
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


def reading_of(path: object, name: str, metric: str, overrides: ResourceOverrides) -> Reading:
    """Return how samples are read.

    Parameters
    ----------
    path
        Where they are, for messages.
    name
        The resource's name, or one that starts with ``#`` for none.
    metric
        The metric's name, "" if the answer has none.
    overrides
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
    resource_name = name if is_named else metric if known is None else known.name
    if known is not None and resource_name != known.name and resource_name in KNOWN_RESOURCES:
        raise InvalidProblemError(f"{path}: {metric} is {known.name}, not {resource_name}; give {known.name}={path}")
    unit = overrides.units.get(resource_name)
    if unit is None and resource_name not in overrides.counters:
        return _by_name(path, resource_name, metric)
    is_counter = resource_name in overrides.counters or unit in TOTALS.get(resource_name, {})
    if resource_name not in KNOWN_RESOURCES:
        return _of_other(resource_name, unit or "", is_counter=is_counter)
    allowed = TOTALS[resource_name] if is_counter else LEVELS[resource_name]
    if is_counter and not allowed:
        raise InvalidOptionError(f"--counter {resource_name}: {resource_name} is held, and no counter; leave it out")
    unit = unit or next(iter(allowed))
    if unit not in allowed:
        what = f"a counter of {resource_name}" if is_counter else resource_name
        counted = next((each for each, size in allowed.items() if size == LEVELS[resource_name].get(unit)), None)
        remedy = "" if counted is None else f"; give --unit {resource_name}={counted} for rates in {unit}"
        raise InvalidOptionError(f"--unit {resource_name}={unit}: {what} is in one of {', '.join(allowed)}{remedy}")
    reading = Reading(resource=KNOWN_RESOURCES[resource_name], factor=allowed[unit], is_counter=is_counter)
    if _parse_metric_name(metric)[0] is not None and _by_name(path, resource_name, metric) != reading:
        raise InvalidOptionError(
            f"{path}: {metric} tells another unit of {resource_name} than --unit or --counter; leave them out"
        )
    return reading


def scale_of(resource_name: str, unit: str) -> float:
    """Return what one of a unit is in the resource's own unit, where nothing counts up.

    Raises
    ------
    InvalidOptionError
        If it isn't a unit of the resource.
    """
    if resource_name not in KNOWN_RESOURCES:
        return 1.0
    if unit not in LEVELS[resource_name]:
        raise InvalidOptionError(
            f"--unit {resource_name}={unit}: {resource_name} is in one of {', '.join(LEVELS[resource_name])}"
        )
    return LEVELS[resource_name][unit]


def _by_name(path: object, resource_name: str, metric: str) -> Reading:
    """Return how samples are read whose metric's name says all that is known."""
    unit, is_counter, is_rate = _parse_metric_name(metric)
    if resource_name not in KNOWN_RESOURCES:
        if not metric:
            raise InvalidProblemError(
                f"{path}: the series of {resource_name} have no name, so that neither their unit nor whether they count up is known; "
                f"give --unit {resource_name}=UNIT, or --counter {resource_name} with it"
            )
        if is_rate and unit == "bytes":
            unit = "bytes/s"
        return _of_other(resource_name, unit or "", is_counter=is_counter, is_level=not is_counter and not is_rate)
    allowed = TOTALS[resource_name] if is_counter or is_rate else LEVELS[resource_name]
    if unit is None or unit not in allowed:
        why = f"{metric} doesn't say in which unit it is" if metric else "the series have no name that tells their unit"
        counted = f", or --counter {resource_name} if it counts up" if TOTALS[resource_name] else ""
        raise InvalidProblemError(
            f"{path}: {resource_name}: {why}; give --unit {resource_name}=UNIT with one of {', '.join(LEVELS[resource_name])}{counted}"
        )
    return Reading(resource=KNOWN_RESOURCES[resource_name], factor=allowed[unit], is_counter=is_counter)


def _parse_metric_name(metric: str) -> tuple[str | None, bool, bool]:
    """Return the unit that a name tells, whether it is a counter's name, and whether a rate's: ``level:metric:operations``."""
    parts = metric.split(":")
    base, operations = (parts[1], parts[-1]) if len(parts) > 2 else (metric, "")
    is_rate = "rate" in operations
    is_total = base.endswith("_total")
    words = base.removesuffix("_total").lower().split("_")
    unit = _UNNAMED_UNITS.get(base) or next((UNIT_WORDS[word] for word in reversed(words) if word in UNIT_WORDS), None)
    return unit, is_total and not is_rate, is_rate


def _of_other(resource_name: str, unit: str, *, is_counter: bool, is_level: bool = False) -> Reading:
    """Return how a resource is read that only somebody's files know: bytes as GiB, or MB/s, and else in its own unit."""
    level_units, rate_units = LEVELS[MEMORY.name], TOTALS[NETWORK.name] if is_counter else LEVELS[NETWORK.name]
    if unit in rate_units:
        resource, factor = Resource(name=resource_name, unit=NETWORK.unit), rate_units[unit]
    elif unit in level_units and not is_counter:
        resource, factor = Resource(name=resource_name, unit=MEMORY.unit, is_level=True), level_units[unit]
    else:
        resource, factor = (
            Resource(name=resource_name, unit=f"{unit}/s" if unit and is_counter else unit, is_level=is_level),
            1.0,
        )
    return Reading(resource=resource, factor=factor, is_counter=is_counter)


MAX_PLAUSIBLE: Mapping[str, float] = {"cpu": 1e4, "memory": 1e5, "network": 1e6}
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
    kills: FloatArray | None = None,
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
    kills
        Shape (rows, R) or None: kills since the row before of the same container, NaN where unknown.
    drop_incomplete
        Whether to go on where more than half of the containers have no whole row.

    Raises
    ------
    InvalidProblemError
        If no whole row is left, more than half of the containers have none, or a value is more than any machine has.
    """
    complete = np.flatnonzero(np.isfinite(values).all(axis=1) & np.isfinite(time_s))
    if not len(complete):
        raise InvalidProblemError(f"{path}: no row has all of {', '.join(r.name for r in resources)}; check the file")
    _require_possible(path, keys, values, resources)
    names = tuple(dict.fromkeys(map(str, keys[complete])))
    remarks = (*remarks, *_lacking(path, keys, values, resources, names, drop_incomplete=drop_incomplete))
    number = {name: place for place, name in enumerate(names)}
    place = np.array([number[str(key)] for key in keys[complete]])
    order = complete[np.lexsort((complete, time_s[complete], place))]
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
        kills=None
        if kills is None
        else _kills_after(kills, time_s, np.array([number.get(str(key), -1) for key in keys]), order, group),
        units=units,
        remarks=remarks,
    )


def _require_possible(
    path: str | Path, keys: NDArray[np.object_], values: FloatArray, resources: tuple[Resource, ...]
) -> None:
    """Raise InvalidProblemError at the first value that no machine can have: its unit is another."""
    for column, resource in enumerate(resources):
        maximum = MAX_PLAUSIBLE[resource.name] if resource in KNOWN_RESOURCES.values() else np.inf
        for row in np.flatnonzero(values[:, column] > maximum)[:1]:
            raise InvalidProblemError(
                f"{path}: {resource.name} of container {keys[row]!r} is {values[row, column]:.6g} {resource.unit}, and no machine has "
                f"more than {maximum:g}; say in which unit it is (--unit {resource.name}=UNIT), or whether it counts up (--counter)"
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
    complete = set(names)
    lacking = [name for name in every if name not in complete]
    remarks = []
    if lacking:
        shown = ", ".join(lacking[:MAX_SHOWN]) + (", ..." if len(lacking) > MAX_SHOWN else "")
        has = {
            resource.name: {str(key) for key in keys[np.isfinite(values[:, at])]}
            for at, resource in enumerate(resources)
        }
        by = ", ".join(
            f"{count} {name}"
            for name, containers in has.items()
            if (count := sum(who not in containers for who in lacking))
        )
        text = f"{len(lacking)} of {len(every)} containers are left out, as they lack a resource ({by or 'at the same time'}): {shown}"
        if 2 * len(lacking) > len(every) and not drop_incomplete:
            raise InvalidProblemError(f"{path}: {text}; check the queries, or go on with --drop-incomplete")
        remarks.append(text)
    rows = np.array([str(key) in complete for key in keys], dtype=bool)
    num_lacking = int((rows & ~np.isfinite(values).all(axis=1)).sum())
    if num_lacking > MAX_LACKING * rows.sum():
        remarks.append(f"{num_lacking} of {int(rows.sum())} samples are left out, as they lack a resource")
    return remarks


def _kills_after(kills: FloatArray, time_s: FloatArray, every: IntArray, kept: IntArray, group: IntArray) -> FloatArray:
    """Return for each row that stays the kills until the next one, shape (kept, R); NaN of containers that tell none.

    A container's first row has those before it, too, and its last one those of rows after it that are left out.

    Parameters
    ----------
    every
        Shape (rows,): number of each row's container, -1 for one of which no row stays.
    kept, group
        Rows that stay, by container and time, and their containers' numbers.
    """
    order = np.lexsort((time_s, every))
    order = order[(every[order] >= 0) & np.isfinite(time_s[order])]
    total = np.zeros_like(kills)
    total[order] = np.cumsum(np.nan_to_num(kills[order]), axis=0)
    number = int(group.max()) + 1
    last_of = np.full(number, -1)
    last_of[every[order]] = order  # the last of equal indices stays
    first_of = np.full(number, -1)
    first_of[every[order[::-1]]] = order[::-1]
    is_first = np.append(True, group[1:] != group[:-1])
    is_last = np.append(is_first[1:], True)
    here = np.where(is_first[:, None], total[first_of[group]] - np.nan_to_num(kills[first_of[group]]), total[kept])
    until = np.where(is_last[:, None], total[last_of[group]], total[np.append(kept[1:], kept[-1])])
    is_told = np.zeros((number, kills.shape[1]), np.bool_)
    np.logical_or.at(is_told, every[order], np.isfinite(kills[order]))
    return np.where(is_told[group], until - here, np.nan)


def _last_known(limit: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the last finite value of each container and column, NaN where there is none; rows stand by container."""
    end = np.cumsum(lengths)
    row = np.where(np.isfinite(limit), np.arange(len(limit))[:, None], -1)
    latest = np.maximum.accumulate(row, axis=0)[end - 1]
    known = np.take_along_axis(limit, np.maximum(latest, 0), axis=0)
    return np.where(latest >= (end - lengths)[:, None], known, np.nan)
