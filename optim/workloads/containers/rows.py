"""Rows of samples in any order become series."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.models.containers.series import ContainerSeries, FloatArray, IntArray, Resource


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
) -> ContainerSeries:
    """Sort rows by container and time.

    Containers stay in the order of their first row. Rows that lack a value are left out; of rows with the same
    container and time the last one counts.

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
    units
        Of containers, see `ContainerSeries`.

    Raises
    ------
    InvalidProblemError
        If no whole row is left.
    """
    whole = np.flatnonzero(np.isfinite(values).all(axis=1) & np.isfinite(time_s))
    if not len(whole):
        raise InvalidProblemError(f"{path}: no row has all of {', '.join(r.name for r in resources)}; check the file")
    names = tuple(dict.fromkeys(map(str, keys[whole])))
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
    )


def _last_known(limit: FloatArray, lengths: IntArray) -> FloatArray:
    """Return the last finite value of each container and column, NaN where there is none; rows stand by container."""
    end = np.cumsum(lengths)
    row = np.where(np.isfinite(limit), np.arange(len(limit))[:, None], -1)
    latest = np.maximum.accumulate(row, axis=0)[end - 1]
    known = np.take_along_axis(limit, np.maximum(latest, 0), axis=0)
    return np.where(latest >= (end - lengths)[:, None], known, np.nan)
