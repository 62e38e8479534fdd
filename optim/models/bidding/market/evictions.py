"""Eviction tables: probability and time of eviction by bid, estimated from price histories."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidOptionError
from optim.models.bidding.market.prices import HOUR_S, MINUTE_S, PriceHistory, PricePath
from optim.statistics import wilson

NEVER = np.iinfo(np.int64).max // 4
"""Time of events that never happen; later than all other times, and far from overflow."""


def crossings(path: PricePath, deltas_micro: IntArray, *, at_equal: bool = False) -> IntArray:
    """Return, for each step of a path, when the price first exceeds the step's price by more than a bid delta.

    Parameters
    ----------
    path
        A price path.
    deltas_micro
        Shape (deltas,): bid deltas, ascending, at least 0.
    at_equal
        Whether a rise by exactly the bid delta also counts.

    Returns
    -------
    numpy.ndarray
        Shape (deltas, changes): time of the change, `NEVER` if there is none. The time holds for every bid that is
        made while the step lasts.

    Notes
    -----
    The bid is at least the present price, so the first price above it is higher than all prices since then. Such
    prices form a chain of links from each step to the next step with a higher price. All steps follow their chains at
    once; a larger delta continues where a smaller one stopped.
    """
    price = path.price_micro
    size = len(price)
    higher = _next_higher(price, at_equal)
    ahead = np.append(price, NEVER)
    time_s = np.append(path.time_s, NEVER)
    place = higher[:-1].copy()
    result = np.empty((len(deltas_micro), size), dtype=np.int64)
    for d, delta in enumerate(deltas_micro.tolist()):
        bid = price + delta - int(at_equal)
        walking = np.flatnonzero(ahead[place] <= bid)
        while len(walking):
            place[walking] = higher[place[walking]]
            walking = walking[ahead[place[walking]] <= bid[walking]]
        result[d] = time_s[place]
    return result


def crossings_of_bid(path: PricePath, bid_micro: int) -> IntArray:
    """Return when the price first exceeds one fixed bid after each step, shape (changes,); `NEVER` if it doesn't."""
    above = np.flatnonzero(path.price_micro > bid_micro)
    time_s = np.append(path.time_s[above], NEVER)
    return time_s[np.searchsorted(above, np.arange(len(path)), side="right")]


@compiled
def _next_higher(price: IntArray, at_equal: bool) -> IntArray:
    """Return each step's next step with a higher price (or equal, if `at_equal`), the number of steps if none."""
    size = len(price)
    higher = np.full(size + 1, size, dtype=np.int64)
    open_steps, depth = np.empty(size, dtype=np.int64), 0
    for step in range(size):
        while depth and price[open_steps[depth - 1]] < price[step] + int(at_equal):
            depth -= 1
            higher[open_steps[depth]] = step
        open_steps[depth] = step
        depth += 1
    return higher


MINUTES = HOUR_S // MINUTE_S

