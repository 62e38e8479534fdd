"""Policies of the back-test on prices: BidBrain, and the policies that it is compared with."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import unknown_name
from optim.core.policies import causal_names, find_policy, policy, shipped_names
from optim.core.user_code import is_file_reference, load_class_from_file
from optim.models.bidding.market.evictions import usable_hours
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.simulation.spot.footprint_value import (
    Candidates,
    Offers,
    Overheads,
    first_improvement,
    value_each,
    value_held,
    value_leases,
)
from optim.simulation.spot.policy import (
    ROUNDING,
    LiveLease,
    Policy,
    Recovery,
    Request,
    SpotOptions,
    View,
    World,
    minutes,
)
from optim.simulation.spot.zones import ZonePolicy


@policy("on-demand", world="spot", summary="64 c3.xlarge on demand.", is_default=True)
class OnDemandPolicy(Policy):
    """The baseline cluster on demand, from start to end."""

    recovery = Recovery.NOTHING
    has_reliable = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._has_asked = False

    def wants_more(self, leases: Sequence[LiveLease], room: float) -> bool:
        """Return True until the cluster has been requested."""
        del leases, room
        return not self._has_asked

    def decide(self, view: View) -> Request | None:
        """Request the complete cluster at once."""
        del view
        if self._has_asked:
            return None
        self._has_asked = True
        market = self._world.history.index[self._world.baseline.name]
        return Request(market=market, count=self._world.options.baseline, bid_micro=None)


class StandardPolicy(Policy):
    """Take the market with the lowest price per work, bid the on-demand price, stay until evicted, repeat.

    Parameters
    ----------
    world
        Prices during the run, estimates of evictions from earlier prices, and the job.

    Attributes
    ----------
    recovery
        Cost of an eviction. With `CHECKPOINT`, checkpoints are written at Young's interval for the mean time to
        eviction of the leased market.

    References
    ----------
    Young, "A First Order Approximation to the Optimum Checkpoint Interval", Communications of the ACM 17 (1974), DOI
    10.1145/361147.361115.

    Notes
    -----
    A market whose earlier prices never grant a bid at the on-demand price has the median of all markets' mean times to eviction.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    def wants_more(self, leases: Sequence[LiveLease], room: float) -> bool:
        """Return whether there is no lease."""
        del room
        return not leases

    def decide(self, view: View) -> Request | None:
        """Request as many machines of the cheapest market as match the baseline's work."""
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
        """Return the interval for the shortest mean time to eviction among the leases."""
        options, table, rows = self._world.options, self._world.table, self._world.table_row
        usual = float(np.nanmedian(table.mean_h[:, -1]))
        means = [float(table.mean_h[rows[lease.market], -1]) for lease in leases]
        shortest = min((usual if math.isnan(mean) else mean for mean in means), default=math.inf)
        return checkpoint_interval(shortest * HOUR_S, write_cost_s(options, leases))


@policy(
    "standard",
    world="spot",
    summary="Cheapest market per work, with the on-demand price as bid, until evicted. An eviction loses all work.",
    is_default=True,
)
class Standard(StandardPolicy):
    """The standard rule without checkpoints."""

    recovery, has_reliable = Recovery.NOTHING, False


@policy(
    "standard-checkpoint",
    world="spot",
    summary="As `standard`, with checkpoints at Young's interval. An eviction costs a restart and the work since the "
    "last checkpoint.",
    source="Young, CACM 1974",
    is_default=True,
)
class StandardCheckpoint(StandardPolicy):
    """The standard rule with checkpoints."""

    recovery, has_reliable = Recovery.CHECKPOINT, False


@policy(
    "standard-agile",
    world="spot",
    summary="As `standard`, for an elastic trainer: an eviction costs a minute.",
    is_default=True,
)
class StandardAgile(StandardPolicy):
    """The standard rule for an elastic trainer."""

    recovery, has_reliable = Recovery.ELASTIC, True


def write_cost_s(options: SpotOptions, leases: Sequence[LiveLease]) -> float:
    """Return the cost of a checkpoint in seconds: its writing time, plus its dollars divided by the machines' price."""
    micro_per_s = sum(lease.count * lease.price_micro for lease in leases) / HOUR_S
    return options.write_s + (options.write_micro / micro_per_s if micro_per_s else 0.0)


def checkpoint_interval(mean_s: float, cost_s: float) -> float:
    """Return Young's interval in seconds of work, for a mean time to failure and a cost of writing a checkpoint."""
    if math.isinf(mean_s):
        return math.inf
    return math.sqrt(2 * cost_s * mean_s)


