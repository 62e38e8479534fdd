"""Insertions on real servers, compiled: a job's best schedule on what is left of the classes, put on single servers."""

from typing import NamedTuple

from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.neighbourhood.ground import Side, SideScratch, SideState
from optim.solvers.admission.neighbourhood.shared_insertion import SharedServers, fill_shared, write_shared
from optim.solvers.admission.pricing.best_schedule import INFINITE, NONE, ZERO, min_plus_step, sort_by_key, trace_by
from optim.solvers.admission.pricing.class_tables import slot_table


class SidePlacement(NamedTuple):
    """One side as units are put on it; no more than that, since every array that crosses a call is counted."""

    side: Side
    state: SideState
    scratch: SideScratch


class Placement(NamedTuple):
    """Where units are put: on the fullest servers that hold them (``is_tight``), or on the emptiest."""

    workers: SidePlacement
    ps: SidePlacement
    row_offset: IntArray
    room: IntArray
    server_order: IntArray
    shared: SharedServers
    costs: FloatArray
    is_shared: bool
    is_tight: bool


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


@inner
def _order_classes(s, t, side, scratch):
    """Fill in what one unit costs in each class at scale 1, and sort the classes by it."""
    for c in range(len(scratch.cost)):
        scratch.cost[c] = side.cost[s, c, t] * scratch.noise[t, c]
    sort_by_key(scratch.cost, len(scratch.cost), scratch.order)


@inner
def best_fit(i, scale, is_tight, ground, state, scratch):
    """Find job i's best schedule on what is left of the classes at scaled prices; return (payoff, completion slot).

    On shared servers the best that `fill_shared` finds. A completion slot of -1 says that no payoff is positive. The recursion of `best_by`, with the slot's table made in
    place: handed to it as a function, the table costs 2 of 9 microseconds a search (medium-0), since every array that
    crosses a call is counted.
    """
    jobs, workers, ps = ground.jobs, ground.workers, ground.ps
    first_slot, last_slot, due = jobs.arrival[i], jobs.deadline[i], jobs.target[i]
    begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
    steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
    segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
    states, tables, largest = scratch.space.states, scratch.space.tables, scratch.space.largest
    unit, noise, ps_unit, ps_noise = scratch.workers.cost, scratch.workers.noise, scratch.ps.cost, scratch.ps.noise
    best, completion, reached = 0.0, NONE, ZERO
    states[0, : due + 1] = INFINITE
    states[0, 0] = 0.0
    for t in range(first_slot, last_slot + 1):
        if jobs.value[i, t] <= best:
            break
        k = t - first_slot
        before, after = states[k], states[k + 1]
        after[: due + 1] = INFINITE
        least = max(0, due - steps[-1] * (last_slot - t + 1))
        furthest = reached
        for s in range(segment, segment_end):
            row = s - segment
            low = max(least, jobs.segment_start[s])
            high = min(reached + 1, jobs.segment_start[s + 1] if s + 1 < segment_end else due)
            largest[k, row] = NONE
            if low >= high:
                continue
            if ground.is_shared:
                _order_classes(s, t, workers, scratch.workers)
                _order_classes(s, t, ps, scratch.ps)
                largest[k, row] = fill_shared(
                    s, t, jobs.most[i], needed, scale, state.workers.left[t], workers, ps, scratch.shared,
                    scratch.workers.order, scratch.ps.order, is_tight, unit, ps_unit, tables[k, row],
                )  # fmt: skip
                min_plus_step(before, after, tables[k, row], largest[k, row], steps, low, high, due)
                furthest = max(furthest, high - 1 + steps[largest[k, row]])
                continue
            for c in range(len(unit)):
                unit[c] = scale * workers.cost[s, c, t] * noise[t, c]
            for c in range(len(ps_unit)):
                ps_unit[c] = scale * ps.cost[s, c, t] * ps_noise[t, c]
            limit, ps_limit = scratch.workers.limit[k, row], scratch.ps.limit[k, row]
            class_limits(state.workers.left[t], workers.demand[s], workers.room, s, t, workers.first, limit)
            class_limits(state.ps.left[t], ps.demand[s], ps.room, s, t, ps.first, ps_limit)
            largest[k, row] = slot_table(
                unit, limit, ps_unit, ps_limit, needed, jobs.most[i], scratch.workers.order, scratch.ps.order,
                tables[k, row],
            )  # fmt: skip
            min_plus_step(before, after, tables[k, row], largest[k, row], steps, low, high, due)
            furthest = max(furthest, high - 1 + steps[largest[k, row]])
        after[due] = min(after[due], before[due])
        reached = min(due, furthest)
        payoff = jobs.value[i, t] - after[due]
        if payoff > best:
            best, completion = payoff, t
    return best, completion


