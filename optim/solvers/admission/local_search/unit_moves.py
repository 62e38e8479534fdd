"""The last phase of `search`, compiled: moves of single units, one worker of one job from a server and slot to another.

Insertions consider one job at a time in the residual capacity. A plan that no insertion improves can gain by exchanging
units of several jobs: a job completes a slot earlier if the units of its last slot fit earlier. A unit without free capacity
replaces another job's unit, which moves to free capacity elsewhere (a 1-swap) or displaces a third job's unit (a 2-swap).
Many jobs lose no value by completing later. So a displaced unit may move beyond its job's completion while the total loss is
below the first job's gain. The value rises with each change, and the phase ends when no change is found.

Each unit goes to the first slot and server with free capacity; without any, chains are tried by slot, server and job. The
result is deterministic. PSs follow the workers: the minimal number per slot, on the first servers with capacity.

Jobs with demand segments don't move, since a unit's demand would depend on the units before it. Instances where another
worker may add no progress are skipped.

Source: Glover, "Ejection chains, reference structures and alternating path methods for traveling salesman problems", 1996,
DOI 10.1016/0166-218X(94)00037-E (chains of displacements with a total gain).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optim.compiled import by_reference, compiled
from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.local_search.insertion import SearchData

MAX_CELLS = 10_000_000
"""Maximal number of cells (job, slot, server), 40 MB; larger instances, such as `wide-0`, are skipped."""

ATTEMPT_WORK = 200_000
"""Maximal number of combinations (slot, server and, if any, displaced job) examined per attempt: about a millisecond."""

PIECE_WORK, NUM_PIECES = 5_000_000, 50
"""Combinations examined between two checks of the stopping rule (some 50 ms), and the maximal number of such pieces."""

MAX_SWAPS = 2
"""Maximal number of jobs that a chain displaces."""

SWAPS, NEXT, HAS_GAINED = 0, 1, 2
"""Positions in the cursor of `move_units`."""

MIN_GAIN = 1e-9
"""Smallest increase of a value that counts as a gain."""

WORKER, PS, COMPLETION = 0, 1, 2
"""Types of journal entries."""

ENTRIES, WORK, FIRST, RESERVE = 0, 1, 2, 3
"""Positions in `Units.size`: number of journal entries, combinations that may still be examined, the job to improve, and the
maximal number of journal entries per displacement."""

JOURNAL = 50_000
"""Number of journal entries in addition to those that clear a job's slots."""


@by_reference
class Units(NamedTuple):
    """The placed units of a plan, one row per job and slot from its arrival to its deadline.

    Parameters
    ----------
    is_movable
        Shape (jobs,): whether a job's units may be moved.
    offset
        Shape (jobs + 1,): index of each job's first row.
    workers, ps
        Shape (rows, servers): units of the job on each server.
    totals
        Shape (rows, 2): workers and PSs of the job in the slot.
    done
        Shape (jobs,): worker-slots of each job in the plan.
    limit
        Shape (jobs,): last slot in which units of the job may lie.
    worker_class, ps_class
        Shape (servers,): class of each server.
    journal
        Shape (entries, 5): changes (kind, job, slot, server, units), for undoing.
    budgets
        Shape (entries,): value of `budget` before each journal entry.
    budget
        Shape (1,): utility that other jobs may still lose.
    size
        Shape (4,): counters at the positions `ENTRIES`, `WORK`, `FIRST` and `RESERVE`.
    """

    is_movable: BoolArray
    offset: IntArray
    workers: NDArray[np.int32]
    ps: NDArray[np.int32]
    totals: IntArray
    done: IntArray
    limit: IntArray
    worker_class: IntArray
    ps_class: IntArray
    journal: IntArray
    budgets: FloatArray
    budget: FloatArray
    size: IntArray


