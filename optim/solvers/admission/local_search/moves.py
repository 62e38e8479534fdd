"""The moves of `search`, compiled: ruin and re-create, and ejection chains.

A link of a chain removes a random share of the jobs that may run at the same time as the ejecting job. The link finds
the ejecting job's best schedule in the freed capacity. It then puts removed jobs back on their old servers and slots if
these are still free, in order of value relative to cost at the LP's prices. So the ejecting job displaces the least valuable
jobs in its way. Displaced jobs are inserted again, those with the largest payoff in the LP first. A job that doesn't fit
becomes the next ejecting job, up to a limit.

Sources: Glover, "Ejection chains, reference structures and alternating path methods for traveling salesman problems", 1996,
DOI 10.1016/0166-218X(94)00037-E; Nagata, Braysy, "A powerful route minimization heuristic for the vehicle routing problem
with time windows", 2009, DOI 10.1016/j.orl.2009.04.006 (displaced customers wait and displace others).

Ruin and re-create removes a few admitted jobs, then inserts them and some rejected ones again. Each job gets its best
schedule in the residual capacity at scaled prices of the packing LP. An annealing rule accepts or undoes the move.
"""

from typing import NamedTuple

import numpy as np

from optim.compiled import compiled, copy_first
from optim.core.arrays import FloatArray, IntArray
from optim.solvers.admission.local_search.insertion import copy_job, copy_plan, insert_all, shift, take_out
from optim.solvers.admission.pricing.best_schedule import INFINITE, ZERO, sort_by_key


@compiled(inline="always")
def uniform(random):
    """Return the next number in [0, 1) of a splitmix64 sequence whose state is ``random[0]``."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def draw_noise(noise, ps_noise, random):
    """Draw random factors of the prices, one per slot times one per class, so that the same job finds other schedules."""
    strength = uniform(random)
    for side in (noise, ps_noise):
        for c in range(side.shape[1]):
            side[0, c] = 1.0 + strength * (2.0 * uniform(random) - 1.0)
    for t in range(noise.shape[0] - 1, -1, -1):
        factor = 1.0 + strength * (2.0 * uniform(random) - 1.0)
        for side in (noise, ps_noise):
            for c in range(side.shape[1]):
                side[t, c] = factor * side[0, c]


@compiled
def holds(listed, count, j):
    """Return whether job j is among the first `count` entries."""
    k = 0
    while k < count and listed[k] != j:
        k += 1
    return k < count


LONGEST = 6
"""Maximum number of links of a chain; longer chains find better plans in more time per move.

Compared with 2 links, 10 links lower the gap after 20,000 moves from 1.7 to 1.3 % on instances with the size of `heavy-0`,
in three times the processor time.
"""

MIN_SHARE = 0.3
"""Lower limit of the probability with which a link removes each job that overlaps the ejecting job in time."""

ORDER_NOISE = 0.3
"""Maximal noise on the value-to-cost ratio that orders the returning jobs."""

FILLERS = 4
"""Number of rejected jobs that are tried in the capacity left by a chain."""

MOVED, FORCED, WAITING = 0, 1, 2
"""Positions in `Chain.size` of the lengths of `moved`, `ejecting_jobs` and `ejection_pool`."""


class Chain(NamedTuple):
    """Work space of a chain, one entry per job.

    Parameters
    ----------
    moved
        Jobs that differ from their state before the chain; `backup` has their old rows.
    ejecting_jobs
        Jobs that were inserted by ejection; later links can't displace them.
    ejection_pool
        Displaced jobs, which wait for their insertion.
    size
        Shape (3,): lengths of these three lists.
    cleared, before, key, order
        Jobs that one link removed: index, completion slot before, sort key, and order of their return.
    one
        Shape (1,): the job to insert.
    """

    moved: IntArray
    ejecting_jobs: IntArray
    ejection_pool: IntArray
    size: IntArray
    cleared: IntArray
    before: IntArray
    key: FloatArray
    order: IntArray
    one: IntArray


@compiled
def make_chain(num_jobs):
    """Return work space for chains over `num_jobs` jobs."""
    return Chain(
        np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64),
        np.zeros(3, dtype=np.int64), np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64),
        np.empty(num_jobs), np.empty(num_jobs, dtype=np.int64), np.zeros(1, dtype=np.int64),
    )  # fmt: skip


@compiled
def _append(listed, size, which, j):
    listed[size[which]] = j
    size[which] += 1


@compiled
def _side_cost(i, offset, side, state):
    """Return the cost of a job's units at the prices that guide insertions."""
    total, c = 0.0, ZERO
    for a in range(offset, offset + state.used[i]):
        t, h, n, s = state.rows[a]
        while side.first[c] > h:
            c -= 1
        while side.first[c + 1] <= h:
            c += 1
        total += n * side.cost[s, c, t]
    return total


