"""Ruin and re-create on real servers, compiled: the moves of `search`.

A move takes a few admitted jobs out, then re-inserts them and some refused ones, each by its best
schedule on what is left of the servers at scaled prices of the packing LP, and keeps the result by an
annealing rule. Feasibility is exact: capacities, demands and residuals are whole numbers held as floats
below 2^53, where sums are exact and the floor of a quotient is the floor of the rounded quotient.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.core.compile_cache import compiled
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.cheapest_servers import NONE, ZERO
from optim.solvers.admission.pricing.schedule_loop import INFINITE, min_plus_step, slot_table

FORCED_SHARE = 0.3
"""Share of the moves that make room for a refused job and insert it first."""


class Ground(NamedTuple):
    """What never changes: jobs, servers and LP prices.

    Demands and residuals are whole numbers of a common unit of each resource; costs are utils a unit.
    """

    arrival: IntArray
    deadline: IntArray
    target: IntArray
    most: IntArray
    value: FloatArray
    segment_offset: IntArray
    segment_start: IntArray
    table_offset: IntArray
    progress: IntArray
    ps_needed: IntArray
    worker_demand: FloatArray
    ps_demand: FloatArray
    worker_room: IntArray
    ps_room: IntArray
    worker_first: IntArray
    ps_first: IntArray
    worker_cost: FloatArray
    ps_cost: FloatArray
    row_offset: IntArray
    payoff: FloatArray
    candidates: IntArray


class State(NamedTuple):
    """A plan: what is left of each server in each slot, and each job's rows (slot, server, count, segment)."""

    worker_left: FloatArray
    ps_left: FloatArray
    completion: IntArray
    worker_rows: IntArray
    worker_count: IntArray
    ps_rows: IntArray
    ps_count: IntArray


class Scratch(NamedTuple):
    """Work space of one insertion, and the random state."""

    states: FloatArray
    tables: FloatArray
    largest: IntArray
    order: IntArray
    ps_order: IntArray
    worker_limit: IntArray
    ps_limit: IntArray
    room: IntArray
    server_order: IntArray
    noise: FloatArray
    random: NDArray[np.uint64]


@compiled(inline="always")
def uniform(random):
    """Return the next number in [0, 1) of a splitmix64 sequence whose state is ``random[0]``."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def sort_by_key(key, size, order):
    """Fill ``order[:size]`` with positions by ascending key, ties by position (insertion sort: short lists)."""
    for position in range(size):
        spot = position
        while spot > 0 and key[order[spot - 1]] > key[position]:
            order[spot] = order[spot - 1]
            spot -= 1
        order[spot] = position


@compiled
def _copy_rows(source, goal, first, last):
    """Copy rows; a loop, because slice assignment takes seconds to compile."""
    for a in range(first, last):
        for column in range(source.shape[1]):
            goal[a, column] = source[a, column]


@compiled
def _copy_plan(source, goal, ground):
    """Copy a plan's completion slots and rows, not the residuals."""
    for i in range(len(ground.arrival)):
        goal.completion[i] = source.completion[i]
        if source.completion[i] >= 0:
            goal.worker_count[i], goal.ps_count[i] = source.worker_count[i], source.ps_count[i]
            first = ground.row_offset[i]
            _copy_rows(source.worker_rows, goal.worker_rows, first, first + source.worker_count[i])
            _copy_rows(source.ps_rows, goal.ps_rows, first, first + source.ps_count[i])


@compiled
def class_limits(left, demand, room, s, t, first, limit):
    """Fill ``limit`` with how many units of segment s's demand each class still holds in slot t."""
    for c in range(len(limit)):
        total = 0
        most = room[s, c, t]
        if most > 0:
            for h in range(first[c], first[c + 1]):
                held = float(most)
                for r in range(len(demand)):
                    if demand[r] > 0.0:
                        held = min(held, left[h, r] / demand[r])
                total += int(held)
        limit[c] = total


