"""Expected cost and work of a set of leases (footprint) in the coming hour, with and without each candidate lease.

The loops are compiled because they run at every tick. Offers are the markets, and each type on demand, which is never
evicted. A footprint's cost is the sum over its leases. A footprint's work loses the overheads of a planned change and of
evictions, which are nested within a market and independent across markets.
"""

from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray
from optim.models.bidding.market.prices import HOUR_S, MINUTE_S

LAST = 60
"""Index of minute 60 in a table by minute."""
MICRO = 1e6
MARGIN = 1e-9
"""Relative tolerance, so that rounding decides no comparison."""

OFFER, COUNT, BID, PRICE, LEFT_S, WAIT_S = range(6)
"""Columns of a table of leases. In order: offer, machines, bid and price of the present hour in micro-dollars, seconds
left of that hour, seconds until the machines work."""


@by_reference
class Offers(NamedTuple):
    """Offers of machines.

    Parameters
    ----------
    rate
        Shape (offers,): work of a machine per hour.
    highest
        Shape (offers,): on-demand price in micro-dollars, the upper limit of bids.
    survival, usable
        Shape (offers, deltas + 1, 61), by bid and minute: probability that a lease survives to the minute, and the
        integral of this probability. The last bid is `highest` itself.
    new_risk, new_hours
        Shape (offers, deltas + 1): probability that a new lease is evicted in its first hour, and its usable hours.
    deltas
        Shape (deltas,): grid of bid margins above the price, in micro-dollars.
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
    """Fixed dollars per hour, hours that all machines lose per eviction and per change, and Amdahl's serial share."""

    fixed_usd: float
    lost_h: float
    change_h: float
    serial: float


class Held(NamedTuple):
    """Value of the present leases in the coming hour.

    The fields are the dollars, each lease's work rate and usable hours, and each offer's eviction risk.
    """

    cost: float
    work: FloatArray
    hours: FloatArray
    risk: FloatArray


@by_reference
class Candidates(NamedTuple):
    """Machine counts to try, shape (counts,), and the maximum number of machines of each offer, shape (offers,)."""

    counts: IntArray
    most: IntArray


@by_reference
class Changes(NamedTuple):
    """All price changes, grouped by market.

    Times, prices in micro-dollars, and index of each market's first change; the last index is the number of all
    changes.
    """

    time_s: IntArray
    price: FloatArray
    begins: IntArray


@compiled
def value_leases(leases: IntArray, prices: FloatArray, offers: Offers, fixed_usd: float) -> Held:
    """Return the value of the present leases.

    Parameters
    ----------
    leases
        Shape (leases, 6): see `OFFER` to `WAIT_S`.
    prices
        Shape (offers,): present micro-dollars per hour, NaN before the first price.
    offers
        Offers of machines.
    fixed_usd
        Fixed dollars per hour, added to the cost.
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

    The cost per work is infinite without work, for bids above the on-demand price, and for more machines than allowed.
    It may also be infinite for candidates that do not improve on `beat`, the cost per work without a candidate: if the
    first machine of an offer adds too little work, further machines add even less.
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
    """Return the cost per work of the present leases, infinity without work; a change loses `change_h` hours."""
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
    """Return the index of the first tick at which a candidate lowers the cost per work; `number` if there is none.

    Parameters
    ----------
    begin_s, step_s, number
        First tick, seconds between ticks, and number of ticks.
    leases
        Leases at the first tick.
    changes
        Prices of the first offers, the markets; the other offers have on-demand prices. A tick uses only changes up to
        its time.
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
    """Return a value tabulated for every minute of an hour at any second, by linear interpolation."""
    time_s = min(max(time_s, 0), HOUR_S)
    minute, rest = time_s // MINUTE_S, time_s % MINUTE_S
    value = float(by_minute[minute])
    return value if rest == 0 else value + rest / MINUTE_S * float(by_minute[minute + 1] - value)
