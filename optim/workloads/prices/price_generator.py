"""Generator of spot price histories like those of Amazon's auctions: mean-reverting base prices with spikes."""

from dataclasses import dataclass

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import check_in
from optim.models.bidding.market.prices import HOUR_S, Market, PriceHistory, PricePath, history_of
from optim.workloads.bidding.instances import work_rate

TYPES = (
    ("c3.xlarge", 210_000),
    ("d2.8xlarge", 5_520_000),
    ("g2.2xlarge", 650_000),
    ("m3.medium", 70_000),
    ("r3.large", 175_000),
)
"""Instance types and their on-demand micro-dollars per hour in us-east-1 in 2015 (list prices)."""

ZONES = ("a", "b", "e")

DAY_S = 24 * HOUR_S
CAP = 10
"""Maximum price, as a multiple of the on-demand price; this was Amazon's limit on bids."""

TICK_MICRO = 100
"""Prices are integer multiples of $0.0001."""

EPOCH_S = 1_420_070_400
"""Start of generated histories: 2015-01-01."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceOptions:
    """Sizes and distributions of a generated price history.

    The defaults follow recorded prices of the years in which Amazon sold spot machines by auction. Prices are mostly 15
    to 30 % of on-demand and change every quarter of an hour. Each market has a few spikes per day of about 20 minutes;
    some markets have many more than others.

    Parameters
    ----------
    num_types, num_zones
        Numbers of types and zones, at most 5 and 3; each pair is a market.
    days
        Length of the history in days.
    changes_per_hour
        Rate of changes of the base price.
    discount
        Long-run base price as a share of the on-demand price.
    volatility
        Standard deviation of the logarithm of the base price.
    reversion_h
        Hours in which the logarithm's expected distance from its mean shrinks by a factor e.
    spikes_per_day
        Number of spikes per market and day.
    spike_min
        Mean length of a spike beyond its first minute, in minutes: every spike lasts one minute plus an exponential time.
    correlation
        Share of the base price's variance, and of the spikes, that is common to all markets.
    """

    num_types: int = 5
    num_zones: int = 3
    days: float = 60.0
    changes_per_hour: float = 4.0
    discount: float = 0.18
    volatility: float = 0.12
    reversion_h: float = 24.0
    spikes_per_day: float = 4.0
    spike_min: float = 20.0
    correlation: float = 0.15

    def __post_init__(self) -> None:
        check_in(f"[1, {len(TYPES)}]", self, "num_types")
        check_in(f"[1, {len(ZONES)}]", self, "num_zones")
        check_in("[0.1, 3650]", self, "days")
        check_in("[0.01, 60]", self, "changes_per_hour")
        check_in("[0.01, 1]", self, "discount")
        check_in("[0, 2]", self, "volatility")
        check_in("[0.1, 10000]", self, "reversion_h")
        check_in("[0, 100]", self, "spikes_per_day")
        check_in("[1, 10000]", self, "spike_min")
        check_in("[0, 1]", self, "correlation")


def generate_prices(options: PriceOptions, seed: int) -> PriceHistory:
    """Generate a price history.

    The logarithm of a market's base price is an Ornstein-Uhlenbeck process, sampled at Poisson times. Spikes start at
    Poisson times; each multiplies the base by a Pareto factor of tail 1, up to `CAP` times on-demand, for
    one minute plus an exponential time.

    Parameters
    ----------
    options
        Sizes and distributions.
    seed
        Equal options and seeds give equal histories.

    Examples
    --------
    >>> history = generate_prices(PriceOptions(num_types=1, num_zones=2, days=1), seed=0)
    >>> [market.name for market in history.markets]
    ['c3.xlarge@us-east-1a', 'c3.xlarge@us-east-1b']
    """
    span_s = round(options.days * DAY_S)
    common_rng, *rngs = map(
        np.random.default_rng, np.random.SeedSequence(seed).spawn(1 + options.num_types * options.num_zones)
    )
    grid = np.arange(0, span_s + HOUR_S, HOUR_S // 4)
    common = _reverting(grid, options, common_rng)
    shared = _spikes(options.spikes_per_day * options.correlation, span_s, options, common_rng)
    markets, paths = [], []
    pairs = [(kind, zone) for kind in TYPES[: options.num_types] for zone in ZONES[: options.num_zones]]
    for ((kind, on_demand), zone), rng in zip(pairs, rngs, strict=True):
        own = _reverting(grid, options, rng)
        share = options.correlation
        level = options.volatility * (np.sqrt(share) * common + np.sqrt(1 - share) * own)
        base = on_demand * options.discount * rng.uniform(0.7, 1.4) * np.exp(level)
        calm = rng.lognormal(0.0, 0.7)
        spikes = _spikes(options.spikes_per_day * (1 - share) * calm, span_s, options, rng)
        all_spikes = np.concatenate([shared, spikes])
        markets.append(
            Market(instance_type=kind, zone=f"us-east-1{zone}", on_demand_micro=on_demand, rate=work_rate(kind))
        )
        paths.append(_path(grid, base, all_spikes, on_demand, span_s, options, rng))
    return history_of(markets, paths, end_s=EPOCH_S + span_s)


def _reverting(grid: IntArray, options: PriceOptions, rng: np.random.Generator) -> FloatArray:
    """Return a stationary Ornstein-Uhlenbeck process of variance 1 on the grid."""
    from scipy.signal import lfilter

    keep = np.exp(-(grid[1] - grid[0]) / (options.reversion_h * HOUR_S))
    noise = rng.normal(size=len(grid)) * np.sqrt(1 - keep**2)
    noise[0] = rng.normal()
    result: FloatArray = lfilter([1.0], [1.0, -keep], noise)
    return result


def _spikes(rate_per_day: float, span_s: int, options: PriceOptions, rng: np.random.Generator) -> FloatArray:
    """Return spikes as rows (begin, end, factor)."""
    number = rng.poisson(rate_per_day * span_s / DAY_S)
    begin = np.sort(rng.uniform(0, span_s, number))
    length = 60 + rng.exponential(options.spike_min * 60, number)
    factor = 1.0 / np.maximum(rng.uniform(size=number), 1e-3)
    return np.column_stack([begin, begin + length, factor])


def _path(
    grid: IntArray,
    base: FloatArray,
    spikes: FloatArray,
    on_demand: int,
    span_s: int,
    options: PriceOptions,
    rng: np.random.Generator,
) -> PricePath:
    """Return the price path; the price changes at Poisson times, and at the beginnings and ends of spikes."""
    number = rng.poisson(options.changes_per_hour * span_s / HOUR_S)
    times = np.concatenate([[0.0], rng.uniform(0, span_s, number), spikes[:, 0], spikes[:, 1]])
    time_s = np.unique(times[times < span_s].astype(np.int64))
    jitter = np.exp(0.01 * np.clip(rng.standard_t(2, size=len(time_s)), -20, 20))
    price = base[time_s // (grid[1] - grid[0])] * jitter
    for begin, end, factor in spikes.tolist():
        first, last = np.searchsorted(time_s, [int(begin), int(end)])
        price[first:last] *= factor
    ticks = np.clip(np.rint(price / TICK_MICRO), 1, CAP * on_demand // TICK_MICRO).astype(np.int64)
    changes = np.append(True, np.diff(ticks) != 0)
    return PricePath(time_s=EPOCH_S + time_s[changes], price_micro=ticks[changes] * TICK_MICRO)
