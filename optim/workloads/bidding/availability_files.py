"""Availability traces from CSV files of either public form; availability is always counted as 1 = can be had."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.bidding.availability import AvailabilityTrace
from optim.models.bidding.price_history import MICRO
from optim.workloads.bidding.price_files import parse_times
from optim.workloads.csv_columns import groups, header_of, joined, read_columns, refuse, require, require_order

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
    require(path, columns, "price_usd_per_hour", least=1.0 / MICRO)
    available = columns["available"]
    refuse(path, "available", (available != 0) & (available != 1), "must be 0 or 1", available)
    times = parse_times(path, "timestamp_local", columns["timestamp_local"])
    price = np.rint(columns["price_usd_per_hour"] * MICRO).astype(np.int64)
    traces = {}
    for zone, rows in groups(columns["zone"]).items():
        require_order(path, zone, rows, times[rows], by="tick", is_strict=True)
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
    require(path, columns, *numbers, least=0.0)
    keys = joined(*(columns[name] for name in ("campaign", "zone", "resource", "kind")), by="/")
    traces = {}
    for key, rows in groups(keys).items():
        times = np.rint(columns["tick"][rows] * columns["gap_seconds"][rows]).astype(np.int64)
        require_order(path, key, rows, times, by="tick", is_strict=True)
        resource = str(columns["resource"][rows[0]])
        list_od, list_spot = LIST_PRICES.get(resource, LIST_PRICES["v100_1"])
        nodes = int(columns["nodes"][rows[0]])
        spot = list_spot * nodes if spot_micro is None else spot_micro
        traces[key] = AvailabilityTrace(
            zone=key,
            resource=resource,
            time_s=times,
            is_available=columns["value"][rows] >= columns["nodes"][rows],
            price_micro=np.full(len(rows), spot, dtype=np.int64),
            on_demand_micro=list_od * nodes if on_demand_micro is None else on_demand_micro,
            end_s=int(times[-1] + columns["gap_seconds"][rows[0]]),
        )
    return traces
