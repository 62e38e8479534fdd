"""Conversion of samples, given in any order, to series; the metric's name determines the unit."""

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
"""Allowed units of gauges, and the value of one unit in the resource's standard unit."""

TOTALS: Mapping[str, Mapping[str, float]] = {
    CPU.name: {"seconds": 1.0, "milliseconds": 1e-3, "nanoseconds": 1e-9},
    MEMORY.name: {},
    NETWORK.name: {unit: size / MB for unit, size in _BYTES.items()},
}
"""Allowed units of counters, and the value of one unit per second in the resource's standard unit."""

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
"""Metrics of memory limits; a value of 0 means no limit. The label ``resource`` of the last metric names the resource."""

OOM_METRIC, RESTART_METRIC = "container_oom_events_total", "kube_pod_container_status_restarts_total"
"""Counters of kills for lack of memory (cAdvisor), and of restarts for any reason (kube-state-metrics)."""

_UNNAMED_UNITS = {"container_memory_rss": "bytes", "container_memory_cache": "bytes", "container_memory_swap": "bytes"}
"""Units of metrics whose name doesn't show them."""

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
"""Words in metric names, and the units that they imply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOverrides:
    """Units and counters that the user states; they take precedence over those in the metric's name.

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
        """Raise InvalidOptionError if an override is for a missing resource."""
        for flag, overrides in (("--unit", self.units), ("--counter", self.counters)):
            for name in overrides:
                if name not in names:
                    raise InvalidOptionError(f"{flag} {name}: no such resource; there are: {', '.join(names)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Conversion of a metric's samples.

    Attributes
    ----------
    resource
        The resource.
    factor
        Value of one unit of the metric in the resource's unit.
    is_counter
        Whether the samples count up, so that their rate is the value.
    """

    resource: Resource
    factor: float
    is_counter: bool


def reading_of(path: object, name: str, metric: str, overrides: ResourceOverrides) -> Reading:
    """Return the conversion of a metric's samples.

    Parameters
    ----------
    path
        File of the samples, for messages.
    name
        The resource's name, or a name that starts with ``#`` to use the metric's.
    metric
        The metric's name, "" if the response has none.
    overrides
        Units and counters that the user states.

    Raises
    ------
    InvalidProblemError
        If the unit is unknown, or the metric is of another resource.
    InvalidOptionError
        If the given unit isn't one of the resource's.
    """
    is_named = not name.startswith("#")
    if not is_named and not metric:
        raise InvalidProblemError(f"{path}: the series have no name; name their resource: NAME={path}")
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
        raise InvalidOptionError(f"--counter {resource_name}: {resource_name} is a gauge, not a counter; leave it out")
    unit = unit or next(iter(allowed))
    if unit not in allowed:
        what = f"a counter of {resource_name}" if is_counter else resource_name
        counted = next((each for each, size in allowed.items() if size == LEVELS[resource_name].get(unit)), None)
        remedy = "" if counted is None else f"; give --unit {resource_name}={counted} for rates in {unit}"
        raise InvalidOptionError(
            f"--unit {resource_name}={unit}: {what} must be in one of {', '.join(allowed)}{remedy}"
        )
    reading = Reading(resource=KNOWN_RESOURCES[resource_name], factor=allowed[unit], is_counter=is_counter)
    if _parse_metric_name(metric)[0] is not None and _by_name(path, resource_name, metric) != reading:
        raise InvalidOptionError(
            f"{path}: the unit of {metric} isn't that of --unit or --counter for {resource_name}; leave these options out"
        )
    return reading


def scale_of(resource_name: str, unit: str) -> float:
    """Return the value of one unit of a gauge in the resource's standard unit.

    Raises
    ------
    InvalidOptionError
        If the resource doesn't have this unit.
    """
    if resource_name not in KNOWN_RESOURCES:
        return 1.0
    if unit not in LEVELS[resource_name]:
        raise InvalidOptionError(
            f"--unit {resource_name}={unit}: {resource_name} must be in one of {', '.join(LEVELS[resource_name])}"
        )
    return LEVELS[resource_name][unit]


def _by_name(path: object, resource_name: str, metric: str) -> Reading:
    """Return the conversion of a metric whose unit follows from its name."""
    unit, is_counter, is_rate = _parse_metric_name(metric)
    if resource_name not in KNOWN_RESOURCES:
        if not metric:
            raise InvalidProblemError(
                f"{path}: the series of {resource_name} have no metric name, which would give unit and type; "
                f"give --unit {resource_name}=UNIT, and for a counter also --counter {resource_name}"
            )
        if is_rate and unit == "bytes":
            unit = "bytes/s"
        return _of_other(resource_name, unit or "", is_counter=is_counter, is_level=not is_counter and not is_rate)
    allowed = TOTALS[resource_name] if is_counter or is_rate else LEVELS[resource_name]
    if unit is None or unit not in allowed:
        why = (
            f"the name {metric} gives no unit"
            if metric
            else "the series have no metric name, which would give the unit"
        )
        counted = f", or --counter {resource_name} for a counter" if TOTALS[resource_name] else ""
        raise InvalidProblemError(
            f"{path}: {resource_name}: {why}; give --unit {resource_name}=UNIT with one of {', '.join(LEVELS[resource_name])}{counted}"
        )
    return Reading(resource=KNOWN_RESOURCES[resource_name], factor=allowed[unit], is_counter=is_counter)


def _parse_metric_name(metric: str) -> tuple[str | None, bool, bool]:
    """Return a metric's unit, and whether it is a counter or a recorded rate (``level:metric:operations``), by its name."""
    parts = metric.split(":")
    base, operations = (parts[1], parts[-1]) if len(parts) > 2 else (metric, "")
    is_rate = "rate" in operations
    is_total = base.endswith("_total")
    words = base.removesuffix("_total").lower().split("_")
    unit = _UNNAMED_UNITS.get(base) or next((UNIT_WORDS[word] for word in reversed(words) if word in UNIT_WORDS), None)
    return unit, is_total and not is_rate, is_rate


def _of_other(resource_name: str, unit: str, *, is_counter: bool, is_level: bool = False) -> Reading:
    """Return the conversion for a resource without a standard unit: bytes to GiB or MB/s, other units unchanged."""
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
"""Upper bounds on plausible cores, GiB and MB/s of one container."""

MAX_SHOWN = 5
"""Maximum number of containers that a message lists."""

MAX_LACKING = 0.05
"""Maximum share of samples dropped without a remark: a counter always loses its first sample."""


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

    Containers stay in the order of their first row. Rows without a value are dropped and counted in a remark; the last of several
    rows with the same container and time counts.

    Parameters
    ----------
    path
        Source of the rows, for messages.
    keys
        Container of each row.
    time_s
        Time stamp of each row in seconds.
    values
        Values of the R resources, NaN where missing; shape (rows, R).
    resources
        Resources of the R columns.
    limit
        Limits of the resources, NaN where unknown, shape (rows, R), or None; the last known limit of each container
        counts.
    phase, phase_names
        True phase of each row and names of phases, if known.
    units, remarks
        See `ContainerSeries`.
    kills
        Kills since the container's previous row, NaN where unknown, shape (rows, R); None if all are unknown.
    drop_incomplete
        Whether to continue if more than half of the containers have no complete row.

    Raises
    ------
    InvalidProblemError
        If no complete row is left, more than half of the containers have none, or a value exceeds `MAX_PLAUSIBLE`.
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
    """Raise InvalidProblemError at the first implausibly large value; the unit is then probably wrong."""
    for column, resource in enumerate(resources):
        maximum = MAX_PLAUSIBLE[resource.name] if resource in KNOWN_RESOURCES.values() else np.inf
        for row in np.flatnonzero(values[:, column] > maximum)[:1]:
            raise InvalidProblemError(
                f"{path}: {resource.name} of container {keys[row]!r} is {values[row, column]:.6g} {resource.unit}, above the plausible "
                f"maximum of {maximum:g}; give its unit (--unit {resource.name}=UNIT), or mark it as a counter (--counter)"
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
    """Return remarks on containers and rows that are dropped for lack of a resource."""
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
            raise InvalidProblemError(f"{path}: {text}; check the queries, or continue with --drop-incomplete")
        remarks.append(text)
    rows = np.array([str(key) in complete for key in keys], dtype=bool)
    num_lacking = int((rows & ~np.isfinite(values).all(axis=1)).sum())
    if num_lacking > MAX_LACKING * rows.sum():
        remarks.append(f"{num_lacking} of {int(rows.sum())} samples are left out, as they lack a resource")
    return remarks


def _kills_after(kills: FloatArray, time_s: FloatArray, every: IntArray, kept: IntArray, group: IntArray) -> FloatArray:
    """Return the kills between each remaining row and the next one, shape (kept, R), NaN for containers without a counter.

    The number for a container's first row includes kills in earlier dropped rows, and that for its last row kills in
    later dropped rows.

    Parameters
    ----------
    every
        Index of each row's container, -1 if no row of this container remains; shape (rows,).
    kept, group
        Numbers of the remaining rows, sorted by container and time, and the index of the container of each; shape (kept,).
    """
    order = np.lexsort((time_s, every))
    order = order[(every[order] >= 0) & np.isfinite(time_s[order])]
    total = np.zeros_like(kills)
    total[order] = np.cumsum(np.nan_to_num(kills[order]), axis=0)
    number = int(group.max()) + 1
    last_of = np.full(number, -1)
    last_of[every[order]] = order  # of equal indices numpy keeps the last
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
    """Return the last finite value of each container and column, NaN if there is none; rows are grouped by container."""
    end = np.cumsum(lengths)
    row = np.where(np.isfinite(limit), np.arange(len(limit))[:, None], -1)
    latest = np.maximum.accumulate(row, axis=0)[end - 1]
    known = np.take_along_axis(limit, np.maximum(latest, 0), axis=0)
    return np.where(latest >= (end - lengths)[:, None], known, np.nan)
