"""Ruin and re-create on real servers, compiled: the moves of `search`.

A move takes a few admitted jobs out, then re-inserts them and some refused ones, each by its best
schedule on what is left of the servers at scaled prices of the packing LP, and keeps the result by an
annealing rule.
"""

import numpy as np

from optim.core.compile_cache import compiled, inner
from optim.solvers.admission.neighbourhood.insertion import copy_job, copy_plan, insert_all, shift, take_out
from optim.solvers.admission.pricing.best_schedule import INFINITE, sort_by_key

FORCED_SHARE = 0.3
"""Share of the moves that make room for a refused job and insert it first."""


@compiled(inline="always")
def uniform(random):
    """Return the next number in [0, 1) of a splitmix64 sequence whose state is ``random[0]``."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inner
def _holds(listed, count, j):
    """Tell whether a job is among the first so many listed."""
    return (listed[:count] == j).any()


@inner
def _choose_forced(ground, state, random):
    """Choose a refused job that is to be inserted before all others, or -1 for none."""
    if uniform(random) >= FORCED_SHARE or len(ground.candidates) == 0:
        return -1
    j = ground.candidates[int(uniform(random) * len(ground.candidates))]
    return j if state.completion[j] < 0 else -1


@inner
def _choose_ruined(ground, state, largest_ruin, forced, random, ruined):
    """Choose jobs to take out: those in the way of a forced job, or one at random and jobs that run at the same time.

    Now and then any jobs.
    """
    admitted = np.flatnonzero(state.completion >= 0)
    if len(admitted) == 0:
        return 0
    # Small ruins are cheap and often good; the square favours them.
    size = 1 + int(uniform(random) ** 2 * min(largest_ruin, len(admitted)))
    if forced >= 0:
        count, low, high = 0, ground.jobs.arrival[forced], ground.jobs.deadline[forced]
    else:
        ruined[0] = admitted[int(uniform(random) * len(admitted))]
        count, low, high = 1, ground.jobs.arrival[ruined[0]], state.completion[ruined[0]]
    anywhere = uniform(random) < 0.1
    for _ in range(8 * size):
        if count >= size:
            break
        j = admitted[int(uniform(random) * len(admitted))]
        if not anywhere and (state.completion[j] < low or ground.jobs.arrival[j] > high):
            continue
        if not _holds(ruined, count, j):
            ruined[count] = j
            count += 1
    return count


@inner
def _choose_waiting(ground, state, ruined, num_ruined, most, forced, random, waiting):
    """Copy the ruined jobs, then add a forced job and refused jobs whose time overlaps theirs; return how many."""
    count = num_ruined
    low, high = ground.jobs.value.shape[1], 0
    for k in range(num_ruined):
        waiting[k] = ruined[k]
        low = min(low, ground.jobs.arrival[ruined[k]])
        high = max(high, state.completion[ruined[k]])
    if forced >= 0:
        waiting[count] = forced
        count += 1
    for _ in range(6 * most):
        if count - num_ruined >= most:
            break
        j = ground.candidates[int(uniform(random) * len(ground.candidates))]
        if state.completion[j] >= 0 or ground.jobs.arrival[j] > high or ground.jobs.deadline[j] < low:
            continue
        if not _holds(waiting, count, j):
            waiting[count] = j
            count += 1
    return count


@inner
def _arrange(ground, waiting, forced, random):
    """Order the waiting jobs: at random, by best value, by value a unit of work, or by LP payoff, with noise.

    A forced job comes first.
    """
    rule = int(uniform(random) * 4)
    key = np.empty(len(waiting))
    for k in range(len(waiting)):
        i = waiting[k]
        best = ground.jobs.value[i, ground.jobs.arrival[i]]
        if rule == 0:
            key[k] = uniform(random)
        elif rule == 1:
            key[k] = -best * (0.7 + 0.6 * uniform(random))
        elif rule == 2:
            key[k] = -best / ground.jobs.target[i] * (0.7 + 0.6 * uniform(random))
        else:
            key[k] = -(ground.payoff[i] + 0.05 * best) * (0.7 + 0.6 * uniform(random))
        if i == forced:
            key[k] = -INFINITE
    order = np.empty(len(waiting), dtype=np.int64)
    sort_by_key(key, len(waiting), order)
    waiting[:] = waiting[order]


@inner
def _draw_noise(noise, ps_noise, random):
    """Multiply prices by noise of a random strength, one factor a slot and one a class: the same job finds new places."""
    strength = uniform(random)
    for side in (noise, ps_noise):
        for c in range(side.shape[1]):
            side[0, c] = 1.0 + strength * (2.0 * uniform(random) - 1.0)
    for t in range(noise.shape[0] - 1, -1, -1):
        factor = 1.0 + strength * (2.0 * uniform(random) - 1.0)
        for side in (noise, ps_noise):
            for c in range(side.shape[1]):
                side[t, c] = factor * side[0, c]


@inner
def _ruin(ruined, ground, state, kept):
    """Take jobs out, keeping what they held; return what they are worth."""
    lost = 0.0
    for i in ruined:
        lost += ground.jobs.value[i, state.completion[i]]
        copy_job(i, state, kept, ground)
        take_out(i, ground, state)
    return lost


@inner
def _undo(ruined, waiting, ground, state, kept):
    """Make a plan again what it was before a move."""
    for i in waiting:
        if state.completion[i] >= 0:
            take_out(i, ground, state)
    for i in ruined:
        copy_job(i, kept, state, ground)
        shift(i, -1.0, ground, state)


@compiled
def search_moves(ground, state, best, kept, scratch, num_moves, heat, present, record, largest_ruin):
    """Run moves at an acceptance temperature; return (present value, best value).

    `best` receives the best plan's rows; `kept` is work space.
    """
    num_jobs = len(ground.payoff)
    all_ruined, all_waiting = np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    random = scratch.random
    for _ in range(num_moves):
        forced = _choose_forced(ground, state, random)
        num_ruined = _choose_ruined(ground, state, largest_ruin, forced, random, all_ruined)
        if num_ruined == 0:
            if forced >= 0:
                continue
            break
        extra = min(1 + int(uniform(random) * (num_ruined + 3)), num_jobs - num_ruined - 1)
        count = _choose_waiting(ground, state, all_ruined, num_ruined, extra, forced, random, all_waiting)
        ruined, waiting = all_ruined[:num_ruined], all_waiting[:count]
        lost = _ruin(ruined, ground, state, kept)
        _arrange(ground, waiting, forced, random)
        scale = 1.2 * uniform(random)
        _draw_noise(scratch.workers.noise, scratch.ps.noise, random)
        change = insert_all(ground, state, waiting, scale, uniform(random) < 0.8, scratch) - lost
        if change >= 0.0 or uniform(random) < np.exp(change / heat):
            present += change
            if present > record + 1e-9:
                record = present
                copy_plan(state, best, ground)
        else:
            _undo(ruined, waiting, ground, state, kept)
    return present, record
