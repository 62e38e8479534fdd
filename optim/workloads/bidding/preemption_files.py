"""Spells of machines from recorded series of how many were up."""

from collections import deque
from pathlib import Path

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.models.bidding.hazard import Spells
from optim.workloads.csv_columns import groups, joined, read_columns, require, require_order


def read_spells(path: str | Path) -> Spells:
    """Read spells from preemption series: machines that come are launches, machines that go are losses, the oldest first.

    The file has the columns `kind`, `campaign`, `zone`, `resource`, `gap_seconds`, `tick` and `value`, as the SkyPilot
    traces do; rows of other kinds are left out.

    Parameters
    ----------
    path
        The file, plain or gzip. Kinds are ``campaign/zone/resource``; the clock of each campaign begins at midnight.

    Raises
    ------
    InvalidProblemError
        If the file is bad, out of order, has no preemption series, or more machines at once than the limits allow.
    """
    numbers = ("gap_seconds", "tick", "value")
    columns = read_columns(path, numbers, ("kind", "campaign", "zone", "resource"))
    require(path, columns, *numbers, least=0.0)
    is_series = columns["kind"] == "preemption"
    if not is_series.any():
        raise InvalidProblemError(f"{path}: no row is of kind 'preemption'; give a file with preemption series")
    numbered = np.flatnonzero(is_series)
    columns = {name: values[is_series] for name, values in columns.items()}
    check_limit("count", int(columns["value"].max()), f"{path}: machines at once")
    keys = joined(*(columns[name] for name in ("campaign", "zone", "resource")), by="/")
    rows_of = groups(keys)
    kind, start, length, lost = [], [], [], []
    for number, (key, rows) in enumerate(rows_of.items()):
        times = columns["tick"][rows] * columns["gap_seconds"][rows]
        require_order(path, key, numbered[rows], np.rint(times).astype(np.int64), by="tick", is_strict=True)
        end = float(times[-1] + columns["gap_seconds"][rows[0]])
        for begin, until, is_lost in _spells(times.tolist(), columns["value"][rows].tolist(), end):
            kind.append(number)
            start.append(begin)
            length.append(until - begin)
            lost.append(is_lost)
    return Spells(
        kinds=tuple(rows_of),
        kind=np.array(kind, dtype=np.int64),
        start_s=np.array(start),
        length_s=np.array(length),
        is_lost=np.array(lost),
    )


def _spells(times: list[float], values: list[float], end: float) -> list[tuple[float, float, bool]]:
    """Return (begin, end, whether it was lost) of each machine of a series; those of the first tick began then."""
    up: deque[float] = deque()
    found = []
    for time, value in zip(times, values, strict=True):
        while len(up) > value:
            found.append((up.popleft(), time, True))
        while len(up) < int(value):
            up.append(time)
    return found + [(begin, end, False) for begin in up if end > begin]
