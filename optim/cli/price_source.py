"""Spot prices for a sub-command: read from files, or drawn."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optim.cli.parameters import option
from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.ranges import check_choices, check_in

if TYPE_CHECKING:
    from optim.models.bidding.price_history import PriceHistory
    from optim.workloads.bidding.availability_files import OnDemand
    from optim.workloads.bidding.price_generator import PriceOptions

PRICES = "Prices"
LARGEST_USD = 1e6
"""Dollars an hour that no machine costs."""


@dataclass(frozen=True, kw_only=True)
class PriceChoice:
    """Files of prices, and when the policies' knowledge of them ends."""

    prices: Annotated[Path | None, option("--prices", "CSV, or a cloud's list; else generated.", "FILE", PRICES)] = None
    on_demand: Annotated[
        str | None,
        option(
            "--on-demand", "Prices on demand by type; with --availability also dollars or a type.", "FILE|USD", PRICES
        ),
    ] = None
    product: Annotated[str | None, option("--product", "Of a cloud's list; default: Linux/UNIX.", "NAME", PRICES)] = (
        None
    )
    train_until: Annotated[str | None, option("--train-until", "Policies know prices before it.", "DATE", PRICES)] = (
        None
    )
    volatile: Annotated[
        int | None, option("--volatile", "Only the N markets whose price varied most before it.", "N", PRICES)
    ] = None
    gap_hours: Annotated[
        float | None, option("--gap-hours", "Quiet times this long weren't recorded; default: by rule.", "H", PRICES)
    ] = None
    work: Annotated[
        str | None, option("--work", "Machines work by: gpus, vcpus; default: what all have.", "NAME", PRICES)
    ] = None


def read_or_draw(choice: PriceChoice, options: "PriceOptions", seed: int) -> "PriceHistory":
    """Return the prices of two files, or generated ones without files.

    Raises
    ------
    InvalidOptionError
        If only one of the two is given.
    """
    from optim.core.files import read_bytes
    from optim.workloads.bidding.instance_types import Work
    from optim.workloads.bidding.price_files import SNAPSHOTS, read_on_demand, read_prices, read_rates
    from optim.workloads.bidding.price_generator import generate_prices
    from optim.workloads.bidding.price_lists import provider_in

    if choice.prices is None:
        if choice.on_demand is not None:
            raise InvalidOptionError("--on-demand goes with --prices FILE or --availability FILE")
        for name in ("product", "gap_hours", "work"):
            if getattr(choice, name) is not None:
                raise InvalidOptionError(f"--{name.replace('_', '-')} goes with --prices FILE")
        return generate_prices(options, seed)
    if choice.on_demand is None and not (
        choice.prices.is_file() and provider_in(read_bytes(choice.prices)) in SNAPSHOTS
    ):
        raise InvalidOptionError("--prices needs --on-demand FILE, with the on-demand price of each type")
    prices: dict[str, int] = {}
    rates: dict[str, float] = {}
    if choice.on_demand is not None:
        prices, rates = read_on_demand(choice.on_demand), read_rates(choice.on_demand)
    check_in("(0, 1e6]", {"--gap-hours": choice.gap_hours})
    if choice.work is not None:
        check_choices({"--work": choice.work}, {"--work": [work.value for work in Work]})
    gap_s = None if choice.gap_hours is None else round(3600 * choice.gap_hours)
    work = None if choice.work is None else Work(choice.work)
    return read_prices(choice.prices, prices, rates=rates, product=choice.product, gap_s=gap_s, work=work)


def on_demand_of(text: str | None) -> "OnDemand":
    """Return the micro-dollars of ``--on-demand`` beside a trace: a number's, a type's list price, or a file's by type.

    Raises
    ------
    InvalidOptionError
        If a number isn't a positive price.
    """
    from optim.models.bidding.price_history import MICRO
    from optim.workloads.bidding.availability_files import LIST_PRICES
    from optim.workloads.bidding.price_files import read_on_demand

    if text is None:
        return None
    if text in LIST_PRICES:
        return LIST_PRICES[text]
    try:
        usd = float(text)
    except ValueError:
        return read_on_demand(text)
    if not 1 / MICRO <= usd <= LARGEST_USD:
        raise InvalidOptionError(f"--on-demand must be a file, or dollars an hour above 0, got {text}")
    return round(usd * MICRO)


def split_time(train_until: str | None) -> int | None:
    """Return the seconds since 1970 of ``--train-until``, None where it isn't given."""
    return None if train_until is None else time_of(train_until, "--train-until")


def time_of(text: str, flag: str) -> int:
    """Return the seconds since 1970 of an option's date.

    Raises
    ------
    InvalidOptionError
        If the text is no date.
    """
    from optim.workloads.bidding.price_files import parse_times

    try:
        return int(parse_times(flag, "date", [text])[0])
    except InvalidProblemError as error:
        raise InvalidOptionError(f"{flag} must be a date like 2015-06-01, got {text!r}") from error
