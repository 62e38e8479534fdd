"""Rows of samples in any order become series."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import KNOWN_RESOURCES, ContainerSeries, FloatArray, IntArray, Resource

MOST: Mapping[str, float] = {"cpu": 1e4, "memory": 1e5, "network": 1e6}
"""More cores, GiB and MB/s than any machine has."""

MOST_SHOWN = 5
"""Containers that a message names."""

MOST_LACKING = 0.05
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
        shown = ", ".join(lacking[:MOST_SHOWN]) + (", ..." if len(lacking) > MOST_SHOWN else "")
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
    if num_lacking > MOST_LACKING * rows.sum():
        said.append(f"{num_lacking} of {int(rows.sum())} samples are left out, as they lack a resource")
    return said


def _last_known(limit: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the last finite value of each container and column, NaN where there is none; rows stand by container."""
    end = np.cumsum(lengths)
    row = np.where(np.isfinite(limit), np.arange(len(limit))[:, None], -1)
    latest = np.maximum.accumulate(row, axis=0)[end - 1]
    known = np.take_along_axis(limit, np.maximum(latest, 0), axis=0)
    return np.where(latest >= (end - lengths)[:, None], known, np.nan)
