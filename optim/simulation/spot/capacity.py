"""Footprints without bids: how much of one lasts, played cause by cause, and the cheapest that keeps enough of it."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.models.bidding.common_shocks import CommonShocks
from optim.models.bidding.cost_per_work import CostWork, evaluate
from optim.models.bidding.instance import FloatArray, IntArray
from optim.solvers.bidding.dinkelbach import DinkelbachOptions, DinkelbachSolver
from optim.solvers.bidding.frontier import FrontierOptions, trace_frontier
from optim.solvers.solve import solve
from optim.workloads.bidding.capacity_generator import CapacityDraw

MINUTES = 60
"""Steps in which an hour is played."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReliableFootprint:
    """A footprint that keeps enough with enough probability.

    Parameters
    ----------
    counts
        Machines by kind.
    value
        Its expected cost and work.
    probability
        Exact probability that it keeps what is needed through the hour.
    bound_usd
        No footprint that does as much expected work costs less than this.
    """

    counts: IntArray
    value: CostWork
    probability: float
    bound_usd: float


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


def cheapest_reliable(
    draw: CapacityDraw, needed: float, probability: float, options: FrontierOptions | None = None
) -> ReliableFootprint:
    """Return the cheapest footprint of the frontier that keeps so much capacity with so much probability.

    The frontier has the cheapest footprint for every price of work, each proven. One that lies on none of its tangents
    may keep enough for less; what is proven is that no footprint with as much expected work costs less than `bound_usd`.

    Parameters
    ----------
    draw
        The decision and its hazards.
    needed, probability
        GPUs that must last the hour, and how surely.
    options
        Of the frontier.

    Raises
    ------
    InvalidOptionError
        If no footprint of the frontier keeps so much; the text says what the surest one does.
    """
    instance = draw.instance
    first = solve(instance, DinkelbachSolver.name, options=DinkelbachOptions(tol=1e-4)).decision
    frontier = trace_frontier(instance, first.counts, options or FrontierOptions())
    surest = 0.0
    for point in sorted(frontier.points, key=lambda point: point.cost):
        found = draw.probability(point.counts, needed)
        surest = max(surest, found)
        if found >= probability:
            value = evaluate(instance, point.counts)
            return ReliableFootprint(
                counts=point.counts, value=value, probability=found, bound_usd=frontier.least_cost(value.work)
            )
    raise InvalidOptionError(
        f"no footprint of the frontier keeps {needed:g} GPUs with probability {probability:g}; the surest does with "
        f"{surest:.4g}: ask for less, or offer more kinds"
    )
