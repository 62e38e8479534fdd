"""Generator of bidding instances: from price history, or without bids."""

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, check_in
from optim.core.limits import check_drawn
from optim.models.bidding.data import MAX_CAPACITY, Bids, Caps, Scalability, ScenarioOutlook, SurvivalConstraint
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.evictions import EvictionTable, fit_evictions
from optim.models.bidding.market.lifetimes import CommonShocks, Hazards, fit_hazards
from optim.models.bidding.market.prices import HOUR_S, MICRO, PriceHistory
from optim.workloads.bidding.instances import BiddingOptions, draw_instance
from optim.workloads.prices.availability_files import read_spells
from optim.workloads.prices.price_files import read_on_demand, read_prices, read_rates
from optim.workloads.prices.price_generator import PriceOptions, generate_prices

SIZES = (1.0, 2.0, 4.0, 8.0)
"""GPUs per machine of the types on offer."""

USUAL_RATE = 0.4

USUAL_SPREAD = 0.8
"""Median of the losses per machine-hour, and standard deviation of their logarithm; close to the published preemption
series."""

YOUNG = (1.6, 1.3, 1.1, 1.0, 0.8, 0.6)
"""Loss rate by age of the machine, relative to the average: young machines are lost more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    """Options of a decision without bids.

    Parameters
    ----------
    zone_types, num_zones, num_regions
        Number of machine types on offer, of zones over which the types are spread, and of regions over which the zones
        are.
    windows
        Number of hours sampled from the hazards, with equal probability.
    zone_share, region_share
        Losses due to causes common to a zone and to a region, respectively, as shares of the losses of its most
        reliable type.
    zone_limit, region_limit
        Maximum number of GPUs per zone, and per region.
    max_count
        Maximum number of machines per type.
    fixed_usd
        Dollars per hour of machines that run in any case and do no work.
    serial
        Amdahl's serial share.
    startup_min
        Minutes until machines work.
    min_gpus, min_probability
        Required GPUs at the end of the hour, and the required probability; 0 GPUs for no requirement.
    preemptions
        File of recorded preemption series, whose fitted hazards replace the drawn ones.
    """

    zone_types: int = 40
    num_zones: int = 10
    num_regions: int = 4
    windows: int = 64
    zone_share: float = 0.25
    region_share: float = 0.15
    zone_limit: float = 32.0
    region_limit: float = 48.0
    max_count: int = 8
    fixed_usd: float = 10.0
    serial: float = 0.01
    startup_min: float = 3.0
    min_gpus: int = 0
    min_probability: float = 0.9
    preemptions: str = ""

    def __post_init__(self) -> None:
        check_in("[1, 1000]", self, "zone_types", "num_zones", "num_regions", "max_count")
        check_in("[1, 1e5]", self, "windows")
        check_in("[0, 0.5]", self, "zone_share", "region_share")
        check_in("(0, 1e6]", self, "zone_limit", "region_limit")
        check_in("[0, 1e6]", self, "fixed_usd")
        check_in("[0, 1)", self, "serial")
        check_in("[0, 60)", self, "startup_min")
        check_in(f"[0, {MAX_CAPACITY}]", self, "min_gpus")
        check_in("(0, 1]", self, "min_probability")


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityDraw:
    """A generated decision, and the hazards behind it.

    Parameters
    ----------
    instance
        The decision.
    shocks
        Expected number of shocks in the hour, by cause.
    capacity
        GPUs of one machine of each type; shape (types,).
    """

    instance: BiddingInstance
    shocks: CommonShocks
    capacity: FloatArray

    def probability(self, counts: IntArray, least: float) -> float:
        """Return the exact probability that a portfolio keeps at least `least` GPUs for the hour."""
        return self.shocks.probability(counts * self.capacity, least)


def draw_capacity(options: CapacityOptions, seed: int) -> CapacityDraw:
    """Draw machine types with prices and hazards, and sample one-hour windows from the hazards.

    Parameters
    ----------
    options
        Sizes and requirements.
    seed
        Equal options and seeds give equal draws.

    Raises
    ------
    InvalidOptionError
        If the number of windows exceeds the limits on input files (`ReadLimits`).
    """
    check_drawn("cells", options.windows * options.zone_types, "windows times zone_types")
    rng = np.random.default_rng(seed)
    size, start_s = options.zone_types, float(rng.integers(0, 24)) * HOUR_S
    zone = np.arange(size) % options.num_zones
    region = np.arange(options.num_zones) % min(options.num_regions, options.num_zones)
    hazards = _hazards(options, rng)
    losses = np.array([hazards.cumulative(j, start_s, HOUR_S) for j in range(size)])
    shocks = _shared(losses, zone, region, options)
    capacity = rng.choice(SIZES, size)
    usd = capacity * rng.uniform(0.6, 1.4, size) * np.exp(-0.15 * np.log(np.maximum(losses, 1e-3)))
    evicted_s = _windows(shocks, options.windows, rng)
    outlook = ScenarioOutlook(
        weight=np.full(options.windows, 1.0 / options.windows),
        slot_s=HOUR_S,
        num_slots=1,
        ready_s=round(60 * options.startup_min),
        charge_micro=np.rint(usd[:, None] * MICRO * np.where(evicted_s < 0, HOUR_S, evicted_s) / HOUR_S).astype(
            np.int64
        ),
        evicted_s=evicted_s,
    )
    instance = BiddingInstance(
        name=f"capacity-{size}-{options.windows}{_asked(options)}-{seed}",
        markets=tuple(f"t{round(capacity[j])}@r{region[zone[j]]}z{zone[j]}-{j}" for j in range(size)),
        bids=Bids(
            market=np.arange(size),
            delta_micro=np.zeros(size, dtype=np.int64),
            rate=capacity,
            max_count=np.full(size, options.max_count, dtype=np.int64),
            is_new=np.ones(size, dtype=bool),
        ),
        outlook=outlook,
        caps=_limits(zone, region, capacity, options),
        fixed_usd=options.fixed_usd,
        scalability=Scalability.amdahl(options.serial),
        survival=SurvivalConstraint(
            shocks=shocks,
            capacity=capacity.astype(np.int64),
            min_capacity=options.min_gpus,
            probability=options.min_probability,
        )
        if options.min_gpus
        else None,
    )
    return CapacityDraw(instance=instance, shocks=shocks, capacity=capacity)


def _asked(options: CapacityOptions) -> str:
    """Return the required capacity, for an instance's name."""
    return f"-{options.min_gpus}gpus-{options.min_probability:g}" if options.min_gpus else ""


