"""Planned absences of machines: maintenance windows, drains, and changes of the number of machines."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidProblemError
from optim.core.limits import check_limit
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.rules import ENDLESS
from optim.models.cluster.workload import LATEST_US, US
from optim.workloads.csv_columns import header_of, read_columns, refuse, require_all_fields
from optim.workloads.traces.job_table import EPOCH, times_of

MACHINE, COUNT, START, END = "machine", "machines", "start", "end"

RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")

Window = tuple[int, int, int]
"""An outage: the machine's number, and beginning and end in microseconds after the first submission."""


def read_outages(path: str | Path, cluster: Cluster, begin: datetime | None) -> tuple[Window, ...]:
    """Return each machine's planned outages, in order, with adjacent windows of one machine merged.

    The table has columns `machine` (a number from 0 on, or a range such as `40-59`), `start` and `end`; an empty start
    is the beginning, an empty end means forever. Alternatively it has `start` and `machines`, the number of machines
    from then on; the machines with the lowest numbers stay. Times are seconds after the first simulated submission, or
    dates if the jobs have dates.

    Parameters
    ----------
    begin
        Date of the first submission, None if unknown.

    Raises
    ------
    InvalidProblemError
        If a column is missing, a machine doesn't exist, a time can't be read, or a window ends before it begins.
    """
    header = header_of(path)
    if COUNT in header and MACHINE not in header:
        windows = list(_by_count(path, cluster, begin))
    else:
        windows = list(_by_machine(path, cluster, begin))
    if not windows:
        raise InvalidProblemError(f"{path}: every window ends before the first submission; leave --outages out")
    return tuple(_joined(windows))


def _times(path: str | Path, column: str, texts: NDArray[Any], begin: datetime | None, empty: int) -> NDArray[np.int64]:
    """Return a column's times in microseconds after the first submission; `empty` where a field is empty."""
    is_told = texts != ""
    seconds, first, _ = times_of(path, column, texts, is_due=is_told)
    if first not in (None, EPOCH) or (first is EPOCH and begin is not None):
        if begin is None:
            raise InvalidProblemError(
                f"{path}: column {column!r}: the jobs have no dates; give seconds after the first submission"
            )
        seconds = seconds + (first - begin).total_seconds()
    is_late = is_told & (np.abs(np.nan_to_num(seconds)) * US > LATEST_US)
    refuse(path, column, is_late, "expected a time within 35 years of the first submission", texts)
    return np.where(is_told, np.rint(np.nan_to_num(seconds) * US), empty).astype(np.int64)


def _by_machine(path: str | Path, cluster: Cluster, begin: datetime | None) -> Iterator[Window]:
    columns = read_columns(path, (), (MACHINE, START, END))
    require_all_fields(path)
    starts, ends = (_times(path, name, columns[name], begin, empty) for name, empty in ((START, 0), (END, ENDLESS)))
    refuse(path, END, ends <= starts, "expected a time after the row's start", columns[END])
    texts = columns[MACHINE]
    ranges = [RANGE.fullmatch(text.strip()) for text in texts.tolist()]
    most = cluster.num_machines - 1
    is_bad = np.array([each is None or not int(each[1]) <= int(each[2] or each[1]) <= most for each in ranges])
    refuse(path, MACHINE, is_bad, f"expected a number in 0..{most}, or a range such as 0-{most}", texts)
    spans = [(int(each[1]), int(each[2] or each[1])) for each in ranges if each is not None]
    check_limit("count", sum(last - first + 1 for first, last in spans), f"{path}: windows of machines")
    for (first, last), start, end in zip(spans, starts.tolist(), ends.tolist(), strict=True):
        if end > 0:
            yield from ((machine, max(0, start), end) for machine in range(first, last + 1))


def _by_count(path: str | Path, cluster: Cluster, begin: datetime | None) -> Iterator[Window]:
    columns = read_columns(path, (COUNT,), (START,))
    require_all_fields(path)
    starts, counts = _times(path, START, columns[START], begin, 0), columns[COUNT]
    is_bad = ~((counts >= 0) & (counts <= cluster.num_machines) & (counts == np.floor(counts)))
    refuse(path, COUNT, is_bad, f"expected an integer of at most {cluster.num_machines}, as --gpus gives", counts)
    check_limit("count", len(counts) * cluster.num_machines, f"{path}: windows of machines")
    order = np.argsort(starts, kind="stable")
    ends = np.append(starts[order][1:], ENDLESS)
    for count, start, end in zip(counts[order].tolist(), starts[order].tolist(), ends.tolist(), strict=True):
        if end > max(0, start):
            yield from ((machine, max(0, start), end) for machine in range(int(count), cluster.num_machines))


def _joined(windows: list[Window]) -> Iterator[Window]:
    """Yield windows by machine and time; windows of one machine that touch or overlap are merged."""
    last: Window | None = None
    for machine, start, end in sorted(windows):
        if last is not None and last[0] == machine and start <= last[2]:
            last = (machine, last[1], max(last[2], end))
            continue
        if last is not None:
            yield last
        last = (machine, start, end)
    if last is not None:
        yield last
