"""Insertions on real servers, compiled: a job's best schedule on what is left of the classes, put on single servers."""

from typing import NamedTuple

from optim.core.compile_cache import compiled
from optim.solvers.admission.neighbourhood.ground import Ground, Scratch, State
from optim.solvers.admission.pricing.best_schedule import ZERO, best_by, sort_by_key, trace_by
from optim.solvers.admission.pricing.class_tables import slot_table


class Insertion(NamedTuple):
    """Where a job is inserted: at scaled prices, on the fullest servers that hold it (``is_tight``) or the emptiest."""

    ground: Ground
    state: State
    scratch: Scratch
    scale: float
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


@compiled
def _prepare_side(s, t, k, row, scale, side, left, scratch):
    """Fill in what a unit costs in each class and how many units it still holds."""
    for c in range(len(scratch.cost)):
        scratch.cost[c] = scale * side.cost[s, c, t] * scratch.noise[t, c]
    class_limits(left[t], side.demand[s], side.room, s, t, side.first, scratch.limit[k, row])


@compiled
def _left_table(i, s, t, k, ceiling, needed, jobs, source, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs on what is left of the classes."""
    ground, state, row = source.ground, source.state, s - jobs.segment_offset[i]
    workers, ps = source.scratch.workers, source.scratch.ps
    _prepare_side(s, t, k, row, source.scale, ground.workers, state.workers.left, workers)
    _prepare_side(s, t, k, row, source.scale, ground.ps, state.ps.left, ps)
    return slot_table(
        workers.cost, workers.limit[k, row], ps.cost, ps.limit[k, row], needed, jobs.most[i], workers.order, ps.order,
        table,
    )  # fmt: skip


@compiled
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


@compiled
def _write_side(i, s, t, limit, units, side, state, scratch, source):
    """Divide a slot's units over classes by cost, and over servers by fit."""
    for c in range(len(limit)):
        scratch.cost[c] = side.cost[s, c, t] * scratch.noise[t, c]
    sort_by_key(scratch.cost, len(limit), scratch.order)
    offsets, whole = source.ground.row_offset, source.scratch
    rows = state.rows[offsets[i] : offsets[i + 1]]
    for turn in range(len(limit)):
        c = scratch.order[turn]
        put = min(units, limit[c])
        if put > 0:
            state.used[i] = place(
                put, c, t, s, state.left[t], side.demand[s], side.room, side.first, rows, state.used[i],
                source.is_tight, whole.room, whole.server_order,
            )  # fmt: skip
            units -= put


@compiled
def _write_slot(i, s, t, k, workers, ps, jobs, source, out):
    row = s - jobs.segment_offset[i]
    ground, state, scratch = source.ground, source.state, source.scratch
    _write_side(i, s, t, scratch.workers.limit[k, row], workers, ground.workers, state.workers, scratch.workers, source)
    _write_side(i, s, t, scratch.ps.limit[k, row], ps, ground.ps, state.ps, scratch.ps, source)


best_fit, _trace = best_by(_left_table), trace_by(_write_slot)


@compiled
def insert_all(ground, state, waiting, scale, is_tight, scratch):
    """Insert jobs in order, each where its payoff at scaled prices is positive; return the value gained."""
    gained = 0.0
    source = Insertion(ground, state, scratch, scale, is_tight)
    for i in waiting:
        _, completion = best_fit(i, 0.0, ground.jobs, scratch.space, source)
        if completion >= 0:
            state.workers.used[i] = state.ps.used[i] = ZERO
            _trace(i, completion, ground.jobs, scratch.space, source, None)
            state.completion[i] = completion
            gained += ground.jobs.value[i, completion]
    return gained


@compiled
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


@compiled
def _copy_rows(first, source, goal, i):
    """Copy a job's rows; a loop, because slice assignment takes seconds to compile."""
    goal.used[i] = source.used[i]
    for a in range(first, first + source.used[i]):
        for column in range(source.rows.shape[1]):
            goal.rows[a, column] = source.rows[a, column]


@compiled
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
