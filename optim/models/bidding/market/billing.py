"""Billing rules: the cost of a lease line by line, and the bills of machines over zones.

A lease is `count` instances of one market, acquired together at `granted_s` and gone at `ended_s`. Its clock is
anchored at the grant. The lines of a lease add up to its bill.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

import numpy as np

from optim.core.arrays import BoolArray, IntArray
from optim.core.errors import InvalidProblemError
from optim.models.bidding.market.prices import HOUR_S, MICRO, MINUTE_S
from optim.models.bidding.market.zones import KINDS, UNITS_USD, Allocation, ZoneJob, ZoneMarket

BIDS_END_S = int(datetime(2017, 12, 1, tzinfo=UTC).timestamp())
"""Until the end of November 2017 a price above the bid evicted, and Amazon charged started hours."""

SPOT_BEGIN_S = int(datetime(2009, 12, 14, tzinfo=UTC).timestamp())
"""Amazon sold no spot instances before; an earlier time is that of data without a date."""


class Billing(StrEnum):
    """Rules of bills and evictions, by name.

    ``aws-2009``: every started hour at the price of its start, the hour of an eviction free; a price above the bid evicts.
    ``aws-2017``: seconds at the price of their hour's start, a minute at least, nothing if evicted within the first hour;
    prices evict nobody. ``per-second``: seconds at the price in force, nothing is free; prices evict nobody.
    ``whole-ticks``: every started tick of a trace of availability in full, nothing is free.
    """

    AWS_2009 = "aws-2009"
    AWS_2017 = "aws-2017"
    PER_SECOND = "per-second"
    WHOLE_TICKS = "whole-ticks"

    @property
    def has_bids(self) -> bool:
        """Whether a price above the bid evicts."""
        return self is Billing.AWS_2009

    @property
    def text(self) -> str:
        """What the rule is, in a phrase."""
        return {
            Billing.AWS_2009: "every started hour at the price of its start, the hour of an eviction free",
            Billing.AWS_2017: "seconds at the price of their hour's start, the first hour free if interrupted in it",
            Billing.PER_SECOND: "seconds at the price in force, nothing free",
            Billing.WHOLE_TICKS: "every started tick in full, nothing free",
        }[self]


AMAZON = (Billing.AWS_2009, Billing.AWS_2017)
"""Rules of leases on prices, see `lease_lines`; the others are of traces of availability."""


def billing_at(time_s: int) -> Billing:
    """Return the rules in force at Amazon at a time; today's for data without a date."""
    return Billing.AWS_2009 if SPOT_BEGIN_S <= time_s < BIDS_END_S else Billing.AWS_2017


class End(StrEnum):
    """How a lease ended."""

    EVICTED = "evicted"
    RETURNED = "returned"


class Reason(StrEnum):
    """Why a line costs what it does."""

    USED = "used"
    EVICTED_FREE = "evicted: free"
    WRITTEN = "checkpoint written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Instances held from a grant to an end.

    Parameters
    ----------
    market
        Name of the market, or of the type on demand.
    count
        Number of instances.
    granted_s, ended_s
        When they were granted, and when they were returned or the price crossed the bid.
    end
        How it ended.
    """

    market: str
    count: int
    granted_s: int
    ended_s: int
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One line of a bill.

    Parameters
    ----------
    market, count
        Whose instances, and how many.
    begin_s, end_s
        The time that the line is for; a paid hour ends a full hour after its begin even if returned before.
    price_micro
        Micro-dollars an instance-hour; of a checkpoint, which is for no time, those of one.
    amount_micro
        What is charged, whole micro-dollars; 0 for free time.
    reason
        Why.
    """

    market: str
    count: int
    begin_s: int
    end_s: int
    price_micro: int
    amount_micro: int
    reason: Reason

    @property
    def machine_hours(self) -> float:
        """Machine-hours that the line is for."""
        return self.count * (self.end_s - self.begin_s) / HOUR_S