DELTAS_MICRO = (0, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 400_000)
"""Bid deltas in micro-dollars: 0, and a nearly geometric grid from $0.0001 to $0.4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionOptions:
    """Options of the estimation of eviction tables.

    Parameters
    ----------
    deltas_micro
        Grid of bid deltas, ascending.
    step_s
        Seconds of history between replayed bids.
    """

    deltas_micro: tuple[int, ...] = DELTAS_MICRO
    step_s: int = 120

    def __post_init__(self) -> None:
        grid = self.deltas_micro
        if not grid or grid[0] < 0 or any(b <= a for a, b in pairwise(grid)):
            raise InvalidOptionError(f"deltas_micro must be ascending and at least 0, got {grid}")
        if self.step_s < 1:
            raise InvalidOptionError(f"step_s must be at least 1, got {self.step_s}")


@dataclass(frozen=True, kw_only=True, eq=False)
class EvictionTable(ComparesByValue):
    """Survival of bids by market, bid delta and minute of the first hour.

    Parameters
    ----------
    markets
        Names of the markets.
    deltas_micro
        Shape (deltas,): the grid. The tables have one further row at the end, for a bid of the on-demand price.
    survival
        Shape (markets, deltas + 1, 61): probability that a bid has not been outbid after 0..60 minutes.
    mean_h
        Shape (markets, deltas + 1): mean hours to the eviction, the area under the survival up to the longest time
        observed; NaN if no such bid was ever granted: `survival` is then 0 from minute 1 on.
    low, high
        Shape (markets, deltas + 1): ends of the 95 % interval of the probability of eviction within the hour.
    hours
        Shape (markets,): full hours of history used in the estimates.
    """

    markets: tuple[str, ...]
    deltas_micro: IntArray
    survival: FloatArray
    mean_h: FloatArray
    low: FloatArray
    high: FloatArray
    hours: FloatArray
    index: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", {name: m for m, name in enumerate(self.markets)})

    @cached_property
    def omega(self) -> FloatArray:
        """Expected usable hours within the first 0..60 minutes: the integral of `survival`, in its shape."""
        return usable_hours(self.survival)

    @property
    def beta(self) -> FloatArray:
        """Probability of eviction within an hour, shape (markets, deltas + 1)."""
        return 1.0 - self.survival[..., -1]

    def row(self, delta_micro: int) -> int:
        """Return the row of the largest delta of the grid that is at most `delta_micro`, 0 if there is none."""
        return max(0, int(np.searchsorted(self.deltas_micro, delta_micro, side="right")) - 1)

    def probability(self, market: int, row: int, time_s: int) -> float:
        """Return the probability of eviction within `time_s`, at most an hour."""
        return 1.0 - _between(self.survival[market, row], time_s)

    def usable_h(self, market: int, row: int, time_s: int) -> float:
        """Return the expected usable hours within `time_s`, at most an hour."""
        return _between(self.omega[market, row], time_s)


def usable_hours(survival: FloatArray) -> FloatArray:
    """Return the expected usable hours within the first 0..60 minutes: the integral of a survival over its last axis."""
    steps = (survival[..., 1:] + survival[..., :-1]) / (2 * MINUTES)
    return np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, axis=-1)], axis=-1)


def fit_evictions(history: PriceHistory, options: EvictionOptions | None = None) -> EvictionTable:
    """Estimate an eviction table from price history.

    Bids of every delta are replayed every `step_s` seconds. If the history ends or has a gap before a bid is outbid,
    the replay is censored: the product-limit estimator counts the bid as surviving up to that time. Probabilities are
    made monotone in the delta.

    Parameters
    ----------
    history
        Price paths.
    options
        Grid of bid deltas, and interval of replayed bids.

    References
    ----------
    Kaplan, Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958), DOI
    10.1080/01621459.1958.10501452.
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182.
    """
    options = options or EvictionOptions()
    deltas = np.array(options.deltas_micro, dtype=np.int64)
    survival = np.ones((history.num_markets, len(deltas) + 1, MINUTES + 1))
    mean_h = np.full((history.num_markets, len(deltas) + 1), np.inf)
    hours = np.zeros(history.num_markets)
    for m, (market, path) in enumerate(zip(history.markets, history.paths, strict=True)):
        replay = _Replay(history, path, options)
        hours[m] = replay.hours
        times = crossings(path, deltas)
        for d, time_s in enumerate(times):
            survival[m, d], mean_h[m, d] = replay.estimate(time_s)
        is_granted = path.price_micro <= market.on_demand_micro
        of_bid = crossings_of_bid(path, market.on_demand_micro)
        survival[m, -1], mean_h[m, -1] = replay.estimate(of_bid, is_granted)
        survival[m, :-1] = _rising(survival[m, :-1])
    beta = 1.0 - survival[..., -1]
    low, high = wilson(beta, hours[:, None])
    return EvictionTable(
        markets=tuple(market.name for market in history.markets),
        deltas_micro=deltas,
        survival=survival,
        mean_h=mean_h,
        low=low,
        high=high,
        hours=hours,
    )


def without_evictions(table: EvictionTable) -> EvictionTable:
    """Return the table for rules under which prices never evict."""
    never = np.zeros_like(table.low)
    return replace(
        table, survival=np.ones_like(table.survival), mean_h=np.full_like(table.mean_h, np.inf), low=never, high=never
    )


class _Replay:
    """Start times of the replayed bids of one market, and the product-limit estimate for given crossing times."""

    def __init__(self, history: PriceHistory, path: PricePath, options: EvictionOptions) -> None:
        first = -(-int(path.time_s[0]) // options.step_s) * options.step_s
        start = np.arange(first, history.end_s, options.step_s, dtype=np.int64)
        for begin, end in history.gaps.tolist():
            start = start[(start <= begin) | (start >= end)]
        self.start = start
        self.step = (np.searchsorted(path.time_s, start, side="right") - 1).astype(np.int32)
        self.known = history.censor_after(start) - start
        self.hours = len(start) * options.step_s / HOUR_S

    def estimate(self, crossing_s: IntArray, is_granted: BoolArray | None = None) -> tuple[FloatArray, float]:
        """Return survival after 0..60 minutes and the mean hours to eviction, given each step's crossing time."""
        lag = crossing_s[self.step] - self.start
        known = self.known
        if is_granted is not None:
            chosen = is_granted[self.step]
            lag, known = lag[chosen], known[chosen]
        if not len(lag):
            return np.concatenate([[1.0], np.zeros(MINUTES)]), float("nan")
        is_seen = lag <= known
        observed = np.where(is_seen, lag, known)
        minute, longest = observed // MINUTE_S, int(observed.max())
        num_ended = np.bincount(minute, minlength=MINUTES + 1)
        size = len(num_ended)
        evicted = np.bincount(minute[is_seen], minlength=size)
        at_risk = np.cumsum(num_ended[::-1])[::-1]
        hazard = np.divide(evicted, at_risk, out=np.zeros(size), where=at_risk > 0)
        survival = np.concatenate([[1.0], np.cumprod(1.0 - hazard)])
        # Survival is unknown after the longest observed time, so the area ends there.
        edge_s = np.minimum(MINUTE_S * np.arange(size + 1), longest)
        mean_h = float(np.trapezoid(survival, edge_s)) / HOUR_S if longest else float("nan")
        return survival[: MINUTES + 1], mean_h


def _between(by_minute: FloatArray, time_s: int) -> float:
    """Return a value at any second of the hour by linear interpolation between minutes."""
    minute, rest = divmod(min(max(time_s, 0), HOUR_S), MINUTE_S)
    value = float(by_minute[minute])
    return value if rest == 0 else value + rest / MINUTE_S * float(by_minute[minute + 1] - value)


@compiled
def _rising(survival: FloatArray) -> FloatArray:
    """Return the least-squares fit that is non-decreasing in the delta at each minute, by pooling adjacent violators."""
    deltas, minutes = survival.shape
    result, mean, size = survival.copy(), np.empty(deltas), np.empty(deltas, dtype=np.int64)
    for minute in range(minutes):
        blocks = 0
        for d in range(deltas):
            mean[blocks], size[blocks] = survival[d, minute], 1
            while blocks and mean[blocks - 1] > mean[blocks]:
                joint = size[blocks - 1] + size[blocks]
                mean[blocks - 1] += (mean[blocks] - mean[blocks - 1]) * size[blocks] / joint
                size[blocks - 1] = joint
                blocks -= 1
            blocks += 1
        d = 0
        for block in range(blocks):
            result[d : d + size[block], minute] = mean[block]
            d += size[block]
    return result