@compiled
def _is_overfull(offset, used, state):
    """Return whether a slot and server of the job's rows is used beyond its capacity."""
    for a in range(offset, offset + used):
        t, h = state.rows[a, 0], state.rows[a, 1]
        for r in range(state.residual.shape[2]):
            if state.residual[t, h, r] < 0.0:
                return True
    return False


@compiled
def put_back(i, completion, data, state):
    """Insert a removed job again on its old servers and slots if their capacity suffices; return whether it does."""
    offset = data.row_offset[i]
    shift(i, -1.0, data, state)
    if _is_overfull(offset, state.workers.used[i], state.workers) or _is_overfull(offset, state.ps.used[i], state.ps):
        shift(i, 1.0, data, state)
        return False
    state.completion[i] = completion
    return True


@compiled
def _clear(j, data, state, chain, random):
    """Remove a random share of the jobs that may run at the same time as job j; return their number."""
    jobs = data.jobs
    low, high = jobs.arrival[j], jobs.deadline[j]
    share = MIN_SHARE + (1.0 - MIN_SHARE) * uniform(random)
    count = 0
    for i in range(len(state.completion)):
        end = state.completion[i]
        if (
            end < low
            or jobs.arrival[i] > high
            or uniform(random) >= share
            or holds(chain.ejecting_jobs, chain.size[FORCED], i)
        ):
            continue
        offset = data.row_offset[i]
        cost = _side_cost(i, offset, data.workers, state.workers) + _side_cost(i, offset, data.ps, state.ps)
        # Value relative to cost; the lowest key returns first.
        chain.key[count] = -jobs.value[i, end] / (cost + 1e-9) + ORDER_NOISE * uniform(random)
        chain.cleared[count], chain.before[count] = i, end
        take_out(i, data, state)
        count += 1
    return count


@compiled
def _drive_out(i, completion, data, state, backup, chain):
    """Mark a job as displaced, and save its rows from before the chain."""
    if not holds(chain.moved, chain.size[MOVED], i):
        _append(chain.moved, chain.size, MOVED, i)
        state.completion[i] = completion
        copy_job(i, state, backup, data)
        state.completion[i] = -1
    _append(chain.ejection_pool, chain.size, WAITING, i)


@compiled
def _insert(j, max_scale, data, state, chain, scratch):
    random = scratch.random
    draw_noise(scratch.workers.noise, scratch.ps.noise, random)
    chain.one[0] = j
    return insert_all(data, state, chain.one, max_scale * uniform(random), uniform(random) < 0.8, scratch)


@compiled
def _force(j, data, state, backup, chain, scratch):
    """Add a link: remove jobs, insert job j, and put back the removed jobs that still fit; return the change of the value."""
    _append(chain.ejecting_jobs, chain.size, FORCED, j)
    count = _clear(j, data, state, chain, scratch.random)
    change = _insert(j, 1.0, data, state, chain, scratch)
    sort_by_key(chain.key, count, chain.order)
    for k in range(count):
        i, end = chain.cleared[chain.order[k]], chain.before[chain.order[k]]
        if not put_back(i, end, data, state):
            change -= data.jobs.value[i, end]
            _drive_out(i, end, data, state, backup, chain)
    return change


@compiled
def _optimistic_bound(data, chain):
    """Return the sum of the displaced jobs' best values."""
    hope = 0.0
    for k in range(chain.size[WAITING]):
        i = chain.ejection_pool[k]
        hope += data.jobs.value[i, data.jobs.arrival[i]]
    return hope


@compiled
def _next_waiting(data, chain):
    """Remove the displaced job with the largest payoff in the LP from the pool, and return it."""
    best, last = 0, chain.size[WAITING] - 1
    for k in range(1, last + 1):
        if data.payoff[chain.ejection_pool[k]] > data.payoff[chain.ejection_pool[best]]:
            best = k
    j = chain.ejection_pool[best]
    chain.ejection_pool[best] = chain.ejection_pool[last]
    chain.size[WAITING] = last
    return j


