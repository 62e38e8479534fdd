"""Compiled: a schedule of divisible gangs, whose mean flow time no prices' bound exceeds, and prices that follow from it.

A job may run on any part of its gang here, and in proportion slower. A job whose rate is x(t) <= 1 and adds up to its
run time by its end is a mixture of schedules of the whole gang that end no later, so that (D.1) holds for it, too.
"""

import heapq

import numpy as np

from optim.core.compile_cache import compiled, inner

NONE_FREE, NEARLY_DONE = 1e-9, 1e-6
"""GPUs, and microseconds of work, that are rounding."""


@inner
def _fill(waiting, free, width, run, rate, count):
    """Let those that wait run, most urgent first, the last on what is left; return the GPUs left and the number that runs."""
    while len(waiting) > 0 and free > NONE_FREE:
        job = heapq.heappop(waiting)[1]
        run[count], rate[count] = job, min(width[job], free)
        free -= rate[count]
        count += 1
    return free, count


@inner
def _worst(run, rate, count, key, left, is_by_work):
    """Return the least urgent that runs: its place and its key."""
    at, most = -1, -1.0
    for place in range(count):
        job = run[place]
        urgency = key[job] * left[job] if is_by_work else key[job]
        if urgency > most:
            at, most = place, urgency
    return at, most


@compiled
def fluid_flows(release, duration, width, gpus, key, is_by_work, mark, marginal):
    """Return each job's flow time in microseconds, rounded up, and how many spells of the schedule there are.

    Parameters
    ----------
    release, duration, width, gpus
        Jobs by their submission in whole microseconds, and all GPUs; gangs may be fractions of one.
    key, is_by_work
        The smaller, the more urgent; times the run time left if `is_by_work`.
    mark, marginal
        Receive when each spell begins and the least urgent job that runs while no GPU is free, -1 while one is; room for two
        a job.
    """
    count, left = len(release), duration.astype(np.float64)
    flow, run, rate = np.zeros(count), np.empty(count, np.int64), np.empty(count)
    waiting = [(0.0, 0)]
    waiting.pop()
    now, upcoming, done, running, spells, free = 0, 0, 0, 0, 0, gpus
    while done < count:
        while upcoming < count and release[upcoming] <= now:
            heapq.heappush(waiting, (key[upcoming] * (left[upcoming] if is_by_work else 1.0), upcoming))
            upcoming += 1
        for place in range(running - 1, -1, -1):  # whoever has a part of its GPUs only goes back for more
            job = run[place]
            if rate[place] < width[job]:
                heapq.heappush(waiting, (key[job] * (left[job] if is_by_work else 1.0), job))
                free += rate[place]
                running -= 1
                run[place], rate[place] = run[running], rate[running]
        free, running = _fill(waiting, free, width, run, rate, running)
        while len(waiting) > 0:
            place, most = _worst(run, rate, running, key, left, is_by_work)
            if waiting[0][0] >= most:
                break
            heapq.heappush(waiting, (most, run[place]))
            free += rate[place]
            running -= 1
            run[place], rate[place] = run[running], rate[running]
            free, running = _fill(waiting, free, width, run, rate, running)
        if spells < len(mark):
            place = _worst(run, rate, running, key, left, is_by_work)[0]
            mark[spells], marginal[spells] = now, run[place] if place >= 0 and free <= NONE_FREE else -1
            spells += 1
        step = release[upcoming] - now if upcoming < count else 2**62
        for place in range(running):
            job = run[place]
            until_done = np.ceil(left[job] * width[job] / rate[place] - NEARLY_DONE)
            step = max(1, int(until_done)) if until_done < step else step
        now += step
        for place in range(running - 1, -1, -1):
            job = run[place]
            left[job] -= step * rate[place] / width[job]
            if left[job] <= NEARLY_DONE:
                flow[job] = now - release[job]
                done, free, running = done + 1, free + rate[place], running - 1
                run[place], rate[place] = run[running], rate[running]
    return flow, spells


@compiled
def prices_of_fluid(mark, marginal, end, width, duration, edge):
    """Return the mean price of each slot at which nobody would change much in such a schedule, in seconds a GPU-second.

    While a job is the last that has a GPU, the price falls by ``1 / (w d)`` a second, so that it doesn't care when it ends;
    it goes on at the price where it left off when another comes between, and is 0 whenever a GPU is free.
    """
    price = np.zeros(len(edge) - 1)
    line, round_of = np.zeros(len(width)), np.full(len(width), -1)
    height, busy, slot = 0.0, 0, len(price) - 1
    for spell in range(len(mark) - 1, -1, -1):
        begin, job = mark[spell], marginal[spell]
        if job < 0:
            height, busy, end = 0.0, busy + 1, begin
            continue
        slope = 1.0 / (width[job] * duration[job])
        if round_of[job] != busy:
            line[job], round_of[job] = height + slope * end, busy
        while end > begin:
            while slot > 0 and edge[slot] >= end:
                slot -= 1
            start = max(begin, edge[slot])
            middle = line[job] - slope * (0.5 * (start + end))
            price[slot] += max(0.0, middle) * (end - start)
            height, end = max(0.0, line[job] - slope * start), start
    for slot in range(len(price)):
        price[slot] /= edge[slot + 1] - edge[slot]
    return price
