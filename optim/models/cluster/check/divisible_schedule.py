"""Compiled: a schedule of divisible gangs by a rule of priority. The checker's own."""

import numpy as np

from optim.core.compile_cache import compiled


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
    queue, key, rate = np.empty(count, np.int64), np.empty(count), np.empty(count)
    now, upcoming, waiting, running, steps = 0, 0, 0, 0, 0
    while (upcoming < count or waiting > 0) and steps <= most:
        if waiting == 0:
            now = max(now, release[upcoming])
        for place in range(1, running):  # work left has changed for those that ran alone
            job, at = queue[place], place
            while at > 0 and key[queue[at - 1]] > key[job]:
                queue[at] = queue[at - 1]
                at -= 1
                steps += 1
            queue[at] = job
        while upcoming < count and release[upcoming] <= now:
            key[upcoming] = width[upcoming] * left[upcoming] if is_by_work else float(start[upcoming])
            at = waiting
            while at > 0 and key[queue[at - 1]] > key[upcoming]:
                queue[at] = queue[at - 1]
                at -= 1
                steps += 1
            queue[at] = upcoming
            waiting += 1
            upcoming += 1
        free, running = gpus, 0
        step = release[upcoming] - now if upcoming < count else 2**62
        while running < waiting and free > 0.0:
            job = queue[running]
            rate[job] = min(width[job], free)
            free -= rate[job]
            until_done = np.ceil(left[job] * (width[job] / rate[job]))
            step = max(1, int(until_done)) if until_done < step else step
            running += 1
        now += step
        kept = 0
        for place in range(running):
            job = queue[place]
            left[job] -= step * (rate[job] / width[job])
            key[job] = width[job] * left[job] if is_by_work else key[job]
            if left[job] <= 0.0:
                flow[job] = now - release[job]
            else:
                queue[kept] = job
                kept += 1
        if kept < running:
            for place in range(running, waiting):
                queue[kept + place - running] = queue[place]
            steps += waiting - running
        waiting -= running - kept
        steps += running + 1
        running = kept
    return flow, steps
