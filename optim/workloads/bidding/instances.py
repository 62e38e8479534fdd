"""Bidding instances from price history: machine types, one-hour expectations, windows as scenarios."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError, check_choices, check_in
from optim.core.limits import check_drawn
from optim.models.bidding.data import Bids, Caps, EvictionTerm, HourOutlook, Outlook, Scalability, ScenarioOutlook
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.evictions import EvictionTable, crossings
from optim.models.bidding.market.prices import HOUR_S, MICRO, PriceHistory

VCPUS: Mapping[str, int] = MappingProxyType(
    {
        **{f"c3.{size}": 4 * n for size, n in (("xlarge", 1), ("2xlarge", 2), ("4xlarge", 4), ("8xlarge", 8))},
        **{f"c4.{size}": 4 * n for size, n in (("xlarge", 1), ("2xlarge", 2), ("4xlarge", 4), ("8xlarge", 9))},
        **{f"m3.{size}": n for size, n in (("medium", 1), ("large", 2), ("xlarge", 4), ("2xlarge", 8))},
        **{
            f"r3.{size}": n
            for size, n in (("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16), ("8xlarge", 32))
        },
        **{"d2.8xlarge": 36, "g2.2xlarge": 8, "g2.8xlarge": 32},
        **{"p2.xlarge": 4, "p2.8xlarge": 32, "p2.16xlarge": 64, "p3.2xlarge": 8, "p3.8xlarge": 32, "p3.16xlarge": 64},
    }
)
"""vCPUs of instance types, from Amazon's list."""

GPUS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        **{"g2.2xlarge": ("K520", 1), "g2.8xlarge": ("K520", 4)},
        **{"p2.xlarge": ("K80", 1), "p2.8xlarge": ("K80", 8), "p2.16xlarge": ("K80", 16)},
        **{
            "p3.2xlarge": ("V100", 1),
            "p3.8xlarge": ("V100", 4),
            "p3.16xlarge": ("V100", 8),
            "p3dn.24xlarge": ("V100", 8),
        },
        **{f"g4dn.{size}": ("T4", 1) for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")},
        **{"g4dn.12xlarge": ("T4", 4), "g4dn.metal": ("T4", 8)},
        **{f"g5.{size}": ("A10G", 1) for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")},
        **{"g5.12xlarge": ("A10G", 4), "g5.24xlarge": ("A10G", 4), "g5.48xlarge": ("A10G", 8)},
        **{"p4d.24xlarge": ("A100", 8), "p5.48xlarge": ("H100", 8)},
        **{f"a2-highgpu-{n}g": ("A100", n) for n in (1, 2, 4, 8)},
        **{"a3-highgpu-8g": ("H100", 8)},
        **{"Standard_NC6s_v3": ("V100", 1), "Standard_NC12s_v3": ("V100", 2), "Standard_NC24s_v3": ("V100", 4)},
        **{f"Standard_NC{24 * n}ads_A100_v4": ("A100-80", n) for n in (1, 2, 4)},
    }
)
"""GPUs of instance types, from the lists of Amazon, Google and Azure."""

GPU_RATES: Mapping[str, float] = MappingProxyType(
    {
        **{"K520": 160 / 900, "K80": 240 / 900, "T4": 320 / 900, "A10G": 600 / 900, "V100": 1.0},
        **{"P4": 192 / 900, "L4": 300 / 900, "P100": 732 / 900},
        **{"A100": 1555 / 900, "A100-80": 2039 / 900, "H100": 3350 / 900, "H100-80": 3350 / 900},
    }
)
"""Work rate of a GPU relative to a V100: memory bandwidths in GB/s from Nvidia's lists, which predict training speed better
than peak arithmetic."""


class Work(StrEnum):
    """Unit of a machine's work."""

    GPUS = "gpus"
    VCPUS = "vcpus"


def kind_of_work(types: Iterable[str]) -> Work:
    """Return `Work.GPUS` if every type has GPUs, else `Work.VCPUS`."""
    return Work.GPUS if all(name in GPUS or name in GPU_RATES for name in types) else Work.VCPUS