class Prices(Protocol):
    """Tell the price at a time."""

    def price_at(self, time_s: int) -> int | None:
        """Return micro-dollars an instance-hour, None where there is no price yet."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPrice:
    """A price that never changes: on demand."""

    price_micro: int

    def price_at(self, time_s: int) -> int:
        """Return the price."""
        del time_s
        return self.price_micro


def lease_lines(lease: Lease, prices: Prices, billing: Billing) -> tuple[LedgerLine, ...]:
    """Return the bill of a lease by one of Amazon's rules, one line an hour; on demand is a lease that is returned.

    Hour `n` runs from ``granted + n`` to ``granted + n + 1`` and is charged at the market's price at its start, whatever
    the price does later and whatever the bid. Until 2017 every started hour is paid in full, but that in which the price
    crosses the bid is free; a crossing exactly on an hour's boundary lets the new hour never begin: the hour before is
    paid, and none is free. Since then seconds are charged, `MINUTE_S` at least, and nothing of a lease that is evicted
    within its first hour.
    """
    is_hourly, is_evicted = billing is Billing.AWS_2009, lease.end is End.EVICTED
    lease_s = lease.ended_s - lease.granted_s
    is_free = is_evicted and lease_s < HOUR_S
    until = lease.ended_s if is_free or is_hourly or lease_s <= 0 else max(lease.ended_s, lease.granted_s + MINUTE_S)
    lines = []
    for begin in range(lease.granted_s, until, HOUR_S):
        end = min(begin + HOUR_S, until)
        if is_hourly:
            is_free = is_evicted and lease.ended_s < begin + HOUR_S
            end = lease.ended_s if is_free else begin + HOUR_S
        price = _price(prices, lease, begin)
        charge = lease.count * price if is_hourly else _share(lease.count * price, end - begin)
        lines.append(
            LedgerLine(
                market=lease.market,
                count=lease.count,
                begin_s=begin,
                end_s=end,
                price_micro=price,
                amount_micro=0 if is_free else charge,
                reason=Reason.EVICTED_FREE if is_free else Reason.USED,
            )
        )
    return tuple(lines)


def to_usd(micro: int) -> float:
    """Return micro-dollars as dollars."""
    return micro / MICRO


def _share(hour_micro: int, seconds: int) -> int:
    """Return the charge of a part of an hour, rounded half up to a whole micro-dollar."""
    return (2 * hour_micro * seconds + HOUR_S) // (2 * HOUR_S)


def _price(prices: Prices, lease: Lease, time_s: int) -> int:
    price = prices.price_at(time_s)
    if price is None:
        raise InvalidProblemError(f"{lease.market} has no price at {time_s}; lease it later")
    return price


MAX_UNITS = 2**57
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
    stay: Allocation

    def price_at(self, time_s: int) -> int:
        """Return micro-dollars an hour."""
        if not self.stay.is_spot:
            return int(self.market.on_demand_micro[self.stay.zone])
        return int(self.market.spot_micro[self.first + time_s // self.market.tick_s, self.stay.zone])


def bill_stay(market: ZoneMarket, job: ZoneJob, first: int, stay: Allocation, billing: Billing) -> StayBill:
    """Return what a stay of a job that starts at tick `first` is billed."""
    prices = _PlacePrices(market, first, stay)
    if billing in AMAZON:
        lease = Lease(
            market=market.zones[stay.zone],
            count=job.machines,
            granted_s=stay.begin_s,
            ended_s=stay.end_s,
            end=End.EVICTED if stay.is_lost else End.RETURNED,
        )
        lines = lease_lines(lease, prices, billing)
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


def charged_hours(lease_s: int, billing: Billing, *, is_evicted: bool) -> list[int]:
    """Return the seconds charged of each hour of a lease, without a ledger: a second derivation of its bill."""
    if billing is Billing.AWS_2009:
        return [HOUR_S] * (lease_s // HOUR_S if is_evicted else -(-lease_s // HOUR_S))
    if is_evicted and lease_s < HOUR_S:
        return []
    return [min(HOUR_S, max(lease_s, MINUTE_S) - begin) for begin in range(0, lease_s, HOUR_S)]


def invoice(market: ZoneMarket, job: ZoneJob, first: int, stay: Allocation, billing: Billing) -> int:
    """Return the units of a stay added up piece by piece, without a ledger."""
    price = _PlacePrices(market, first, stay).price_at
    if billing in AMAZON:
        charged = charged_hours(stay.end_s - stay.begin_s, billing, is_evicted=stay.is_lost)
        return job.machines * sum(price(stay.begin_s + n * HOUR_S) * seconds for n, seconds in enumerate(charged))
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
    if ticks * (dearest * tick_s + HOUR_S * int(job.move_micro.max())) > MAX_UNITS:
        raise InvalidProblemError(
            f"{job.machines} machines at {dearest / job.machines / 1e6:g} dollars an hour may cost more than can be counted "
            f"exactly, {MAX_UNITS // UNITS_USD} dollars; give fewer machines, lower prices or a nearer deadline"
        )
    is_aws = billing in AMAZON
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
