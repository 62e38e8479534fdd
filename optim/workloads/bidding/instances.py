"""Bidding instances from price history: one hour in expectation, or windows of history as scenarios."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError, InvalidProblemError
from optim.core.limits import check_drawn
from optim.core.ranges import check_choices, check_in
from optim.models.bidding.eviction import EvictionTable
from optim.models.bidding.first_crossing import crossings
from optim.models.bidding.instance import (
    BiddingInstance,
    Bids,
    Caps,
    EvictionTerm,
    HourOutlook,
    Outlook,
    ScenarioOutlook,
)
from optim.models.bidding.price_history import HOUR_S, MICRO, IntArray, PriceHistory
from optim.models.bidding.scalability import Scalability

GRID_MICRO = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 400_000)
"""Bid deltas on offer, micro-dollars: $0.0001 to $0.4."""

MOST_TRIES = 1000
"""Draws of a time at which all markets have a price and no gap is near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BiddingOptions:
    """What is decided, and what a footprint costs and loses.

    Parameters
    ----------
    deltas_micro
        Bid deltas on offer in every market.
    max_count, total
        Most instances of one bid, and of all bids together.
    reliable, reliable_usd
        Machines on demand that hold the state and do no work, and what one costs an hour.
    serial
        Amdahl's serial share.
    startup_min, scale_min, eviction_min
        Minutes until new machines work, and that all lose by a change of the footprint and by an eviction.
    term
        Who loses by evictions, in the one-hour form.
    windows, slots
        Scenarios and slots an hour; 0 windows for the one-hour form.
    one_bid_a_market
        Whether each market may be bid on with one delta only.
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
    term: str = EvictionTerm.MARKET.value
    windows: int = 0
    slots: int = 6
    one_bid_a_market: bool = False

    def __post_init__(self) -> None:
        check_in("[0, inf)", self, "max_count", "total", "reliable", "windows")
        if self.slots < 1 or HOUR_S % self.slots:
            raise InvalidOptionError(f"slots must divide the 3600 seconds of an hour, got {self.slots}")
        check_choices(self, {"term": [term.value for term in EvictionTerm]})


def draw_instance(
    history: PriceHistory, table: EvictionTable, options: BiddingOptions, seed: int, *, name: str | None = None
) -> BiddingInstance:
    """Draw a moment of a history, and return the decision it poses.

    Parameters
    ----------
    history
        Where the moment, and the windows of scenarios, are drawn from.
    table
        What is known of evictions.
    options
        What is decided.
    seed
        Same arguments, same instance.
    name
        Name of the instance.

    Raises
    ------
    InvalidOptionError
        If more windows are to be drawn than a reader takes (`ReadLimits`).
    InvalidProblemError
        If there is hardly an hour in which all markets have prices.
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
    """Return the one-hour decision at a moment: present prices, and evictions by the table."""
    deltas = options.deltas_micro
    startup_s = round(60 * options.startup_min)
    price, evicted, usable = [], [], []
    for m, path in enumerate(history.paths):
        now_micro = path.price_at(now_s)
        if now_micro is None:
            raise InvalidProblemError(f"{history.markets[m].name} has no price at {now_s}; choose a later moment")
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
    """Return the decision over windows of one hour, all equally likely."""
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
    """Draw whole minutes at which every market has a price, and an hour without gaps follows."""
    begin = max(int(path.time_s[0]) for path in history.paths)
    times: list[int] = []
    for _ in range(MOST_TRIES * number):
        time_s = int(rng.integers(begin, max(begin + 1, history.end_s - HOUR_S))) // 60 * 60 + 60
        if not history.touches_gap(time_s, time_s + HOUR_S):
            times.append(time_s)
            if len(times) == number:
                return times
    raise InvalidProblemError("the history has hardly an hour in which all markets have prices; give a longer one")


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
        one_bid_a_market=options.one_bid_a_market,
        fixed_usd=options.reliable * options.reliable_usd,
        scalability=Scalability.amdahl(options.serial),
        eviction_loss_h=options.eviction_min / 60,
        change_loss_h=options.scale_min / 60,
    )
