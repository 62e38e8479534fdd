"""The best schedule of a job under a node's restrictions, compiled.

As in `best_schedule`, a min-plus recursion over the work done; but a restricted job may be forced to
run units in a class and slot, must complete within a window, and may have to be admitted at a loss.
So no schedule is enlarged for the bound's sake: only those without superfluous units count, which run
the fewest workers that make a slot's progress, as few PSs as they need, and end when the work is done.
"""

from optim.core.compile_cache import compiled
from optim.solvers.admission.pricing.best_schedule import INFINITE, NONE, sort_by_key
from optim.solvers.admission.pricing.class_tables import take_cheapest


@compiled
def _fill_side(cost, low, high, most, order, table):
    """Fill `table[n]` with the least cost of n units; return the fewest and the most there may be."""
    total = 0.0
    units = 0
    for c in range(len(cost)):
        if low[c] > high[c]:
            return 1, 0
        units += low[c]
        total += low[c] * cost[c]
    if units > most:
        return 1, 0
    fewest = units
    table[units] = total
    sort_by_key(cost, len(order), order)
    for place in range(len(order)):
        c = order[place]
        for _ in range(min(high[c] - low[c], most - units)):
            units += 1
            total += cost[c]
            table[units] = total
    return fewest, units


@compiled
def _fill_slot(
    worker_cost, worker_low, worker_high, ps_cost, ps_low, ps_high, ps_needed, order, ps_order, workers, ps, table
):  # fmt: skip
    """Fill `table[Y]` with the least cost of Y workers and their PSs in a slot, infinite where impossible."""
    most = len(ps_needed) - 1
    table[: most + 1] = INFINITE
    fewest, largest = _fill_side(worker_cost, worker_low, worker_high, most, order, workers)
    fewest_ps, largest_ps = _fill_side(ps_cost, ps_low, ps_high, ps_needed[most], ps_order, ps)
    for y in range(fewest, largest + 1):
        due = ps_needed[y]
        if due <= y and fewest_ps <= due <= largest_ps:
            table[y] = workers[y] + ps[due]


@compiled
def _take(units, cost, low, high, order, out):
    """Write the cheapest counts for so many units: the lower limits, then the rest by cost."""
    room = high - low
    out[:] = low
    take_cheapest(units - low.sum(), cost, room, order, out)


@compiled
def _forced_slots(i, worker_low, ps_low):
    """Return the first and the last slot in which a job must have units; the horizon and -1 if there is none."""
    first, last = worker_low.shape[2], NONE
    for t in range(worker_low.shape[2]):
        if worker_low[i, :, t].any() or ps_low[i, :, t].any():
            first, last = min(first, t), t
    return first, last


