"""Availability traces from CSV files of either public form; availability is always counted as 1 = can be had."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.availability import AvailabilityTrace
from optim.models.bidding.price_history import MICRO
from optim.workloads.bidding.price_files import parse_times
from optim.workloads.csv_columns import HEADER_ROWS, header_of, read_columns, require

P3_2XLARGE_MICRO = 3_060_000
"""On-demand price of p3.2xlarge in the zones of the price and availability file."""

LIST_PRICES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"v100_1": (3_060_000, 918_000), "v100_8": (24_480_000, 7_344_000), "k80_1": (900_000, 270_000)}
)
"""On-demand and spot micro-dollars by resource for traces without prices: p3.2xlarge, p3.16xlarge and p2.xlarge of
us-east-1, spot at its usual 30 %."""


def read_availability(
    path: str | Path, *, on_demand_micro: int | None = None, spot_micro: int | None = None
) -> dict[str, AvailabilityTrace]:
    """Read availability by zone.

    Two forms are known by their header. With prices: `tick`, `timestamp_local`, `zone`, `available` (0 or 1),
    `price_usd_per_hour`. Without: `kind`, `nodes`, `campaign`, `zone`, `resource`, `gap_seconds`, `tick`, `value`
    (instances that were up or could be had); a tick counts as available if all `nodes` are.

    Parameters
    ----------
    path
        The file, plain or gzip.
    on_demand_micro, spot_micro
        Prices that the file doesn't hold, micro-dollars an hour; by default list prices, and those of one V100 for a
        resource that isn't listed, so that of its costs only the ratios mean something.

    Returns
    -------
    dict
        Traces by zone, or by ``campaign/zone/resource/kind`` in files of many campaigns.

    Raises
    ------
    InvalidProblemError
        If the file is bad, out of order, or a value isn't what it must be.
    """
    if "available" in header_of(path):
        return _with_prices(path, P3_2XLARGE_MICRO if on_demand_micro is None else on_demand_micro)
    return _without_prices(path, on_demand_micro, spot_micro)


def zone_named(traces: Mapping[str, AvailabilityTrace], zone: str) -> AvailabilityTrace:
    """Return a zone's trace.

    Raises
    ------
    InvalidOptionError
        If there is none; the text lists those there are.
    """
    if zone not in traces:
        raise InvalidOptionError(f"unknown zone {zone!r}; the file has: {', '.join(traces)}")
    return traces[zone]


def _with_prices(path: str | Path, on_demand_micro: int) -> dict[str, AvailabilityTrace]:
    numbers = ("tick", "available", "price_usd_per_hour")
    columns = read_columns(path, numbers, ("timestamp_local", "zone"))
    require(path, "price_usd_per_hour", columns["price_usd_per_hour"], least=1.0 / MICRO)
    available = columns["available"]
    for row in np.flatnonzero((available != 0) & (available != 1))[:1].tolist():
        raise InvalidProblemError(
            f"{path}: row {row + 1 + HEADER_ROWS}, column 'available': must be 0 or 1, got {available[row]:g}"
        )
    times = parse_times(path, "timestamp_local", columns["timestamp_local"])
    price = np.rint(columns["price_usd_per_hour"] * MICRO).astype(np.int64)
    traces = {}
    for zone, rows in _groups(columns["zone"]).items():
        _require_order(path, zone, rows, times[rows])
        traces[zone] = AvailabilityTrace(
            zone=zone,
            resource="v100_1",
            time_s=times[rows],
            is_available=available[rows] == 1,
            price_micro=price[rows],
            on_demand_micro=on_demand_micro,
            end_s=int(times[rows][-1] + np.median(np.diff(times[rows]))) if len(rows) > 1 else int(times[rows][-1]) + 1,
        )
    return traces


def _without_prices(
    path: str | Path, on_demand_micro: int | None, spot_micro: int | None
) -> dict[str, AvailabilityTrace]:
    numbers = ("nodes", "gap_seconds", "tick", "value")
    columns = read_columns(path, numbers, ("kind", "campaign", "zone", "resource"))
    for name in numbers:
        require(path, name, columns[name], least=0.0)
    keys = np.array(
        [
            "/".join(parts)
            for parts in zip(*(columns[n] for n in ("campaign", "zone", "resource", "kind")), strict=True)
        ],
        dtype=object,
    )
    traces = {}
    for key, rows in _groups(keys).items():
        times = np.rint(columns["tick"][rows] * columns["gap_seconds"][rows]).astype(np.int64)
        _require_order(path, key, rows, times)
        resource = str(columns["resource"][rows[0]])
        list_od, list_spot = LIST_PRICES.get(resource, LIST_PRICES["v100_1"])
        nodes = int(columns["nodes"][rows[0]])
        od, spot = (
            list_od * nodes if on_demand_micro is None else on_demand_micro,
            list_spot * nodes if spot_micro is None else spot_micro,
        )
        traces[key] = AvailabilityTrace(
            zone=key,
            resource=resource,
            time_s=times,
            is_available=columns["value"][rows] >= columns["nodes"][rows],
            price_micro=np.full(len(rows), spot, dtype=np.int64),
            on_demand_micro=od,
            end_s=int(times[-1] + columns["gap_seconds"][rows[0]]),
        )
    return traces


def _groups(keys: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each key, keys in order of first appearance."""
    names, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return {str(names[k]): np.flatnonzero(group == k) for k in np.argsort(first)}


def _require_order(path: str | Path, name: str, rows: NDArray[np.int64], times: NDArray[np.int64]) -> None:
    for place in np.flatnonzero(np.diff(times) <= 0)[:1].tolist():
        raise InvalidProblemError(
            f"{path}: row {rows[place + 1] + 1 + HEADER_ROWS}: {name} goes back in time; sort the rows by tick"
        )
