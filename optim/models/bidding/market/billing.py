"""Billing rules: the bill of a lease line by line, and the bills of machines over zones.

A lease is `count` instances of one market, acquired together at `granted_s` and released at `ended_s`. The hours of a
lease start at the grant. The lines of a lease add up to its bill.
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
"""End of November 2017: before it, prices above the bid evicted instances, and Amazon charged started hours in full."""

SPOT_BEGIN_S = int(datetime(2009, 12, 14, tzinfo=UTC).timestamp())
"""Start of Amazon's spot market; earlier times belong to data without a date."""


class Billing(StrEnum):
    """Rules of billing and eviction."""

    AWS_2009 = "aws-2009"
    """Every started hour is charged at the price of its start, also on demand; the hour of an eviction is free. A price
    above the bid evicts. The default for data before 1 December 2017."""
    AWS_2017 = "aws-2017"
    """Seconds are charged at the price of their hour's start, at least one minute; a lease evicted within its first hour
    is free. The default for later data and for data without a date."""
    PER_SECOND = "per-second"
    """Seconds are charged at the price in force; nothing is free. Only for traces of availability."""
    WHOLE_TICKS = "whole-ticks"
    """Every started tick is charged in full; nothing is free. Only for traces of availability."""

    @property
    def has_bids(self) -> bool:
        """Whether a price above the bid evicts."""
        return self is Billing.AWS_2009

    @property
    def text(self) -> str:
        """Description of the rule in one phrase."""
        return {
            Billing.AWS_2009: "every started hour costs the price at its start; the hour of an eviction is free",
            Billing.AWS_2017: "each second costs the price at the start of its hour; a lease that is evicted in its first hour is free",
            Billing.PER_SECOND: "each second costs the current price; nothing is free",
            Billing.WHOLE_TICKS: "every started tick is paid in full; nothing is free",
        }[self]


AMAZON = (Billing.AWS_2009, Billing.AWS_2017)
"""Rules for leases on price histories, see `lease_lines`; the other rules are for availability traces."""


def billing_at(time_s: int) -> Billing:
    """Return Amazon's rules at a time; the present rules for data without a date."""
    return Billing.AWS_2009 if SPOT_BEGIN_S <= time_s < BIDS_END_S else Billing.AWS_2017


class End(StrEnum):
    """How a lease ended."""

    EVICTED = "evicted"
    RETURNED = "returned"


class Reason(StrEnum):
    """Reason for the amount of a line."""

    USED = "used"
    EVICTED_FREE = "evicted: free"
    WRITTEN = "checkpoint written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Instances leased from a grant to an end.

    Parameters
    ----------
    market
        Name of the market, or of the type on demand.
    count
        Number of instances.
    granted_s
        Time of the grant.
    ended_s
        Time of the return, or of the price's rise above the bid.
    end
        Cause of the lease's end.
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
        Market and number of the instances.
    begin_s, end_s
        Time covered by the line; a paid hour ends a full hour after its begin even if the instances are returned earlier.
    price_micro
        Micro-dollars per instance-hour; for a checkpoint, which covers no time, micro-dollars per checkpoint.
    amount_micro
        Charge in integer micro-dollars; 0 for free time.
    reason
        Reason for the amount.
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
        """Machine-hours covered by the line."""
        return self.count * (self.end_s - self.begin_s) / HOUR_S


class Prices(Protocol):
    """Source of prices by time."""

    def price_at(self, time_s: int) -> int | None:
        """Return the price in micro-dollars per instance-hour, or None before the first price."""
        ...


@dataclass(frozen=True, slots=True)
class FixedPrice:
    """A constant price, such as on demand."""

    price_micro: int

    def price_at(self, time_s: int) -> int:
        """Return the price."""
        del time_s
        return self.price_micro


def lease_lines(lease: Lease, prices: Prices, billing: Billing) -> tuple[LedgerLine, ...]:
    """Return the bill of a lease by one of Amazon's rules, one line per hour; an on-demand lease must end by return.

    Hour `n` begins n hours after the grant and costs the market's price at that time, independent of the bid and later
    prices. Under ``aws-2009`` started hours are paid in full, except that the hour in which the price crosses the bid is
    free. If the price crosses exactly at the end of an hour, that hour is paid and no further hour begins. Under
    ``aws-2017`` seconds are charged, at least `MINUTE_S`; a lease evicted within its first hour is free.
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
    """Return the charge of a part of an hour, rounded half up to an integer number of micro-dollars."""
    return (2 * hour_micro * seconds + HOUR_S) // (2 * HOUR_S)


def _price(prices: Prices, lease: Lease, time_s: int) -> int:
    price = prices.price_at(time_s)
    if price is None:
        raise InvalidProblemError(f"{lease.market} has no price at {time_s}; lease it later")
    return price


MAX_UNITS = 2**57
"""Limit of a job's cost at the highest price; sums stay below 2^58, which represents a missed deadline."""


