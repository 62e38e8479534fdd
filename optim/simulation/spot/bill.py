"""The bill of a run, and what checkpoints cost.

The best interval follows from the hazard by age, on a grid of minutes: (B.15) of docs/mathematics/bidding.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import NotAllowedError
from optim.models.bidding.market.billing import (
    EC2_2013,
    EC2_TODAY,
    ON_DEMAND_2013,
    ON_DEMAND_TODAY,
    Billing,
    BillingRule,
    End,
    Lease,
    LedgerLine,
    Prices,
    Reason,
)
from optim.models.bidding.market.prices import HOUR_S, MINUTE_S
from optim.simulation.spot.policies import checkpoint_interval
from optim.simulation.spot.policy import CheckpointCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When to write checkpoints, and what a job then takes.

    Parameters
    ----------
    minutes
        Work before each checkpoint, in order, while nothing is lost.
    expected_h
        Expected hours until the work is done.
    checkpoints
        Number of checkpoints while nothing is lost.
    """

    minutes: tuple[int, ...]
    expected_h: float

    @property
    def checkpoints(self) -> int:
        """Number of checkpoints while nothing is lost: the end of the work is none."""
        return len(self.minutes) - 1


def schedule(
    cumulative: FloatArray, work_min: int, write_min: int, restart_min: int, every_min: int | None = None
) -> Schedule:
    """Return checkpoints and what a job takes with them.

    Parameters
    ----------
    cumulative
        Shape (minutes,): expected losses of a machine up to each minute of its age; beyond the end its last slope goes on.
    work_min, write_min, restart_min
        Minutes of work, to write a checkpoint, and to start again on a new machine.
    every_min
        A checkpoint after so many minutes of work; by default those that take least, by a dynamic programme over age and
        work left, among which no stretch of work is shorter than the writing after it.

    Notes
    -----
    Time and memory grow with the square of `work_min`, the programme's time with its cube.
    """
    most = -(-work_min // (every_min or max(1, write_min)))  # stretches of work: none but the last is shorter
    lasting = _extended(cumulative, work_min + (most - 1) * write_min + 1)
    expected, choice = _expected(lasting, work_min, write_min, restart_min, every_min or 0)
    stretches, left, age = [], work_min, 0
    while left:
        stretches.append(int(choice[left, age]))
        left -= stretches[-1]
        age += stretches[-1] + write_min
    return Schedule(minutes=tuple(stretches), expected_h=float(expected[work_min, 0]) / 60)


def compare_intervals(
    cumulative: FloatArray, work_min: int, cost: CheckpointCost, restart_min: int, mean_s: float
) -> dict[str, Schedule]:
    """Return the schedules by Young, by Daly and by dynamic programming, with what each takes under the same hazard.

    Parameters
    ----------
    cumulative, work_min, restart_min
        As in `schedule`; a restart reads the state besides.
    cost
        Of a checkpoint.
    mean_s
        Mean time to a loss, which is all that Young and Daly know.
    """
    write = max(1, round(cost.write_s / MINUTE_S))
    restart = restart_min + round(cost.read_s / MINUTE_S)
    found = {}
    for name, is_daly in (("young", False), ("daly", True)):
        every_s = min(checkpoint_interval(mean_s, cost.write_s, is_daly=is_daly), work_min * MINUTE_S)
        found[name] = schedule(cumulative, work_min, write, restart, max(1, round(every_s / MINUTE_S)))
    return {**found, "optimal": schedule(cumulative, work_min, write, restart)}


def _extended(cumulative: FloatArray, minutes: int) -> FloatArray:
    """Return expected losses up to so many minutes, the last slope going on."""
    if len(cumulative) >= minutes:
        return cumulative[:minutes]
    slope = float(cumulative[-1] - cumulative[-2])
    return np.concatenate([cumulative, cumulative[-1] + slope * np.arange(1, minutes - len(cumulative) + 1)])


@compiled
def _expected(lasting: FloatArray, work: int, write: int, restart: int, every: int) -> tuple[FloatArray, IntArray]:
    """Return expected minutes by work left and age, and the next stretch of work: the best one where `every` is 0.

    A loss leads to age 0 with the same work left, whose value solves a linear equation of its own.
    """
    ages = len(lasting)
    value, choice = np.zeros((work + 1, ages)), np.zeros((work + 1, ages), np.int64)
    alive = np.exp(-lasting)
    area = np.zeros(ages)
    for a in range(ages - 1):
        area[a + 1] = area[a] + (alive[a] + alive[a + 1]) / 2
    for left in range(1, work + 1):
        least = min(max(1, write), left)
        most = left
        if every > 0:
            least = most = min(every, left)
        for a in range(ages):
            best, taken = np.inf, left
            for s in range(least, most + 1):
                end = min(a + s + (write if s < left else 0), ages - 1)
                stays = alive[end] / alive[a]
                spent = (area[end] - area[a]) / alive[a] + stays * value[left - s, end]
                if a == 0:
                    found = (spent + (1 - stays) * restart) / max(stays, 1e-300)
                else:
                    found = spent + (1 - stays) * (restart + value[left, 0])
                if found < best:
                    best, taken = found, s
            value[left, a], choice[left, a] = best, taken
    return value, choice


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


RULES: Mapping[Billing, tuple[BillingRule, BillingRule]] = {
    Billing.AWS_2009: (EC2_2013, ON_DEMAND_2013),
    Billing.AWS_2017: (EC2_TODAY, ON_DEMAND_TODAY),
}
"""Rules of spot leases and of those on demand; the others are of traces of availability."""


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
        The rule: one of `RULES`.

    Raises
    ------
    NotAllowedError
        If the lines don't add up to what the hours alone come to: a fault of this package.
    """
    lines: list[LedgerLine] = []
    hours = {"on_demand": 0.0, "paid": 0.0, "free": 0.0}
    spot, on_demand = RULES[billing]
    for own in ended:
        bill = (spot if own.is_spot else on_demand).lines(own.lease, own.prices)
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
    held = lease.ended_s - lease.granted_s
    if billing is Billing.AWS_2017:
        if lease.end is End.EVICTED and held < HOUR_S:
            return 0
        charged = [(n, min(HOUR_S, max(held, MINUTE_S) - n * HOUR_S)) for n in range(-(-held // HOUR_S))]
        parts = ((prices.price_at(lease.granted_s + n * HOUR_S) or 0) * seconds for n, seconds in charged)
        return sum((lease.count * part + HOUR_S // 2) // HOUR_S for part in parts)  # each hour to a whole micro-dollar
    hours = held // HOUR_S if lease.end is End.EVICTED else -(-held // HOUR_S)
    return lease.count * sum(prices.price_at(lease.granted_s + n * HOUR_S) or 0 for n in range(hours))
