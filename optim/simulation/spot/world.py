"""The world of a back-test: prices that happened, what was known before, and the job."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.bidding.billing import Billing
from optim.models.bidding.eviction import EvictionTable
from optim.models.bidding.instance import FloatArray, IntArray
from optim.models.bidding.price_history import Market, PriceHistory
from optim.simulation.spot.footprint_value import Changes
from optim.simulation.spot.options import SpotOptions, minutes

DEFAULT_TYPE = "c3.xlarge"
"""The job is measured by machines of this type, where no other is named."""

ROUNDING = 1e-9
"""Share of a machine that rounding may lack."""

Rate = TypeVar("Rate", float, FloatArray)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """Prices to run on, a table estimated on other prices, and the job.

    Parameters
    ----------
    history
        What happens.
    table
        What policies know of evictions; its markets are those of the history.
    options
        The job.
    billing
        The rules of bills and evictions.
    """

    history: PriceHistory
    table: EvictionTable
    options: SpotOptions
    billing: Billing = Billing.AWS_2009

    @cached_property
    def baseline(self) -> Market:
        """A market of the type that the job is measured by: `DEFAULT_TYPE` if no type is named and there are such prices, else the first.

        Raises
        ------
        InvalidOptionError
            If no market has that type.
        """
        types = {market.instance_type for market in self.history.markets}
        default = DEFAULT_TYPE if DEFAULT_TYPE in types else min(types)
        return self._market_of("baseline_type", self.options.baseline_type or default)

    @cached_property
    def reliable(self) -> Market:
        """A market of the type of the reliable machines.

        Raises
        ------
        InvalidOptionError
            If no market has that type.
        """
        return self._market_of("reliable_type", self.options.reliable_type or self.baseline.instance_type)

    def _market_of(self, option: str, instance_type: str) -> Market:
        for market in self.history.markets:
            if market.instance_type == instance_type:
                return market
        types = sorted({market.instance_type for market in self.history.markets})
        raise InvalidOptionError(f"{option} {instance_type!r} has no market; the prices have: {', '.join(types)}")

    def size(self, market: int) -> float:
        """Return how many machines of the baseline a market's machine is worth by its work: what `max_spot` counts."""
        return self.history.markets[market].rate / self.baseline.rate

    def count_within(self, market: int, capacity: float) -> int:
        """Return how many machines of a market are within a capacity, which counts machines of the baseline's size."""
        return int(capacity / self.size(market) + ROUNDING)

    @cached_property
    def most_of(self) -> IntArray:
        """Most spot machines of each market, shape (markets,)."""
        markets = range(self.history.num_markets)
        return np.array([self.count_within(market, self.options.max_spot) for market in markets], dtype=np.int64)

    @property
    def spot_capacity(self) -> float:
        """Largest rate of spot machines."""
        return self.options.max_spot * self.baseline.rate

    def baseline_price(self, time_s: int) -> int | None:
        """Return the spot price of the baseline's type at a time, None before there is one."""
        return self.history.paths[self.history.index[self.baseline.name]].price_at(time_s)

    @cached_property
    def table_row(self) -> tuple[int, ...]:
        """Position of each market in the table."""
        return tuple(self.table.index[market.name] for market in self.history.markets)

    @cached_property
    def changes(self) -> Changes:
        """All changes of price, for compiled loops."""
        paths = self.history.paths
        begins = np.cumsum([0, *map(len, paths)])
        times = np.concatenate([path.time_s for path in paths])
        prices = np.concatenate([path.price_micro for path in paths]).astype(np.float64)
        return Changes(times, prices, begins)

    def useful_rate(self, rate: Rate) -> Rate:
        """Return the work an hour of machines whose rates add up to `rate`, by Amdahl's law."""
        serial = self.options.serial
        return rate / (1.0 - serial + serial * rate)

    @cached_property
    def job_work(self) -> float:
        """Work of the job: what the baseline does after its start-up."""
        hours = self.options.job_hours - minutes(self.options.startup_min) / 3600
        return self.useful_rate(self.options.baseline * self.baseline.rate) * hours
