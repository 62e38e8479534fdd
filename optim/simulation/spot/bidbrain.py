"""BidBrain: bid where it lowers the expected cost per work of the whole footprint most, hour by hour."""

import math
from collections.abc import Sequence

import numpy as np

from optim.models.bidding.eviction import MINUTES, usable_hours
from optim.models.bidding.instance import FloatArray, IntArray
from optim.models.bidding.price_history import HOUR_S, MICRO
from optim.simulation.spot.options import minutes
from optim.simulation.spot.policy import LiveLease, Policy, Recovery, Request, View
from optim.simulation.spot.simple_policies import checkpoint_interval
from optim.simulation.spot.world import World


class BidBrainPolicy(Policy):
    """One-step search over market, delta and count at every tick, and at minute 58 of every lease.

    All leases are valued over the coming hour: what is left of a lease's hour costs its share of the price paid, what
    follows the present price. Valued to the ends of their own hours, leases about to be renewed would count for
    nothing, and any other would be kept for want of them. Expected work loses the overheads of start-up, of the planned
    change and of evictions. Evictions are nested within a market, independent across markets.

    Parameters
    ----------
    world
        Prices and knowledge.
    recovery
        `ELASTIC` loses a pause by an eviction; `CHECKPOINT` expects to lose a restart and half an interval. Both hold
        reliable machines: without a fixed cost the lowest cost per work is that of very few instances.
    name
        Its name.

    References
    ----------
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182.
    """

    def __init__(self, world: World, recovery: Recovery, name: str) -> None:
        options, markets = world.options, world.history.markets
        self._world = world
        self.name, self.recovery = name, recovery
        self.has_reliable = True
        # Goods are the markets, and behind them every type on demand, which nobody takes away.
        types = {market.instance_type: m for m, market in reversed(list(enumerate(markets)))}
        self._on_demand_good = {kind: len(markets) + k for k, kind in enumerate(types)}
        self._seller = np.concatenate([np.arange(len(markets)), list(types.values())])
        self._is_spot = np.arange(len(self._seller)) < len(markets)
        known = world.table.survival[np.array(world.table_row)[self._seller]]
        self._survival = np.where(self._is_spot[:, None, None], known, 1.0)
        self._usable = usable_hours(self._survival)
        self._deltas = world.table.deltas_micro
        self._rate = np.array([markets[m].rate for m in self._seller])
        self._on_demand = np.array([markets[m].on_demand_micro for m in self._seller])
        startup = minutes(options.startup_min) // 60
        self._new_risk = 1.0 - self._survival[:, :, -1]
        self._new_usable = np.maximum(0.0, self._usable[:, :, -1] - self._usable[:, :, startup])
        self._fixed_usd = options.reliable * world.baseline.on_demand_micro / MICRO
        self._change_h = minutes(options.scale_min) / HOUR_S if recovery is Recovery.ELASTIC else 0.0
        self._lost_h = minutes(options.eviction_min) / HOUR_S
        if recovery is Recovery.CHECKPOINT:
            usual_s = float(np.nanmedian(world.table.mean_h[:, -1])) * HOUR_S
            interval = min(checkpoint_interval(usual_s, self._write_s, is_daly=options.daly), 4 * HOUR_S)
            self._lost_h = (minutes(options.restart_min) + interval / 2) / HOUR_S
        self._counts = np.array(sorted({2**k for k in range(20) if 2**k <= options.max_spot} | {options.max_spot}))

    @property
    def _write_s(self) -> int:
        return minutes(self._world.options.checkpoint_min)

    def decide(self, view: View) -> Request | None:
        """Return the request that lowers the expected cost per work most, if any does."""
        if view.room <= 0:
            return None
        held = _Footprint(self, view)
        counts = np.minimum(self._counts, view.room)
        ratio = held.with_each(counts)
        ratio[np.isnan(ratio) | (~self._is_spot[:, None, None] & (counts > view.on_demand_room))] = np.inf
        place = int(ratio.argmin())
        if not ratio.flat[place] < held.ratio(0.0):
            return None
        good, d, n = np.unravel_index(place, ratio.shape)
        count, seller = int(counts[n]), int(self._seller[good])
        if not self._is_spot[good]:
            return Request(market=seller, count=count, bid_micro=None)
        is_list_price = d == len(self._deltas)
        bid = self._on_demand[good] if is_list_price else held.prices[good] + self._deltas[d]
        return Request(market=seller, count=count, bid_micro=int(bid))

    def keeps(self, view: View, lease: LiveLease) -> bool:
        """Compare the footprint with the lease renewed at the present price with the footprint without it."""
        keep = _Footprint(self, view, renewed=lease).ratio(0.0)
        drop = _Footprint(self, view, without=lease).ratio(self._change_h)
        return keep <= drop

    def checkpoint_every_s(self, leases: Sequence[LiveLease]) -> float:
        """Return Young's interval for what is held: the market's tables at the bids' present deltas are its rates."""
        hourly = 0.0
        for lease in leases:
            row = self._row((lease.bid_micro or lease.price_micro) - lease.price_micro)
            hourly += -math.log(max(1e-9, float(self._survival[self.good(lease), row, -1])))
        mean_s = HOUR_S / hourly if hourly > 0 else math.inf
        return checkpoint_interval(mean_s, self._write_s, is_daly=self._world.options.daly)

    def good(self, lease: LiveLease) -> int:
        """Return which good a lease is of: its market, or its type on demand."""
        if lease.bid_micro is not None:
            return lease.market
        return self._on_demand_good[self._world.history.markets[lease.market].instance_type]

    def prices(self, view: View) -> FloatArray:
        """Return the present price of every good, NaN where there is none yet."""
        spot = [np.nan if price is None else float(price) for price in view.price_micro]
        return np.concatenate([spot, self._on_demand[~self._is_spot]])

    def _row(self, delta: int) -> int:
        return max(0, int(np.searchsorted(self._deltas, delta, side="right")) - 1)


