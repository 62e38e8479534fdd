"""Compiled: a schedule of divisible gangs by a rule of priority. The checker's own."""

import heapq

import numpy as np

from optim.core.compile_cache import compiled

COSTLY = 50
"""Steps of a loop like this one for each job that it looks at."""


@compiled
def flow_times(release, duration, width, gpus, start, most):
    """Return how long after its release each job ends, in whole microseconds rounded up, and how many steps that took.

    At every release and end the GPUs go to the jobs in their order, each as many as it can use, the last one what is left; a job
    advances in proportion. Of more than `most` steps the rest is left out.

    Parameters
    ----------
    release, duration, width
        Jobs by their release in microseconds; widths may be fractions.
    start
        The smaller, the earlier a job's turn; with none at all those with the least work left come first.
    """
    count, is_by_work = len(release), len(start) == 0
    left, flow = duration.astype(np.float64), np.zeros(count)
    key, rate = np.empty(count), np.empty(count)
    run, chosen = np.empty(count, np.int64), np.empty(count, np.int64)
    waiting = [(0.0, 0)]
    waiting.pop()
    now, upcoming, running, steps = 0, 0, 0, 0
    while (upcoming < count or running > 0 or len(waiting) > 0) and steps <= most:
        if running == 0 and len(waiting) == 0:
            now = max(now, release[upcoming])
        for place in range(1, running):  # work left has changed for those that ran alone
            job, at = run[place], place
            while at > 0 and key[run[at - 1]] > key[job] and steps <= most:
                run[at] = run[at - 1]
                at -= 1
                steps += COSTLY
            run[at] = job
        while upcoming < count and release[upcoming] <= now:
            key[upcoming] = width[upcoming] * left[upcoming] if is_by_work else float(start[upcoming])
            heapq.heappush(waiting, (key[upcoming], upcoming))
            upcoming += 1
        free, place, taken = gpus, 0, 0
        step = release[upcoming] - now if upcoming < count else 2**62
        while free > 0.0 and (place < running or len(waiting) > 0):
            if place < running and (len(waiting) == 0 or key[run[place]] <= waiting[0][0]):
                job = run[place]
                place += 1
            else:
                job = heapq.heappop(waiting)[1]
            rate[job] = min(width[job], free)
            free -= rate[job]
            until_done = np.ceil(left[job] * (width[job] / rate[job]))
            step = max(1, int(until_done)) if until_done < step else step
            chosen[taken] = job
            taken += 1
        for rest in range(place, running):
            heapq.heappush(waiting, (key[run[rest]], run[rest]))
        now += step
        steps += COSTLY * (running + taken + 1)
        running = 0
        for at in range(taken):
            job = chosen[at]
            left[job] -= step * (rate[job] / width[job])
            key[job] = width[job] * left[job] if is_by_work else key[job]
            if left[job] <= 0.0:
                flow[job] = now - release[job]
            else:
                run[running] = job
                running += 1
    return flow, steps