@inner
def place(units, c, t, s, left, demand, room, first, rows, count, tight, free, order):
    """Put units of one demand on single servers of a class, fullest servers first if ``tight``; append rows.

    The class must hold them. Returns the number of rows used so far.
    """
    low, high = first[c], first[c + 1]
    for h in range(low, high):
        held = float(room[s, c, t])
        for r in range(len(demand)):
            if demand[r] > 0.0:
                held = min(held, left[h, r] / demand[r])
        free[h - low] = int(held)
    size = high - low
    sort_by_key(free, size, order)
    for turn in range(size):
        h = order[turn] if tight else order[size - 1 - turn]
        put = min(units, free[h])
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


@inner
def _write_side(i, s, t, row, k, units, place_on, own, is_tight, room, server_order):
    """Divide a slot's units over classes by cost, and over servers by fit."""
    side, state, scratch = place_on.side, place_on.state, place_on.scratch
    limit, order = scratch.limit[k, row], scratch.order
    _order_classes(s, t, side, scratch)
    for turn in range(len(limit)):
        c = order[turn]
        put = min(units, limit[c])
        if put > 0:
            state.used[i] = place(
                put, c, t, s, state.left[t], side.demand[s], side.room, side.first, state.rows[own:], state.used[i],
                is_tight, room, server_order,
            )  # fmt: skip
            units -= put


@inner
def _write_pairs(i, s, t, units, needed, out):
    """Put a slot's workers and PSs on shared servers, as the table's maker did."""
    workers, ps, shared = out.workers, out.ps, out.shared
    _order_classes(s, t, workers.side, workers.scratch)
    _order_classes(s, t, ps.side, ps.scratch)
    fill_shared(
        s, t, units, needed, 1.0, workers.state.left[t], workers.side, ps.side, shared, workers.scratch.order,
        ps.scratch.order, out.is_tight, workers.scratch.cost, ps.scratch.cost, out.costs,
    )  # fmt: skip
    write_shared(i, s, t, shared.workers, out.row_offset, workers.side, workers.state)
    write_shared(i, s, t, shared.ps, out.row_offset, ps.side, ps.state)


@inner
def _write_slot(i, s, t, k, workers, ps, jobs, source, out):
    row, own = s - jobs.segment_offset[i], out.row_offset[i]
    if out.is_shared:
        begin = jobs.table_offset[i]
        _write_pairs(i, s, t, workers, jobs.ps_needed[begin : begin + workers + 1], out)
        return
    _write_side(i, s, t, row, k, workers, out.workers, own, out.is_tight, out.room, out.server_order)
    _write_side(i, s, t, row, k, ps, out.ps, own, out.is_tight, out.room, out.server_order)


_trace = trace_by(_write_slot)


@compiled
def insert_all(ground, state, waiting, scale, is_tight, scratch):
    """Insert jobs in order, each where its payoff at scaled prices is positive; return the value gained."""
    gained = 0.0
    out = Placement(
        SidePlacement(ground.workers, state.workers, scratch.workers),
        SidePlacement(ground.ps, state.ps, scratch.ps),
        ground.row_offset,
        scratch.room,
        scratch.server_order,
        scratch.shared,
        scratch.costs,
        ground.is_shared,
        is_tight,
    )
    for i in waiting:
        _, completion = best_fit(i, scale, is_tight, ground, state, scratch)
        if completion >= 0:
            state.workers.used[i] = state.ps.used[i] = ZERO
            _trace(i, completion, ground.jobs, scratch.space, None, out)
            state.completion[i] = completion
            gained += ground.jobs.value[i, completion]
    return gained


@inner
def _shift_side(i, sign, offset, side, state):
    for a in range(offset, offset + state.used[i]):
        t, h, n, s = state.rows[a]
        for r in range(state.left.shape[2]):
            state.left[t, h, r] += sign * n * side.demand[s, r]


@compiled
def shift(i, sign, ground, state):
    """Give job i's room back (sign +1) or take it again (sign -1)."""
    _shift_side(i, sign, ground.row_offset[i], ground.workers, state.workers)
    _shift_side(i, sign, ground.row_offset[i], ground.ps, state.ps)


@compiled
def take_out(i, ground, state):
    """Refuse a job that is admitted."""
    shift(i, 1.0, ground, state)
    state.completion[i] = -1


@inner
def _copy_rows(first, source, goal, i):
    """Copy a job's rows; a loop, because slice assignment takes seconds to compile."""
    goal.used[i] = source.used[i]
    for a in range(first, first + source.used[i]):
        for column in range(source.rows.shape[1]):
            goal.rows[a, column] = source.rows[a, column]


@inner
def copy_job(i, source, goal, ground):
    """Copy where a job completes and what it holds, not the residuals."""
    goal.completion[i] = source.completion[i]
    if source.completion[i] >= 0:
        _copy_rows(ground.row_offset[i], source.workers, goal.workers, i)
        _copy_rows(ground.row_offset[i], source.ps, goal.ps, i)


@compiled
def copy_plan(source, goal, ground):
    """Copy all jobs, not the residuals."""
    for i in range(len(source.completion)):
        copy_job(i, source, goal, ground)