@compiled
def best_fit(i, scale, threshold, ground, state, scratch):
    """Find job i's best schedule on the residuals at scaled prices; return (payoff, completion slot).

    A completion slot of -1 says that no schedule's payoff exceeds the threshold. The choices stay in
    the scratch, for `commit`.
    """
    first_slot, last_slot, due = ground.arrival[i], ground.deadline[i], ground.target[i]
    begin, end = ground.table_offset[i], ground.table_offset[i + 1]
    steps, needed = ground.progress[begin:end], ground.ps_needed[begin:end]
    segment, segment_end = ground.segment_offset[i], ground.segment_offset[i + 1]
    per_slot, most = steps[-1], ground.most[i]
    states, tables, largest = scratch.states, scratch.tables, scratch.largest
    cost, ps_cost = np.empty(ground.worker_cost.shape[1]), np.empty(ground.ps_cost.shape[1])
    best, completion, reached = threshold, -1, 0
    states[0, : due + 1] = INFINITE
    states[0, 0] = 0.0
    for t in range(first_slot, last_slot + 1):
        if ground.value[i, t] <= best:
            break
        k = t - first_slot
        before, after = states[k], states[k + 1]
        after[: due + 1] = INFINITE
        least = max(0, due - per_slot * (last_slot - t + 1))
        now_reached = reached
        for s in range(segment, segment_end):
            row = s - segment
            low = max(least, ground.segment_start[s])
            high = min(reached + 1, ground.segment_start[s + 1] if s + 1 < segment_end else due)
            if low >= high:
                largest[k, row] = -1
                continue
            for c in range(len(cost)):
                cost[c] = scale * ground.worker_cost[s, c, t] * scratch.noise[t, c]
            for c in range(len(ps_cost)):
                ps_cost[c] = scale * ground.ps_cost[s, c, t] * scratch.noise[t, len(cost) + c]
            limit, ps_limit = scratch.worker_limit[k, row], scratch.ps_limit[k, row]
            class_limits(
                state.worker_left[t],
                ground.worker_demand[s],
                ground.worker_room,
                s,
                t,
                ground.worker_first,
                limit,
            )
            class_limits(state.ps_left[t], ground.ps_demand[s], ground.ps_room, s, t, ground.ps_first, ps_limit)
            # Slices with a step have the array type of `schedule_loop`, whose compiled table then serves here, too.
            largest[k, row] = slot_table(
                cost[::1], limit[::1], ps_cost[::1], ps_limit[::1], needed, most, scratch.order, scratch.ps_order,
                tables[k, row],
            )  # fmt: skip
            min_plus_step(before, after, tables[k, row], largest[k, row], steps, low, high, due)
            now_reached = max(now_reached, high - 1 + steps[largest[k, row]])
        if before[due] < after[due]:
            after[due] = before[due]
        reached = min(due, now_reached)
        payoff = ground.value[i, t] - after[due]
        if payoff > best:
            best, completion = payoff, t
    return best, completion


@compiled
def place(units, c, t, s, left, demand, room, first, rows, count, tight, scratch_room, order):
    """Put units of one demand on single servers of a class, fullest servers first if ``tight``; append rows.

    The class must hold them. Returns the number of rows used so far.
    """
    low, high = first[c], first[c + 1]
    for h in range(low, high):
        held = float(room[s, c, t])
        for r in range(len(demand)):
            if demand[r] > 0.0:
                held = min(held, left[h, r] / demand[r])
        scratch_room[h - low] = int(held)
    size = high - low
    sort_by_key(scratch_room, size, order)
    for turn in range(size):
        h = order[turn] if tight else order[size - 1 - turn]
        put = min(units, scratch_room[h])
        if put == 0:
            continue
        for r in range(len(demand)):
            left[low + h, r] -= put * demand[r]
        rows[count, 0], rows[count, 1], rows[count, 2], rows[count, 3] = t, low + h, put, s
        count += 1
        units -= put
        if units == 0:
            break
    return count


@compiled
def commit(i, completion, scale, tight, ground, state, scratch):
    """Put the schedule that `best_fit` found last on real servers."""
    first_slot, due = ground.arrival[i], ground.target[i]
    begin, end = ground.table_offset[i], ground.table_offset[i + 1]
    steps, needed = ground.progress[begin:end], ground.ps_needed[begin:end]
    segment, segment_end = ground.segment_offset[i], ground.segment_offset[i + 1]
    states, tables, largest = scratch.states, scratch.tables, scratch.largest
    offset, stop = ground.row_offset[i], ground.row_offset[i + 1]
    rows, ps_rows = state.worker_rows[offset:stop], state.ps_rows[offset:stop]
    count, ps_count = ZERO, ZERO
    d = due
    for k in range(completion - first_slot, -1, -1):
        goal = states[k + 1, d]
        t = first_slot + k
        found = False
        for s in range(segment, segment_end):
            row = s - segment
            low = ground.segment_start[s]
            high = ground.segment_start[s + 1] if s + 1 < segment_end else due
            for y in range(largest[k, row] + 1):
                d_first = d - steps[y]
                d_last = due - 1 if d == due and y > 0 else d_first
                for origin in range(max(d_first, low, 0), min(d_last, high - 1) + 1):
                    if states[k, origin] + tables[k, row, y] == goal:
                        found = True
                        d = origin
                        break
                if found:
                    if y > 0:
                        count, ps_count = _split_slot(
                            y, needed[y], t, k, s, row, scale, tight, ground, state, scratch, rows, count, ps_rows,
                            ps_count,
                        )  # fmt: skip
                    break
            if found:
                break
    state.worker_count[i], state.ps_count[i] = count, ps_count
    state.completion[i] = completion


