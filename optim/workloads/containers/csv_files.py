"""Resource usage from CSV files: three public forms, and a custom one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.containers.series import CPU, MEMORY, ContainerSeries, Resource
from optim.workloads.containers.series_rows import GIB, ResourceOverrides, scale_of, series_of_rows
from optim.workloads.csv_columns import header_of, joined, read_columns, require_columns

KIB_PER_GIB = 2.0**20

_KNOWN = {resource.name: resource for resource in (CPU, MEMORY)}


def read_containers(
    path: str | Path, *, units: Mapping[str, str] = MappingProxyType({}), drop_incomplete: bool = False
) -> ContainerSeries:
    """Read series from a CSV file, plain or gzip, in one of four forms, recognised by the header.

    - AI4DL's: `timestamp`, `service`, `pod.id`, `cpu.usage.cores`, `mem.working.set`, `mem.limit`.
    - MIT Supercloud's, one job: `EpochTime`, `CPUUtilization` (per cent of a core), `RSS` (KiB).
    - Bitbrains', joined into one table: `vm`, `t_s`, `cores`, `cpu_mhz`, `cpu_cap_mhz`, `mem_kb`, `mem_cap_kb`; CPU becomes
      cores.
    - Custom: `container`, `time_s`, and one column per resource. Optional columns: ``NAME_limit`` (the resource's
      limit), ``NAME_kills`` (kills for lack of the resource since the container's previous row), and `phase` (the true
      phase, as text).

    Parameters
    ----------
    path
        The file.
    units
        Unit of each resource and of its limits in the custom form, such as bytes or millicores; by default cores, GiB
        and MB/s.
    drop_incomplete
        Whether to continue if more than half of the containers lack a resource.

    Returns
    -------
    ContainerSeries
        Series with the irregular time stamps of the file; CPU in cores and memory in GiB in the public forms.

    Raises
    ------
    InvalidProblemError
        If the form is unknown, or the file is invalid.
    InvalidOptionError
        If a unit is given for a missing resource, or for a form with fixed units.
    """
    header = header_of(path)
    for names, read in FORMS:
        if names <= set(header):
            if units:
                raise InvalidOptionError(f"{path}: the units of this form are fixed; leave --unit out")
            return read(path)
    if {"container", "time_s"} <= set(header):
        return _custom(path, header, units, drop_incomplete=drop_incomplete)
    what = "the header has no known form" if header else "the file has no header"
    raise InvalidProblemError(f"{path}: {what}; name the columns container, time_s, and one per resource")


def _ai4dl(path: str | Path) -> ContainerSeries:
    columns = read_columns(
        path, ("timestamp", "cpu.usage.cores", "mem.working.set", "mem.limit"), ("service", "pod.id")
    )
    require_columns(path, columns, "cpu.usage.cores", "mem.working.set", least=0.0, may_lack=True)
    # Several services use the same pod name.
    keys = joined(columns["service"], columns["pod.id"], by="/")
    values = np.stack([columns["cpu.usage.cores"], columns["mem.working.set"] / GIB], axis=1)
    limit = np.stack([np.full(len(values), np.nan), columns["mem.limit"] / GIB], axis=1)
    return series_of_rows(path, keys, columns["timestamp"], values, (CPU, MEMORY), limit)


def _supercloud(path: str | Path) -> ContainerSeries:
    columns = read_columns(path, ("EpochTime", "CPUUtilization", "RSS"))
    require_columns(path, columns, "CPUUtilization", "RSS", least=0.0, may_lack=True)
    values = np.stack([columns["CPUUtilization"] / 100.0, columns["RSS"] / KIB_PER_GIB], axis=1)
    keys = np.full(len(values), "job", dtype=object)
    return series_of_rows(path, keys, columns["EpochTime"], values, (CPU, MEMORY))


def _bitbrains(path: str | Path) -> ContainerSeries:
    numbers = ("t_s", "cores", "cpu_mhz", "cpu_cap_mhz", "mem_kb", "mem_cap_kb")
    columns = read_columns(path, numbers, ("vm",))
    require_columns(path, columns, *numbers[1:], least=0.0, may_lack=True)
    cores, capacity = columns["cores"], columns["cpu_cap_mhz"]
    # A machine without capacity uses nothing; an unknown capacity makes usage unknown (NaN).
    used = columns["cpu_mhz"] / np.where(capacity == 0, np.inf, capacity) * cores
    values = np.stack([used, columns["mem_kb"] / KIB_PER_GIB], axis=1)
    limit = np.stack([cores, columns["mem_cap_kb"] / KIB_PER_GIB], axis=1)
    return series_of_rows(path, columns["vm"], columns["t_s"], values, (CPU, MEMORY), limit)


FORMS: tuple[tuple[frozenset[str], Callable[[str | Path], ContainerSeries]], ...] = (
    (frozenset({"pod.id", "cpu.usage.cores"}), _ai4dl),
    (frozenset({"EpochTime", "CPUUtilization", "RSS"}), _supercloud),
    (frozenset({"vm", "t_s", "cpu_mhz"}), _bitbrains),
)
"""Public forms, and the columns that identify each."""


def _custom(
    path: str | Path, header: tuple[str, ...], units: Mapping[str, str], *, drop_incomplete: bool
) -> ContainerSeries:
    names = [n for n in header if n not in ("container", "time_s", "phase") and not n.endswith(("_limit", "_kills"))]
    if not names:
        raise InvalidProblemError(f"{path}: no resource column besides container and time_s; add one such as 'cpu'")
    for name in names:
        if names.count(name) > 1:
            raise InvalidProblemError(f"{path}: column {name!r} appears twice; rename or remove one")
    ResourceOverrides(units=units, counters=()).require_resources(names)
    limits = [f"{name}_limit" for name in names if f"{name}_limit" in header]
    killed = [f"{name}_kills" for name in names if f"{name}_kills" in header]
    has_phase = "phase" in header
    numbers = ("time_s", *names, *limits, *killed)
    columns = read_columns(path, numbers, ("container", *(("phase",) if has_phase else ())))
    require_columns(path, columns, *names, *killed, least=0.0, may_lack=True)
    size = len(columns["time_s"])
    factor = np.array([scale_of(name, units[name]) if name in units else 1.0 for name in names])
    limit, kills = (
        np.stack([columns.get(f"{name}_{what}", np.full(size, np.nan)) for name in names], axis=1)
        for what in ("limit", "kills")
    )
    limit = factor * limit
    phase_names = tuple(sorted({str(text) for text in columns["phase"] if text})) if has_phase else ()
    number = {text: place for place, text in enumerate(phase_names)}
    phase = np.array([number.get(str(text), -1) for text in columns["phase"]]) if has_phase else None
    return series_of_rows(
        path,
        columns["container"],
        columns["time_s"],
        factor * np.stack([columns[name] for name in names], axis=1),
        tuple(_KNOWN.get(name, Resource(name=name, unit=units.get(name, ""))) for name in names),
        limit if limits else None,
        phase,
        phase_names,
        kills=kills if killed else None,
        drop_incomplete=drop_incomplete,
    )
