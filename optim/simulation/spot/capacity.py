"""How much of a footprint without bids lasts an hour: played cause by cause."""

import numpy as np

from optim.core.arrays import FloatArray
from optim.models.bidding.market.lifetimes import CommonShocks

MINUTES = 60
"""Steps in which an hour is played."""


def simulate_capacity(
    shocks: CommonShocks, capacity: FloatArray, least: float, *, runs: int, seed: int
) -> tuple[float, float]:
    """Return the share of played hours in which at least `least` lasts to the end, and its standard error.

    Every cause is played by itself, minute by minute; nothing is shared with the exact probability.

    Parameters
    ----------
    shocks
        Expected shocks of the hour.
    capacity
        Shape (kinds,): what all machines of a kind do together.
    least
        How much is needed.
    runs, seed
        How many hours, and what they are drawn by.
    """
    rng = np.random.default_rng(seed)
    held = np.flatnonzero(capacity > 0)
    kept = 0
    for _ in range(runs):
        is_up = np.ones(len(held), dtype=bool)
        for rate, place in (
            (shocks.own[held], np.arange(len(held))),
            (shocks.by_zone, shocks.zone[held]),
            (shocks.by_region, shocks.region[shocks.zone[held]]),
        ):
            struck = np.asarray((rng.random((MINUTES, len(rate))) < -np.expm1(-rate / MINUTES)).any(axis=0))
            is_up &= ~struck[place]
        kept += float(capacity[held][is_up].sum()) >= least - 1e-9
    share = kept / runs
    return share, float(np.sqrt(max(share * (1 - share), 1 / runs) / runs))