def make_units(instance: AdmissionInstance, data: SearchData) -> Units | None:
    """Return work space for an instance, or None if its units can't move or exceed `MAX_CELLS` cells."""
    if instance.has_steps or len(data.candidates) == 0:
        return None
    is_movable = np.zeros(instance.num_jobs, dtype=np.bool_)
    is_movable[data.candidates] = True
    is_movable &= np.diff(data.jobs.segment_offset) == 1
    rows = np.where(is_movable, data.jobs.deadline - data.jobs.arrival + 1, 0)
    offset = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)
    classes = [side.class_of_server.astype(np.int64) for side in (instance.worker_servers, instance.ps_servers)]
    if int(offset[-1]) * sum(map(len, classes)) > MAX_CELLS:
        return None
    # One displacement removes all units of a job from a server, and changes its PSs and those of the incoming job.
    servers = sum(map(len, classes))
    reserve = 4 * (int(data.jobs.most.max()) + servers) + 16
    entries = JOURNAL + instance.horizon * servers + reserve
    return Units(
        is_movable=is_movable,
        offset=offset,
        workers=np.zeros((int(offset[-1]), len(classes[0])), dtype=np.int32),
        ps=np.zeros((int(offset[-1]), len(classes[1])), dtype=np.int32),
        totals=np.zeros((int(offset[-1]), 2), dtype=np.int64),
        done=np.zeros(instance.num_jobs, dtype=np.int64),
        limit=data.jobs.deadline.copy(),
        worker_class=classes[0],
        ps_class=classes[1],
        journal=np.zeros((entries, 5), dtype=np.int64),
        budgets=np.zeros(entries),
        budget=np.zeros(1),
        size=np.array([0, 0, 0, reserve]),
    )


@compiled
def _is_spent(units):
    """Return whether an attempt has examined its maximal number of combinations, or its journal is nearly full."""
    return units.size[WORK] < 0 or units.size[ENTRIES] > len(units.journal) - units.size[RESERVE]


@compiled
def _log(kind, i, t, h, n, units):
    entry = units.size[ENTRIES]
    units.journal[entry, 0], units.journal[entry, 1], units.journal[entry, 2] = kind, i, t
    units.journal[entry, 3], units.journal[entry, 4] = h, n
    units.budgets[entry] = units.budget[0]
    units.size[ENTRIES] += 1


@compiled
def _change(kind, i, t, h, n, data, state, units):
    """Add n units of a job on a server; negative n removes them."""
    s, row = data.jobs.segment_offset[i], units.offset[i] + t - data.jobs.arrival[i]
    if kind == WORKER:
        units.workers[row, h] += n
        units.totals[row, WORKER] += n
        units.done[i] += n
        for r in range(state.workers.residual.shape[2]):
            state.workers.residual[t, h, r] -= n * data.workers.demand[s, r]
    else:
        units.ps[row, h] += n
        units.totals[row, PS] += n
        for r in range(state.ps.residual.shape[2]):
            state.ps.residual[t, h, r] -= n * data.ps.demand[s, r]


@compiled
def _move(kind, i, t, h, n, data, state, units):
    """Change units and log the change."""
    _change(kind, i, t, h, n, data, state, units)
    _log(kind, i, t, h, n, units)


@compiled
def _complete_at(i, t, state, data, units):
    """Set a job's completion slot and update the budget by the gain or loss."""
    _log(COMPLETION, i, state.completion[i], 0, 0, units)
    units.budget[0] += data.jobs.value[i, t] - data.jobs.value[i, state.completion[i]]
    state.completion[i] = t


@compiled
def _undo_to(mark, data, state, units):
    """Undo all journal entries after a mark."""
    while units.size[ENTRIES] > mark:
        units.size[ENTRIES] -= 1
        entry = units.size[ENTRIES]
        kind, i, t = units.journal[entry, 0], units.journal[entry, 1], units.journal[entry, 2]
        if kind == COMPLETION:
            state.completion[i] = t
            units.budget[0] = units.budgets[entry]
        else:
            _change(kind, i, t, units.journal[entry, 3], -units.journal[entry, 4], data, state, units)


@compiled
def _has_room(kind, i, t, h, data, state, shared, units):
    """Return whether one more worker, or PS, of a job fits on a server."""
    s, row = data.jobs.segment_offset[i], units.offset[i] + t - data.jobs.arrival[i]
    more_workers, more_ps = 1 - kind, kind
    if kind == WORKER:
        c = units.worker_class[h]
        if units.workers[row, h] + 1 > data.workers.unit_capacity[s, c, t]:
            return False
        for r in range(state.workers.residual.shape[2]):
            if data.workers.demand[s, r] > state.workers.residual[t, h, r]:
                return False
    else:
        c = units.ps_class[h]
        if units.ps[row, h] + 1 > data.ps.unit_capacity[s, c, t]:
            return False
        for r in range(state.ps.residual.shape[2]):
            if data.ps.demand[s, r] > state.ps.residual[t, h, r]:
                return False
    if data.is_shared:
        y, z = units.workers[row, h] + more_workers, units.ps[row, h] + more_ps
        if y + z > 1:
            for r in range(state.workers.residual.shape[2]):
                if y * data.workers.demand[s, r] + z * data.ps.demand[s, r] > shared.share[c, t, r]:
                    return False
    return True


