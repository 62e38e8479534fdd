"""Price histories of spot markets: step functions of time in integer micro-dollars."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optim.core.arrays import ComparesByValue, FloatArray, IntArray
from optim.core.errors import InvalidOptionError, InvalidProblemError

MICRO = 1_000_000
"""Micro-dollars per dollar. Prices are integers, because evictions depend on exact comparison with bids."""

MINUTE_S, HOUR_S = 60, 3600

GAP_S = 3 * HOUR_S
"""Shortest gap for active markets: so many seconds without a price change in any market are a gap in the recording."""

CALM_GAP_S = 25 * HOUR_S
"""Shortest gap for calm markets; their histories list price changes, and repeat the price at least once per day."""

CALM_EVERY_DAYS = 10
"""Markets are calm if times of `GAP_S` without a change occur more than twice, and more than once in this many days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """An instance type in a zone, with its price.

    Parameters
    ----------
    instance_type, zone
        Names of the type and the zone.
    on_demand_micro
        On-demand price of the type in micro-dollars per instance-hour.
    rate
        Work of one instance per hour; one c3.xlarge (4 vCPUs) does 1.
    """

    instance_type: str
    zone: str
    on_demand_micro: int
    rate: float

    @property
    def name(self) -> str:
        """`type@zone`."""
        return f"{self.instance_type}@{self.zone}"