class BidBrainPolicy(Policy):
    """One-step search over market, bid margin and count at every tick, and at minute 58 of every lease's hour.

    All leases are valued over the coming hour. The rest of the paid hour counts at its share of the price, the time
    after it at the present price. If leases were valued only to the end of their paid hours, leases about to be renewed
    would have no value. Any other lease would then be retained, because the footprint would seem to do little work
    without it. Expected work loses the overheads of start-up, of the planned change and of evictions. Evictions are
    nested within a market and independent across markets.

    Parameters
    ----------
    world
        Prices during the run, estimates of evictions from earlier prices, and the job.

    Attributes
    ----------
    recovery
        Loss per eviction: a pause with `ELASTIC`; an expected restart and half a checkpoint interval with `CHECKPOINT`.
        In both cases the policy uses reliable machines: without a fixed cost, very few instances would have the lowest
        cost per work.

    References
    ----------
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182.
    """

    has_reliable = True

    def __init__(self, world: World) -> None:
        options, markets = world.options, world.history.markets
        self._world = world
        # Offers are the markets, followed by every type on demand, which is never evicted.
        types = {market.instance_type: m for m, market in reversed(list(enumerate(markets)))}
        self._on_demand_offer = {kind: len(markets) + k for k, kind in enumerate(types)}
        self._seller = np.concatenate([np.arange(len(markets)), list(types.values())])
        self._is_spot = np.arange(len(self._seller)) < len(markets)
        known = world.table.survival[np.array(world.table_row)[self._seller]]
        survival = np.where(self._is_spot[:, None, None], known, 1.0)
        usable = usable_hours(survival)
        startup = minutes(options.startup_min) // 60
        self.offers = Offers(
            rate=np.array([markets[m].rate for m in self._seller]),
            highest=np.array([markets[m].on_demand_micro for m in self._seller]),
            survival=survival,
            usable=usable,
            new_risk=1.0 - survival[:, :, -1],
            new_hours=np.maximum(0.0, usable[:, :, -1] - usable[:, :, startup]),
            deltas=world.table.deltas_micro,
        )
        self._list_prices = self.offers.highest[~self._is_spot].astype(np.float64).tolist()
        lost_h = minutes(options.eviction_min) / HOUR_S
        if self.recovery is Recovery.CHECKPOINT:
            usual_s = float(np.nanmedian(world.table.mean_h[:, -1])) * HOUR_S
            interval = min(checkpoint_interval(usual_s, options.write_s), 4 * HOUR_S)
            lost_h = (options.restart_s + interval / 2) / HOUR_S
        self.overheads = Overheads(
            fixed_usd=options.reliable * world.reliable.on_demand_micro / MICRO,
            lost_h=lost_h,
            change_h=minutes(options.scale_min) / HOUR_S if self.recovery is Recovery.ELASTIC else 0.0,
            serial=options.serial,
        )
        self._size = np.array([world.size(int(m)) for m in self._seller])
        self._powers = 2 ** np.arange(max(1, int(world.max_of.max())).bit_length(), dtype=np.int64)

    def decide(self, view: View) -> Request | None:
        """Return the request that most reduces the expected cost per work; None if no request reduces it."""
        added = self._additions(view.room, view.on_demand_room)
        if not len(added.counts):
            return None
        held = _Footprint(self, view)
        present = held.ratio(0.0)
        ratio = held.with_each(added, present)
        place = int(ratio.argmin())
        if not ratio.flat[place] < present:
            return None
        offer, d, n = np.unravel_index(place, ratio.shape)
        count, seller = int(added.counts[n]), int(self._seller[offer])
        if not self._is_spot[offer]:
            return Request(market=seller, count=count, bid_micro=None)
        is_list_price = d == len(self.offers.deltas)
        bid = self.offers.highest[offer] if is_list_price else held.prices[offer] + self.offers.deltas[d]
        return Request(market=seller, count=count, bid_micro=int(bid))

    def next_decision_tick(self, leases: Sequence[LiveLease], rooms: tuple[float, int], ticks: range) -> int:
        """Return the index of the first tick at which a request would lower the expected cost per work."""
        if type(self).decide is not BidBrainPolicy.decide:
            return 0  # a derived policy may decide by other rules
        room, on_demand_room = rooms
        added = self._additions(room, on_demand_room)
        if not len(added.counts):
            return len(ticks)
        first: int = first_improvement(
            ticks.start,
            ticks.step,
            len(ticks),
            self.table_of(leases, ticks.start),
            self._world.changes,
            added,
            self.offers,
            self.overheads,
        )
        return first

    def _additions(self, room: float, on_demand_room: int) -> Candidates:
        """Return the machine counts to try (powers of two, and the maximum) and the maximum of each offer."""
        spot = np.floor(max(0.0, room) / self._size + ROUNDING).astype(np.int64)
        most = spot[self._is_spot]
        counts = np.unique(np.concatenate([np.minimum(self._powers, most.max(initial=0)), most]))
        return Candidates(counts[counts > 0], np.where(self._is_spot, spot, on_demand_room))

    def table_of(self, leases: Sequence[LiveLease], now_s: int, renewed: LiveLease | None = None) -> IntArray:
        """Return leases as a table for compiled loops, shape (leases, 6): see `OFFER` to `WAIT_S`."""
        rows = [
            (
                self.offer(lease),
                lease.count,
                lease.price_micro if lease.bid_micro is None else lease.bid_micro,
                lease.price_micro,
                0 if lease is renewed else lease.hour_end_s(now_s) - now_s,
                max(0, lease.ready_s - now_s),
            )
            for lease in leases
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 6)

    def should_renew(self, view: View, lease: LiveLease) -> bool:
        """Compare the footprint with the lease renewed at the present price, and the footprint without it."""
        keep = _Footprint(self, view, renewed=lease).ratio(0.0)
        drop = _Footprint(self, view, without=lease).ratio(self.overheads.change_h)
        return keep <= drop

    def checkpoint_every_s(self, leases: Sequence[LiveLease]) -> float:
        """Return Young's interval for the leases, with eviction rates from the table at the bids' present margins."""
        hourly = 0.0
        for lease in leases:
            row = self._row((lease.bid_micro or lease.price_micro) - lease.price_micro)
            hourly += -math.log(max(1e-9, float(self.offers.survival[self.offer(lease), row, -1])))
        mean_s = HOUR_S / hourly if hourly > 0 else math.inf
        options = self._world.options
        return checkpoint_interval(mean_s, write_cost_s(options, leases))

    def offer(self, lease: LiveLease) -> int:
        """Return the offer of a lease: its market, or its type on demand."""
        if lease.bid_micro is not None:
            return lease.market
        return self._on_demand_offer[self._world.history.markets[lease.market].instance_type]

    def prices(self, view: View) -> FloatArray:
        """Return the present price of every offer, NaN before the first price."""
        spot = [math.nan if price is None else float(price) for price in view.price_micro]
        return np.array(spot + self._list_prices)

    def _row(self, delta: int) -> int:
        return max(0, int(np.searchsorted(self.offers.deltas, delta, side="right")) - 1)