@compiled
def _split_slot(
    units, servers, t, k, s, row, scale, tight, ground, state, scratch, rows, count, ps_rows, ps_count
):  # fmt: skip
    """Divide one slot's workers and PSs over classes by cost, and over servers by fit."""
    noise = scratch.noise[t]
    cost, limit = ground.worker_cost[s, :, t], scratch.worker_limit[k, row]
    while units > 0:
        chosen = NONE
        for c in range(len(cost)):
            if limit[c] > 0 and (chosen < 0 or cost[c] * noise[c] < cost[chosen] * noise[chosen]):
                chosen = c
        put = min(units, limit[chosen])
        count = place(
            put, chosen, t, s, state.worker_left[t], ground.worker_demand[s], ground.worker_room,
            ground.worker_first, rows, count, tight, scratch.room, scratch.server_order,
        )  # fmt: skip
        limit[chosen] = 0
        units -= put
    ps_noise = noise[ground.worker_cost.shape[1] :]
    cost, limit = ground.ps_cost[s, :, t], scratch.ps_limit[k, row]
    while servers > 0:
        chosen = NONE
        for c in range(len(cost)):
            if limit[c] > 0 and (chosen < 0 or cost[c] * ps_noise[c] < cost[chosen] * ps_noise[chosen]):
                chosen = c
        put = min(servers, limit[chosen])
        ps_count = place(
            put, chosen, t, s, state.ps_left[t], ground.ps_demand[s], ground.ps_room, ground.ps_first,
            ps_rows, ps_count, tight, scratch.room, scratch.server_order,
        )  # fmt: skip
        limit[chosen] = 0
        servers -= put
    return count, ps_count


@compiled
def shift(i, sign, ground, state):
    """Give job i's room back (sign +1) or take it again (sign -1)."""
    offset = ground.row_offset[i]
    for a in range(offset, offset + state.worker_count[i]):
        t, h, n, s = state.worker_rows[a]
        for r in range(state.worker_left.shape[2]):
            state.worker_left[t, h, r] += sign * n * ground.worker_demand[s, r]
    for a in range(offset, offset + state.ps_count[i]):
        t, h, n, s = state.ps_rows[a]
        for r in range(state.ps_left.shape[2]):
            state.ps_left[t, h, r] += sign * n * ground.ps_demand[s, r]


@compiled
def _choose_forced(ground, state, random):
    """Choose a refused job that is to be inserted before all others, or -1 for none."""
    if uniform(random) >= FORCED_SHARE or len(ground.candidates) == 0:
        return -1
    j = ground.candidates[int(uniform(random) * len(ground.candidates))]
    return j if state.completion[j] < 0 else -1


@compiled
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
        count, low, high = 0, ground.arrival[forced], ground.deadline[forced]
    else:
        ruined[0] = admitted[int(uniform(random) * len(admitted))]
        count, low, high = 1, ground.arrival[ruined[0]], state.completion[ruined[0]]
    anywhere = uniform(random) < 0.1
    for _ in range(8 * size):
        if count >= size:
            break
        j = admitted[int(uniform(random) * len(admitted))]
        if not anywhere and (state.completion[j] < low or ground.arrival[j] > high):
            continue
        is_new = True
        for k in range(count):
            if ruined[k] == j:
                is_new = False
                break
        if is_new:
            ruined[count] = j
            count += 1
    return count


@compiled
def _choose_waiting(ground, state, ruined, num_ruined, most, forced, random, waiting):
    """Copy the ruined jobs, then add a forced job and refused jobs whose time overlaps theirs; return how many."""
    count = num_ruined
    low, high = ground.value.shape[1], 0
    for k in range(num_ruined):
        waiting[k] = ruined[k]
        low = min(low, ground.arrival[ruined[k]])
        high = max(high, state.completion[ruined[k]])
    if forced >= 0:
        waiting[count] = forced
        count += 1
    for _ in range(6 * most):
        if count - num_ruined >= most:
            break
        j = ground.candidates[int(uniform(random) * len(ground.candidates))]
        if state.completion[j] >= 0 or ground.arrival[j] > high or ground.deadline[j] < low:
            continue
        is_new = True
        for k in range(count):
            if waiting[k] == j:
                is_new = False
                break
        if is_new:
            waiting[count] = j
            count += 1
    return count


