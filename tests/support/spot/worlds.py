"""Small worlds for back-tests."""

from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from optim.models.bidding.market.evictions import EvictionTable, fit_evictions
from optim.models.bidding.market.prices import Market, PriceHistory, PricePath, history_of
from optim.simulation.spot.policy import SpotOptions, World
from optim.workloads.prices.price_generator import PriceOptions, generate_prices

DAY_S = 86_400
SEEDS = st.integers(0, max(5, settings().max_examples // 6))
"""Seeds of random worlds: drawing and learning from prices takes longer than the examples themselves."""


def history(*paths, on_demand=210_000, end_s=20 * DAY_S, rate=1.0) -> PriceHistory:
    """Return a history of c3.xlarge in several zones from lists of (seconds, micro-dollars)."""
    markets = [
        Market(instance_type="c3.xlarge", zone=f"z{m}", on_demand_micro=on_demand, rate=rate) for m in range(len(paths))
    ]
    steps = [
        PricePath(
            time_s=np.array([time for time, _ in path], dtype=np.int64),
            price_micro=np.array([price for _, price in path], dtype=np.int64),
        )
        for path in paths
    ]
    return history_of(markets, steps, end_s=end_s, gap_s=100 * DAY_S)


def world(*paths, **options) -> World:
    """Return a world in which policies know the very history that they run on."""
    known = history(*paths)
    return World(history=known, table=fit_evictions(known), options=SpotOptions(**options))


def drawn_world(seed: int, **options) -> World:
    """Return a world of two types in two zones; the table is estimated on other prices."""
    return World(history=_prices(seed + 1), table=_table(seed), options=SpotOptions(**options))


@cache
def _prices(seed: int) -> PriceHistory:
    return generate_prices(PriceOptions(num_types=1, num_zones=3, days=12, spikes_per_day=8), seed)


@cache
def _table(seed: int) -> EvictionTable:
    return fit_evictions(_prices(seed))
