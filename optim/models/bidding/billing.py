"""Billing rules: what a lease of instances costs, line by line.

A lease is `count` instances of one market, acquired together at `granted_s` and gone at `ended_s`. Its clock is
anchored at the grant. Every rule is a small object with one method; the lines it returns add up to the bill.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from optim.core.errors import InvalidProblemError
from optim.models.bidding.price_history import HOUR_S, MICRO

MINUTE_S = 60


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