class _Footprint:
    """The leases of a view, valued over the coming hour: dollars, and work rate and usable hours per lease."""

    def __init__(
        self,
        brain: BidBrainPolicy,
        view: View,
        *,
        renewed: LiveLease | None = None,
        without: LiveLease | None = None,
    ) -> None:
        self.brain = brain
        self.prices = brain.prices(view)
        leases = [lease for lease in view.leases if lease is not without]
        self.held = value_leases(
            brain.table_of(leases, view.now_s, renewed), self.prices, brain.offers, brain.overheads.fixed_usd
        )

    def ratio(self, change_h: float) -> float:
        """Return expected cost over expected work, infinity without work."""
        result: float = value_held(self.held, self.brain.overheads, change_h)
        return result

    def with_each(self, added: Candidates, beat: float = math.inf) -> FloatArray:
        """Return the ratio with each candidate added, shape (offers, deltas + 1, counts); infinity for invalid candidates.

        Candidates whose ratio is at least `beat`, the footprint's present ratio, may also get infinity. Bids are at most
        the on-demand price, so no hour costs more than that.
        """
        result: FloatArray = value_each(added, self.held, self.prices, self.brain.offers, self.brain.overheads, beat)
        return result


BIDBRAIN = "Harlap et al., Proteus, EuroSys 2017"


@policy(
    "bidbrain-checkpoint",
    world="spot",
    summary="BidBrain with three reliable machines: decides every two minutes, after evictions, and at minute 58 of a "
    "lease's hour. An eviction costs a restart and the work since the last checkpoint.",
    source=BIDBRAIN,
    is_default=True,
)
class BidBrainCheckpoint(BidBrainPolicy):
    """BidBrain for a trainer that restarts from checkpoints."""

    recovery = Recovery.CHECKPOINT


@policy(
    "proteus",
    world="spot",
    summary="As `bidbrain-checkpoint`, for an elastic trainer: an eviction costs a minute.",
    source=BIDBRAIN,
    is_default=True,
)
class Proteus(BidBrainPolicy):
    """BidBrain for an elastic trainer."""

    recovery = Recovery.ELASTIC


_USERS: Mapping[str, tuple[str, type[Any], str]] = {
    "spot": ("", Policy, "a policy on spot prices"),
    "zones": (" over zones", ZonePolicy, "a policy over zones"),
}
"""For each world: the words that errors append to "policy", the base class of user policies, and its description in errors."""


def check_policies(names: Iterable[str], world: str = "spot") -> None:
    """Raise if a policy or reference of a world is unknown, or a user's file lacks the class.

    Raises
    ------
    InvalidOptionError
        If a name is unknown; the message lists the known names.
    """
    listed = shipped_names(world)
    for name in names:
        if is_file_reference(name):
            policy_class(name, world)
        elif name not in listed:
            raise unknown_name(f"policy{_USERS[world][0]}", name, listed)


def policy_class(name: str, world: str) -> Callable[..., Any]:
    """Return the factory of a policy of a world, by name, or a user's class by ``./mine.py:MyPolicy``.

    Raises
    ------
    InvalidOptionError
        If the name is unknown, or is a reference that knows the future.
    """
    where, base, what = _USERS[world]
    if is_file_reference(name):
        return load_class_from_file(name, base, what)
    entry = find_policy(world, name)
    if entry is None or entry.is_reference:
        raise unknown_name(f"policy{where}", name, causal_names(world))
    return entry.make


def make_policy(name: str, world: World) -> Policy:
    """Return a new policy on prices, by name or from a user's file: see `policy_class`."""
    made: Policy = policy_class(name, "spot")(world)
    return made