@compiled
def _needed(i, count, data):
    """Return the number of PSs that `count` workers need."""
    return data.jobs.ps_needed[data.jobs.table_offset[i] + count]


@compiled
def _add_ps(i, t, data, state, shared, units):
    """Place a slot's missing PSs on the first servers with capacity; return whether all fit."""
    row = units.offset[i] + t - data.jobs.arrival[i]
    lacking = _needed(i, units.totals[row, WORKER], data) - units.totals[row, PS]
    for h in range(units.ps.shape[1]):
        while lacking > 0 and _has_room(PS, i, t, h, data, state, shared, units):
            _move(PS, i, t, h, 1, data, state, units)
            lacking -= 1
        if lacking <= 0:
            return True
    return False


@compiled
def _drop_ps(i, t, data, state, units):
    """Remove a slot's surplus PSs, from the last servers."""
    row = units.offset[i] + t - data.jobs.arrival[i]
    spare = units.totals[row, PS] - _needed(i, units.totals[row, WORKER], data)
    for h in range(units.ps.shape[1] - 1, -1, -1):
        if spare <= 0:
            return
        n = min(spare, np.int64(units.ps[row, h]))
        if n > 0:
            _move(PS, i, t, h, -n, data, state, units)
            spare -= n


@compiled
def _is_too_late(i, t, data, state, units):
    """Return whether a unit in slot t would delay its job's completion, at a loss that uses up the remaining gain."""
    end = state.completion[i]
    return t > end and data.jobs.value[i, end] - data.jobs.value[i, t] >= units.budget[0] - MIN_GAIN


@compiled
def _put(i, t, h, data, state, shared, units):
    """Place a worker with the PSs that it needs; return whether they fit."""
    _move(WORKER, i, t, h, 1, data, state, units)
    if not _add_ps(i, t, data, state, shared, units):
        return False
    if t > state.completion[i]:
        _complete_at(i, t, state, data, units)
    return True


@compiled
def _put_free(i, data, state, shared, units):
    """Place a worker of a job on the first server where it fits; return whether there is one."""
    for t in range(data.jobs.arrival[i], units.limit[i] + 1):
        if _is_too_late(i, t, data, state, units):
            break
        row = units.offset[i] + t - data.jobs.arrival[i]
        if units.totals[row, WORKER] >= data.jobs.most[i]:
            continue
        units.size[WORK] -= units.workers.shape[1]
        for h in range(units.workers.shape[1]):
            if _has_room(WORKER, i, t, h, data, state, shared, units):
                mark = units.size[ENTRIES]
                if _put(i, t, h, data, state, shared, units):
                    return True
                _undo_to(mark, data, state, units)
                break
    return False


@compiled
def _may_yield(i, o, t, data, state, units):
    """Return whether units of job o in a slot may be displaced by job i, and count the examined combination."""
    units.size[WORK] -= 1
    return (
        o != i
        and o != units.size[FIRST]
        and data.jobs.arrival[o] <= t <= state.completion[o]
        and units.is_movable[o]
        and not _is_spent(units)
    )


@compiled
def _count(o, t, h, kind, data, units):
    """Return the number of workers or PSs of job o on a server in a slot."""
    row = units.offset[o] + t - data.jobs.arrival[o]
    return units.workers[row, h] if kind == WORKER else units.ps[row, h]


