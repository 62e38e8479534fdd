"""The best schedule of one job on single servers with what is left of them, compiled.

As `schedule_loop`, with two differences: each server has its own price and its own room, and the
schedule names servers. A slot's table of costs needs the cheapest servers only, until they hold the
most workers that the job runs at once (`cheapest_servers`).

Nothing is tried before the recursion to refuse hopeless jobs sooner (with fractional PSs the cheapest units
over all slots bound the cost from below): a refusal takes 0.05 ms on 50 + 50 servers, over half of it the
call itself, because tables end at the most that a better schedule may cost.
"""

import numpy as np

from optim.core.compile_cache import compiled
from optim.solvers.admission.pricing.cheapest_servers import NO, YES, ZERO, cheapest, measure_servers
from optim.solvers.admission.pricing.residual_arrays import COUNT, SEGMENT, SERVER, SLOT
from optim.solvers.admission.pricing.schedule_loop import INFINITE, min_plus_step
from optim.solvers.admission.pricing.shared_servers import place_pairs, shared_residual_table

ONE = np.int64(1)


@compiled
def residual_table(s, t, most, ceiling, needed, workers, ps, shared, scratch, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs in slot t; return the largest Y.

    Numbers of workers that cost `ceiling` or more are left out. `shared` is None where workers and PSs have
    servers of their own: the compiler then drops the other case.
    """
    if shared is not None:
        return shared_residual_table(s, t, most, ceiling, needed, workers, ps, shared, scratch, table)
    table[0] = 0.0
    measure_servers(s, t, workers, scratch.worker)
    size = cheapest(most, ceiling, NO, scratch.worker, workers.rank[t], workers.residual[t])
    placed = ZERO
    total = 0.0
    for position in range(size):
        h = scratch.worker.heap[position]
        for _ in range(min(int(scratch.worker.room[h]), most - placed)):
            placed += 1
            total += scratch.worker.unit[h]
            table[placed] = total
    return _add_ps(s, t, placed, ceiling, needed, ps, scratch.ps, table) if placed > 0 else placed


@compiled
def _add_ps(s, t, most, ceiling, needed, ps, scratch, table):
    """Add the cheapest PSs for 1, ..., `most` workers to a table; return how many workers they serve."""
    measure_servers(s, t, ps, scratch)
    size = cheapest(needed[most], ceiling, NO, scratch, ps.rank[t], ps.residual[t])
    position, left, placed = -1, 0, 0
    total = 0.0
    for y in range(1, most + 1):
        due = needed[y]
        if due > y:
            return y - 1
        while placed < due:
            if left == 0:
                position += 1
                if position == size:
                    return y - 1
                left = int(scratch.room[scratch.heap[position]])
            left -= 1
            placed += 1
            total += scratch.unit[scratch.heap[position]]
        table[y] += total
        if table[y] >= ceiling:
            return y - 1
    return most


@compiled
def place(s, t, count, side, scratch, rows, num_rows):
    """Write the cheapest servers for `count` units as further rows; return the new number of rows."""
    measure_servers(s, t, side, scratch)
    size = cheapest(count, INFINITE, YES, scratch, side.rank[t], side.residual[t])
    left = count
    for position in range(size):
        h = scratch.heap[position]
        here = min(left, int(scratch.room[h]))
        rows[num_rows, SLOT] = t
        rows[num_rows, SERVER] = h
        rows[num_rows, COUNT] = here
        rows[num_rows, SEGMENT] = s
        num_rows += 1
        left -= here
    return num_rows


@compiled
def best_schedule(i, floor, jobs, workers, ps, shared, scratch):
    """Find the best schedule of job i whose payoff exceeds `floor` and write it to the scratch's rows.

    Returns
    -------
    payoff, completion slot, number of worker rows, number of PS rows
        (floor, -1, 0, 0) if there is none.
    """
    first_slot, last_slot, due = jobs.arrival[i], jobs.deadline[i], jobs.target[i]
    begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
    steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
    best, completion = floor, -ONE
    if last_slot < first_slot or due > steps[-1] * (last_slot - first_slot + 1):
        return best, completion, 0, 0
    states = scratch.states
    states[0, : due + 1] = INFINITE
    states[0, 0] = 0.0
    reached = ZERO
    for t in range(first_slot, last_slot + 1):
        if jobs.value[i, t] <= best:
            break
        k = t - first_slot
        # Nothing that costs as much as this can be part of a better schedule that ends here or later.
        ceiling = jobs.value[i, t] - best
        # Less work than this done before slot t can't be completed by the deadline any more.
        least = max(0, due - steps[-1] * (last_slot - t + 1))
        reached = _advance(i, t, least, reached, ceiling, jobs, steps, needed, workers, ps, shared, scratch)
        payoff = jobs.value[i, t] - states[k + 1, due]
        if payoff > best:
            best, completion = payoff, t
    if completion < 0:
        return best, completion, 0, 0
    num_workers, num_ps = _trace_back(i, completion, jobs, steps, needed, workers, ps, shared, scratch)
    return best, completion, num_workers, num_ps


@compiled
def _advance(i, t, least, reached, ceiling, jobs, steps, needed, workers, ps, shared, scratch):
    """Take the recursion through slot t; return the most progress that may be made by its end."""
    due = jobs.target[i]
    k = t - jobs.arrival[i]
    before, after = scratch.states[k], scratch.states[k + 1]
    after[: due + 1] = INFINITE
    furthest = reached
    segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
    for s in range(segment, segment_end):
        row = s - segment
        low = max(least, jobs.segment_start[s])
        high = min(reached + 1, jobs.segment_start[s + 1] if s + 1 < segment_end else due)
        scratch.largest[k, row] = -1
        if low >= high:
            continue
        table = scratch.tables[k, row]
        largest = residual_table(s, t, jobs.most[i], ceiling, needed, workers, ps, shared, scratch, table)
        scratch.largest[k, row] = largest
        min_plus_step(before, after, table, largest, steps, low, high, due)
        furthest = max(furthest, high - 1 + steps[largest])
    # Work completed earlier stays completed.
    after[due] = min(after[due], before[due])
    return min(due, furthest)


@compiled
def _trace_back(i, completion, jobs, steps, needed, workers, ps, shared, scratch):
    """Recompute the choices that led to the best cost and write their servers; return the numbers of rows."""
    num_workers, num_ps = ZERO, ZERO
    state = jobs.target[i]
    for k in range(completion - jobs.arrival[i], -1, -1):
        t = jobs.arrival[i] + k
        s, y, state = choice(i, k, state, jobs, steps, scratch)
        if y > 0:
            if shared is not None:
                num_workers, num_ps = place_pairs(s, t, y, needed[y], workers, ps, shared, scratch, num_workers, num_ps)
                continue
            num_workers = place(s, t, y, workers, scratch.worker, scratch.worker_rows, num_workers)
            num_ps = place(s, t, needed[y], ps, scratch.ps, scratch.ps_rows, num_ps)
    return num_workers, num_ps


@compiled
def choice(i, k, state, jobs, steps, scratch):
    """Return (segment, workers, state before) of the fewest workers that led to `state` in the k-th slot."""
    due = jobs.target[i]
    before, goal = scratch.states[k], scratch.states[k + 1, state]
    segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
    for s in range(segment, segment_end):
        low = jobs.segment_start[s]
        high = jobs.segment_start[s + 1] if s + 1 < segment_end else due
        for y in range(scratch.largest[k, s - segment] + 1):
            d_first = state - steps[y]
            # At the target work may overshoot: several states lead there.
            d_last = due - 1 if state == due and y > 0 else d_first
            for d in range(max(d_first, low, 0), min(d_last, high - 1) + 1):
                if before[d] + scratch.tables[k, s - segment, y] == goal:
                    return s, y, d
    return segment, 0, state
