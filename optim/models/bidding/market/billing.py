"""Billing rules: the cost of a lease line by line, and the bills of machines over zones.

A lease is `count` instances of one market, acquired together at `granted_s` and gone at `ended_s`. Its clock is
anchored at the grant. Every rule is a small object with one method; the lines it returns add up to the bill.
"""

from collections.abc import Iterator
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


class BillingRule(Protocol):
    """Write the bill of a lease."""

    def lines(self, lease: Lease, prices: Prices) -> tuple[LedgerLine, ...]:
        """Return lines that add up to the bill."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPrice:
    """A price that never changes: on demand."""

    price_micro: int

    def price_at(self, time_s: int) -> int:
        """Return the price."""
        del time_s
        return self.price_micro


@dataclass(frozen=True, slots=True)
class HourlySpot:
    """EC2 from 2013 to October 2017: every started hour at the price of its start, the evicted hour free.

    Hour `n` runs from ``granted + n`` to ``granted + n + 1`` and is charged at the market's price at its start,
    whatever the price does later and whatever the bid. The hour in which the price crosses the bid is free. A crossing
    exactly on an hour's boundary lets the new hour never begin: the hour before is paid, and none is free. Instances
    that the user returns owe the started hour in full.
    """

    def lines(self, lease: Lease, prices: Prices) -> tuple[LedgerLine, ...]:
        """Return one line an hour."""
        result = []
        for begin in range(lease.granted_s, lease.ended_s, HOUR_S):
            end = begin + HOUR_S
            is_free = lease.end is End.EVICTED and lease.ended_s < end
            price = _price(prices, lease, begin)
            result.append(
                LedgerLine(
                    market=lease.market,
                    count=lease.count,
                    begin_s=begin,
                    end_s=lease.ended_s if is_free else end,
                    price_micro=price,
                    amount_micro=0 if is_free else lease.count * price,
                    reason=Reason.EVICTED_FREE if is_free else Reason.USED,
                )
            )
        return tuple(result)


@dataclass(frozen=True, slots=True)
class SecondsSpot:
    """EC2 since October 2017: seconds at the price of their hour's start; nothing if evicted in the first `free_s`.

    Parameters
    ----------
    free_s
        A lease that is evicted within so many seconds of its grant is free: an hour at Amazon, a minute at Google.
    least_s
        Fewest seconds that are charged.
    """

    free_s: int = HOUR_S
    least_s: int = MINUTE_S

    def lines(self, lease: Lease, prices: Prices) -> tuple[LedgerLine, ...]:
        """Return one line an hour, the last one cut."""
        if lease.ended_s <= lease.granted_s:
            return ()
        is_free = lease.end is End.EVICTED and lease.ended_s - lease.granted_s < self.free_s
        until = lease.ended_s if is_free else max(lease.ended_s, lease.granted_s + self.least_s)
        reason = Reason.EVICTED_FREE if is_free else Reason.USED
        return tuple(
            LedgerLine(
                market=lease.market,
                count=lease.count,
                begin_s=begin,
                end_s=end,
                price_micro=_price(prices, lease, begin),
                amount_micro=0 if is_free else _share(lease.count * _price(prices, lease, begin), end - begin),
                reason=reason,
            )
            for begin, end in _hours(lease.granted_s, until)
        )


@dataclass(frozen=True, slots=True)
class HourlyOnDemand:
    """On demand before October 2017: every started hour in full."""

    def lines(self, lease: Lease, prices: Prices) -> tuple[LedgerLine, ...]:
        """Return one line an hour."""
        _refuse_eviction(lease)
        return HourlySpot().lines(lease, prices)


@dataclass(frozen=True, slots=True)
class SecondsOnDemand:
    """On demand since October 2017: by the second, a minute at least."""

    least_s: int = MINUTE_S

    def lines(self, lease: Lease, prices: Prices) -> tuple[LedgerLine, ...]:
        """Return one line an hour, the last one cut."""
        _refuse_eviction(lease)
        return SecondsSpot(least_s=self.least_s).lines(lease, prices)


EC2_2013 = HourlySpot()

EC2_TODAY = SecondsSpot()

GCP_LIKE = SecondsSpot(free_s=MINUTE_S)

ON_DEMAND_2013 = HourlyOnDemand()

ON_DEMAND_TODAY = SecondsOnDemand()


def to_usd(micro: int) -> float:
    """Return micro-dollars as dollars."""
    return micro / MICRO


def _hours(begin_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    for begin in range(begin_s, end_s, HOUR_S):
        yield begin, min(begin + HOUR_S, end_s)


def _share(hour_micro: int, seconds: int) -> int:
    """Return the charge of a part of an hour, rounded half up to a whole micro-dollar."""
    return (2 * hour_micro * seconds + HOUR_S) // (2 * HOUR_S)


def _price(prices: Prices, lease: Lease, time_s: int) -> int:
    price = prices.price_at(time_s)
    if price is None:
        raise InvalidProblemError(f"{lease.market} has no price at {time_s}; lease it later")
    return price


def _refuse_eviction(lease: Lease) -> None:
    if lease.end is End.EVICTED:
        raise InvalidProblemError(f"{lease.market} is on demand and can't be evicted; end the lease by returning it")


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


def invoice(market: ZoneMarket, job: ZoneJob, first: int, stay: Allocation, billing: Billing) -> int:
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
    if ticks * (dearest * tick_s + HOUR_S * int(job.move_micro.max())) > MAX_UNITS:
        raise InvalidProblemError(
            f"{job.machines} machines at {dearest / job.machines / 1e6:g} dollars an hour may cost more than can be counted "
            f"exactly, {MAX_UNITS // UNITS_USD} dollars; give fewer machines, lower prices or a nearer deadline"
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