@compiled
def _fill(data, state, backup, chain, scratch):
    """Try to insert some rejected jobs that may run at the same time as the moved ones; return the value gained."""
    random, jobs = scratch.random, data.jobs
    low, high, gained = jobs.value.shape[1], 0, 0.0
    for k in range(chain.size[MOVED]):
        low, high = min(low, jobs.arrival[chain.moved[k]]), max(high, jobs.deadline[chain.moved[k]])
    for _ in range(FILLERS):
        j = data.candidates[int(uniform(random) * len(data.candidates))]
        if state.completion[j] >= 0 or jobs.arrival[j] > high or jobs.deadline[j] < low:
            continue
        if not holds(chain.moved, chain.size[MOVED], j):
            copy_job(j, state, backup, data)
            _append(chain.moved, chain.size, MOVED, j)
        gained += _insert(j, 1.2, data, state, chain, scratch)
    return gained


@compiled
def eject(j, least, data, state, backup, chain, scratch):
    """Run a chain that begins with a rejected job; return the change of the plan's value.

    The chain stops early if the change would be below `least` even if all displaced jobs earned their best values.

    Afterwards `chain.moved` lists the jobs whose rows before the chain are in `backup`.
    """
    chain.size[:] = 0
    copy_job(j, state, backup, data)
    _append(chain.moved, chain.size, MOVED, j)
    change = _force(j, data, state, backup, chain, scratch)
    while chain.size[WAITING] > 0 and change + _optimistic_bound(data, chain) >= least:
        i = _next_waiting(data, chain)
        change += _insert(i, 1.2, data, state, chain, scratch)
        if state.completion[i] < 0 and chain.size[FORCED] < LONGEST and data.payoff[i] > 0.0:
            change += _force(i, data, state, backup, chain, scratch)
    return change if chain.size[WAITING] > 0 else change + _fill(data, state, backup, chain, scratch)


FORCED_SHARE = 0.8
"""Share of the moves that free capacity for a chosen rejected job and insert it first."""

MAX_DRAWS = 16
"""Maximal number of jobs drawn to choose this job: the rejected one among them with the largest payoff in the LP."""

CHAIN_SHARE = 0.9
"""Share of the moves with a chosen rejected job that are ejection chains; the others are ruin and re-create."""


@compiled
def _choose_forced(data, state, random):
    """Choose a rejected job to insert before all others, or -1 for none."""
    best = -1
    if uniform(random) >= FORCED_SHARE or len(data.candidates) == 0:
        return best
    for _ in range(1 + int(uniform(random) * MAX_DRAWS)):
        j = data.candidates[int(uniform(random) * len(data.candidates))]
        if state.completion[j] < 0 and (best < 0 or data.payoff[j] > data.payoff[best]):
            best = j
    return best


@compiled
def _choose_ruined(data, state, max_destroyed, ejecting_job, random, ruined):
    """Choose jobs to remove: those that conflict with an ejecting job, or a random job and jobs that overlap it in time.

    Occasionally choose any jobs.
    """
    admitted, num_admitted = np.empty(len(state.completion), dtype=np.int64), 0
    for i in range(len(admitted)):
        if state.completion[i] >= 0:
            admitted[num_admitted] = i
            num_admitted += 1
    if num_admitted == 0:
        return 0
    # Small ruins are cheap and often good, so the square favours them.
    size = 1 + int(uniform(random) ** 2 * min(max_destroyed, num_admitted))
    if ejecting_job >= 0:
        count, low, high = 0, data.jobs.arrival[ejecting_job], data.jobs.deadline[ejecting_job]
    else:
        ruined[0] = admitted[int(uniform(random) * num_admitted)]
        count, low, high = 1, data.jobs.arrival[ruined[0]], state.completion[ruined[0]]
    anywhere = uniform(random) < 0.1
    for _ in range(8 * size):
        if count >= size:
            break
        j = admitted[int(uniform(random) * num_admitted)]
        if not anywhere and (state.completion[j] < low or data.jobs.arrival[j] > high):
            continue
        if not holds(ruined, count, j):
            ruined[count] = j
            count += 1
    return count