@dataclass(frozen=True, slots=True)
class StayBill:
    """The cost of a stay (an `Allocation`) in units (see `UNITS_USD`), and its free seconds."""

    units: int
    free_s: int = 0


@dataclass(frozen=True, slots=True)
class _PlacePrices:
    """The prices of spot or on-demand machines in a zone, by seconds since the job's start."""

    market: ZoneMarket
    first: int
    stay: Allocation

    def price_at(self, time_s: int) -> int:
        """Return the price in micro-dollars per hour."""
        if not self.stay.is_spot:
            return int(self.market.on_demand_micro[self.stay.zone])
        return int(self.market.spot_micro[self.first + time_s // self.market.tick_s, self.stay.zone])


def bill_stay(market: ZoneMarket, job: ZoneJob, first: int, stay: Allocation, billing: Billing) -> StayBill:
    """Return the bill of a stay of a job that starts at tick `first`."""
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
        # The amounts of the lines are rounded to micro-dollars, so the exact cost is computed from prices and times.
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
    """Return the charged seconds of each hour of a lease, independently of `lease_lines`."""
    if billing is Billing.AWS_2009:
        return [HOUR_S] * (lease_s // HOUR_S if is_evicted else -(-lease_s // HOUR_S))
    if is_evicted and lease_s < HOUR_S:
        return []
    return [min(HOUR_S, max(lease_s, MINUTE_S) - begin) for begin in range(0, lease_s, HOUR_S)]


def invoice(market: ZoneMarket, job: ZoneJob, first: int, stay: Allocation, billing: Billing) -> int:
    """Return the cost of a stay in units, added up piece by piece, independently of `bill_stay`."""
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
    """Lower bounds of bills by tick and place; a place is a zone with spot or on-demand machines, see `KINDS`.

    Parameters
    ----------
    cost
        Shape (ticks, places): cost of a tick at a place in units.
    has
        Shape (ticks, places): whether machines are available for launch and use.
    is_whole
        Whether the tick in which the job ends is charged in full instead of by seconds.
    free_until
        Shape (ticks, places): the tick at which machines launched in a tick are lost free of charge; the tick of the
        launch if they are not lost free of charge.
    is_exact
        Whether these costs equal bills, so that the bound is attained.
    """

    cost: IntArray
    has: BoolArray
    is_whole: bool
    free_until: IntArray
    is_exact: bool

    def last(self, tick: int, place: int, seconds: IntArray, tick_s: int) -> IntArray:
        """Return the cost in units of the last tick, in which the job ends after the given seconds."""
        cost = self.cost[tick, place]
        return np.broadcast_to(cost, seconds.shape) if self.is_whole else cost // tick_s * seconds


def place_costs(market: ZoneMarket, job: ZoneJob, first: int, billing: Billing) -> PlaceCosts:
    """Return lower bounds of the bills of a job that starts at tick `first`.

    Under ``per-second`` and ``whole-ticks`` these costs are the bill. Under Amazon's rules a second costs at least the
    lowest price within the hour before it, because its billing hour started within that time. Machines lost within their first hour
    (``aws-2017``), and the last started hour before a loss (``aws-2009``), are free.

    Raises
    ------
    InvalidProblemError
        If the traces don't cover the job's time, the numbers of zones differ, or costs may exceed 64 bits.
    """
    ticks, tick_s = job.num_ticks(market.tick_s), market.tick_s
    if first < 0 or first + ticks > len(market):
        raise InvalidProblemError(f"the traces end before the deadline of a job that starts at tick {first}")
    if job.setup_s.shape[1] != market.num_zones:
        raise InvalidProblemError(
            f"the job has set-up times for {job.setup_s.shape[1]} zones, but the market has {market.num_zones}"
        )
    spot, there = market.spot_micro[first : first + ticks], market.is_available[first : first + ticks]
    highest = int(max(spot.max(), market.on_demand_micro.max())) * int(job.machines)
    if ticks * (highest * tick_s + HOUR_S * int(job.move_micro.max())) > MAX_UNITS:
        raise InvalidProblemError(
            f"{job.machines} machines at {highest / job.machines / 1e6:g} dollars per hour may cost more than the exact limit of "
            f"{MAX_UNITS // UNITS_USD} dollars; give fewer machines, lower prices or an earlier deadline"
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
