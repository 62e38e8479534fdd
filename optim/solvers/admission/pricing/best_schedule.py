"""The best schedule of a job at given prices, compiled: the exact worker-slot dynamic programme.

For each slot, the cheapest way to run Y workers and the PSs that they need is a table of costs. A forward min-plus
recursion over the completed work then serves every completion slot at once:

    C_t[d] = min over Y of C_{t-1}[d - progress(Y)] + table_t[Y],
    payoff(t) = value(t) - C_t[target].

The recursion and its backtracking exist once. `best_by` builds the recursion from a function that fills a slot's table, and
`trace_by` builds the backtracking from a function that writes a slot's units. There are tables of classes of empty servers
(`classes`) and of single servers with residual capacity (`servers`).

Two other modules have their own recursion. Insertions (`local_search.insertion`) share the steps and the backtracking, but
inline the tables, which saves a fifth of their time. Under a node's restrictions (`branching.node_pricing`) superfluous
workers are not allowed, so each state must check whether fewer workers suffice. A recursion with this check can't be
vectorised, and takes 3.3 times as long for jobs without restrictions.

Source: Bao, Peng, Wu, Li, INFOCOM 2018, Algorithms 2 and 3, with worker-slots instead of chunks as the
state, so that rounding happens once instead of in every slot.
"""

from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled
from optim.core.arrays import FloatArray, IntArray

INFINITE = np.inf
ZERO, NONE = np.int64(0), np.int64(-1)


@by_reference
class JobArrays(NamedTuple):
    """The jobs, as in `JobTables`."""

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


class Space(NamedTuple):
    """Work space of the recursion; slots count from a job's arrival.

    Parameters
    ----------
    states
        Shape (slots + 1, work + 1): least cost of each completed work before each slot.
    tables
        Shape (slots, segments, workers + 1): the slots' tables of costs.
    largest
        Shape (slots, segments): largest number of workers in each table.
    """

    states: FloatArray
    tables: FloatArray
    largest: IntArray


@compiled
def make_space(which, jobs):
    """Return work space for the given jobs, except those that can't reach their targets, which could exceed any memory."""
    longest, widest, segments, most = 0, 0, 1, 0
    for i in which:
        window = jobs.deadline[i] - jobs.arrival[i] + 1
        if window > 0 and jobs.target[i] <= jobs.progress[jobs.table_offset[i + 1] - 1] * window:
            longest, widest = max(longest, window), max(widest, jobs.target[i])
        segments = max(segments, jobs.segment_offset[i + 1] - jobs.segment_offset[i])
        most = max(most, jobs.most[i])
    return Space(
        np.empty((longest + 1, widest + 1)),
        np.empty((longest, segments, most + 1)),
        np.empty((longest, segments), dtype=np.int64),
    )


@compiled(inline="always")
def sort_by_key(key, size, order):
    """Fill ``order[:size]`` with positions by ascending key, ties by position (insertion sort: short lists)."""
    for position in range(size):
        place = position
        while place > 0 and key[order[place - 1]] > key[position]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = position


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


@compiled(inline="always")
def reachable_work(i, s, jobs, least, reached):
    """Return the range [low, high) of completed work with which a slot may begin in segment s."""
    is_last = s + 1 == jobs.segment_offset[i + 1]
    low = max(least, jobs.segment_start[s])
    high = min(reached + 1, jobs.target[i] if is_last else jobs.segment_start[s + 1])
    return low, high


def best_by(slot_table):
    """Return the recursion over the slots' tables that ``slot_table`` makes.

    Parameters
    ----------
    slot_table
        ``(i, s, t, k, ceiling, needed, jobs, source, table)`` fills ``table[Y]`` with the least cost of Y workers of
        job i in segment s and slot t, the k-th since its arrival, and of the ``needed[Y]`` PSs; it returns the largest
        Y. Numbers of workers that cost `ceiling` or more may be omitted.
    """

    @compiled
    def best_schedule(i, floor, jobs, space, source):
        """Return (payoff, completion slot) of job i's best schedule if its payoff exceeds `floor`, else (floor, -1)."""
        first_slot, last_slot, target = jobs.arrival[i], jobs.deadline[i], jobs.target[i]
        begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
        steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
        best, completion = floor, NONE
        if last_slot < first_slot or target > steps[-1] * (last_slot - first_slot + 1):
            return best, completion
        segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
        states, tables, largest = space.states, space.tables, space.largest
        states[0, : target + 1] = INFINITE
        states[0, 0] = 0.0
        reached = ZERO
        for t in range(first_slot, last_slot + 1):
            if jobs.value[i, t] <= best:
                break
            k = t - first_slot
            # A cost of at least this can't be part of a better schedule that ends here or later.
            ceiling = jobs.value[i, t] - best
            # With less work than this before slot t the job can't complete by its deadline.
            least = max(0, target - steps[-1] * (last_slot - t + 1))
            before, after = states[k], states[k + 1]
            after[: target + 1] = INFINITE
            furthest = reached
            for s in range(segment, segment_end):
                row = s - segment
                low, high = reachable_work(i, s, jobs, least, reached)
                largest[k, row] = NONE
                if low < high:
                    table = tables[k, row]
                    largest[k, row] = slot_table(i, s, t, k, ceiling, needed, jobs, source, table)
                    min_plus_step(before, after, table, largest[k, row], steps, low, high, target)
                    furthest = max(furthest, high - 1 + steps[largest[k, row]])
            # A job that is complete before slot t is complete after it.
            after[target] = min(after[target], before[target])
            reached = min(target, furthest)
            payoff = jobs.value[i, t] - after[target]
            if payoff > best:
                best, completion = payoff, t
        return best, completion

    return best_schedule


def trace_by(write_slot):
    """Return the function that traces the last recursion back and passes each slot's units to ``write_slot``.

    Parameters
    ----------
    write_slot
        ``(i, s, t, k, workers, ps, jobs, source, out)`` writes the placement of a slot's units.
    """

    @compiled
    def trace(i, completion, jobs, space, source, out):
        """Recompute the choices that led to the best cost, the last slot first."""
        begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
        steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
        state = jobs.target[i]
        for k in range(completion - jobs.arrival[i], -1, -1):
            s, y, state = _choice(i, k, state, jobs, steps, space)
            if y > 0:
                write_slot(i, s, jobs.arrival[i] + k, k, y, needed[y], jobs, source, out)

    return trace


@compiled
def _choice(i, k, state, jobs, steps, space):
    """Return (segment, workers, state before) of the fewest workers that led to `state` in the k-th slot."""
    target = jobs.target[i]
    before, goal = space.states[k], space.states[k + 1, state]
    segment = jobs.segment_offset[i]
    for s in range(segment, jobs.segment_offset[i + 1]):
        low, high = reachable_work(i, s, jobs, ZERO, target)
        for y in range(space.largest[k, s - segment] + 1):
            d_first = state - steps[y]
            # Work beyond the target is not counted, so several states lead to the target.
            d_last = target - 1 if state == target and y > 0 else d_first
            for d in range(max(d_first, low), min(d_last, high - 1) + 1):
                if before[d] + space.tables[k, s - segment, y] == goal:
                    return s, y, d
    return segment, ZERO, state
