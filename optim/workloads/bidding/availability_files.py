"""Availability traces from CSV files of either public form; availability is always counted as 1 = can be had."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.models.bidding.availability import AvailabilityTrace
from optim.models.bidding.price_history import MICRO, IntArray
from optim.workloads.bidding.price_files import parse_times
from optim.workloads.csv_columns import groups, header_of, joined, read_columns, refuse, require, require_order

LIST_PRICES: Mapping[str, int] = MappingProxyType(
    {
        "p2.xlarge": 900_000,
        "p2.8xlarge": 7_200_000,
        "p2.16xlarge": 14_400_000,
        "p3.2xlarge": 3_060_000,
        "p3.8xlarge": 12_240_000,
        "p3.16xlarge": 24_480_000,
        "k80_1": 900_000,
        "v100_1": 3_060_000,
        "v100_8": 24_480_000,
    }
)
"""On-demand micro-dollars an hour in us-east-1 by type, and by what the traces without prices call p2.xlarge, p3.2xlarge
and p3.16xlarge."""

SPOT_PERCENT = 30
"""Spot price of traces without prices, usual for these machines, as a part of that on demand."""

OnDemand = int | Mapping[str, int] | None
"""On-demand micro-dollars of a machine-hour: of every machine, by type, or left to the file."""


class ZoneTraces(Mapping[str, AvailabilityTrace]):
    """Traces by zone, each put together when it is asked for: the price on demand of no other zone need be known."""

    def __init__(self, rows: Mapping[str, IntArray], build: Callable[[str, IntArray], AvailabilityTrace]) -> None:
        self._rows = rows
        self._build = build

    def __getitem__(self, zone: str) -> AvailabilityTrace:
        return self._build(zone, self._rows[zone])

    def __contains__(self, zone: object) -> bool:
        return zone in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def read_availability(
    path: str | Path, *, on_demand_micro: OnDemand = None, spot_micro: int | None = None
) -> ZoneTraces:
    """Read availability by zone.

    Two forms are known by their header. With prices: `tick`, `timestamp_local`, `zone`, `available` (0 or 1),
    `price_usd_per_hour`, and if there are `instance_type` and `on_demand_usd_per_hour`, the same in all rows of a zone.
    Without: `kind`, `nodes`, `campaign`, `zone`, `resource`, `gap_seconds`, `tick`, `value` (instances that were up or
    could be had); a tick counts as available if all `nodes` are.

    Parameters
    ----------
    path
        The file, plain or gzip.
    on_demand_micro
        On-demand price of a machine, micro-dollars an hour, for all or by type (`instance_type` or `resource`). Where
        it says nothing, the file's column counts, then `LIST_PRICES`.
    spot_micro
        Spot price of all nodes where the file holds none; by default `SPOT_PERCENT` of the on-demand price.

    Returns
    -------
    ZoneTraces
        Traces by zone, or by ``campaign/zone/resource/kind`` in files of many campaigns. Asking for one whose price on
        demand nobody tells raises InvalidProblemError.

    Raises
    ------
    InvalidProblemError
        If the file is bad, out of order, or a value isn't what it must be.
    """
    header = header_of(path)
    if "available" in header:
        return _with_prices(path, header, on_demand_micro)
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


def _with_prices(path: str | Path, header: tuple[str, ...], given: OnDemand) -> ZoneTraces:
    has_type, has_price = "instance_type" in header, "on_demand_usd_per_hour" in header
    numbers = ("tick", "available", "price_usd_per_hour", *["on_demand_usd_per_hour"] * has_price)
    columns = read_columns(path, numbers, ("timestamp_local", "zone", *["instance_type"] * has_type))
    require(path, columns, *numbers[2:], least=1.0 / MICRO)
    available = columns["available"]
    refuse(path, "available", (available != 0) & (available != 1), "must be 0 or 1", available)
    times = parse_times(path, "timestamp_local", columns["timestamp_local"])
    price = _micro(columns["price_usd_per_hour"])
    zones = groups(columns["zone"])
    for zone, rows in zones.items():
        for name in ("instance_type",) * has_type + ("on_demand_usd_per_hour",) * has_price:
            _require_one(path, zone, name, columns[name][rows])
        require_order(path, zone, rows, times[rows], by="tick", is_strict=True)

    def build(zone: str, rows: IntArray) -> AvailabilityTrace:
        kind = str(columns["instance_type"][rows[0]]) if has_type else ""
        listed = int(_micro(columns["on_demand_usd_per_hour"][rows[0]])) if has_price else None
        return AvailabilityTrace(
            zone=zone,
            resource=kind,
            time_s=times[rows],
            is_available=available[rows] == 1,
            price_micro=price[rows],
            on_demand_micro=_on_demand(path, zone, kind, given, listed),
            end_s=int(times[rows][-1] + np.median(np.diff(times[rows]))) if len(rows) > 1 else int(times[rows][-1]) + 1,
        )

    return ZoneTraces(zones, build)


def _without_prices(path: str | Path, given: OnDemand, spot_micro: int | None) -> ZoneTraces:
    numbers = ("nodes", "gap_seconds", "tick", "value")
    columns = read_columns(path, numbers, ("kind", "campaign", "zone", "resource"))
    require(path, columns, *numbers, least=0.0)
    keys = joined(*(columns[name] for name in ("campaign", "zone", "resource", "kind")), by="/")
    times = np.rint(columns["tick"] * columns["gap_seconds"]).astype(np.int64)
    zones = groups(keys)
    for key, rows in zones.items():
        require_order(path, key, rows, times[rows], by="tick", is_strict=True)

    def build(key: str, rows: IntArray) -> AvailabilityTrace:
        first = rows[0]
        resource = str(columns["resource"][first])
        on_demand = _on_demand(path, key, resource, given, None) * int(columns["nodes"][first])
        spot = on_demand * SPOT_PERCENT // 100 if spot_micro is None else spot_micro
        return AvailabilityTrace(
            zone=key,
            resource=resource,
            time_s=times[rows],
            is_available=columns["value"][rows] >= columns["nodes"][rows],
            price_micro=np.full(len(rows), spot, dtype=np.int64),
            on_demand_micro=on_demand,
            end_s=int(times[rows[-1]] + columns["gap_seconds"][first]),
        )

    return ZoneTraces(zones, build)


def _on_demand(path: str | Path, zone: str, kind: str, given: OnDemand, listed: int | None) -> int:
    """Return the price on demand of a machine: what was given, else what the file says, else the list price."""
    if isinstance(given, int):
        return given
    for price in ((given or {}).get(kind), listed, LIST_PRICES.get(kind)):
        if price is not None:
            return price
    cause = f"machines of type {kind!r} have" if kind else "the file names no type, and has"
    raise InvalidProblemError(
        f"{path}: {zone}: {cause} no price on demand; give --on-demand with dollars an hour, a type with a list price "
        "(p3.2xlarge, say) or a file of types, or add the column on_demand_usd_per_hour"
    )


def _require_one(path: str | Path, zone: str, name: str, values: NDArray[Any]) -> None:
    """Raise InvalidProblemError if a zone's rows don't all say the same."""
    other = np.flatnonzero(values != values[0])
    if len(other):
        raise InvalidProblemError(
            f"{path}: zone {zone} has more than one {name} ({values[0]} and {values[other[0]]}); give each a file or zone"
        )


def _micro(usd: NDArray[np.float64]) -> IntArray:
    """Return dollars as whole micro-dollars."""
    return np.rint(usd * MICRO).astype(np.int64)
