"""What a footprint costs and does in the coming hour, and with each candidate added: compiled, for it is asked every tick.

Offers are what can be leased: each market, and each type on demand, which nobody takes away. A footprint's cost is the
sum over its leases; its work loses the overheads of a planned change and of evictions, which are nested within a market
and independent across markets.
"""

from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.bidding.market.prices import HOUR_S, MINUTE_S

LAST = 60
"""Position of minute 60 in a table by minute."""
MICRO = 1e6
MARGIN = 1e-9
"""Relative; rounding decides nothing."""

OFFER, COUNT, BID, PRICE, LEFT_S, WAIT_S = range(6)
"""Columns of a table of leases: offer, machines, bid and price of the present hour in micro-dollars, what is left of it,
and how long they don't work yet."""


@by_reference
class Offers(NamedTuple):
    """What can be leased.

    Parameters
    ----------
    rate
        Shape (offers,): work of a machine in an hour.
    highest
        Shape (offers,): price on demand in micro-dollars; no bid is above it.
    survival, usable
        Shape (offers, deltas + 1, 61): by bid and minute, and its integral. The last bid is `highest` itself.
    new_risk, new_hours
        Shape (offers, deltas + 1): of a new lease in its first hour, an eviction, and usable time.
    deltas
        Shape (deltas,): the grid of bids above the price.
    """

    rate: FloatArray
    highest: IntArray
    survival: FloatArray
    usable: FloatArray
    new_risk: FloatArray
    new_hours: FloatArray
    deltas: IntArray


@by_reference
class Overheads(NamedTuple):
    """Dollars an hour of what runs anyway, hours that all lose by evictions and by a change, and Amdahl's serial share."""

    fixed_usd: float
    lost_h: float
    change_h: float
    serial: float


class Held(NamedTuple):
    """Dollars of the coming hour; each lease's work rate and usable hours; each offer's risk of an eviction."""

    cost: float
    work: FloatArray
    hours: FloatArray
    risk: FloatArray


@by_reference
class Candidates(NamedTuple):
    """Machines of a candidate, shape (counts,), and how many of each offer may be taken, shape (offers,)."""

    counts: IntArray
    most: IntArray


@by_reference
class Changes(NamedTuple):
    """All changes of price: times and micro-dollars, market after market, and where each market's begin and the last's end."""

    time_s: IntArray
    price: FloatArray
    begins: IntArray


@compiled
def value_leases(leases: IntArray, prices: FloatArray, offers: Offers, fixed_usd: float) -> Held:
    """Return what leases cost and do.

    Parameters
    ----------
    leases
        Shape (leases, 6): see `OFFER` to `WAIT_S`.
    prices
        Shape (offers,): present micro-dollars an hour, NaN where there are none yet.
    offers
        What can be leased.
    fixed_usd
        Added to the cost.
    """
    size = len(leases)
    cost, work, hours, risk = fixed_usd, np.zeros(size), np.zeros(size), np.zeros(len(prices))
    for i in range(size):
        offer, count, left = leases[i, OFFER], leases[i, COUNT], leases[i, LEFT_S]
        price = 0.0 if np.isnan(prices[offer]) else prices[offer]
        row = 0
        while row + 1 < len(offers.deltas) and offers.deltas[row + 1] <= leases[i, BID] - price:
            row += 1
        stays, usable = offers.survival[offer, row], offers.usable[offer, row]
        risk[offer] = max(risk[offer], 1.0 - stays[LAST])
        hours[i] = max(0.0, usable[LAST] - at_second(usable, leases[i, WAIT_S]))
        work[i] = count * offers.rate[offer]
        rest = at_second(stays, left) * leases[i, PRICE] * left
        following = stays[LAST] * price * (HOUR_S - left)
        cost += (rest + following) / MICRO * count / HOUR_S
    return Held(cost, work, hours, risk)