def _limits(zone: IntArray, region: IntArray, capacity: FloatArray, options: CapacityOptions) -> Caps:
    """Return the limits on the GPUs of each zone and of each region."""
    in_zone = np.arange(len(region))[:, None] == zone
    in_region = np.arange(int(region.max()) + 1)[:, None] == region[zone]
    zones, regions = (
        [f"{word} {k}" for k in range(len(rows))] for word, rows in (("zone", in_zone), ("region", in_region))
    )
    return Caps(
        names=(*zones, *regions),
        weight=np.concatenate([in_zone, in_region]) * capacity,
        limit=np.concatenate(
            [np.full(len(in_zone), options.zone_limit), np.full(len(in_region), options.region_limit)]
        ),
    )


def _hazards(options: CapacityOptions, rng: np.random.Generator) -> Hazards:
    """Draw the hazards of all types; with recorded series, each type has the hazards of one series, with random noise."""
    size = options.zone_types
    names = tuple(map(str, range(size)))
    if options.preemptions:
        known = _fitted(options.preemptions, Path(options.preemptions).stat().st_mtime_ns)
        series = rng.integers(0, len(known.kinds), size)
        jitter = np.exp(0.3 * rng.normal(size=size))
        return Hazards(kinds=names, rate=known.rate[series] * jitter[:, None], factor=known.factor)
    level = USUAL_RATE * np.exp(USUAL_SPREAD * rng.normal(size=size))
    return Hazards(kinds=names, rate=level[:, None] * np.array(YOUNG), factor=np.array([0.8, 1.0, 1.3, 0.9]))


@lru_cache(maxsize=1)
def _fitted(path: str, changed: int) -> Hazards:
    """Fit a file's hazards once for all seeds; `changed` identifies the file's version."""
    del changed
    return fit_hazards(read_spells(path))


def _shared(losses: FloatArray, zone: IntArray, region: IntArray, options: CapacityOptions) -> CommonShocks:
    """Split each type's expected losses into those with causes of the machine, of its zone and of its region."""
    num_regions = int(region.max()) + 1
    home = region[zone]
    by_region = np.array([options.region_share * losses[home == r].min(initial=np.inf) for r in range(num_regions)])
    by_zone = np.array([options.zone_share * losses[zone == z].min(initial=np.inf) for z in range(len(region))])
    by_region, by_zone = (np.where(np.isfinite(values), values, 0.0) for values in (by_region, by_zone))
    return CommonShocks(
        zone=zone, region=region, own=losses - by_zone[zone] - by_region[home], by_zone=by_zone, by_region=by_region
    )