@compiled
def _price_one(i, jobs, limits, worker_cost, ps_cost, scratch, out_workers, out_ps):
    """Return (payoff, completion slot) of a job's best restricted schedule; (0 or -infinity, -1) without one."""
    best = -INFINITE if limits.is_admitted[i] else 0.0
    completion = NONE
    begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
    steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
    due, fastest = jobs.target[i], steps[-1]
    first_slot = jobs.arrival[i]
    last_slot = min(jobs.deadline[i], limits.last[i])
    first_forced, last_forced = _forced_slots(i, limits.worker_low, limits.ps_low)
    if (
        limits.is_refused[i]
        or last_slot < first_slot
        or due > fastest * (last_slot - first_slot + 1)
        or first_forced < first_slot
    ):
        return best, completion
    first_end = max(first_slot, limits.first[i], last_forced)
    segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
    states, tables = scratch.states, scratch.tables
    states[0, :due] = INFINITE
    states[0, 0] = 0.0
    reached = 0
    for t in range(first_slot, last_slot + 1):
        if jobs.value[i, t] <= best:
            break  # values never rise and costs are at least 0
        k = t - first_slot
        before, after = states[k], states[k + 1]
        after[:due] = INFINITE
        least = max(0, due - fastest * (last_slot - t + 1))
        now_reached = reached
        cheapest = INFINITE
        for s in range(segment, segment_end):
            low = max(least, jobs.segment_start[s])
            high = min(reached + 1, jobs.segment_start[s + 1] if s + 1 < segment_end else due, due)
            table = tables[k, s - segment]
            if low >= high:
                continue
            _fill_slot(
                worker_cost[s, :, t], limits.worker_low[i, :, t], limits.worker_high[s, :, t], ps_cost[s, :, t],
                limits.ps_low[i, :, t], limits.ps_high[s, :, t], needed, scratch.order, scratch.ps_order,
                scratch.workers, scratch.ps, table,
            )  # fmt: skip
            for y in range(len(steps)):
                cost = table[y]
                if cost == INFINITE or (y > 0 and steps[y] == steps[y - 1]):
                    continue
                step = steps[y]
                # From these states so many workers complete the work, and one fewer would not.
                from_state = max(low, due - step)
                to_state = min(high, due - steps[y - 1]) if y > 0 else low
                for d in range(from_state, to_state):
                    cheapest = min(cheapest, before[d] + cost)
                for d in range(low, min(high, due - step)):
                    candidate = before[d] + cost
                    if candidate < after[d + step]:
                        after[d + step] = candidate
                        now_reached = max(now_reached, d + step)
        reached = now_reached
        if t >= first_end and jobs.value[i, t] - cheapest > best:
            best, completion = jobs.value[i, t] - cheapest, t
            scratch.finish_cost[0] = cheapest
    if completion >= 0:
        _trace_back(i, completion, last_slot, jobs, limits, worker_cost, ps_cost, scratch, out_workers, out_ps)
    return best, completion


@compiled
def _trace_back(i, completion, last_slot, jobs, limits, worker_cost, ps_cost, scratch, out_workers, out_ps):
    """Recompute the choices that led to the best cost and write counts by class and slot."""
    begin, end = jobs.table_offset[i], jobs.table_offset[i + 1]
    steps, needed = jobs.progress[begin:end], jobs.ps_needed[begin:end]
    due, first_slot = jobs.target[i], jobs.arrival[i]
    segment, segment_end = jobs.segment_offset[i], jobs.segment_offset[i + 1]
    goal, state = scratch.finish_cost[0], due
    for t in range(completion, first_slot - 1, -1):
        k = t - first_slot
        least = max(0, due - steps[-1] * (last_slot - t + 1))
        found = False
        for s in range(segment, segment_end):
            # Only these states' tables were made for this job.
            low = max(least, jobs.segment_start[s])
            high = jobs.segment_start[s + 1] if s + 1 < segment_end else due
            for y in range(len(steps)):
                if y > 0 and steps[y] == steps[y - 1]:
                    continue
                # One state leads on by y workers; several do where the work is completed.
                from_state = state - steps[y]
                to_state = from_state + 1
                if t == completion:
                    to_state = due - steps[y - 1] if y > 0 else 0
                for d in range(max(from_state, low), min(to_state, high)):
                    if (
                        scratch.states[k, d] < INFINITE
                        and scratch.states[k, d] + scratch.tables[k, s - segment, y] == goal
                    ):
                        found = True
                        state, goal = d, scratch.states[k, d]
                        _take(
                            y, worker_cost[s, :, t], limits.worker_low[i, :, t], limits.worker_high[s, :, t],
                            scratch.order, out_workers[:, t],
                        )  # fmt: skip
                        _take(
                            needed[y], ps_cost[s, :, t], limits.ps_low[i, :, t], limits.ps_high[s, :, t],
                            scratch.ps_order, out_ps[:, t],
                        )  # fmt: skip
                        break
                if found:
                    break
            if found:
                break


@compiled
def price_restricted(which, jobs, limits, worker_cost, ps_cost, scratch, payoff, completion, out_workers, out_ps):
    """Price every job of `which`; see `optim.solvers.admission.tree.node_pricing.NodePricer.price`."""
    for position in range(len(which)):
        payoff[position], completion[position] = _price_one(
            which[position], jobs, limits, worker_cost, ps_cost, scratch, out_workers[position], out_ps[position]
        )