@compiled
def _choose_waiting(data, state, ruined, num_ruined, most, ejecting_job, random, pool):
    """Write the removed jobs, the ejecting job, and rejected jobs that overlap the removed ones in time; return the number."""
    count = num_ruined
    low, high = data.jobs.value.shape[1], 0
    for k in range(num_ruined):
        pool[k] = ruined[k]
        low = min(low, data.jobs.arrival[ruined[k]])
        high = max(high, state.completion[ruined[k]])
    if ejecting_job >= 0:
        pool[count] = ejecting_job
        count += 1
    for _ in range(6 * most):
        if count - num_ruined >= most:
            break
        j = data.candidates[int(uniform(random) * len(data.candidates))]
        if state.completion[j] >= 0 or data.jobs.arrival[j] > high or data.jobs.deadline[j] < low:
            continue
        if not holds(pool, count, j):
            pool[count] = j
            count += 1
    return count


@compiled
def _arrange(data, pool, ejecting_job, random):
    """Order the waiting jobs: at random, by best value, by value per unit of work, or by LP payoff, with noise.

    An ejecting job comes first.
    """
    rule = int(uniform(random) * 4)
    key = np.empty(len(pool))
    for k in range(len(pool)):
        i = pool[k]
        best = data.jobs.value[i, data.jobs.arrival[i]]
        if rule == 0:
            key[k] = uniform(random)
        elif rule == 1:
            key[k] = -best * (0.7 + 0.6 * uniform(random))
        elif rule == 2:
            key[k] = -best / data.jobs.target[i] * (0.7 + 0.6 * uniform(random))
        else:
            key[k] = -(data.payoff[i] + 0.05 * best) * (0.7 + 0.6 * uniform(random))
        if i == ejecting_job:
            key[k] = -INFINITE
    order = np.empty(len(pool), dtype=np.int64)
    sort_by_key(key, len(pool), order)
    copy_first(len(pool), pool, key)
    for k in range(len(pool)):
        pool[k] = int(key[order[k]])


@compiled
def _ruin_and_recreate(ejecting_job, data, state, backup, scratch, max_destroyed, ruined, pool):
    """Remove some jobs, insert them and rejected ones; return the change of the value, and the number of jobs in `pool`."""
    random = scratch.random
    num_ruined = _choose_ruined(data, state, max_destroyed, ejecting_job, random, ruined)
    if num_ruined == 0:
        return 0.0, 0
    extra = min(1 + int(uniform(random) * (num_ruined + 3)), len(pool) - num_ruined - 1)
    count = _choose_waiting(data, state, ruined, num_ruined, extra, ejecting_job, random, pool)
    lost = 0.0
    for i in pool[:count]:
        copy_job(i, state, backup, data)
        if state.completion[i] >= 0:
            lost += data.jobs.value[i, state.completion[i]]
            take_out(i, data, state)
    _arrange(data, pool[:count], ejecting_job, random)
    scale = 1.2 * uniform(random)
    draw_noise(scratch.workers.noise, scratch.ps.noise, random)
    return insert_all(data, state, pool[:count], scale, uniform(random) < 0.8, scratch) - lost, count


@compiled
def _undo(moved, data, state, backup):
    """Restore a plan to its state before a move."""
    for i in moved:
        if state.completion[i] >= 0:
            take_out(i, data, state)
    for i in moved:
        copy_job(i, backup, state, data)
        if state.completion[i] >= 0:
            shift(i, -1.0, data, state)


@compiled
def search_moves(data, state, best, backup, scratch, num_moves, temperature, present, incumbent_value, max_destroyed):
    """Run moves at an acceptance temperature; return (present value, best value).

    `best` receives the best plan's rows; `backup` is work space.
    """
    num_jobs = len(data.payoff)
    ruined, pool = np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    chain = make_chain(num_jobs)
    random = scratch.random
    for _ in range(num_moves):
        # Allowed loss of the move, drawn first so that chains can stop early.
        least = temperature * np.log(1.0 - uniform(random))
        ejecting_job = _choose_forced(data, state, random)
        if ejecting_job >= 0 and uniform(random) < CHAIN_SHARE:
            change = eject(ejecting_job, least, data, state, backup, chain, scratch)
            moved = chain.moved[: chain.size[MOVED]]
        else:
            change, count = _ruin_and_recreate(ejecting_job, data, state, backup, scratch, max_destroyed, ruined, pool)
            moved = pool[:count]
        if change >= least:
            present += change
            if present > incumbent_value + 1e-9:
                incumbent_value = present
                copy_plan(state, best, data)
        else:
            _undo(moved, data, state, backup)
    return present, incumbent_value