@compiled
def _arrange(ground, waiting, count, forced, random):
    """Order the waiting jobs: at random, by best value, by value a unit of work, or by LP payoff, with noise.

    A forced job comes first.
    """
    rule = int(uniform(random) * 4)
    key = np.empty(count)
    for k in range(count):
        i = waiting[k]
        best = ground.value[i, ground.arrival[i]]
        if rule == 0:
            key[k] = uniform(random)
        elif rule == 1:
            key[k] = -best * (0.7 + 0.6 * uniform(random))
        elif rule == 2:
            key[k] = -best / ground.target[i] * (0.7 + 0.6 * uniform(random))
        else:
            key[k] = -(ground.payoff[i] + 0.05 * best) * (0.7 + 0.6 * uniform(random))
        if i == forced:
            key[k] = -INFINITE
    order, copied = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    sort_by_key(key, count, order)
    for k in range(count):
        copied[k] = waiting[k]
    for k in range(count):
        waiting[k] = copied[order[k]]


@compiled
def _draw_noise(noise, random):
    """Multiply prices by noise of a random strength, one factor a slot and one a class: the same job finds new places."""
    strength = uniform(random)
    for c in range(noise.shape[1]):
        noise[0, c] = 1.0 + strength * (2.0 * uniform(random) - 1.0)
    for t in range(noise.shape[0] - 1, -1, -1):
        factor = 1.0 + strength * (2.0 * uniform(random) - 1.0)
        for c in range(noise.shape[1]):
            noise[t, c] = factor * noise[0, c]


@compiled
def insert_all(ground, state, waiting, count, scale, tight, scratch):
    """Insert jobs in order, each where its payoff at scaled prices is positive; return the value gained."""
    gained = 0.0
    for k in range(count):
        i = waiting[k]
        _, completion = best_fit(i, scale, 0.0, ground, state, scratch)
        if completion >= 0:
            commit(i, completion, scale, tight, ground, state, scratch)
            gained += ground.value[i, completion]
    return gained


@compiled
def search_moves(ground, state, best, scratch, num_moves, heat, present, record, largest_ruin):
    """Run moves at an acceptance temperature; return (present value, best value). `best` receives the best plan's rows."""
    num_jobs = len(ground.arrival)
    ruined, waiting = np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    old, before = np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    kept_rows = np.empty_like(state.worker_rows)
    kept_ps_rows = np.empty_like(state.ps_rows)
    counts, ps_counts = np.empty(num_jobs, dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    random = scratch.random
    for _ in range(num_moves):
        forced = _choose_forced(ground, state, random)
        num_ruined = _choose_ruined(ground, state, largest_ruin, forced, random, ruined)
        if num_ruined == 0:
            if forced >= 0:
                continue
            break
        extra = 1 + int(uniform(random) * (num_ruined + 3))
        count = _choose_waiting(
            ground, state, ruined, num_ruined, min(extra, num_jobs - num_ruined - 1), forced, random, waiting
        )
        lost = 0.0
        for k in range(count):
            i = waiting[k]
            old[k] = state.completion[i]
        # The order of `waiting` changes below; what to restore is kept by job.
        for k in range(count):
            before[k] = waiting[k]
        for k in range(num_ruined):
            i = before[k]
            lost += ground.value[i, state.completion[i]]
            a, b = ground.row_offset[i], ground.row_offset[i + 1]
            _copy_rows(state.worker_rows, kept_rows, a, b)
            _copy_rows(state.ps_rows, kept_ps_rows, a, b)
            counts[i], ps_counts[i] = state.worker_count[i], state.ps_count[i]
            shift(i, 1.0, ground, state)
            state.completion[i] = -1
        _arrange(ground, waiting, count, forced, random)
        scale = 1.2 * uniform(random)
        _draw_noise(scratch.noise, random)
        gained = insert_all(ground, state, waiting, count, scale, uniform(random) < 0.8, scratch)
        change = gained - lost
        if change >= 0.0 or uniform(random) < np.exp(change / heat):
            present += change
            if present > record + 1e-9:
                record = present
                _copy_plan(state, best, ground)
            continue
        for k in range(count):
            i = before[k]
            if state.completion[i] >= 0:
                shift(i, 1.0, ground, state)
                state.completion[i] = -1
        for k in range(num_ruined):
            i = before[k]
            a, b = ground.row_offset[i], ground.row_offset[i + 1]
            _copy_rows(kept_rows, state.worker_rows, a, b)
            _copy_rows(kept_ps_rows, state.ps_rows, a, b)
            state.worker_count[i], state.ps_count[i] = counts[i], ps_counts[i]
            state.completion[i] = old[k]
            shift(i, -1.0, ground, state)
    return present, record
