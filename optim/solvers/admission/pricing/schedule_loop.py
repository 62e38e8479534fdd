"""The best schedule of a job at frozen prices, compiled: exact worker-slot dynamic programme.

For each slot the cheapest way to run Y workers and the PSs they need is a table of costs (greedy
over servers sorted by price: exact while workers and PSs live on different servers; where they share
servers `shared_slot` makes the table); a forward
min-plus recursion over the work done so far then serves every completion slot at once:

    C_t[d] = min over Y of C_{t-1}[d - progress(Y)] + table_t[Y],
    payoff(t) = value(t) - C_t[target].

Source: Bao, Peng, Wu, Li, INFOCOM 2018, Algorithms 2 and 3, with worker-slots instead of chunks as the
state, so that rounding happens once and not in every slot.
"""

import numpy as np

from optim.core.compile_cache import compiled
from optim.solvers.admission.pricing.shared_slot import class_pair_table, split_class_pair

INFINITE = np.inf


@compiled(inline="always")
def _sorted_by_cost(cost, order):
    """Fill `order` with the positions of `cost` ascending, ties by position (insertion sort: few classes)."""
    for position in range(len(cost)):
        place = position
        while place > 0 and cost[order[place - 1]] > cost[position]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = position


@compiled
def slot_table(worker_cost, worker_limit, ps_cost, ps_limit, ps_needed, most, order, ps_order, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs in one slot; return the largest Y possible.

    Parameters
    ----------
    worker_cost, worker_limit
        Cost a worker and most workers, by class.
    ps_cost, ps_limit
        Likewise for PSs.
    ps_needed
        PSs needed for Y = 0, ..., most workers.
    most
        Most workers at once.
    order, ps_order
        Work space, one entry a class.
    table
        At least ``most + 1`` entries.
    """
    _sorted_by_cost(worker_cost, order)
    table[0] = 0.0
    workers = 0
    total = 0.0
    for place in range(len(order)):
        c = order[place]
        room = min(worker_limit[c], most - workers)
        unit = worker_cost[c]
        for _ in range(room):
            workers += 1
            total += unit
            table[workers] = total
        if workers == most:
            break
    _sorted_by_cost(ps_cost, ps_order)
    place = 0
    left = ps_limit[ps_order[0]] if len(ps_order) > 0 else 0
    placed = 0
    total = 0.0
    for y in range(1, workers + 1):
        due = ps_needed[y]
        if due > y:
            return y - 1
        while placed < due:
            while left == 0:
                place += 1
                if place >= len(ps_order):
                    return y - 1
                left = ps_limit[ps_order[place]]
            left -= 1
            placed += 1
            total += ps_cost[ps_order[place]]
        table[y] += total
    return workers


@compiled(fastmath={"nnan", "nsz"})
def min_plus_step(before, after, table, largest, progress, first, last, target):
    """Improve ``after[min(target, d + progress[Y])]`` by ``before[d] + table[Y]`` for d in [first, last), Y <= largest."""
    for y in range(largest + 1):
        step = progress[y]
        cost = table[y]
        inside = max(first, min(last, target - step))
        # Slices and an unconditional store let the compiler vectorise: six times faster than the plain loop.
        source = before[first:inside]
        goal = after[first + step : inside + step]
        for d in range(len(source)):
            candidate = source[d] + cost
            present = goal[d]
            goal[d] = candidate if candidate < present else present
        best = after[target]
        for d in range(inside, last):
            candidate = before[d] + cost
            if candidate < best:
                best = candidate
        after[target] = best


@compiled
def _price_one(
    i, floor, arrival, deadline, target, most, value, segment_offset, segment_start, table_offset, progress,
    ps_needed, worker_limit, ps_limit, worker_cost, ps_cost, states, tables, largest, order, ps_order,
    shared, out_workers, out_ps, want_schedule,
):  # fmt: skip
    """Return (payoff, completion slot) of job i's best schedule, payoff > floor, else (floor, -1)."""
    first_slot, last_slot, due = arrival[i], deadline[i], target[i]
    best, completion = floor, -1
    if last_slot < first_slot or due > most_progress(progress, table_offset, i) * (last_slot - first_slot + 1):
        return best, completion
    begin, end = table_offset[i], table_offset[i + 1]
    steps, needed = progress[begin:end], ps_needed[begin:end]
    segment, segment_end = segment_offset[i], segment_offset[i + 1]
    per_slot = steps[-1]
    states[0, : due + 1] = INFINITE
    states[0, 0] = 0.0
    reached = 0
    for t in range(first_slot, last_slot + 1):
        if value[i, t] <= best:
            break
        k = t - first_slot
        before, after = states[k], states[k + 1]
        after[: due + 1] = INFINITE
        # Less work than this done before slot t can't be completed by the deadline any more.
        least = max(0, due - per_slot * (last_slot - t + 1))
        now_reached = reached
        for s in range(segment, segment_end):
            low = max(least, segment_start[s])
            high = min(reached + 1, segment_start[s + 1] if s + 1 < segment_end else due)
            row = s - segment
            if low >= high:
                largest[k, row] = -1
                continue
            if shared is None:
                largest[k, row] = slot_table(
                    worker_cost[s, :, t], worker_limit[s, :, t], ps_cost[s, :, t], ps_limit[s, :, t], needed,
                    most[i], order, ps_order, tables[k, row],
                )  # fmt: skip
            else:
                largest[k, row] = class_pair_table(
                    s, t, most[i], value[i, t] - best, needed, worker_cost, ps_cost, shared, tables[k, row]
                )
            min_plus_step(before, after, tables[k, row], largest[k, row], steps, low, high, due)
            now_reached = max(now_reached, high - 1 + steps[largest[k, row]])
        # Work completed earlier stays completed.
        if before[due] < after[due]:
            after[due] = before[due]
        reached = min(due, now_reached)
        payoff = value[i, t] - after[due]
        if payoff > best:
            best, completion = payoff, t
    if completion >= 0 and want_schedule:
        _trace_back(
            completion - first_slot, first_slot, due, states, tables, largest, steps, needed, segment, segment_end,
            segment_start, worker_cost, worker_limit, ps_cost, ps_limit, order, ps_order, shared, out_workers,
            out_ps,
        )  # fmt: skip
    return best, completion


@compiled(inline="always")
def most_progress(progress, table_offset, i):
    """Return the progress of the most workers that job i may run in a slot."""
    return progress[table_offset[i + 1] - 1]


@compiled
def _trace_back(
    last, first_slot, due, states, tables, largest, steps, needed, segment, segment_end, segment_start,
    worker_cost, worker_limit, ps_cost, ps_limit, order, ps_order, shared, out_workers, out_ps,
):  # fmt: skip
    """Recompute the choices that led to the best cost and write counts by class and slot."""
    state = due
    for k in range(last, -1, -1):
        t = first_slot + k
        goal = states[k + 1, state]
        found = False
        for s in range(segment, segment_end):
            if found:
                break
            row = s - segment
            low = segment_start[s]
            high = segment_start[s + 1] if s + 1 < segment_end else due
            for y in range(largest[k, row] + 1):
                # All states from which y workers lead here: one, except at the target, where work may overshoot.
                d_first = state - steps[y]
                d_last = d_first if state < due else due - 1
                if y == 0:
                    d_last = d_first
                for d in range(max(d_first, low, 0), min(d_last, high - 1) + 1):
                    if states[k, d] + tables[k, row, y] == goal:
                        found = True
                        state = d
                        if y == 0:
                            break
                        if shared is None:
                            _split(
                                y, needed[y], worker_cost[s, :, t], worker_limit[s, :, t], ps_cost[s, :, t],
                                ps_limit[s, :, t], order, ps_order, out_workers[:, t], out_ps[:, t],
                            )  # fmt: skip
                        else:
                            split_class_pair(
                                s, t, y, needed[y], worker_cost, ps_cost, shared, out_workers[:, t], out_ps[:, t]
                            )
                        break
                if found:
                    break


@compiled
def _split(workers, servers, worker_cost, worker_limit, ps_cost, ps_limit, order, ps_order, out_workers, out_ps):
    """Write the cheapest classes for so many workers and PSs."""
    _sorted_by_cost(worker_cost, order)
    left = workers
    for place in range(len(order)):
        c = order[place]
        count = min(left, worker_limit[c])
        out_workers[c] = count
        left -= count
    _sorted_by_cost(ps_cost, ps_order)
    left = servers
    for place in range(len(ps_order)):
        c = ps_order[place]
        count = min(left, ps_limit[c])
        out_ps[c] = count
        left -= count


@compiled
def price_jobs(
    which, floor, arrival, deadline, target, most, value, segment_offset, segment_start, table_offset, progress,
    ps_needed, worker_limit, ps_limit, worker_cost, ps_cost, shared, payoff, completion, out_workers, out_ps,
    want_schedule,
):  # fmt: skip
    """Price every job of `which`; see `optim.solvers.admission.pricing.class_pricing.price`.

    `shared` is None where workers and PSs have servers of their own: the compiler then drops the other case.
    """
    widest, longest, most_segments, most_workers = 0, 0, 1, 0
    for i in which:
        if deadline[i] >= arrival[i] and target[i] <= most_progress(progress, table_offset, i) * (
            deadline[i] - arrival[i] + 1
        ):
            widest = max(widest, target[i])
            longest = max(longest, deadline[i] - arrival[i] + 1)
        most_segments = max(most_segments, segment_offset[i + 1] - segment_offset[i])
        most_workers = max(most_workers, most[i])
    states = np.empty((longest + 1, widest + 1))
    tables = np.empty((longest, most_segments, most_workers + 1))
    largest = np.empty((longest, most_segments), dtype=np.int64)
    order = np.empty(worker_cost.shape[1], dtype=np.int64)
    ps_order = np.empty(ps_cost.shape[1], dtype=np.int64)
    for position in range(len(which)):
        i = which[position]
        payoff[position], completion[position] = _price_one(
            i, floor[position], arrival, deadline, target, most, value, segment_offset, segment_start, table_offset,
            progress, ps_needed, worker_limit, ps_limit, worker_cost, ps_cost, states, tables, largest, order,
            ps_order, shared, out_workers[position if want_schedule else 0],
            out_ps[position if want_schedule else 0], want_schedule,
        )  # fmt: skip