def _windows(shocks: CommonShocks, windows: int, rng: np.random.Generator) -> IntArray:
    """Draw the second of the hour in which each type is lost, -1 if it isn't; shape (types, windows)."""

    def first(expected: FloatArray) -> FloatArray:
        """Return the hours until the first shock of each cause."""
        draws = rng.exponential(size=(len(expected), windows))
        never = np.full(draws.shape, np.inf)
        return np.asarray(np.divide(draws, expected[:, None], out=never, where=expected[:, None] > 0))

    home = shocks.region[shocks.zone]
    hours = np.minimum(first(shocks.own), np.minimum(first(shocks.by_zone)[shocks.zone], first(shocks.by_region)[home]))
    return np.where(hours < 1.0, np.maximum(1, np.ceil(np.minimum(hours, 1.0) * HOUR_S) - 1), -1).astype(np.int64)


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
    "one_bid_per_market",
)
"""Names of options that have no effect in decisions without bids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorOptions(BiddingOptions):
    """Options of the price history behind an instance, and of the decision (`BiddingOptions`).

    Parameters
    ----------
    num_types, num_zones
        Every type in every zone is a market; at most 5 types and 3 zones.
    days
        Length of the history in days.
    prices, on_demand
        Files of a recorded history and of on-demand prices, which replace the generated one.
    zone_types, preemptions
        Number of machine types on offer in a decision without bids (see `CapacityOptions`; 0 for a decision with bids),
        and a file of recorded preemption series to fit hazards to. A decision without bids also uses `max_count` and
        `startup_min`, and `windows` and `serial`, whose defaults are then those of `CapacityOptions`. The options in
        `OF_BIDS` are rejected.
    min_gpus, min_probability
        Without bids: required GPUs at the end of the hour, and the required probability; 0 GPUs for no requirement.
    """

    num_types: int = 5
    num_zones: int = 3
    days: float = 60.0
    prices: str = ""
    on_demand: str = ""
    zone_types: int = 0
    preemptions: str = ""
    min_gpus: int = 0
    min_probability: float = 0.9

    def __post_init__(self) -> None:
        BiddingOptions.__post_init__(self)
        check_in("[1, inf)", self, "days")
        if bool(self.prices) != bool(self.on_demand):
            raise InvalidOptionError("prices and on_demand require each other; give both files")
        check_in("[0, 1000]", self, "zone_types")
        if self.preemptions and not self.zone_types:
            raise InvalidOptionError("preemptions needs zone_types, the number of machine types on offer")
        if self.min_gpus and not self.zone_types:
            raise InvalidOptionError("min_gpus needs zone_types, the number of machine types on offer")
        self._check_without_bids()
        CapacityOptions(min_gpus=self.min_gpus, min_probability=self.min_probability)
        PriceOptions(num_types=self.num_types, num_zones=self.num_zones, days=self.days)

    def _check_without_bids(self) -> None:
        """Raise InvalidOptionError if a decision without bids has one of the options `OF_BIDS`."""
        given = [one.name for one in fields(self) if one.name in OF_BIDS and getattr(self, one.name) != one.default]
        if self.zone_types and given:
            given.sort(key=OF_BIDS.index)
            raise InvalidOptionError(
                f"zone_types gives a decision without bids; leave out zone_types, or {', '.join(given)}"
            )


def generate(options: GeneratorOptions, seed: int) -> BiddingInstance:
    """Generate a history, and a decision from it.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Equal options and seeds give equal instances.

    Examples
    --------
    >>> generate(GeneratorOptions(num_types=1, num_zones=2, days=2, term="per-bid"), seed=1).name
    'spot-2x12-per-bid-1'
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
            min_gpus=options.min_gpus,
            min_probability=options.min_probability,
        )
        return draw_capacity(kinds, seed).instance
    if options.prices:
        return draw_instance(*_read(options.prices, options.on_demand, _changed(options)), options, seed)
    history = history_for(options, seed)
    return draw_instance(history, fit_evictions(history), options, seed)


def history_for(options: GeneratorOptions, seed: int) -> PriceHistory:
    """Read the price history from the options' files, or generate one.

    Parameters
    ----------
    options
        Files, or sizes.
    seed
        Seed of generated prices.
    """
    if options.prices:
        return _read(options.prices, options.on_demand, _changed(options))[0]
    prices = PriceOptions(num_types=options.num_types, num_zones=options.num_zones, days=options.days)
    return generate_prices(prices, seed)


def _changed(options: GeneratorOptions) -> tuple[int, ...]:
    """Return the files' times of last change."""
    return tuple(Path(name).stat().st_mtime_ns for name in (options.prices, options.on_demand) if Path(name).exists())


@lru_cache(maxsize=1)
def _read(prices: str, on_demand: str, changed: tuple[int, ...]) -> tuple[PriceHistory, EvictionTable]:
    """Read a history once for all seeds; `changed` identifies the files' versions."""
    del changed
    history = read_prices(Path(prices), read_on_demand(Path(on_demand)), rates=read_rates(Path(on_demand)))
    return history, fit_evictions(history)
