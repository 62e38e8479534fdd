"""Spot price histories from files: CSV, and the JSON that `aws ec2 describe-spot-price-history` prints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from optim.core.documents import decode
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.bidding.price_history import GAP_S, MICRO, IntArray, Market, PriceHistory, PricePath, history_of
from optim.workloads.bidding.instance_types import work_rate
from optim.workloads.csv_columns import groups, joined, read_columns, refuse, require, require_order


class _AwsPrice(msgspec.Struct):
    """One change of price, with Amazon's names."""

    AvailabilityZone: str
    InstanceType: str
    SpotPrice: str
    Timestamp: str


class _AwsHistory(msgspec.Struct):
    """What `aws ec2 describe-spot-price-history` prints."""

    SpotPriceHistory: list[_AwsPrice]


def read_prices(path: str | Path, on_demand: Mapping[str, int], *, gap_s: int = GAP_S) -> PriceHistory:
    """Read a price history.

    A CSV file has the columns `timestamp` (UTC, ISO 8601), `zone`, `instance_type` and `price_usd_per_hour`, the rows
    of each market in order of time; of rows with one time stamp the last counts. JSON is Amazon's, in any order: it
    lists the latest first.

    Parameters
    ----------
    path
        The file, plain or gzip.
    on_demand
        Micro-dollars an hour on demand by instance type.
    gap_s
        Shortest time without any change that counts as a gap of the collection.

    Raises
    ------
    InvalidProblemError
        If the file is bad, out of order, or has a type without an on-demand price; the text names row and remedy.
    """
    if read_bytes(path).lstrip()[:1] == b"{":
        types, zones, times, prices = _from_json(path)
    else:
        types, zones, times, prices = _from_csv(path)
    markets, paths = [], []
    for name, rows in sorted(groups(joined(types, zones, by="@")).items()):
        require_order(path, name, rows, times[rows], by="timestamp")
        last = np.append(np.diff(times[rows]) > 0, True)
        kind, zone = str(types[rows[0]]), str(zones[rows[0]])
        if kind not in on_demand:
            raise InvalidProblemError(
                f"{path}: instance type {kind!r} has no on-demand price (there are: {', '.join(on_demand) or 'none'}); "
                "add it to the on-demand file"
            )
        markets.append(Market(instance_type=kind, zone=zone, on_demand_micro=on_demand[kind], rate=work_rate(kind)))
        paths.append(PricePath(time_s=times[rows][last], price_micro=prices[rows][last]))
    return history_of(markets, paths, gap_s=gap_s)


def read_on_demand(path: str | Path) -> dict[str, int]:
    """Read on-demand prices: columns `instance_type` and `on_demand_usd_per_hour`; return micro-dollars by type.

    Raises
    ------
    InvalidProblemError
        If the file is bad, or a price isn't positive.
    """
    columns = read_columns(path, ("on_demand_usd_per_hour",), ("instance_type",))
    micro = _micro(path, "on_demand_usd_per_hour", columns["on_demand_usd_per_hour"])
    return dict(zip(map(str, columns["instance_type"]), micro.tolist(), strict=True))


def parse_times(path: str | Path, column: str, texts: Sequence[str] | NDArray[Any]) -> IntArray:
    """Return ISO 8601 times as seconds since 1970; without a zone they are UTC.

    Raises
    ------
    InvalidProblemError
        At the first text that is no time.
    """
    import pandas as pd

    parsed = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", utc=True, errors="coerce")
    refuse(path, column, parsed.isna().to_numpy(), "a time like 2015-03-11T16:54:38Z is due", texts)
    seconds: IntArray = parsed.dt.tz_localize(None).to_numpy(dtype="datetime64[s]").astype(np.int64)
    return seconds


def _from_csv(path: str | Path) -> tuple[NDArray[Any], NDArray[Any], IntArray, IntArray]:
    columns = read_columns(path, ("price_usd_per_hour",), ("timestamp", "zone", "instance_type"))
    micro = _micro(path, "price_usd_per_hour", columns["price_usd_per_hour"])
    return columns["instance_type"], columns["zone"], parse_times(path, "timestamp", columns["timestamp"]), micro


def _from_json(path: str | Path) -> tuple[NDArray[Any], NDArray[Any], IntArray, IntArray]:
    """Read Amazon's JSON and put it into order of time; later entries of one time stamp count as earlier."""
    try:
        entries = decode(read_bytes(path), _AwsHistory).SpotPriceHistory
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: {error}") from error
    if not entries:
        raise InvalidProblemError(f"{path}: SpotPriceHistory is empty; ask for a longer time or other types")
    times = parse_times(path, "Timestamp", [entry.Timestamp for entry in entries])
    try:
        usd = np.array([float(entry.SpotPrice) for entry in entries])
    except ValueError as error:
        raise InvalidProblemError(f"{path}: SpotPrice must be a number ({error}); correct the entry") from error
    micro = _micro(path, "SpotPrice", usd)
    order = np.lexsort((-np.arange(len(times)), times))
    types = np.array([entry.InstanceType for entry in entries], dtype=object)
    zones = np.array([entry.AvailabilityZone for entry in entries], dtype=object)
    return types[order], zones[order], times[order], micro[order]


def _micro(path: str | Path, column: str, usd: NDArray[np.float64]) -> IntArray:
    """Return dollars as whole micro-dollars, at least 1."""
    require(path, {column: usd}, column, least=1.0 / MICRO)
    return np.rint(usd * MICRO).astype(np.int64)
