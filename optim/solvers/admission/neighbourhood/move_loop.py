"""The moves of `search` on real servers, compiled: ruin and re-create, and ejection chains (`ejection`).

A ruin takes a few admitted jobs out, then re-inserts them and some refused ones, each by its best
schedule on what is left of the servers at scaled prices of the packing LP. An annealing rule keeps
what a move has made of the plan, or undoes it.
"""

import numpy as np

from optim.core.compile_cache import compiled, inner
from optim.solvers.admission.neighbourhood.draws import draw_noise, holds, uniform
from optim.solvers.admission.neighbourhood.ejection import MOVED, eject, make_chain
from optim.solvers.admission.neighbourhood.insertion import copy_job, copy_plan, insert_all, shift, take_out
from optim.solvers.admission.pricing.best_schedule import INFINITE, sort_by_key

FORCED_SHARE = 0.8
"""Share of the moves that make room for a refused job and insert it first."""

MOST_DRAWS = 16
"""Jobs drawn for such a move, at most; the refused one with the largest payoff in the LP is forced."""

CHAIN_SHARE = 0.9
"""Share of these moves that are ejection chains."""


@inner
def _choose_forced(ground, state, random):
    """Choose a refused job that is to be inserted before all others, or -1 for none."""
    best = -1
    if uniform(random) >= FORCED_SHARE or len(ground.candidates) == 0:
        return best
    for _ in range(1 + int(uniform(random) * MOST_DRAWS)):
        j = ground.candidates[int(uniform(random) * len(ground.candidates))]
        if state.completion[j] < 0 and (best < 0 or ground.payoff[j] > ground.payoff[best]):
            best = j
    return best


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
        if not holds(ruined, count, j):
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
        if not holds(waiting, count, j):
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
def _ruin_and_recreate(forced, ground, state, kept, scratch, largest_ruin, ruined, waiting):
    """Take some jobs out and insert them and others anew; return the change of the plan's value, and how many waited."""
    random = scratch.random
    num_ruined = _choose_ruined(ground, state, largest_ruin, forced, random, ruined)
    if num_ruined == 0:
        return 0.0, 0
    extra = min(1 + int(uniform(random) * (num_ruined + 3)), len(waiting) - num_ruined - 1)
    count = _choose_waiting(ground, state, ruined, num_ruined, extra, forced, random, waiting)
    lost = 0.0
    for i in waiting[:count]:
        copy_job(i, state, kept, ground)
        if state.completion[i] >= 0:
            lost += ground.jobs.value[i, state.completion[i]]
            take_out(i, ground, state)
    _arrange(ground, waiting[:count], forced, random)
    scale = 1.2 * uniform(random)
    draw_noise(scratch.workers.noise, scratch.ps.noise, random)
    return insert_all(ground, state, waiting[:count], scale, uniform(random) < 0.8, scratch) - lost, count


@inner
def _undo(moved, ground, state, kept):
    """Make a plan again what it was before a move."""
    for i in moved:
        if state.completion[i] >= 0:
            take_out(i, ground, state)
    for i in moved:
        copy_job(i, kept, state, ground)
        if state.completion[i] >= 0:
            shift(i, -1.0, ground, state)


@compiled
def search_moves(ground, state, best, kept, scratch, num_moves, heat, present, record, largest_ruin):
    """Run moves at an acceptance temperature; return (present value, best value).

    `best` receives the best plan's rows; `kept` is work space.
    """
    num_jobs = len(ground.payoff)
    ruined, waiting = np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    chain = make_chain(num_jobs)
    random = scratch.random
    for _ in range(num_moves):
        # How much a move may lose: drawn first, so that chains can be given up.
        least = heat * np.log(1.0 - uniform(random))
        forced = _choose_forced(ground, state, random)
        if forced >= 0 and uniform(random) < CHAIN_SHARE:
            change = eject(forced, least, ground, state, kept, chain, scratch)
            moved = chain.moved[: chain.size[MOVED]]
        else:
            change, count = _ruin_and_recreate(forced, ground, state, kept, scratch, largest_ruin, ruined, waiting)
            moved = waiting[:count]
        if change >= least:
            present += change
            if present > record + 1e-9:
                record = present
                copy_plan(state, best, ground)
        else:
            _undo(moved, ground, state, kept)
    return present, record
