"""Compiled: earliest deadline first on one machine of all GPUs, until somebody is late."""

import heapq

from optim.core.compile_cache import compiled


@compiled
def overloaded_interval(release, work, deadline, speed):
    """Return an interval (from, to) whose jobs can't all be done within it, (-1, -1) if all deadlines are met.

    Jobs are sorted by release. Whoever is late first, is late behind work of earlier deadlines alone: the interval begins
    where the machine last did something less urgent, or nothing.
    """
    queue = [(0.0, 0, 0.0)]
    queue.pop()
    pieces = [(0.0, 0.0, 0.0)]
    pieces.pop()
    now, at, count = 0.0, 0, len(release)
    while at < count or queue:
        if not queue:
            now = max(now, release[at])
        while at < count and release[at] <= now:
            heapq.heappush(queue, (deadline[at], at, work[at]))
            at += 1
        due, job, left = heapq.heappop(queue)
        until = now + left / speed
        is_cut = at < count and release[at] < until
        if is_cut:
            until = release[at]
        pieces.append((now, until, due))
        left = max(0.0, left - (until - now) * speed)
        now = until
        if is_cut:
            heapq.heappush(queue, (due, job, left))  # the later submission may be more urgent
        elif now > due:
            begin = now
            for piece in range(len(pieces) - 1, -1, -1):
                start, stop, urgency = pieces[piece]
                if urgency > due or stop < begin:
                    break
                begin = start
            return begin, due
    return -1.0, -1.0
