"""Ejection chains on real servers, compiled: a refused job takes the room of others, who look for room in their turn.

One link of a chain takes a random share of the jobs away that may run at the same time as the forced job, finds its best
schedule in their room, and puts the others back where they were as far as that is still free, those first who earn most
over what they cost at the LP's prices. So the forced job drives out who is worth least in its way, however many that are.
Who was driven out is inserted anew, the most profitable first; who finds no room becomes the next link, up to a limit.

Sources: Glover, "Ejection chains, reference structures and alternating path methods for traveling salesman problems", 1996,
DOI 10.1016/0166-218X(94)00037-E; Nagata, Braysy, "A powerful route minimization heuristic for the vehicle routing problem
with time windows", 2009, DOI 10.1016/j.orl.2009.04.006 (who is driven out waits and drives others out).
"""

from typing import NamedTuple

import numpy as np

from optim.core.compile_cache import inner
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.neighbourhood.draws import draw_noise, holds, uniform
from optim.solvers.admission.neighbourhood.insertion import copy_job, insert_all, shift, take_out
from optim.solvers.admission.pricing.best_schedule import ZERO, sort_by_key

LONGEST = 6
"""Most links of a chain. On planted instances of heavy's shape 20,000 moves leave 1.7, 1.5 and 1.3 % with 2, 4 and 10
links, for 2.3, 3.9 and 7.6 processor seconds."""

LEAST_SHARE = 0.3
"""A link takes at least this share of the jobs away that overlap the forced one, on average."""

ORDER_NOISE = 0.3
"""By how much the order in which jobs are put back may be wrong, as a share of what they cost."""

FILLERS = 4
"""Refused jobs that are tried in what a chain has left."""

MOVED, FORCED, WAITING = 0, 1, 2
"""Places in `Chain.size`."""


class Chain(NamedTuple):
    """Work space of a chain, one entry a job.

    Parameters
    ----------
    moved
        Jobs that aren't what they were before the chain; `kept` has their old rows.
    forced
        Jobs that were put in by force: nobody drives them out again.
    waiting
        Jobs that were driven out.
    size
        Shape (3,): how many these are.
    cleared, before, key, order
        Jobs that one link took away, their completion slots, and how they are sorted.
    one
        Shape (1,): the job that is inserted.
    """

    moved: IntArray
    forced: IntArray
    waiting: IntArray
    size: IntArray
    cleared: IntArray
    before: IntArray
    key: FloatArray
    order: IntArray
    one: IntArray


@inner
def make_chain(num_jobs):
    """Return work space."""
    return Chain(
        np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64),
        np.zeros(3, dtype=np.int64), np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64),
        np.empty(num_jobs), np.empty(num_jobs, dtype=np.int64), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


@inner
def _append(listed, size, which, j):
    listed[size[which]] = j
    size[which] += 1


@inner
def _side_cost(i, offset, side, state):
    """Return what a job's units cost at the prices that guide insertions."""
    total, c = 0.0, ZERO
    for a in range(offset, offset + state.used[i]):
        t, h, n, s = state.rows[a]
        while side.first[c] > h:
            c -= 1
        while side.first[c + 1] <= h:
            c += 1
        total += n * side.cost[s, c, t]
    return total


@inner
def _is_overfull(offset, used, state):
    """Tell whether more is used than there is where a job has units."""
    for a in range(offset, offset + used):
        t, h = state.rows[a, 0], state.rows[a, 1]
        for r in range(state.left.shape[2]):
            if state.left[t, h, r] < 0.0:
                return True
    return False


@inner
def put_back(i, completion, ground, state):
    """Give a job that was taken out the room again that it had, if that is free; tell whether it was."""
    offset = ground.row_offset[i]
    shift(i, -1.0, ground, state)
    if _is_overfull(offset, state.workers.used[i], state.workers) or _is_overfull(offset, state.ps.used[i], state.ps):
        shift(i, 1.0, ground, state)
        return False
    state.completion[i] = completion
    return True


