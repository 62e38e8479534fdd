"""Compiled: how long after its submission each job would end if it paid for its GPUs, and which time it would buy.

Times are whole microseconds and are subtracted as such, so that nothing is lost where submissions lie years apart.
"""

import heapq

import numpy as np

from optim.core.compile_cache import compiled

SECOND = 1e6
SPARE = 1e-9
"""Seconds left out that are none, as a part of the job's run time."""


@compiled
def best_ends(release, duration, width, edge, first, price, best, flow):
    """Find for each job the flow time F that minimises ``F + w x cost of the cheapest d seconds in [r, r + F]``.

    Time goes on slot by slot; the dearest time bought so far is exchanged for cheaper time of the slot, so that the value
    falls and rises with F in convex pieces. `edge` holds the slots' ends after a 0, `first` each job's first slot; values
    and flow times are in seconds.
    """
    last = len(price)
    for job in range(len(release)):
        r, gpus = release[job], width[job]
        left = duration[job] / SECOND
        bought = [(0.0, 0.0)]
        bought.pop()
        at, now, cost = first[job], 0.0, 0.0
        while left > 0:
            now_price = price[at] if at < last else 0.0
            upto = (edge[at + 1] - r) / SECOND if at < last else np.inf  # so that all that is left is bought
            x = min(left, upto - now)
            heapq.heappush(bought, (-now_price, x))
            cost += x * now_price
            left -= x
            now += x
            if now >= upto:
                at += 1
        value, when = now + gpus * cost, now
        while at < last and now < value and bought[0][0] < 0:
            upto, now_price = (edge[at + 1] - r) / SECOND, price[at]
            while now < upto and -bought[0][0] > now_price:
                dear, amount = heapq.heappop(bought)
                x = min(amount, upto - now)
                cost -= x * (-dear - now_price)
                now += x
                if amount > x:
                    heapq.heappush(bought, (dear, amount - x))
                heapq.heappush(bought, (-now_price, x))
                if now + gpus * cost < value:
                    value, when = now + gpus * cost, now
            now = upto
            at += 1
        if at >= last and bought[0][0] < 0:  # free time after the last slot replaces whatever is dear
            now = max(now, (edge[last] - r) / SECOND)
            while bought and bought[0][0] < 0:
                dear, amount = heapq.heappop(bought)
                cost += amount * dear
                now += amount
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