class _Footprint:
    """The leases of a view as arrays: price, count, work rate, risk and usable time in the coming hour."""

    def __init__(
        self,
        brain: BidBrainPolicy,
        view: View,
        *,
        renewed: LiveLease | None = None,
        without: LiveLease | None = None,
    ) -> None:
        self.brain = brain
        leases = [lease for lease in view.leases if lease is not without]
        size = len(leases)
        self.prices = brain.prices(view)
        self.good: IntArray = np.array([brain.good(lease) for lease in leases], dtype=np.int64)
        self.work = np.array([lease.count for lease in leases], dtype=np.float64)
        self.risk, self.usable, cost = np.zeros(size), np.zeros(size), np.zeros(size)
        for i, (good, lease) in enumerate(zip(self.good.tolist(), leases, strict=True)):
            price = float(np.nan_to_num(self.prices[good]))
            row = brain._row(int((lease.bid_micro or price) - price))
            survival, usable = brain._survival[good, row], brain._usable[good, row]
            left_s = 0 if lease is renewed else lease.hour_end_s(view.now_s) - view.now_s
            wait_s = max(0, lease.ready_s - view.now_s)
            self.risk[i] = 1.0 - survival[-1]
            self.usable[i] = max(0.0, float(usable[-1]) - _at(usable, wait_s))
            rest = _at(survival, left_s) * lease.price_micro * left_s
            following = survival[-1] * price * (HOUR_S - left_s)
            cost[i] = (rest + following) / MICRO * lease.count / HOUR_S
        self.cost = brain._fixed_usd + float(cost.sum())
        self.work *= brain._rate[self.good]
        self.market_risk = np.zeros(len(brain._rate))
        np.maximum.at(self.market_risk, self.good, self.risk)

    def ratio(self, change_h: float) -> float:
        """Return expected cost over expected work, infinity without work."""
        brain = self.brain
        lost = brain._lost_h * (1.0 - float(np.prod(1.0 - self.market_risk))) + change_h
        work = brain._world.useful_rate(float((self.work * np.maximum(0.0, self.usable - lost)).sum()))
        return self.cost / work if work > 0 else math.inf

    def with_each(self, counts: IntArray) -> FloatArray:
        """Return the ratio with each candidate added, shape (goods, deltas + 1, counts); NaN where there is none.

        No bid is above the price on demand, nor does one last longer than a price that is at most that: not an hour
        is bought for more.
        """
        brain = self.brain
        stays = 1.0 - self.market_risk
        others = np.array([float(np.prod(np.delete(stays, m))) for m in range(len(stays))])
        risk = np.maximum(brain._new_risk, self.market_risk[:, None])
        lost = brain._lost_h * (1.0 - others[:, None] * (1.0 - risk)) + brain._change_h
        usable = np.maximum(0.0, self.usable - lost[:, :, None])
        held = usable @ self.work
        own = np.maximum(0.0, brain._new_usable - lost) * brain._rate[:, None]
        rate = held[:, :, None] + own[:, :, None] * counts
        work = brain._world.useful_rate(rate)
        prices = self.prices[:, None]
        bids = np.concatenate([prices + brain._deltas, np.maximum(prices, brain._on_demand[:, None])], axis=1)
        unit = np.where(bids <= brain._on_demand[:, None], (1.0 - brain._new_risk) * prices / MICRO, np.nan)
        cost = self.cost + unit[:, :, None] * counts
        return np.asarray(np.divide(cost, work, out=np.full_like(work, np.inf), where=work > 0))


def _at(by_minute: FloatArray, time_s: int) -> float:
    """Return a figure given for every minute of an hour at any second of it."""
    minute, rest = divmod(min(max(time_s, 0), HOUR_S), 60)
    value = float(by_minute[minute])
    return value if rest == 0 or minute == MINUTES else value + rest / 60 * float(by_minute[minute + 1] - value)