def _put_by(put_displaced):
    """Return a function that places a worker; `put_displaced` then places the units that this worker displaces."""

    @compiled
    def take_worker_place(i, t, h, o, data, state, shared, units):
        """Replace workers of job o by a worker of job i, and place the replaced workers elsewhere; return whether all fit."""
        row = units.offset[o] + t - data.jobs.arrival[o]
        while units.workers[row, h] > 0 and not _has_room(WORKER, i, t, h, data, state, shared, units):
            _move(WORKER, o, t, h, -1, data, state, units)
        _drop_ps(o, t, data, state, units)
        if not _has_room(WORKER, i, t, h, data, state, shared, units) or not _put(i, t, h, data, state, shared, units):
            return False
        while units.done[o] < data.jobs.target[o]:
            if _is_spent(units) or not put_displaced(o, data, state, shared, units):
                return False
        return True

    @compiled
    def take_ps_place(i, t, h, k, o, data, state, shared, units):
        """Place a worker of job i on server h, and its PS on server k instead of PSs of job o; job o may lose workers."""
        row = units.offset[o] + t - data.jobs.arrival[o]
        _move(WORKER, i, t, h, 1, data, state, units)
        while units.ps[row, k] > 0 and not _has_room(PS, i, t, k, data, state, shared, units):
            _move(PS, o, t, k, -1, data, state, units)
        if not _add_ps(i, t, data, state, shared, units):
            return False
        if t > state.completion[i]:
            _complete_at(i, t, state, data, units)
        if not _add_ps(o, t, data, state, shared, units):
            for server in range(units.workers.shape[1] - 1, -1, -1):
                while (
                    units.workers[row, server] > 0
                    and _needed(o, units.totals[row, WORKER], data) > units.totals[row, PS]
                ):
                    _move(WORKER, o, t, server, -1, data, state, units)
        while units.done[o] < data.jobs.target[o]:
            if _is_spent(units) or not put_displaced(o, data, state, shared, units):
                return False
        return True

    @compiled
    def put(i, data, state, shared, units):
        """Place a worker of a job where it fits, or where another job's units can move elsewhere."""
        if put_displaced(i, data, state, shared, units):
            return True
        jobs, mark, s = data.jobs, units.size[ENTRIES], data.jobs.segment_offset[i]
        for t in range(jobs.arrival[i], units.limit[i] + 1):
            if _is_too_late(i, t, data, state, units):
                break
            row = units.offset[i] + t - jobs.arrival[i]
            if units.totals[row, WORKER] >= jobs.most[i]:
                continue
            lacks_ps = _needed(i, units.totals[row, WORKER] + 1, data) > units.totals[row, PS]
            for h in range(units.workers.shape[1]):
                if units.workers[row, h] >= data.workers.unit_capacity[s, units.worker_class[h], t]:
                    continue
                if not _has_room(WORKER, i, t, h, data, state, shared, units):
                    for o in range(len(state.completion)):
                        if _may_yield(i, o, t, data, state, units) and _count(o, t, h, WORKER, data, units) > 0:
                            if take_worker_place(i, t, h, o, data, state, shared, units):
                                return True
                            _undo_to(mark, data, state, units)
                elif lacks_ps:
                    lacks_ps = False  # any server for the worker is good enough: only PSs are missing
                    for k in range(units.ps.shape[1]):
                        for o in range(len(state.completion)):
                            if _may_yield(i, o, t, data, state, units) and _count(o, t, k, PS, data, units) > 0:
                                if take_ps_place(i, t, h, k, o, data, state, shared, units):
                                    return True
                                _undo_to(mark, data, state, units)
                if _is_spent(units):
                    return False
        return False

    return put


_put_by_swap = _put_by(_put_free)

_put_by_swaps = _put_by(_put_by_swap)


@compiled
def _better_end(j, data, state):
    """Return the last completion slot with a higher value than now, -1 if there is none; the deadline for a rejected job."""
    end = state.completion[j]
    if end < 0:
        return data.jobs.deadline[j]
    for t in range(end - 1, data.jobs.arrival[j] - 1, -1):
        if data.jobs.value[j, t] > data.jobs.value[j, end] + MIN_GAIN:
            return t
    return -1


@compiled
def _settle(data, state, units):
    """Set the completion of each job in the journal to its last slot with workers."""
    for entry in range(units.size[ENTRIES]):
        i = units.journal[entry, 1]
        t = state.completion[i]
        while t > data.jobs.arrival[i] and units.totals[units.offset[i] + t - data.jobs.arrival[i], WORKER] == 0:
            t -= 1
        state.completion[i] = t


