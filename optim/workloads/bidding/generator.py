"""Draw bidding instances from generated price history."""

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

from optim.core.errors import InvalidOptionError
from optim.core.ranges import check_in
from optim.models.bidding.eviction import EvictionTable, fit_evictions
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.price_history import PriceHistory
from optim.workloads.bidding.capacity_generator import CapacityOptions, draw_capacity
from optim.workloads.bidding.instances import BiddingOptions, draw_instance
from optim.workloads.bidding.price_files import read_on_demand, read_prices, read_rates
from optim.workloads.bidding.price_generator import PriceOptions, generate_prices

__all__ = ["GeneratorOptions", "generate", "history_for"]

OF_BIDS = (
    "num_types",
    "num_zones",
    "days",
    "prices",
    "on_demand",
    "deltas_micro",
    "total",
    "reliable",
    "reliable_usd",
    "scale_min",
    "eviction_min",
    "term",
    "slots",
    "one_bid_a_market",
)
"""Options that mean nothing where nobody bids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions(BiddingOptions):
    """Sizes of the history behind an instance, and what is decided (`BiddingOptions`).

    Parameters
    ----------
    num_types, num_zones
        Every type in every zone is a market; at most 5 types and 3 zones.
    days
        Length of the history.
    prices, on_demand
        Files of a real history and of on-demand prices, which then stand in for the generated one.
    zone_types, preemptions
        A decision without bids instead: so many kinds of machines by zone and type (see `CapacityOptions`), with hazards
        fitted on a file of recorded preemption series if one is given. `max_count` and `startup_min` hold for them, and so do
        `windows` and `serial` where they differ from their defaults, which stand for those of `CapacityOptions`; the options of
        bids (`OF_BIDS`) are refused.
    least_gpus, least_probability
        Without bids: GPUs that must last the hour, and how surely; 0 GPUs where nothing is asked.
    """

    num_types: int = 5
    num_zones: int = 3
    days: float = 60.0
    prices: str = ""
    on_demand: str = ""
    zone_types: int = 0
    preemptions: str = ""
    least_gpus: int = 0
    least_probability: float = 0.9

    def __post_init__(self) -> None:
        BiddingOptions.__post_init__(self)
        check_in("[1, inf)", self, "days")
        if bool(self.prices) != bool(self.on_demand):
            raise InvalidOptionError("prices and on_demand go together: a file of each")
        check_in("[0, 1000]", self, "zone_types")
        if self.preemptions and not self.zone_types:
            raise InvalidOptionError("preemptions go with zone_types, the number of kinds of machines on offer")
        if self.least_gpus and not self.zone_types:
            raise InvalidOptionError("least_gpus goes with zone_types, the number of kinds of machines on offer")
        self._check_without_bids()
        CapacityOptions(least_gpus=self.least_gpus, least_probability=self.least_probability)
        PriceOptions(num_types=self.num_types, num_zones=self.num_zones, days=self.days)

    def _check_without_bids(self) -> None:
        """Refuse options of bids where there are none: nothing would come of them."""
        given = [one.name for one in fields(self) if one.name in OF_BIDS and getattr(self, one.name) != one.default]
        if self.zone_types and given:
            given.sort(key=OF_BIDS.index)
            raise InvalidOptionError(f"zone_types draws a decision without bids; leave it out, or {', '.join(given)}")


def generate(options: GeneratorOptions, seed: int) -> BiddingInstance:
    """Draw a history, and from it a decision.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Same options and seed, same instance.

    Examples
    --------
    >>> generate(GeneratorOptions(num_types=1, num_zones=2, days=2, term="own"), seed=1).name
    'spot-2x12-own-1'
    """
    if options.zone_types:
        usual = CapacityOptions()
        kinds = CapacityOptions(
            zone_types=options.zone_types,
            windows=options.windows or usual.windows,
            max_count=options.max_count,
            serial=usual.serial if options.serial == BiddingOptions().serial else options.serial,
            startup_min=options.startup_min,
            preemptions=options.preemptions,
            least_gpus=options.least_gpus,
            least_probability=options.least_probability,
        )
        return draw_capacity(kinds, seed).instance
    if options.prices:
        return draw_instance(*_read(options.prices, options.on_demand, _changed(options)), options, seed)
    history = history_for(options, seed)
    return draw_instance(history, fit_evictions(history), options, seed)


def history_for(options: GeneratorOptions, seed: int) -> PriceHistory:
    """Read the prices that the options name, or draw some.

    Parameters
    ----------
    options
        Files, or sizes.
    seed
        Of drawn prices.
    """
    if options.prices:
        return _read(options.prices, options.on_demand, _changed(options))[0]
    prices = PriceOptions(num_types=options.num_types, num_zones=options.num_zones, days=options.days)
    return generate_prices(prices, seed)


def _changed(options: GeneratorOptions) -> tuple[int, ...]:
    """Return when the files were last changed."""
    return tuple(Path(name).stat().st_mtime_ns for name in (options.prices, options.on_demand) if Path(name).exists())


@lru_cache(maxsize=1)
def _read(prices: str, on_demand: str, changed: tuple[int, ...]) -> tuple[PriceHistory, EvictionTable]:
    """Read a history once for all seeds; `changed` tells one state of the files from another."""
    del changed
    history = read_prices(Path(prices), read_on_demand(Path(on_demand)), rates=read_rates(Path(on_demand)))
    return history, fit_evictions(history)
