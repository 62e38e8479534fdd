"""Spot price histories from files: CSV, and the output of three clouds' tools.

| provider | source | entries | products |
|---|---|---|---|
| Amazon | `aws ec2 describe-spot-price-history` | `SpotPriceHistory[]` | `ProductDescription` |
| Azure | `prices.azure.com/api/retail/prices` (pages joined), or its columns as CSV | `Items[]` | Windows or Linux, by `productName` |
| Google | Cloud Billing's `services.skus.list` | `skus[]` | GPU type, by `description`, each a GPU-hour |

A price holds until the date of the next price of the same machine, zone or region, and product. Lists of several dates
joined into one are a history, which `read_prices` reads. All entries but spot and on-demand prices in dollars per hour
are dropped, and counted by reason.
"""

import csv
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from optim.core.arrays import IntArray
from optim.core.documents import decode, first_sign
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes
from optim.models.bidding.market.prices import MICRO, Market, PriceHistory, PricePath, history_of
from optim.workloads.bidding.instances import Work, kind_of_work, work_rate
from optim.workloads.csv_columns import (
    groups,
    header_of,
    joined,
    read_columns,
    refuse,
    require_columns,
    require_order,
    require_rereadable,
    utc_dates,
)

LINUX, WINDOWS = "Linux/UNIX", "Windows"
"""Products, in Amazon's words."""

MAX_OF_HEAD = 4096
"""Number of bytes at the beginning of a JSON file within which a key of `PROVIDERS` must appear."""

PROVIDERS = {"SpotPriceHistory": "Amazon", "Items": "Azure", "skus": "Google"}
"""Cloud providers by the key of the price list in their JSON."""