@compiled
def value_each(
    added: Candidates, held: Held, prices: FloatArray, offers: Offers, overheads: Overheads, beat: float
) -> FloatArray:
    """Return the cost per work with each candidate added, shape (offers, deltas + 1, counts).

    It is infinite without work, for bids above the price on demand, for more machines than may be taken, and for some
    candidates that aren't below `beat`, the cost per work without any: machines of which one adds too little work,
    for all the more add less each.
    """
    size, bids = offers.new_risk.shape
    before, after = np.ones(size + 1), np.ones(size + 1)
    for g in range(size):
        before[g + 1] = before[g] * (1.0 - held.risk[g])
        after[size - 1 - g] = after[size - g] * (1.0 - held.risk[size - 1 - g])
    ratio = np.full((size, bids, len(added.counts)), np.inf)
    for g in range(size):
        for d in range(bids):
            bid = prices[g] + offers.deltas[d] if d < bids - 1 else max(prices[g], float(offers.highest[g]))
            if not bid <= offers.highest[g]:
                continue
            stays = before[g] * after[g + 1] * (1.0 - max(offers.new_risk[g, d], held.risk[g]))
            lost = overheads.lost_h * (1.0 - stays) + overheads.change_h
            kept = 0.0
            for i in range(len(held.work)):
                kept += held.work[i] * max(0.0, held.hours[i] - lost)
            own = max(0.0, offers.new_hours[g, d] - lost) * offers.rate[g]
            unit = (1.0 - offers.new_risk[g, d]) * prices[g] / MICRO
            slope = (1.0 - overheads.serial) / (1.0 - overheads.serial + overheads.serial * kept) ** 2
            if unit > beat * own * slope * (1.0 + MARGIN):
                continue
            for n in range(len(added.counts)):
                useful = kept + own * added.counts[n]
                useful = useful / (1.0 - overheads.serial + overheads.serial * useful)
                if useful > 0 and added.counts[n] <= added.most[g]:
                    ratio[g, d, n] = (held.cost + unit * added.counts[n]) / useful
    return ratio


@compiled
def value_held(held: Held, overheads: Overheads, change_h: float) -> float:
    """Return the cost per work of what is held, infinity without work; a change costs so many hours."""
    stays, useful = 1.0, 0.0
    for g in range(len(held.risk)):
        stays *= 1.0 - held.risk[g]
    lost = overheads.lost_h * (1.0 - stays) + change_h
    for i in range(len(held.work)):
        useful += held.work[i] * max(0.0, held.hours[i] - lost)
    useful = useful / (1.0 - overheads.serial + overheads.serial * useful)
    return held.cost / useful if useful > 0 else np.inf


@compiled
def first_improvement(
    begin_s: int,
    step_s: int,
    number: int,
    leases: IntArray,
    changes: Changes,
    added: Candidates,
    offers: Offers,
    overheads: Overheads,
) -> int:
    """Return the position of the first tick at which a candidate lowers the cost per work, their number for none.

    Parameters
    ----------
    begin_s, step_s, number
        The ticks: the first, seconds between them, and how many.
    leases
        As they are at the first tick.
    changes
        Prices of the first offers; the others' are theirs on demand. None later than a tick is looked at for it.
    """
    markets = len(changes.begins) - 1
    prices, now = offers.highest.astype(np.float64), leases.copy()
    step = np.empty(markets, dtype=np.int64)
    for m in range(markets):
        first, last = changes.begins[m], changes.begins[m + 1]
        step[m] = first + np.searchsorted(changes.time_s[first:last], begin_s, side="right")
    for k in range(number):
        for m in range(markets):
            while step[m] < changes.begins[m + 1] and changes.time_s[step[m]] <= begin_s + k * step_s:
                step[m] += 1
            prices[m] = changes.price[step[m] - 1] if step[m] > changes.begins[m] else np.nan
        for i in range(len(leases)):
            now[i, LEFT_S] = (leases[i, LEFT_S] - k * step_s - 1) % HOUR_S + 1
            now[i, WAIT_S] = max(0, leases[i, WAIT_S] - k * step_s)
        held = value_leases(now, prices, offers, overheads.fixed_usd)
        beat = value_held(held, overheads, 0.0)
        if value_each(added, held, prices, offers, overheads, beat).min() < beat:
            return k
    return number


@compiled
def at_second(by_minute: FloatArray, time_s: int) -> float:
    """Return a figure given for every minute of an hour at any second of it, linear in between."""
    time_s = min(max(time_s, 0), HOUR_S)
    minute, rest = time_s // MINUTE_S, time_s % MINUTE_S
    value = float(by_minute[minute])
    return value if rest == 0 else value + rest / MINUTE_S * float(by_minute[minute + 1] - value)
