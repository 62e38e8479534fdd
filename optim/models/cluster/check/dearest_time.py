"""Compiled: a job's least end plus bill, slot by slot from tables of the time it could buy."""

import numpy as np

from optim.core.compile_cache import compiled, inner


@inner
def _insert(prices, seconds, count, price, amount):
    """Add time at a price to a table that is sorted by price."""
    at = count
    while at > 0 and prices[at - 1] > price:
        prices[at], seconds[at] = prices[at - 1], seconds[at - 1]
        at -= 1
    prices[at], seconds[at] = price, amount
    return count + 1


@compiled
def least_bills(release, duration, width, price, slot, most):
    """Return ``min_C (C - r + w x cost of the cheapest d seconds in [r, C])`` of each job, in seconds, and how many steps that took.

    Of more than `most` steps the rest is left out.

    With all time up to the beginning of a slot in the table, an end within the slot replaces bought time that is dearer
    than the slot's price by more than a second of waiting is worth, dearest first.
    """
    last = len(price)
    result = np.empty(len(release))
    prices, seconds = np.empty(last), np.empty(last)
    steps = 0
    for job in range(len(release)):
        r, d, w = release[job], duration[job], width[job]
        count, least = 0, np.inf
        at, now = int(r // slot), r
        while True:
            rate = price[at] if at < last else 0.0
            begin = now
            stop = (at + 1) * slot if at < last else max(now, r) + d
            steps += 2 * count + 1
            if steps > most:
                return result, steps
            # Cheapest time up to `begin`, as far as it goes; what is missing must come from this slot.
            cost, taken, edge, part = 0.0, 0.0, count, 0.0
            for entry in range(count):
                x = min(seconds[entry], d - taken)
                cost += x * prices[entry]
                taken += x
                if taken >= d:
                    edge, part = entry, x
                    break
            missing = d - taken
            room = stop - begin
            if missing <= room:
                x = missing
                bill = cost + missing * rate
                value = begin + x - r + w * bill
                least = min(least, value)
                entry = edge if edge < count else count - 1
                amount = part if edge < count else (seconds[entry] if entry >= 0 else 0.0)
                while entry >= 0 and x < room and w * (prices[entry] - rate) > 1.0:
                    y = min(amount, room - x)
                    bill -= y * (prices[entry] - rate)
                    x += y
                    least = min(least, begin + x - r + w * bill)
                    entry -= 1
                    amount = seconds[entry] if entry >= 0 else 0.0
            if at >= last or stop - r >= least:
                break
            count = _insert(prices, seconds, count, rate, room)
            now = stop
            at += 1
        result[job] = least
    return result, steps