GPU = re.compile(r"\b(K80|P100|P4|T4|V100|L4|A100 80GB|A100|H100 80GB|H100)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """One price of a machine or GPU.

    Parameters
    ----------
    instance_type, zone, product
        Type of the machine or GPU; zone or region; operating system.
    is_spot
        Whether the machine can be preempted.
    since
        ISO 8601 time from which the price holds.
    usd_per_hour
        Dollars per hour.
    """

    instance_type: str
    zone: str
    product: str
    is_spot: bool
    since: str
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """Content of a price list.

    Parameters
    ----------
    provider
        Cloud whose prices the list has: "Amazon", "Azure" or "Google".
    prices
        Prices in the list's order.
    left_out
        Number of dropped entries by reason.
    """

    provider: str
    prices: tuple[ListedPrice, ...]
    left_out: Mapping[str, int]


class _Amazon(msgspec.Struct):
    AvailabilityZone: str
    InstanceType: str
    SpotPrice: str
    Timestamp: str
    ProductDescription: str = LINUX


class _Azure(msgspec.Struct, rename="camel"):
    currency_code: str
    retail_price: float
    arm_region_name: str
    arm_sku_name: str
    product_name: str
    sku_name: str
    unit_of_measure: str
    effective_start_date: str
    type: str = "Consumption"


class _Money(msgspec.Struct, rename="camel"):
    currency_code: str
    units: str = "0"
    nanos: int = 0


class _Rate(msgspec.Struct, rename="camel"):
    unit_price: _Money


class _Expression(msgspec.Struct, rename="camel"):
    usage_unit: str
    tiered_rates: list[_Rate]


class _Pricing(msgspec.Struct, rename="camel"):
    pricing_expression: _Expression
    effective_time: str = "1970-01-01T00:00:00Z"


class _Category(msgspec.Struct, rename="camel"):
    resource_group: str
    usage_type: str


class _Google(msgspec.Struct, rename="camel"):
    description: str
    category: _Category
    service_regions: list[str]
    pricing_info: list[_Pricing]


class _Lists(msgspec.Struct):
    """Any provider's list; absent fields are empty."""

    SpotPriceHistory: list[_Amazon] | None = None
    Items: list[_Azure] | None = None
    skus: list[_Google] | None = None


def read_price_list(path: str | Path) -> PriceList:
    """Read a price list; its form identifies the provider.

    Parameters
    ----------
    path
        JSON, or Azure's columns as CSV; plain or gzip.

    Raises
    ------
    InvalidProblemError
        If the file isn't a price list, an entry lacks a field (such as its currency), or a price isn't positive.
    """
    data = read_bytes(path)
    lists = _read_price_list(path, data) if first_sign(data) == b"{" else _Lists(Items=_azure_rows(path, data))
    left_out: Counter[str] = Counter()
    if lists.SpotPriceHistory is not None:
        provider, found = "Amazon", _amazon(path, lists.SpotPriceHistory)
    elif lists.Items is not None:
        provider, found = "Azure", _azure(lists.Items, left_out)
    elif lists.skus is not None:
        provider, found = "Google", _google(lists.skus, left_out)
    else:
        raise InvalidProblemError(
            f"{path}: no SpotPriceHistory, Items or skus; give a price list of Amazon, Azure or Google"
        )
    prices = tuple(found)
    for price in prices:
        if not 0 < price.usd_per_hour < 1e6:
            raise InvalidProblemError(
                f"{path}: {price.instance_type} in {price.zone} costs {price.usd_per_hour:g} dollars per hour; "
                "a price must be above 0 and below 1e6; correct the entry"
            )
    return PriceList(provider=provider, prices=prices, left_out=dict(left_out))


def is_price_list(path: str | Path) -> bool:
    """Return whether a file looks like a provider's price list."""
    return Path(path).is_file() and bool(provider_in(read_bytes(path)))


def provider_in(data: bytes) -> str:
    """Return the provider of a price list, by the first bytes of JSON or by Azure's columns; "" for none."""
    if first_sign(data) == b"{":
        head = data[:MAX_OF_HEAD]
        return next((name for key, name in PROVIDERS.items() if f'"{key}"'.encode() in head), "")
    return "Azure" if b"armSkuName" in data.split(b"\n", 1)[0] else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKind:
    """One line of a list's summary: a machine type in a zone or region, or the entries dropped for one reason."""

    provider: str
    machine: str
    place: str
    product: str
    kind: str
    entries: int
    min_usd: float | None = None
    max_usd: float | None = None


def describe_list(path: str | Path) -> list[ListedKind]:
    """Return a price list's summary by machine, zone or region, product and price type, and dropped entries by reason.

    Raises
    ------
    InvalidProblemError
        As `read_price_list`.
    """
    found = read_price_list(path)
    of: dict[tuple[str, str, str, str], list[float]] = {}
    for price in found.prices:
        kind = "spot" if price.is_spot else "on demand"
        of.setdefault((price.instance_type, price.zone, price.product, kind), []).append(price.usd_per_hour)
    rows = [
        ListedKind(
            provider=found.provider,
            machine=machine,
            place=place,
            product=product,
            kind=kind,
            entries=len(usd),
            min_usd=min(usd),
            max_usd=max(usd),
        )
        for (machine, place, product, kind), usd in sorted(of.items())
    ]
    rows += [
        ListedKind(provider=found.provider, machine="", place="", product="", kind=f"left out: {reason}", entries=count)
        for reason, count in sorted(found.left_out.items())
    ]
    return rows


def _read_price_list(path: str | Path, data: bytes) -> _Lists:
    try:
        return decode(data, _Lists)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: {error}") from error


def _amazon(path: str | Path, entries: list[_Amazon]) -> Iterator[ListedPrice]:
    for entry in entries:
        try:
            usd = float(entry.SpotPrice)
        except ValueError as error:
            raise InvalidProblemError(f"{path}: SpotPrice must be a number ({error}); correct the entry") from error
        yield ListedPrice(
            instance_type=entry.InstanceType,
            zone=entry.AvailabilityZone,
            product=entry.ProductDescription,
            is_spot=True,
            since=entry.Timestamp,
            usd_per_hour=usd,
        )


def _azure_rows(path: str | Path, data: bytes) -> list[_Azure]:
    """Read Azure's columns from CSV."""
    try:
        rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"))))
        return msgspec.convert(rows, list[_Azure], strict=False)
    except (msgspec.ValidationError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidProblemError(
            f"{path}: not a price list of Azure ({' '.join(str(error).split())}); give its columns, including currencyCode"
        ) from error


def _azure(entries: list[_Azure], left_out: Counter[str]) -> Iterator[ListedPrice]:
    for entry in entries:
        reason = _why_not_azure(entry)
        if reason is not None:
            left_out[reason] += 1
            continue
        yield ListedPrice(
            instance_type=entry.arm_sku_name,
            zone=entry.arm_region_name,
            product=WINDOWS if "Windows" in entry.product_name else LINUX,
            is_spot=entry.sku_name.endswith(" Spot"),
            since=entry.effective_start_date,
            usd_per_hour=entry.retail_price,
        )


def _why_not_azure(entry: _Azure) -> str | None:
    if entry.currency_code != "USD":
        return f"in {entry.currency_code}, not in dollars"
    if entry.unit_of_measure != "1 Hour":
        return f"by {entry.unit_of_measure}, not per hour"
    if entry.type != "Consumption":
        return f"of type {entry.type}, not a price of use"
    if entry.sku_name.endswith("Low Priority"):
        return "low priority, which spot has replaced"
    return None if entry.arm_sku_name and entry.arm_region_name else "without a type of machine or a region"


def _google(entries: list[_Google], left_out: Counter[str]) -> Iterator[ListedPrice]:
    for entry in entries:
        kind = GPU.search(entry.description)
        kinds = {"OnDemand": False, "Preemptible": True}
        if entry.category.resource_group != "GPU" or kind is None:
            left_out["no GPU: cores and memory have separate prices"] += 1
        elif entry.category.usage_type not in kinds:
            left_out[f"of usage type {entry.category.usage_type}"] += 1
        elif not entry.pricing_info:
            left_out["without a price per hour"] += 1
        else:
            for pricing in entry.pricing_info:  # one entry per change of price
                money = _dollars(pricing, left_out)
                for region in entry.service_regions if money is not None else ():
                    yield ListedPrice(
                        instance_type=kind.group(1).replace(" 80GB", "-80"),
                        zone=region,
                        product="",
                        is_spot=kinds[entry.category.usage_type],
                        since=pricing.effective_time,
                        usd_per_hour=money or 0.0,
                    )


def _dollars(pricing: _Pricing, left_out: Counter[str]) -> float | None:
    """Return the dollars per hour of one of Google's prices, None if it isn't in dollars per hour."""
    rates = pricing.pricing_expression.tiered_rates[-1:]
    if not rates or pricing.pricing_expression.usage_unit != "h":
        left_out["without a price per hour"] += 1
        return None
    money = rates[0].unit_price
    if money.currency_code != "USD":
        left_out[f"in {money.currency_code}, not in dollars"] += 1
        return None
    return int(money.units or "0") + money.nanos / 1e9


_LOG = logging.getLogger(__name__)

PRODUCT = "Linux/UNIX"
"""Default product (operating system) to read."""

SNAPSHOTS = ("Azure", "Google")
"""Providers whose lists have only the current prices, spot and on-demand."""

NO_GAP_S = 2**40
"""Gap limit in seconds that no history reaches, for price lists: these state how long each price holds and have no gaps."""

MIN_RATE = 1e-6
"""Minimum work rate of a machine, relative to a c3.xlarge."""


class _AwsPrice(msgspec.Struct):
    """One change of price, with Amazon's names."""

    AvailabilityZone: str
    InstanceType: str
    SpotPrice: str | float
    Timestamp: str
    ProductDescription: str = ""


class _AwsHistory(msgspec.Struct):
    """Output of `aws ec2 describe-spot-price-history`."""

    SpotPriceHistory: list[_AwsPrice]
    NextToken: str | None = None


def read_prices(
    path: str | Path | Sequence[str | Path],
    on_demand: Mapping[str, int],
    *,
    rates: Mapping[str, float] | None = None,
    product: str | None = None,
    gap_s: int | None = None,
    work: Work | None = None,
) -> PriceHistory:
    """Read a price history.

    A CSV file has the columns `timestamp` (UTC, ISO 8601), `zone`, `instance_type` and `price_usd_per_hour`, with the rows
    of each market in order of time; the last of several rows with one time stamp counts. Amazon's JSON may be in any order: one answer,
    several pages, or only the list of entries. Amazon's answers have the latest entries first. They may have the prices
    of several products (operating systems); only one product is read. Price lists of Azure and Google
    (`read_price_list`) of several dates form one history: a price holds until the next one. These lists also give each
    type's on-demand price (the highest over regions).

    Parameters
    ----------
    path
        The file, plain or gzip; or several, such as Amazon's answers of several regions or months, which form one history
        in order of time.
    on_demand
        On-demand micro-dollars per hour by instance type; takes precedence over a price list.
    rates
        Work per hour by instance type; takes precedence over the table of `work_rate`.
    product
        Amazon's `ProductDescription`; by default ``Linux/UNIX`` if the entries name products. If the product is absent,
        its name with ``(Amazon VPC)`` appended is tried. For Azure's list: ``Linux/UNIX`` or ``Windows``.
    gap_s
        Minimum number of seconds without any price change that count as a gap in the recording; by default `history_of`
        estimates it.
    work
        Unit of a machine's work; by default GPUs if every type in the file has GPUs, else vCPUs.

    Raises
    ------
    InvalidProblemError
        If the file is invalid, out of order, lacks the product, names products for some entries only, or has a type without
        an on-demand price or a rate; the message gives row and remedy.
    """
    paths_in = [path] if isinstance(path, str | Path) else list(path)
    tables = [_table_of(each, product) for each in paths_in]
    listed: dict[str, int] = {}
    for kind, micro in (entry for table in tables for entry in table.listed.items()):
        listed[kind] = max(listed.get(kind, 0), micro)
    on_demand = {**listed, **on_demand}
    if gap_s is None and any(table.is_snapshot for table in tables):
        gap_s = NO_GAP_S
    types, zones = (np.concatenate([getattr(table, name) for table in tables]) for name in ("types", "zones"))
    times, prices = (np.concatenate([getattr(table, name) for table in tables]) for name in ("times", "prices"))
    where = np.repeat(np.arange(len(tables)), [len(table.times) for table in tables])
    markets, paths = [], []
    work = work or kind_of_work(set(types.tolist()) - set(rates or {}))
    for name, rows in sorted(groups(joined(types, zones, by="@")).items()):
        for number in np.unique(where[rows]):
            begin = int(np.searchsorted(where, number))
            mine = rows[where[rows] == number]
            require_order(paths_in[number], name, mine - begin, times[mine], by="timestamp")
        order = rows[np.argsort(times[rows], kind="stable")]
        last = np.append(np.diff(times[order]) > 0, True)
        kind, zone = str(types[rows[0]]), str(zones[rows[0]])
        if kind not in on_demand:
            raise InvalidProblemError(
                f"{paths_in[where[rows[0]]]}: instance type {kind!r} has no on-demand price (there are: {', '.join(on_demand) or 'none'}); "
                "add it to the on-demand file"
            )
        rate = work_rate(kind, rates, work)
        markets.append(Market(instance_type=kind, zone=zone, on_demand_micro=on_demand[kind], rate=rate))
        paths.append(PricePath(time_s=times[order][last], price_micro=prices[order][last]))
    return history_of(markets, paths, gap_s=gap_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """Rows of a price file (types, zones, seconds since 1970, micro-dollars), and its on-demand prices."""

    types: NDArray[Any]
    zones: NDArray[Any]
    times: IntArray
    prices: IntArray
    listed: Mapping[str, int] = field(default_factory=dict)
    is_snapshot: bool = False


def _table_of(path: str | Path, product: str | None) -> _Table:
    data = read_bytes(path)
    if provider_in(data) in SNAPSHOTS:
        types, zones, times, prices, listed = _from_list(path, product)
        return _Table(types=types, zones=zones, times=times, prices=prices, listed=listed, is_snapshot=True)
    if first_sign(data) in (b"{", b"["):
        types, zones, times, prices = _from_json(path, data, product)
    elif product is not None:
        raise InvalidProblemError(f"{path}: a CSV file names no products; leave --product out, or give Amazon's JSON")
    else:
        types, zones, times, prices = _from_csv(path)
    return _Table(types=types, zones=zones, times=times, prices=prices)


def read_on_demand(path: str | Path) -> dict[str, int]:
    """Read on-demand prices: columns `instance_type` and `on_demand_usd_per_hour`; return micro-dollars by type.

    Raises
    ------
    InvalidProblemError
        If the file is invalid, or a price isn't positive.
    """
    columns = read_columns(path, ("on_demand_usd_per_hour",), ("instance_type",))
    micro = _micro(path, "on_demand_usd_per_hour", columns["on_demand_usd_per_hour"])
    return dict(zip(map(str, columns["instance_type"]), micro.tolist(), strict=True))


def read_rates(path: str | Path) -> dict[str, float]:
    """Read the work per hour by instance type (c3.xlarge or V100: 1) from the optional column `rate` of the on-demand file.

    Raises
    ------
    InvalidProblemError
        If the file is invalid, or a rate isn't positive; an empty field leaves the rate unset.
    """
    if "rate" not in header_of(path):
        return {}
    columns = read_columns(path, ("rate",), ("instance_type",))
    require_columns(path, columns, "rate", least=MIN_RATE, may_lack=True)
    known = ~np.isnan(columns["rate"])
    return dict(zip(map(str, columns["instance_type"][known]), columns["rate"][known].tolist(), strict=True))


def parse_times(
    path: str | Path, column: str, texts: Sequence[str] | NDArray[Any], *, is_table: bool = True
) -> IntArray:
    """Return ISO 8601 times as seconds since 1970; without a zone they are UTC. With `is_table` errors name the row.

    Raises
    ------
    InvalidProblemError
        At the first text that isn't a time.
    """
    parsed = utc_dates(texts)
    refuse(
        path, column, parsed.isna().to_numpy(), "expected a time like 2015-03-11T16:54:38Z", texts, is_table=is_table
    )
    seconds: IntArray = parsed.to_numpy(dtype="datetime64[s]").astype(np.int64)
    return seconds


def _from_csv(path: str | Path) -> tuple[NDArray[Any], NDArray[Any], IntArray, IntArray]:
    columns = read_columns(path, ("price_usd_per_hour",), ("timestamp", "zone", "instance_type"))
    micro = _micro(path, "price_usd_per_hour", columns["price_usd_per_hour"])
    return columns["instance_type"], columns["zone"], parse_times(path, "timestamp", columns["timestamp"]), micro


def _from_json(
    path: str | Path, data: bytes, product: str | None
) -> tuple[NDArray[Any], NDArray[Any], IntArray, IntArray]:
    """Read Amazon's JSON in order of time; entries with equal time stamps are reversed, since answers begin with the latest."""
    try:
        pages = [_page(page) for page in _pages(data)]
    except InvalidProblemError as error:
        raise InvalidProblemError(f"{path}: {error}") from error
    entries = [entry for page in pages for entry in page.SpotPriceHistory]
    if pages[-1].NextToken:
        _LOG.warning(
            "%s: one page of a longer response (it has a NextToken), so earlier prices are missing; fetch all pages",
            path,
        )
    if not entries:
        raise InvalidProblemError(f"{path}: SpotPriceHistory is empty; ask for a longer time or other types")
    entries = _of_product(path, entries, product)
    times = parse_times(path, "Timestamp", [entry.Timestamp for entry in entries], is_table=False)
    try:
        usd = np.array([float(entry.SpotPrice) for entry in entries])
    except ValueError as error:
        raise InvalidProblemError(f"{path}: SpotPrice must be a number ({error}); correct the entry") from error
    micro = _micro(path, "SpotPrice", usd, is_table=False)
    order = np.lexsort((-np.arange(len(times)), times))
    types = np.array([entry.InstanceType for entry in entries], dtype=object)
    zones = np.array([entry.AvailabilityZone for entry in entries], dtype=object)
    return types[order], zones[order], times[order], micro[order]


def _page(data: bytes) -> _AwsHistory:
    """Decode a document: an answer, or only its list of entries."""
    if first_sign(data) == b"[":
        return _AwsHistory(SpotPriceHistory=decode(data, list[_AwsPrice]))
    return decode(data, _AwsHistory)


def _pages(data: bytes) -> list[bytes]:
    """Return the documents of a file: one, or the consecutive pages of an answer."""
    pages, decoder = [], json.JSONDecoder()
    try:
        text = data.decode("utf-8-sig").strip()
        while text:
            end = decoder.raw_decode(text)[1]
            pages.append(text[:end].encode())
            text = text[end:].lstrip()
    except (ValueError, RecursionError):
        return [data]  # decoding this document raises the precise error
    return pages or [data]


def _from_list(
    path: str | Path, product: str | None
) -> tuple[NDArray[Any], NDArray[Any], IntArray, IntArray, dict[str, int]]:
    """Read Azure's or Google's list: spot prices in order of time, and the highest on-demand price of each type."""
    require_rereadable(path)
    every = read_price_list(path).prices
    products = {price.product for price in every}
    wanted = (product or PRODUCT) if products != {""} else product or ""
    kept = [price for price in every if price.product == wanted]
    spot = [price for price in kept if price.is_spot]
    if not spot:
        there = (
            ", ".join(sorted({price.product or "no product" for price in every if price.is_spot})) or "no spot price"
        )
        raise InvalidProblemError(
            f"{path}: no spot price is of product {wanted or 'none'!r} (there are: {there}); choose one with --product"
        )
    on_demand: dict[str, int] = {}
    for price in kept:
        if not price.is_spot:
            listed = round(price.usd_per_hour * MICRO)
            on_demand[price.instance_type] = max(on_demand.get(price.instance_type, 0), listed)
    times = parse_times(path, "date", [price.since for price in spot], is_table=False)
    order = np.argsort(times, kind="stable")
    types, zones = (np.array([getattr(p, name) for p in spot], dtype=object) for name in ("instance_type", "zone"))
    micro = _micro(path, "price", np.array([price.usd_per_hour for price in spot]), is_table=False)
    return types[order], zones[order], times[order], micro[order], on_demand


def _of_product(path: str | Path, entries: list[_AwsPrice], product: str | None) -> list[_AwsPrice]:
    """Return the entries of one product; in one history, the prices of several products would look like price changes."""
    products = sorted({entry.ProductDescription for entry in entries})
    if products == [""] and product is None:
        return entries
    if "" in products:
        which = "no" if products == [""] else "some"
        raise InvalidProblemError(
            f"{path}: {which} entries have a ProductDescription; give one in all entries, or in none and leave --product out"
        )
    wanted = product or PRODUCT
    for name in (wanted, f"{wanted} (Amazon VPC)"):
        if name in products:
            return [entry for entry in entries if entry.ProductDescription == name]
    raise InvalidProblemError(
        f"{path}: no entry is of product {wanted!r} (there are: {', '.join(products)}); choose one with --product"
    )


def _micro(path: str | Path, column: str, usd: NDArray[np.float64], *, is_table: bool = True) -> IntArray:
    """Return dollars as integer micro-dollars, at least 1."""
    require_columns(path, {column: usd}, column, least=1.0 / MICRO, is_table=is_table)
    return np.rint(usd * MICRO).astype(np.int64)