@inner
def _clear(j, ground, state, chain, random):
    """Take a random share of the jobs away that may be in job j's way; return how many."""
    jobs = ground.jobs
    low, high = jobs.arrival[j], jobs.deadline[j]
    share = LEAST_SHARE + (1.0 - LEAST_SHARE) * uniform(random)
    count = 0
    for i in range(len(state.completion)):
        end = state.completion[i]
        if (
            end < low
            or jobs.arrival[i] > high
            or uniform(random) >= share
            or holds(chain.forced, chain.size[FORCED], i)
        ):
            continue
        offset = ground.row_offset[i]
        cost = _side_cost(i, offset, ground.workers, state.workers) + _side_cost(i, offset, ground.ps, state.ps)
        # Worth for its cost; the lowest key goes back first.
        chain.key[count] = -jobs.value[i, end] / (cost + 1e-9) + ORDER_NOISE * uniform(random)
        chain.cleared[count], chain.before[count] = i, end
        take_out(i, ground, state)
        count += 1
    return count


@inner
def _drive_out(i, completion, ground, state, kept, chain):
    """Note that a job has lost its room, and what it was before the chain."""
    if not holds(chain.moved, chain.size[MOVED], i):
        _append(chain.moved, chain.size, MOVED, i)
        state.completion[i] = completion
        copy_job(i, state, kept, ground)
        state.completion[i] = -1
    _append(chain.waiting, chain.size, WAITING, i)


@inner
def _insert(j, most_scale, ground, state, chain, scratch):
    random = scratch.random
    draw_noise(scratch.workers.noise, scratch.ps.noise, random)
    chain.one[0] = j
    return insert_all(ground, state, chain.one, most_scale * uniform(random), uniform(random) < 0.8, scratch)


@inner
def _force(j, ground, state, kept, chain, scratch):
    """Add a link: put job j in the room of others, who go back or wait; return the change of the plan's value."""
    _append(chain.forced, chain.size, FORCED, j)
    count = _clear(j, ground, state, chain, scratch.random)
    change = _insert(j, 1.0, ground, state, chain, scratch)
    sort_by_key(chain.key, count, chain.order)
    for k in range(count):
        i, end = chain.cleared[chain.order[k]], chain.before[chain.order[k]]
        if not put_back(i, end, ground, state):
            change -= ground.jobs.value[i, end]
            _drive_out(i, end, ground, state, kept, chain)
    return change


@inner
def _hope(ground, chain):
    """Return what the jobs that wait are worth at best."""
    hope = 0.0
    for k in range(chain.size[WAITING]):
        i = chain.waiting[k]
        hope += ground.jobs.value[i, ground.jobs.arrival[i]]
    return hope


@inner
def _next_waiting(ground, chain):
    """Take the most profitable job from those that wait."""
    best, last = 0, chain.size[WAITING] - 1
    for k in range(1, last + 1):
        if ground.payoff[chain.waiting[k]] > ground.payoff[chain.waiting[best]]:
            best = k
    j = chain.waiting[best]
    chain.waiting[best] = chain.waiting[last]
    chain.size[WAITING] = last
    return j


@inner
def _fill(ground, state, kept, chain, scratch):
    """Try some refused jobs in what is left around the moved ones; return the value gained."""
    random, jobs = scratch.random, ground.jobs
    low, high, gained = jobs.value.shape[1], 0, 0.0
    for k in range(chain.size[MOVED]):
        low, high = min(low, jobs.arrival[chain.moved[k]]), max(high, jobs.deadline[chain.moved[k]])
    for _ in range(FILLERS):
        j = ground.candidates[int(uniform(random) * len(ground.candidates))]
        if state.completion[j] >= 0 or jobs.arrival[j] > high or jobs.deadline[j] < low:
            continue
        if not holds(chain.moved, chain.size[MOVED], j):
            copy_job(j, state, kept, ground)
            _append(chain.moved, chain.size, MOVED, j)
        gained += _insert(j, 1.2, ground, state, chain, scratch)
    return gained


@inner
def eject(j, least, ground, state, kept, chain, scratch):
    """Run a chain that begins with a refused job; return the change of the plan's value.

    It is given up where the change would be less than `least` even if all who wait came back for their best value.

    `chain.moved` then lists the jobs whose rows before the chain are in `kept`.
    """
    chain.size[:] = 0
    copy_job(j, state, kept, ground)
    _append(chain.moved, chain.size, MOVED, j)
    change = _force(j, ground, state, kept, chain, scratch)
    while chain.size[WAITING] > 0 and change + _hope(ground, chain) >= least:
        i = _next_waiting(ground, chain)
        change += _insert(i, 1.2, ground, state, chain, scratch)
        if state.completion[i] < 0 and chain.size[FORCED] < LONGEST and ground.payoff[i] > 0.0:
            change += _force(i, ground, state, kept, chain, scratch)
    return change if chain.size[WAITING] > 0 else change + _fill(ground, state, kept, chain, scratch)
