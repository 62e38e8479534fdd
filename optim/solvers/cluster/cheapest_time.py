"""Compiled: how long after its submission each job would end if it paid for its GPUs, and which time it would buy.

Times are whole microseconds and are subtracted as such, so that nothing is lost where submissions lie years apart.
"""

import heapq

import numpy as np

from optim.core.compile_cache import compiled, inner

SECOND = 1e6
SPARE = 1e-9
"""Seconds left out that are none, as a part of the job's run time."""


@inner
def _push(prices, seconds, count, price, amount):
    """Add time at a price to a heap, the dearest first, of so many entries."""
    at = count
    while at > 0:
        above = (at - 1) // 2
        if prices[above] >= price:
            break
        prices[at], seconds[at] = prices[above], seconds[above]
        at = above
    prices[at], seconds[at] = price, amount


@inner
def _pop(prices, seconds, count):
    """Remove the dearest of so many entries from a heap."""
    price, amount, at = prices[count - 1], seconds[count - 1], 0
    while 2 * at + 1 < count - 1:
        below = 2 * at + 1
        if below + 1 < count - 1 and prices[below + 1] > prices[below]:
            below += 1
        if prices[below] <= price:
            break
        prices[at], seconds[at] = prices[below], seconds[below]
        at = below
    prices[at], seconds[at] = price, amount


@compiled
def best_ends(release, duration, width, edge, first, price, best, flow):
    """Find for each job the flow time F that minimises ``F + w x cost of the cheapest d seconds in [r, r + F]``.

    Time goes on slot by slot; the dearest time bought so far is exchanged for cheaper time of the slot, so that the value
    falls and rises with F in convex pieces. `edge` holds the slots' ends after a 0, `first` each job's first slot; values
    and flow times are in seconds.
    """
    last = len(price)
    prices, seconds = np.empty(last + 1), np.empty(last + 1)  # a heap: an entry a slot, two of that of the first end
    for job in range(len(release)):
        r, gpus = release[job], width[job]
        left = duration[job] / SECOND
        at, now, cost, count = first[job], 0.0, 0.0, 0
        while left > 0:
            now_price = price[at] if at < last else 0.0
            upto = (edge[at + 1] - r) / SECOND if at < last else np.inf  # so that all that is left is bought
            x = min(left, upto - now)
            _push(prices, seconds, count, now_price, x)
            count += 1
            cost += x * now_price
            left -= x
            now += x
            if now >= upto:
                at += 1
        value, when = now + gpus * cost, now
        while at < last and now < value and prices[0] > 0:
            upto, now_price, new = (edge[at + 1] - r) / SECOND, price[at], 0.0
            while count > 0 and now < upto and prices[0] > now_price:
                x = min(seconds[0], upto - now)
                cost -= x * (prices[0] - now_price)
                now += x
                new += x
                if seconds[0] > x:
                    seconds[0] -= x
                else:
                    _pop(prices, seconds, count)
                    count -= 1
                if now + gpus * cost < value:
                    value, when = now + gpus * cost, now
            if new > 0:
                _push(prices, seconds, count, now_price, new)
                count += 1
            now = upto
            at += 1
        if at >= last and prices[0] > 0:  # free time after the last slot replaces whatever is dear
            now = max(now, (edge[last] - r) / SECOND)
            while count > 0 and prices[0] > 0:
                cost -= seconds[0] * prices[0]
                now += seconds[0]
                _pop(prices, seconds, count)
                count -= 1
                if now + gpus * cost < value:
                    value, when = now + gpus * cost, now
        best[job], flow[job] = value, when


@compiled
def use_of_slots(release, duration, width, edge, first, price, flow, use):
    """Add up which GPU-seconds the jobs buy: the cheapest of each within its flow time, early ones first at equal price."""
    last = len(price)
    for job in range(len(release)):
        r, end = release[job], flow[job]
        spare = end - duration[job] / SECOND
        is_spare = spare > SPARE * end
        left_out = [(0.0, 0, 0.0)]
        left_out.pop()
        at, now = first[job], 0.0
        while at < last and now < end:
            x = min((edge[at + 1] - r) / SECOND, end) - now
            use[at] += width[job] * x
            if is_spare:
                heapq.heappush(left_out, (-price[at], -at, x))
            now += x
            at += 1
        while is_spare and spare > 0 and left_out:
            _, minus_at, x = heapq.heappop(left_out)
            x = min(x, spare)
            use[-minus_at] -= width[job] * x
            spare -= x


@compiled
def purchases(release, duration, width, edge, first, price, flow):
    """Return what one job of each kind buys: kinds, slots and GPU-seconds, sorted by kind."""
    room = 0
    for job in range(len(release)):
        at = first[job]
        while at < len(price) and (edge[at] - release[job]) / SECOND < flow[job]:
            at += 1
        room += at - first[job]
    kind, slot, amount = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    use, filled = np.zeros(len(price)), 0
    for job in range(len(release)):
        one = slice(job, job + 1)
        use_of_slots(release[one], duration[one], width[one], edge, first[one], price, flow[one], use)
        at = first[job]
        while at < len(price) and (edge[at] - release[job]) / SECOND < flow[job]:
            if use[at] > 0:
                kind[filled], slot[filled], amount[filled] = job, at, use[at]
                filled += 1
            use[at] = 0.0
            at += 1
    return kind[:filled], slot[:filled], amount[:filled]
