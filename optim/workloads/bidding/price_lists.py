"""Prices as the three large clouds' tools print them: Amazon's history, Azure's retail prices, Google's list of SKUs.

| provider | what prints it | entries | kept apart by |
|---|---|---|---|
| Amazon | `aws ec2 describe-spot-price-history` | `SpotPriceHistory[]` | `ProductDescription` |
| Azure | `prices.azure.com/api/retail/prices` (pages joined), or its columns as CSV | `Items[]` | Windows or Linux, by `productName` |
| Google | Cloud Billing's `services.skus.list` | `skus[]` | kind of GPU, by `description`: a GPU-hour each |

Prices hold from their own date on, until the next of the same machine, place and product: lists of several dates joined
into one are a history, which `read_prices` reads. What isn't a spot or on-demand price in dollars an hour is left
out and counted, with the reason.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from optim.core.documents import decode, first_sign
from optim.core.errors import InvalidProblemError
from optim.core.files import read_bytes

LINUX, WINDOWS = "Linux/UNIX", "Windows"
"""Products that machines are told apart by, in Amazon's words."""

MOST_OF_HEAD = 4096
"""Bytes in which a list's name is looked for."""

PROVIDERS = {"SpotPriceHistory": "Amazon", "Items": "Azure", "skus": "Google"}
"""By the name of their list."""

GPU = re.compile(r"\b(K80|P100|P4|T4|V100|L4|A100 80GB|A100|H100 80GB|H100)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPrice:
    """One price.

    Parameters
    ----------
    instance_type, zone, product
        Whose: a machine's type, or a GPU's; where, a zone or a region; with which operating system.
    is_spot
        Whether the machine may be taken away.
    since
        ISO 8601 time from which it holds.
    usd_per_hour
        Dollars.
    """

    instance_type: str
    zone: str
    product: str
    is_spot: bool
    since: str
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """What was read of a list.

    Parameters
    ----------
    provider
        Whose list it is.
    prices
        What was read, in the list's order.
    left_out
        How many entries weren't, by reason.
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
    """Any provider's list: what isn't there is empty."""

    SpotPriceHistory: list[_Amazon] | None = None
    Items: list[_Azure] | None = None
    skus: list[_Google] | None = None


def read_price_list(path: str | Path) -> PriceList:
    """Read a provider's price list; its form tells whose it is.

    Parameters
    ----------
    path
        JSON, or Azure's columns as CSV; plain or gzip.

    Raises
    ------
    InvalidProblemError
        If the file is no price list, an entry lacks a field (such as its currency), or a price is no positive number.
    """
    data = read_bytes(path)
    lists = _from_json(path, data) if first_sign(data) == b"{" else _Lists(Items=_azure_rows(path, data))
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
                f"{path}: {price.instance_type} in {price.zone} costs {price.usd_per_hour:g} dollars an hour; correct the entry"
            )
    return PriceList(provider=provider, prices=prices, left_out=dict(left_out))


def is_price_list(path: str | Path) -> bool:
    """Tell whether a file looks like a provider's price list."""
    return Path(path).is_file() and bool(provider_in(read_bytes(path)))


def provider_in(data: bytes) -> str:
    """Return whose price list a file's content looks like, by the first bytes of JSON or Azure's columns; "" for none."""
    if first_sign(data) == b"{":
        head = data[:MOST_OF_HEAD]
        return next((name for key, name in PROVIDERS.items() if f'"{key}"'.encode() in head), "")
    return "Azure" if b"armSkuName" in data.split(b"\n", 1)[0] else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKind:
    """A line of a description: a kind of machine in a place, or entries that were left out, and why."""

    provider: str
    machine: str
    place: str
    product: str
    kind: str
    entries: int
    least_usd: float | None = None
    most_usd: float | None = None


def describe_list(path: str | Path) -> list[ListedKind]:
    """Return what was read of a price list by machine, place, product and kind, and what was left out and why.

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
            least_usd=min(usd),
            most_usd=max(usd),
        )
        for (machine, place, product, kind), usd in sorted(of.items())
    ]
    rows += [
        ListedKind(provider=found.provider, machine="", place="", product="", kind=f"left out: {reason}", entries=count)
        for reason, count in sorted(found.left_out.items())
    ]
    return rows


def _from_json(path: str | Path, data: bytes) -> _Lists:
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
            f"{path}: no price list of Azure ({' '.join(str(error).split())}); give its columns, currencyCode among them"
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
        return f"by {entry.unit_of_measure}, not by the hour"
    if entry.type != "Consumption":
        return f"of type {entry.type}, no price of use"
    if entry.sku_name.endswith("Low Priority"):
        return "low priority, which spot has replaced"
    return None if entry.arm_sku_name and entry.arm_region_name else "without a type of machine or a region"


def _google(entries: list[_Google], left_out: Counter[str]) -> Iterator[ListedPrice]:
    for entry in entries:
        kind = GPU.search(entry.description)
        kinds = {"OnDemand": False, "Preemptible": True}
        if entry.category.resource_group != "GPU" or kind is None:
            left_out["no GPU: cores and memory are priced apart"] += 1
        elif entry.category.usage_type not in kinds:
            left_out[f"of usage type {entry.category.usage_type}"] += 1
        elif not entry.pricing_info:
            left_out["without a price by the hour"] += 1
        else:
            for pricing in entry.pricing_info:  # one from each time on
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
    """Return the dollars an hour of one of Google's prices, None where it is none."""
    rates = pricing.pricing_expression.tiered_rates[-1:]
    if not rates or pricing.pricing_expression.usage_unit != "h":
        left_out["without a price by the hour"] += 1
        return None
    money = rates[0].unit_price
    if money.currency_code != "USD":
        left_out[f"in {money.currency_code}, not in dollars"] += 1
        return None
    return int(money.units or "0") + money.nanos / 1e9