def work_rate(instance_type: str, rates: Mapping[str, float] | None = None, work: Work = Work.VCPUS) -> float:
    """Return the work of one instance per hour, from `rates`, else from the tables.

    The unit is the work of a V100 with `Work.GPUS`, and of 4 vCPUs (a c3.xlarge) with `Work.VCPUS`, which ignores GPUs.

    Raises
    ------
    InvalidProblemError
        If neither `rates` nor the tables have the type: the size in a type's name doesn't determine its speed.
    """
    if rates and instance_type in rates:
        return rates[instance_type]
    if work is Work.GPUS and instance_type in GPUS:
        kind, count = GPUS[instance_type]
        return count * GPU_RATES[kind]
    if work is Work.GPUS and instance_type in GPU_RATES:  # Google prices GPUs separately
        return GPU_RATES[instance_type]
    if work is Work.VCPUS and instance_type in VCPUS:
        return VCPUS[instance_type] / 4
    unit = "1 for a V100" if work is Work.GPUS else "1 for a c3.xlarge"
    raise InvalidProblemError(
        f"instance type {instance_type!r} has no known rate of work by {work}; give one in the on-demand file's column "
        f"rate ({unit})"
    )


GRID_MICRO = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 400_000)
"""Bid margins on offer, micro-dollars: $0.0001 to $0.4."""

MAX_TRIES = 1000
"""Maximum attempts to sample a time at which all markets have a price and which no gap follows within an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BiddingOptions:
    """Options of the decision, such as the bids on offer, and the losses of a portfolio.

    Parameters
    ----------
    deltas_micro
        Bid margins on offer in every market.
    max_count, total
        Maximum number of machines per bid, and in all bids together.
    reliable, reliable_usd
        Number of on-demand machines that store the training state and do no work, and dollars per hour of one such
        machine.
    serial
        Amdahl's serial share.
    startup_min, scale_min, eviction_min
        Minutes until new machines work, and minutes that all machines lose by a change of the portfolio and by an eviction.
    term
        Scope of eviction losses; used if `windows` is 0.
    windows, slots
        Number of scenarios, and slots per hour of a scenario. With 0 windows the instance has the one-hour form: expectations
        instead of scenarios.
    one_bid_per_market
        Whether each market allows only one margin.
    """

    deltas_micro: tuple[int, ...] = GRID_MICRO
    max_count: int = 8
    total: int = 64
    reliable: int = 3
    reliable_usd: float = 0.21
    serial: float = 0.002
    startup_min: float = 3.0
    scale_min: float = 1.0
    eviction_min: float = 1.0
    term: str = EvictionTerm.PER_MARKET.value
    windows: int = 0
    slots: int = 6
    one_bid_per_market: bool = False

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "max_count", "total", "reliable", "windows")
        if self.slots < 1 or HOUR_S % self.slots:
            raise InvalidOptionError(f"slots must divide the 3600 seconds of an hour, got {self.slots}")
        check_choices(self, {"term": [term.value for term in EvictionTerm]})


def draw_instance(
    history: PriceHistory, table: EvictionTable, options: BiddingOptions, seed: int, *, name: str | None = None
) -> BiddingInstance:
    """Sample a time of a history, and return the decision at this time.

    Parameters
    ----------
    history
        Price history, from which the time and the scenarios' windows are sampled.
    table
        Eviction rates by market and bid margin.
    options
        Options of the decision.
    seed
        Equal arguments give equal instances.
    name
        Name of the instance.

    Raises
    ------
    InvalidOptionError
        If the number of windows exceeds the limits on input files (`ReadLimits`).
    InvalidProblemError
        If hardly any hour has prices in all markets.
    """
    check_drawn("count", options.windows, "windows")
    num_bids = history.num_markets * len(options.deltas_micro)
    check_drawn("cells", options.windows * options.slots * num_bids, "windows times slots times bids")
    rng = np.random.default_rng(seed)
    now, *windows = _draw_times(history, 1 + options.windows, rng)
    form = f"{options.windows}x{options.slots}" if options.windows else options.term
    label = name or f"spot-{history.num_markets}x{len(options.deltas_micro)}-{form}-{seed}"
    if options.windows:
        return instance_of_windows(history, np.array(windows), options, label)
    return instance_at(history, table, now, options, label)


def instance_at(
    history: PriceHistory, table: EvictionTable, now_s: int, options: BiddingOptions, name: str
) -> BiddingInstance:
    """Return the one-hour decision at a time, from current prices and the table's evictions."""
    deltas = options.deltas_micro
    startup_s = round(60 * options.startup_min)
    price, evicted, usable = [], [], []
    for m, path in enumerate(history.paths):
        now_micro = path.price_at(now_s)
        if now_micro is None:
            raise InvalidProblemError(f"{history.markets[m].name} has no price at {now_s}; choose a later time")
        t = table.index[history.markets[m].name]
        for delta in deltas:
            row = table.row(delta)
            price.append(now_micro / MICRO)
            evicted.append(table.probability(t, row, HOUR_S))
            usable.append(table.usable_h(t, row, HOUR_S) - table.usable_h(t, row, startup_s))
    outlook = HourOutlook(
        price_usd=np.array(price),
        evicted=np.array(evicted),
        usable_h=np.maximum(0.0, np.array(usable)),
        hours=np.ones(len(price)),
        term=EvictionTerm(options.term),
    )
    return _assemble(history, options, outlook, name)