@compiled
def _improve(j, depth, data, state, shared, units):
    """Let a job complete earlier, or admit it; return whether its units fit at a loss below the gain."""
    end, goal = state.completion[j], _better_end(j, data, state)
    first = data.jobs.arrival[j]
    if goal < first or data.jobs.target[j] > (goal - first + 1) * data.jobs.most[j]:
        return False
    units.size[ENTRIES], units.size[FIRST] = 0, j
    units.budget[0] = data.jobs.value[j, goal] - (data.jobs.value[j, end] if end >= 0 else 0.0)
    units.limit[j] = goal
    _log(COMPLETION, j, end, 0, 0, units)
    state.completion[j] = goal
    for t in range(goal + 1, end + 1):
        row = units.offset[j] + t - first
        for h in range(units.workers.shape[1]):
            if units.workers[row, h] > 0:
                _move(WORKER, j, t, h, -np.int64(units.workers[row, h]), data, state, units)
        _drop_ps(j, t, data, state, units)
    is_whole = True
    while is_whole and units.done[j] < data.jobs.target[j]:
        if depth == 0:
            is_whole = _put_free(j, data, state, shared, units)
        elif depth == 1:
            is_whole = _put_by_swap(j, data, state, shared, units)
        else:
            is_whole = _put_by_swaps(j, data, state, shared, units)
        is_whole = is_whole and not _is_spent(units)
    units.limit[j] = data.jobs.deadline[j]
    if is_whole and units.budget[0] > MIN_GAIN:
        _settle(data, state, units)
        return True
    _undo_to(0, data, state, units)
    return False


@compiled
def _load(data, state, units):
    """Load the units of a plan into the work space."""
    units.workers[:] = 0
    units.ps[:] = 0
    units.totals[:] = 0
    units.done[:] = 0
    for i in range(len(state.completion)):
        if not units.is_movable[i] or state.completion[i] < 0:
            continue
        offset, first = data.row_offset[i], units.offset[i] - data.jobs.arrival[i]
        for a in range(offset, offset + state.workers.used[i]):
            t, h, n = state.workers.rows[a, 0], state.workers.rows[a, 1], state.workers.rows[a, 2]
            units.workers[first + t, h] += n
            units.totals[first + t, WORKER] += n
            units.done[i] += n
        for a in range(offset, offset + state.ps.used[i]):
            t, h, n = state.ps.rows[a, 0], state.ps.rows[a, 1], state.ps.rows[a, 2]
            units.ps[first + t, h] += n
            units.totals[first + t, PS] += n


@compiled
def _store_side(i, table, data, units, side):
    """Write the workers, or the PSs, of a job as its rows of the plan."""
    count, s = data.row_offset[i], data.jobs.segment_offset[i]
    for row in range(units.offset[i], units.offset[i + 1]):
        for h in range(table.shape[1]):
            if table[row, h] > 0:
                side.rows[count, 0] = row - units.offset[i] + data.jobs.arrival[i]
                side.rows[count, 1], side.rows[count, 2], side.rows[count, 3] = h, table[row, h], s
                count += 1
    side.used[i] = count - data.row_offset[i]


@compiled
def move_units(data, state, shared, units, cursor, work):
    """Improve a plan by moves of single units until no job gains, or `work` combinations are examined.

    Every job is tried with free capacity only, then with 1-swaps, then with 2-swaps. After a gain the job is tried again.
    After a round with gains, all jobs are tried again, first with free capacity only.

    Parameters
    ----------
    data, state, shared, units
        Instance, plan and work space.
    cursor
        Shape (3,): number of swaps, the next job, and whether the round has gained; zeros at first. Three swaps mean that
        no job gains any more.
    work
        Combinations to examine before the function returns; the next call continues from there.
    """
    _load(data, state, units)
    while cursor[SWAPS] <= MAX_SWAPS and work > 0:
        j = cursor[NEXT]
        if j == len(state.completion):
            cursor[SWAPS] = 0 if cursor[HAS_GAINED] == 1 else cursor[SWAPS] + 1
            cursor[NEXT] = cursor[HAS_GAINED] = 0
            continue
        units.size[WORK] = ATTEMPT_WORK
        if units.is_movable[j] and _improve(j, cursor[SWAPS], data, state, shared, units):
            cursor[HAS_GAINED] = 1
        else:
            cursor[NEXT] += 1
        work -= ATTEMPT_WORK - units.size[WORK] + 1
    for i in range(len(state.completion)):
        if units.is_movable[i] and state.completion[i] >= 0:
            _store_side(i, units.workers, data, units, state.workers)
            _store_side(i, units.ps, data, units, state.ps)