@dataclass(frozen=True, kw_only=True, eq=False)
class PricePath(ComparesByValue):
    """A right-continuous step function: `price_micro[i]` holds from `time_s[i]` until the next time.

    Parameters
    ----------
    time_s
        Shape (changes,): seconds since 1970 (UTC), strictly ascending.
    price_micro
        Shape (changes,): micro-dollars per instance-hour, positive.
    """

    time_s: IntArray
    price_micro: IntArray

    def __len__(self) -> int:
        return len(self.time_s)

    @cached_property
    def _steps(self) -> tuple[list[int], list[int]]:
        """Times and prices as lists, in which single look-ups are ten times as fast."""
        return self.time_s.tolist(), self.price_micro.tolist()

    def index_at(self, time_s: int) -> int:
        """Return the index of the step in force at a time, -1 before the first step."""
        return bisect_right(self._steps[0], time_s) - 1

    def price_at(self, time_s: int) -> int | None:
        """Return the price at a time, None before the first price."""
        times, prices = self._steps
        step = bisect_right(times, time_s)
        return prices[step - 1] if step else None

    def first_above(self, time_s: int, bid_micro: int) -> int | None:
        """Return when the price first exceeds a bid after a time, None if it never does.

        Parameters
        ----------
        time_s
            Time after which to search; changes at this time don't count.
        bid_micro
            The bid.
        """
        step = self.index_at(time_s) + 1
        later = self.price_micro[step:]
        above = later > bid_micro
        first = int(above.argmax()) if len(above) else 0
        return int(self.time_s[step + first]) if len(above) and above[first] else None


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceHistory(ComparesByValue):
    """The price paths of several markets over one span of time.

    Parameters
    ----------
    markets, paths
        The markets, and the price path of each market.
    begin_s, end_s
        The span; prices from `end_s` on are unknown.
    gaps
        Shape (gaps, 2): begin and end of gaps in the recording, ascending.

    Raises
    ------
    InvalidProblemError
        If a path is empty, unordered, or has a price that isn't positive.
    """

    markets: tuple[Market, ...]
    paths: tuple[PricePath, ...]
    begin_s: int
    end_s: int
    gaps: IntArray

    def __post_init__(self) -> None:
        if not self.markets or len(self.markets) != len(self.paths):
            raise InvalidProblemError(
                f"a price history needs one path per market, got {len(self.paths)} for {len(self.markets)} markets"
            )
        for market, path in zip(self.markets, self.paths, strict=True):
            if len(path) == 0 or (np.diff(path.time_s) <= 0).any():
                raise InvalidProblemError(
                    f"{market.name}: at least one change is required, and changes must be strictly ascending in time"
                )
            for row in np.flatnonzero(path.price_micro <= 0)[:1]:
                raise InvalidProblemError(
                    f"{market.name}: prices must be positive, got {path.price_micro[row]} micro-dollars; correct the row"
                )

    @property
    def num_markets(self) -> int:
        """Number of markets."""
        return len(self.markets)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each market by name."""
        return {market.name: m for m, market in enumerate(self.markets)}

    def censor_after(self, time_s: IntArray) -> IntArray:
        """Return the end of known prices after each time: the next gap's begin, or the end of the history."""
        limits = np.append(self.gaps[:, 0], self.end_s)
        return limits[np.searchsorted(limits[:-1], time_s, side="left")]

    def touches_gap(self, begin_s: int, end_s: int) -> bool:
        """Return whether an interval overlaps a gap or the end of the history."""
        return end_s > self.end_s or bool(((self.gaps[:, 0] < end_s) & (self.gaps[:, 1] > begin_s)).any())

    def volatility(self) -> FloatArray:
        """Return the variance over time, outside gaps, of each market's price over its on-demand price; shape (markets,)."""
        result = []
        for market, path in zip(self.markets, self.paths, strict=True):
            edges = np.unique(np.concatenate([path.time_s, self.gaps.ravel(), [self.end_s]]))
            begin, weight = edges[:-1], np.diff(edges) * (1.0 - np.isin(edges[:-1], self.gaps[:, 0]))
            weight = np.where(begin >= path.time_s[0], weight, 0.0)
            step = np.maximum(np.searchsorted(path.time_s, begin, side="right") - 1, 0)
            share = path.price_micro[step] / market.on_demand_micro
            total = max(float(weight.sum()), 1.0)
            result.append(float(weight @ share**2) / total - (float(weight @ share) / total) ** 2)
        return np.array(result)

    def with_markets(self, which: Sequence[int]) -> "PriceHistory":
        """Return the history of the markets with the given indices."""
        return replace(self, markets=tuple(self.markets[m] for m in which), paths=tuple(self.paths[m] for m in which))

    def between(self, begin_s: int, end_s: int) -> "PriceHistory":
        """Return the history within a span, starting with the prices at its begin; markets without prices are left out.

        Raises
        ------
        InvalidOptionError
            If no market has a price in the span.
        """
        begin_s, end_s = max(begin_s, self.begin_s), min(end_s, self.end_s)
        paths = []
        for market, path in zip(self.markets, self.paths, strict=True):
            first, last = max(path.index_at(begin_s), 0), int(np.searchsorted(path.time_s, end_s, side="left"))
            if last > first:
                time_s = np.maximum(path.time_s[first:last], begin_s)
                paths.append((market, PricePath(time_s=time_s, price_micro=path.price_micro[first:last])))
        if not paths or end_s <= begin_s:
            raise InvalidOptionError(f"no market has a price between {begin_s} and {end_s}; choose another span")
        inside = (self.gaps[:, 0] < end_s) & (self.gaps[:, 1] > begin_s)
        return replace(
            self,
            markets=tuple(market for market, _ in paths),
            paths=tuple(path for _, path in paths),
            begin_s=begin_s,
            end_s=end_s,
            gaps=np.clip(self.gaps[inside], begin_s, end_s),
        )


def history_of(
    markets: Sequence[Market], paths: Sequence[PricePath], *, end_s: int | None = None, gap_s: int | None = None
) -> PriceHistory:
    """Build a history; its gaps are the times of `gap_s` seconds or more without a change in any market.

    Parameters
    ----------
    markets, paths
        The markets, and the price path of each market.
    end_s
        End of the span; default: the last change.
    gap_s
        Shortest gap; default: `GAP_S`, or `CALM_GAP_S` for calm markets.
    """
    times = np.unique(np.concatenate([path.time_s for path in paths])) if paths else np.zeros(0, dtype=np.int64)
    quiet_s = np.diff(times)
    if gap_s is None:
        often = max(2.0, (times[-1] - times[0]) / (24 * HOUR_S * CALM_EVERY_DAYS)) if len(times) else 0.0
        gap_s = CALM_GAP_S if (quiet_s >= GAP_S).sum() > often else GAP_S
    long = np.flatnonzero(quiet_s >= gap_s)
    return PriceHistory(
        markets=tuple(markets),
        paths=tuple(paths),
        begin_s=int(times[0]) if len(times) else 0,
        end_s=int(times[-1]) if end_s is None and len(times) else int(end_s or 0),
        gaps=np.column_stack((times[long], times[long + 1])),
    )