def instance_of_windows(
    history: PriceHistory, begin_s: IntArray, options: BiddingOptions, name: str
) -> BiddingInstance:
    """Return the decision with one-hour windows that begin at `begin_s` as scenarios of equal probability."""
    deltas = np.array(options.deltas_micro, dtype=np.int64)
    charges, evictions = [], []
    for path in history.paths:
        step = np.searchsorted(path.time_s, begin_s, side="right") - 1
        lag = crossings(path, deltas)[:, step] - begin_s
        is_out = lag < HOUR_S
        charges.append(np.where(is_out, 0, path.price_micro[step]))
        evictions.append(np.where(is_out, lag, -1))
    outlook = ScenarioOutlook(
        weight=np.full(len(begin_s), 1.0 / len(begin_s)),
        slot_s=HOUR_S // options.slots,
        num_slots=options.slots,
        ready_s=round(60 * options.startup_min),
        charge_micro=np.concatenate(charges),
        evicted_s=np.concatenate(evictions),
    )
    return _assemble(history, options, outlook, name)


def _draw_times(history: PriceHistory, number: int, rng: np.random.Generator) -> list[int]:
    """Sample full minutes at which every market has a price, followed by an hour without gaps."""
    begin = max(int(path.time_s[0]) for path in history.paths)
    times: list[int] = []
    for _ in range(MAX_TRIES * number):
        time_s = int(rng.integers(begin, max(begin + 1, history.end_s - HOUR_S))) // 60 * 60 + 60
        if not history.touches_gap(time_s, time_s + HOUR_S):
            times.append(time_s)
            if len(times) == number:
                return times
    raise InvalidProblemError("hardly any hour of the history has prices in all markets; give a longer history")


def _assemble(history: PriceHistory, options: BiddingOptions, outlook: Outlook, name: str) -> BiddingInstance:
    deltas, size = options.deltas_micro, history.num_markets
    bids = Bids(
        market=np.repeat(np.arange(size), len(deltas)),
        delta_micro=np.tile(np.array(deltas, dtype=np.int64), size),
        rate=np.repeat([market.rate for market in history.markets], len(deltas)),
        max_count=np.full(size * len(deltas), options.max_count, dtype=np.int64),
        is_new=np.ones(size * len(deltas), dtype=bool),
    )
    return BiddingInstance(
        name=name,
        markets=tuple(market.name for market in history.markets),
        bids=bids,
        outlook=outlook,
        caps=Caps(names=("instances",), weight=np.ones((1, len(bids))), limit=np.array([float(options.total)])),
        one_bid_per_market=options.one_bid_per_market,
        fixed_usd=options.reliable * options.reliable_usd,
        scalability=Scalability.amdahl(options.serial),
        eviction_loss_h=options.eviction_min / 60,
        change_loss_h=options.scale_min / 60,
    )
