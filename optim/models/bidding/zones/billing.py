"""What machines over zones are billed by each rule, and what no bill by that rule is below."""

from dataclasses import dataclass

import numpy as np

from optim.core.errors import InvalidProblemError
from optim.models.bidding.billing import EC2_2013, EC2_TODAY, MINUTE_S, Billing, End, Lease, Reason
from optim.models.bidding.instance import BoolArray, IntArray
from optim.models.bidding.zones.market import HOUR_S, KINDS, UNITS_USD, Stay, ZoneJob, ZoneMarket

MOST_UNITS = 2**57
"""Of what a job may cost if it always pays the highest price: sums stay below what stands for "not in time", 2^58."""


@dataclass(frozen=True, slots=True)
class StayBill:
    """The units of a stay, see `UNITS_USD`, and the seconds of it that were free."""

    units: int
    free_s: int = 0


@dataclass(frozen=True, slots=True)
class _PlacePrices:
    """The prices of a kind of machines in a zone, by seconds since the job's start."""

    market: ZoneMarket
    first: int
    stay: Stay

    def price_at(self, time_s: int) -> int:
        """Return micro-dollars an hour."""
        if not self.stay.is_spot:
            return int(self.market.on_demand_micro[self.stay.zone])
        return int(self.market.spot_micro[self.first + time_s // self.market.tick_s, self.stay.zone])


def bill_stay(market: ZoneMarket, job: ZoneJob, first: int, stay: Stay, billing: Billing) -> StayBill:
    """Return what a stay of a job that starts at tick `first` is billed."""
    prices = _PlacePrices(market, first, stay)
    if billing in (Billing.AWS_2009, Billing.AWS_2017):
        rule = EC2_2013 if billing is Billing.AWS_2009 else EC2_TODAY
        lease = Lease(
            market=market.zones[stay.zone],
            count=job.machines,
            granted_s=stay.begin_s,
            ended_s=stay.end_s,
            end=End.EVICTED if stay.is_lost else End.RETURNED,
        )
        lines = rule.lines(lease, prices)
        free_s = sum(line.end_s - line.begin_s for line in lines if line.reason is Reason.EVICTED_FREE)
        # Exact: a ledger's lines are rounded to whole micro-dollars.
        paid = (line for line in lines if line.reason is Reason.USED)
        return StayBill(sum(line.count * line.price_micro * (line.end_s - line.begin_s) for line in paid), free_s)
    begins = np.arange(stay.begin_s, stay.end_s, market.tick_s)
    seconds = np.full(len(begins), market.tick_s)
    if billing is Billing.PER_SECOND:
        seconds = np.minimum(seconds, stay.end_s - begins)
    if not stay.is_spot:
        return StayBill(int(seconds.sum()) * int(market.on_demand_micro[stay.zone]) * job.machines)
    micro = market.spot_micro[first + begins // market.tick_s, stay.zone]
    return StayBill(int((seconds * micro).sum()) * job.machines)


def invoice(market: ZoneMarket, job: ZoneJob, first: int, stay: Stay, billing: Billing) -> int:
    """Return the units of a stay added up piece by piece, without a ledger."""
    price, held = _PlacePrices(market, first, stay).price_at, stay.end_s - stay.begin_s
    if billing is Billing.AWS_2009:
        hours = held // HOUR_S if stay.is_lost else -(-held // HOUR_S)
        return HOUR_S * job.machines * sum(price(stay.begin_s + n * HOUR_S) for n in range(hours))
    if billing is Billing.AWS_2017:
        if stay.is_lost and held < HOUR_S:
            return 0
        total, left, begin = 0, max(held, MINUTE_S), stay.begin_s
        while left > 0:
            part = min(left, HOUR_S)
            total += job.machines * price(begin) * part
            left, begin = left - part, begin + part
        return total
    total = 0
    for begin in range(stay.begin_s, stay.end_s, market.tick_s):
        is_cut = billing is Billing.PER_SECOND and begin + market.tick_s > stay.end_s
        total += price(begin) * (stay.end_s - begin if is_cut else market.tick_s)
    return total * job.machines


@dataclass(frozen=True, kw_only=True, eq=False)
class PlaceCosts:
    """What no bill is below, tick by tick; a place is a zone and a kind, see `KINDS`.

    Parameters
    ----------
    cost
        Shape (ticks, places): units of a tick at a place.
    has
        Shape (ticks, places): whether machines can be launched, or kept.
    is_whole
        Whether the tick in which the job ends is charged in full; otherwise its seconds are.
    free_until
        Shape (ticks, places): the tick at which machines launched now are lost free of charge; the tick itself where
        they aren't.
    is_exact
        Whether some plan is billed no more than these costs.
    """

    cost: IntArray
    has: BoolArray
    is_whole: bool
    free_until: IntArray
    is_exact: bool

    def last(self, tick: int, place: int, seconds: IntArray, tick_s: int) -> IntArray:
        """Return the units of the tick in which the job ends after so many seconds."""
        cost = self.cost[tick, place]
        return np.broadcast_to(cost, seconds.shape) if self.is_whole else cost // tick_s * seconds


def place_costs(market: ZoneMarket, job: ZoneJob, first: int, billing: Billing) -> PlaceCosts:
    """Return what no bill of a job that starts at tick `first` is below.

    Under ``per-second`` and ``whole-ticks`` these costs are the bill. Under Amazon's rules a second costs no less than the
    lowest price of the hour before it, as that of some hour's start. Nothing is charged for machines that are lost within
    their first hour (``aws-2017``), or for the last started hour before a loss (``aws-2009``).

    Raises
    ------
    InvalidProblemError
        If the traces begin after the job, or end before the deadline, the job is of other zones, or its costs fill 64 bits.
    """
    ticks, tick_s = job.num_ticks(market.tick_s), market.tick_s
    if first < 0 or first + ticks > len(market):
        raise InvalidProblemError(f"the traces end before the deadline of a job that starts at tick {first}")
    if job.setup_s.shape[1] != market.num_zones:
        raise InvalidProblemError(f"the job has set-ups of {job.setup_s.shape[1]} zones, the market {market.num_zones}")
    spot, there = market.spot_micro[first : first + ticks], market.is_available[first : first + ticks]
    dearest = int(max(spot.max(), market.on_demand_micro.max())) * int(job.machines)
    if ticks * (dearest * tick_s + HOUR_S * int(job.move_micro.max())) > MOST_UNITS:
        raise InvalidProblemError(
            f"{job.machines} machines at {dearest / job.machines / 1e6:g} dollars an hour may cost more than can be counted "
            f"exactly, {MOST_UNITS // UNITS_USD} dollars; give fewer machines, lower prices or a nearer deadline"
        )
    is_aws = billing in (Billing.AWS_2009, Billing.AWS_2017)
    if is_aws:
        window = min(ticks, -(-(HOUR_S - 1) // tick_s) + 1)
        padded = np.concatenate([np.broadcast_to(spot[0], (window - 1, market.num_zones)), spot])
        spot = np.lib.stride_tricks.sliding_window_view(padded, window, axis=0).min(axis=-1)
    shape = (ticks, KINDS * market.num_zones)
    cost = np.stack([spot, np.broadcast_to(market.on_demand_micro, spot.shape)], axis=2).reshape(shape)
    has = np.stack([there, np.ones(there.shape, dtype=bool)], axis=2).reshape(shape)
    cost = cost * (job.machines * tick_s)
    tick = np.arange(ticks)[:, None]
    free_until = np.broadcast_to(tick, shape).copy()
    if is_aws:
        until = np.minimum.accumulate(np.where(has, ticks, tick)[::-1], axis=0)[::-1]
        if billing is Billing.AWS_2009:
            cost[has & (until < ticks) & ((until - tick - 1) * tick_s < HOUR_S)] = 0
        else:
            is_free = has & (until < ticks) & ((until - tick) * tick_s < HOUR_S)
            free_until[is_free] = until[is_free]
    return PlaceCosts(
        cost=cost, has=has, is_whole=billing is Billing.WHOLE_TICKS, free_until=free_until, is_exact=not is_aws
    )
