"""Compiled: when each job would end if it paid for its GPUs, and which time it would buy."""

import heapq

from optim.core.compile_cache import compiled


@compiled
def best_ends(release, duration, width, price, slot, best, end):
    """Find for each job the end C that minimises ``C - r + w x cost of the cheapest d seconds in [r, C]``.

    Time goes on slot by slot; the dearest time bought so far is exchanged for cheaper time of the slot, so that the value
    falls and rises with C in convex pieces. All in seconds.
    """
    last = len(price)
    for job in range(len(release)):
        start, left, gpus = release[job], duration[job], width[job]
        bought = [(0.0, 0.0)]
        bought.pop()
        at, now, cost = int(start // slot), start, 0.0
        while left > 0:
            now_price = price[at] if at < last else 0.0
            upto = (at + 1) * slot if at < last else now + left
            x = min(left, upto - now)
            heapq.heappush(bought, (-now_price, x))
            cost += x * now_price
            left -= x
            now += x
            if now >= upto:
                at += 1
        value, when = now - start + gpus * cost, now
        while at < last and now - start < value and cost > 0:
            upto, now_price = (at + 1) * slot, price[at]
            while now < upto and -bought[0][0] > now_price:
                dear, amount = heapq.heappop(bought)
                x = min(amount, upto - now)
                cost -= x * (-dear - now_price)
                now += x
                if amount > x:
                    heapq.heappush(bought, (dear, amount - x))
                heapq.heappush(bought, (-now_price, x))
                if now - start + gpus * cost < value:
                    value, when = now - start + gpus * cost, now
            now = upto
            at += 1
        if at >= last and cost > 0:  # free time after the last slot replaces whatever is dear
            now = max(now, last * slot)
            while bought and bought[0][0] < 0:
                dear, amount = heapq.heappop(bought)
                cost += amount * dear
                now += amount
                if now - start + gpus * cost < value:
                    value, when = now - start + gpus * cost, now
        best[job], end[job] = value, when


@compiled
def use_of_slots(release, duration, width, end, price, slot, use):
    """Add up which GPU-time the jobs buy: the cheapest seconds of each within [r, C], early ones first at equal price."""
    last = len(price)
    for job in range(len(release)):
        first = int(release[job] // slot)
        spare = end[job] - release[job] - duration[job]
        stop = min(last, int(end[job] // slot) + 1)
        if spare <= 0:
            for at in range(first, stop):
                x = min((at + 1) * slot, end[job]) - max(at * slot, release[job])
                if x > 0:
                    use[at] += width[job] * x
            continue
        left_out = [(0.0, 0, 0.0)]
        left_out.pop()
        for at in range(first, stop):
            x = min((at + 1) * slot, end[job]) - max(at * slot, release[job])
            if x > 0:
                use[at] += width[job] * x
                heapq.heappush(left_out, (-price[at], -at, x))
        while spare > 0 and left_out:
            _, minus_at, x = heapq.heappop(left_out)
            x = min(x, spare)
            use[-minus_at] -= width[job] * x
            spare -= x
