"""What a footprint costs and does in the coming hour, and with each candidate added: compiled, for it is asked every tick.

Goods are what can be leased: each market, and each type on demand, which nobody takes away. A footprint's cost is the
sum over its leases; its work loses the overheads of a planned change and of evictions, which are nested within a market
and independent across markets.
"""

import numpy as np

from optim.core.compile_cache import compiled
from optim.models.bidding.instance import FloatArray, IntArray

HOUR_S = 3600
MINUTE_S = 60
LAST = 60
"""Position of minute 60 in a table by minute."""
MICRO = 1e6

GOOD, COUNT, BID, PRICE, LEFT_S, WAIT_S = range(6)
"""Columns of a table of leases: good, machines, bid and price of the present hour in micro-dollars, what is left of it,
and how long they don't work yet."""


@compiled
def value_leases(
    leases: IntArray, prices: FloatArray, survival: FloatArray, usable: FloatArray, deltas: IntArray, rate: FloatArray
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Return dollars of the coming hour, each lease's work rate and usable hours, and each good's risk of an eviction.

    Parameters
    ----------
    leases
        Shape (leases, 6): see `GOOD` to `WAIT_S`.
    prices, rate
        Shape (goods,): present micro-dollars an hour, NaN where there are none yet, and work of a machine in an hour.
    survival, usable
        Shape (goods, deltas + 1, 61): by bid and minute, and its integral.
    deltas
        Shape (deltas,): the grid of bids above the price.
    """
    size = len(leases)
    cost, work, hours, risk = 0.0, np.zeros(size), np.zeros(size), np.zeros(len(prices))
    for i in range(size):
        good, count, left = leases[i, GOOD], leases[i, COUNT], leases[i, LEFT_S]
        price = 0.0 if np.isnan(prices[good]) else prices[good]
        row = 0
        while row + 1 < len(deltas) and deltas[row + 1] <= leases[i, BID] - price:
            row += 1
        stays = survival[good, row]
        risk[good] = max(risk[good], 1.0 - stays[LAST])
        hours[i] = max(0.0, usable[good, row, LAST] - at_second(usable[good, row], leases[i, WAIT_S]))
        work[i] = count * rate[good]
        rest = at_second(stays, left) * leases[i, PRICE] * left
        following = stays[LAST] * price * (HOUR_S - left)
        cost += (rest + following) / MICRO * count / HOUR_S
    return cost, work, hours, risk


@compiled
def value_each(
    counts: IntArray,
    most: IntArray,
    cost: float,
    work: FloatArray,
    hours: FloatArray,
    risk: FloatArray,
    prices: FloatArray,
    highest: IntArray,
    rate: FloatArray,
    new_risk: FloatArray,
    new_hours: FloatArray,
    deltas: IntArray,
    lost_h: float,
    change_h: float,
    serial: float,
) -> FloatArray:
    """Return the cost per work with each candidate added, shape (goods, deltas + 1, counts).

    It is infinite without work, for bids above `highest`, and for more machines than `most`.

    Parameters
    ----------
    counts
        Shape (counts,): machines of a candidate.
    most
        Shape (goods,): how many may be taken.
    cost, work, hours, risk
        What `value_leases` returned.
    prices, highest, rate
        Shape (goods,): present price, price on demand, work of a machine. The last bid is `highest` itself.
    new_risk, new_hours
        Shape (goods, deltas + 1): of a new lease in its first hour.
    deltas
        Shape (deltas,): the grid.
    lost_h, change_h
        Hours that all lose by evictions, and by the change.
    serial
        Amdahl's serial share.
    """
    size, bids = new_risk.shape
    before, after = np.ones(size + 1), np.ones(size + 1)
    for g in range(size):
        before[g + 1] = before[g] * (1.0 - risk[g])
        after[size - 1 - g] = after[size - g] * (1.0 - risk[size - 1 - g])
    ratio = np.full((size, bids, len(counts)), np.inf)
    for g in range(size):
        for d in range(bids):
            bid = prices[g] + deltas[d] if d < bids - 1 else max(prices[g], float(highest[g]))
            if not bid <= highest[g]:
                continue
            stays = before[g] * after[g + 1] * (1.0 - max(new_risk[g, d], risk[g]))
            lost = lost_h * (1.0 - stays) + change_h
            held = 0.0
            for i in range(len(work)):
                held += work[i] * max(0.0, hours[i] - lost)
            own = max(0.0, new_hours[g, d] - lost) * rate[g]
            unit = (1.0 - new_risk[g, d]) * prices[g] / MICRO
            for n in range(len(counts)):
                useful = held + own * counts[n]
                useful = useful / (1.0 - serial + serial * useful)
                if useful > 0 and counts[n] <= most[g]:
                    ratio[g, d, n] = (cost + unit * counts[n]) / useful
    return ratio


@compiled
def value_held(
    cost: float, work: FloatArray, hours: FloatArray, risk: FloatArray, lost_h: float, change_h: float, serial: float
) -> float:
    """Return the cost per work of what `value_leases` returned, infinity without work."""
    stays, useful = 1.0, 0.0
    for g in range(len(risk)):
        stays *= 1.0 - risk[g]
    lost = lost_h * (1.0 - stays) + change_h
    for i in range(len(work)):
        useful += work[i] * max(0.0, hours[i] - lost)
    useful = useful / (1.0 - serial + serial * useful)
    return cost / useful if useful > 0 else np.inf


@compiled
def at_second(by_minute: FloatArray, time_s: int) -> float:
    """Return a figure given for every minute of an hour at any second of it, linear in between."""
    time_s = min(max(time_s, 0), HOUR_S)
    minute, rest = time_s // MINUTE_S, time_s % MINUTE_S
    value = float(by_minute[minute])
    return value if rest == 0 else value + rest / MINUTE_S * float(by_minute[minute + 1] - value)
