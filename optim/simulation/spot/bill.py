"""The bill of a run, added up twice."""

from collections.abc import Sequence
from dataclasses import dataclass

from optim.core.errors import NotAllowedError
from optim.models.bidding.market.billing import (
    Billing,
    End,
    Lease,
    LedgerLine,
    Prices,
    Reason,
    charged_hours,
    lease_lines,
)
from optim.models.bidding.market.prices import HOUR_S


@dataclass(frozen=True, slots=True)
class EndedLease:
    """A lease that is over, the prices it is charged at, and whether it was a spot lease."""

    lease: Lease
    prices: Prices
    is_spot: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Lines and their sum in micro-dollars, and machine-hours on demand, of spot machines paid for, and free."""

    lines: tuple[LedgerLine, ...]
    cost_micro: int
    on_demand_hours: float
    paid_hours: float
    free_hours: float


def bill_of(
    ended: Sequence[EndedLease],
    written_s: Sequence[int] = (),
    write_micro: int = 0,
    billing: Billing = Billing.AWS_2009,
) -> Bill:
    """Return the bill of leases, and of checkpoints.

    Parameters
    ----------
    ended
        The leases.
    written_s, write_micro
        When checkpoints were complete, and micro-dollars of each; those that cost nothing are no lines.
    billing
        The rule: one of `AMAZON`.

    Raises
    ------
    NotAllowedError
        If the lines don't add up to what the hours alone come to: a fault of this package.
    """
    lines: list[LedgerLine] = []
    hours = {"on_demand": 0.0, "paid": 0.0, "free": 0.0}
    for own in ended:
        bill = lease_lines(own.lease, own.prices, billing)
        lines += bill
        for line in bill:
            kind = "free" if line.reason is Reason.EVICTED_FREE else "paid"
            hours[kind if own.is_spot else "on_demand"] += line.machine_hours
    lines += [_written(time_s, write_micro) for time_s in written_s if write_micro]
    cost = sum(line.amount_micro for line in lines)
    invoice = sum(_invoice(own.lease, own.prices, billing) for own in ended) + len(written_s) * write_micro
    if cost != invoice:
        raise NotAllowedError(f"the ledger adds up to {cost} micro-dollars, the invoice to {invoice}; report this")
    return Bill(
        lines=tuple(lines),
        cost_micro=cost,
        on_demand_hours=hours["on_demand"],
        paid_hours=hours["paid"],
        free_hours=hours["free"],
    )


def _written(time_s: int, write_micro: int) -> LedgerLine:
    """Return the line of a checkpoint: no machine's time, but a write."""
    return LedgerLine(
        market="storage",
        count=1,
        begin_s=time_s,
        end_s=time_s,
        price_micro=write_micro,
        amount_micro=write_micro,
        reason=Reason.WRITTEN,
    )


def _invoice(lease: Lease, prices: Prices, billing: Billing) -> int:
    """Return the bill of a lease added up by hours, without a ledger."""
    charged = charged_hours(lease.ended_s - lease.granted_s, billing, is_evicted=lease.end is End.EVICTED)
    parts = (seconds * (prices.price_at(lease.granted_s + n * HOUR_S) or 0) for n, seconds in enumerate(charged))
    return sum((lease.count * part + HOUR_S // 2) // HOUR_S for part in parts)  # each hour to a whole micro-dollar
