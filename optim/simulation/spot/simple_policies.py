"""The policies that BidBrain is measured against: on demand, and the cheapest market with the on-demand price as bid."""

import math
from collections.abc import Sequence

import numpy as np

from optim.models.bidding.price_history import HOUR_S
from optim.simulation.spot.options import SpotOptions
from optim.simulation.spot.policy import LiveLease, Policy, Recovery, Request, View
from optim.simulation.spot.world import World


class OnDemandPolicy(Policy):
    """The baseline cluster on demand, from start to end."""

    name = "on-demand"
    recovery = Recovery.NOTHING
    has_reliable = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_asked = False

    def is_interested(self, leases: Sequence[LiveLease], room: float) -> bool:
        """Ask once."""
        del leases, room
        return not self._has_asked

    def decide(self, view: View) -> Request | None:
        """Take the whole cluster at once."""
        del view
        if self._has_asked:
            return None
        self._has_asked = True
        market = self._world.history.index[self._world.baseline.name]
        return Request(market=market, count=self._world.options.baseline, bid_micro=None)


class StandardPolicy(Policy):
    """Take the market with the lowest price per work, bid the on-demand price, hold until evicted, repeat.

    Parameters
    ----------
    world
        Prices and knowledge.
    recovery
        What an eviction costs: with `CHECKPOINT`, checkpoints are written at Young's interval for the mean time to
        eviction of the market that is held, or at Daly's refinement of it.
    name
        Its name.

    References
    ----------
    Young, "A First Order Approximation to the Optimum Checkpoint Interval", Communications of the ACM 17 (1974), DOI
    10.1145/361147.361115.
    Daly, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps", Future Generation Computer
    Systems 22 (2006), DOI 10.1016/j.future.2004.11.016.

    Notes
    -----
    Where no bid of the on-demand price was granted before, the median over markets stands in.
    """

    def __init__(self, world: World, recovery: Recovery, name: str) -> None:
        self._world = world
        self.name, self.recovery = name, recovery
        self.has_reliable = recovery is Recovery.ELASTIC

    def is_interested(self, leases: Sequence[LiveLease], room: float) -> bool:
        """Ask when nothing is held."""
        del room
        return not leases

    def decide(self, view: View) -> Request | None:
        """Take as much of the cheapest market as does the baseline's work."""
        if view.leases:
            return None
        options, markets = self._world.options, self._world.history.markets
        best, best_price = None, math.inf
        for m, (market, price) in enumerate(zip(markets, view.price_micro, strict=True)):
            if price is not None and price <= market.on_demand_micro and price / market.rate < best_price:
                best, best_price = m, price / market.rate
        if best is None:
            return None
        wanted = math.ceil(options.baseline * self._world.baseline.rate / markets[best].rate)
        count = min(wanted, self._world.count_within(best, view.room))
        return Request(market=best, count=count, bid_micro=markets[best].on_demand_micro) if count else None

    def checkpoint_every_s(self, leases: Sequence[LiveLease]) -> float:
        """Return the interval for the shortest mean time to eviction of what is held."""
        options, table, rows = self._world.options, self._world.table, self._world.table_row
        usual = float(np.nanmedian(table.mean_h[:, -1]))
        means = [float(table.mean_h[rows[lease.market], -1]) for lease in leases]
        shortest = min((usual if math.isnan(mean) else mean for mean in means), default=math.inf)
        return checkpoint_interval(shortest * HOUR_S, write_cost_s(options, leases), is_daly=options.daly)


def write_cost_s(options: SpotOptions, leases: Sequence[LiveLease]) -> float:
    """Return what a checkpoint costs in seconds of the machines that wait for it: those of writing, and its dollars at their price."""
    micro_per_s = sum(lease.count * lease.price_micro for lease in leases) / HOUR_S
    return options.write_s + (options.write_micro / micro_per_s if micro_per_s else 0.0)


def checkpoint_interval(mean_s: float, cost_s: float, *, is_daly: bool = False) -> float:
    """Return the seconds of work between checkpoints for a mean time to failure and a cost of writing one."""
    if math.isinf(mean_s):
        return math.inf
    young = math.sqrt(2 * cost_s * mean_s)
    if not is_daly:
        return young
    if cost_s >= 2 * mean_s:
        return mean_s
    share = cost_s / (2 * mean_s)
    return max(cost_s, young * (1 + math.sqrt(share) / 3 + share / 9) - cost_s)
