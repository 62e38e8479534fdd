"""Compiled: a job's least end plus bill, slot by slot from a table of the cheapest time that it could buy.

The checker's own. Times are whole microseconds after the job's submission, subtracted before they become seconds.
"""

import numpy as np

from optim.core.compile_cache import compiled, inner

SECOND = 1e6


@inner
def _keep_cheapest(prices, seconds, count, price, amount, most):
    """Add time at a price to a table that is sorted by price, and cut it after so many seconds, which are all that one needs."""
    at = count
    while at > 0 and prices[at - 1] > price:
        prices[at], seconds[at] = prices[at - 1], seconds[at - 1]
        at -= 1
    prices[at], seconds[at] = price, amount
    total, kept = 0.0, 0
    while kept < count + 1 and total < most:
        seconds[kept] = min(seconds[kept], most - total)
        total += seconds[kept]
        kept += 1
    return kept


@inner
def _least_within(prices, seconds, count, need, w, begin, room, rate):
    """Return the least end plus bill if the job ends within a slot of some price, infinity if it can't.

    What the table doesn't give must come from the slot; then bought time that is dearer than the slot's by more than a second
    of waiting is worth is replaced, dearest first.
    """
    cost, taken = 0.0, 0.0
    for entry in range(count):
        cost += seconds[entry] * prices[entry]
        taken += seconds[entry]
    x = max(0.0, need - taken)
    if x > room:
        return np.inf
    bill = cost + x * rate
    least = begin + x + w * bill
    entry = count - 1
    while entry >= 0 and x < room and w * (prices[entry] - rate) > 1.0:
        y = min(seconds[entry], room - x)
        bill -= y * (prices[entry] - rate)
        x += y
        least = min(least, begin + x + w * bill)
        entry -= 1
    return least


@compiled
def least_bills(release, duration, width, end, price, most):
    """Return ``min_C (C - r + w x cost of the cheapest d seconds in [r, C])`` of each job, in seconds, and how many steps that took.

    Of more than `most` steps the rest is left out. `release`, `duration` and the slots' ends are in microseconds; the price is 0 after the last slot.
    """
    last = len(price)
    result = np.empty(len(release))
    prices, seconds = np.empty(last + 1), np.empty(last + 1)
    steps = 0
    for job in range(len(release)):
        r, need, w = release[job], duration[job] / SECOND, width[job]
        at, count, begin, least = np.searchsorted(end, r, side="right"), 0, 0.0, np.inf
        while at < last and begin < least:
            steps += 2 * count + 1
            if steps > most:
                return result, steps
            stop = (end[at] - r) / SECOND
            least = min(least, _least_within(prices, seconds, count, need, w, begin, stop - begin, price[at]))
            count = _keep_cheapest(prices, seconds, count, price[at], stop - begin, need)
            begin = stop
            at += 1
        if begin < least:
            least = min(least, _least_within(prices, seconds, count, need, w, begin, need, 0.0))
        result[job] = least
    return result, steps
