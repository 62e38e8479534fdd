"""Tables of classes of empty servers, compiled, and the pricing of many jobs over them.

The cheapest way to run Y workers and their PSs is greedy over classes sorted by price: exact while workers and PSs
live on different servers. Where they share servers `shared_slot` makes the table.
"""

from typing import NamedTuple

import numpy as np

from optim.core.by_reference import by_reference
from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import FloatArray, IntArray
from optim.solvers.admission.pricing.best_schedule import ZERO, best_by, make_space, sort_by_key, trace_by
from optim.solvers.admission.pricing.curved_classes import (
    fill_layers,
    fill_pair_layers,
    take_layers,
    take_pair_layers,
)
from optim.solvers.admission.pricing.shared_room import SharedClasses
from optim.solvers.admission.pricing.shared_slot import class_pair_table, split_class_pair


@by_reference
class ClassSource(NamedTuple):
    """Cost of a unit and most units by segment, class and slot; and work space, one entry a class."""

    worker_cost: FloatArray
    worker_limit: IntArray
    ps_cost: FloatArray
    ps_limit: IntArray
    order: IntArray
    ps_order: IntArray


@by_reference
class CurvedSource(NamedTuple):
    """Likewise where the cost of some jobs' units isn't proportional to their number.

    Rows of the curves by job and slot, what so many units of a class cost more by row, class and count; and work space,
    costs by class and number of units.
    """

    worker_cost: FloatArray
    worker_limit: IntArray
    ps_cost: FloatArray
    ps_limit: IntArray
    order: IntArray
    ps_order: IntArray
    worker_place: IntArray
    worker_curve: FloatArray
    worker_layers: FloatArray
    ps_place: IntArray
    ps_curve: FloatArray
    ps_layers: FloatArray


@by_reference
class SharedClassSource(NamedTuple):
    """Likewise on servers that workers and PSs share."""

    worker_cost: FloatArray
    ps_cost: FloatArray
    shared: SharedClasses


@by_reference
class SharedCurvedSource(NamedTuple):
    """Likewise with curves, as in `CurvedSource`; work space by class, PSs and workers."""

    worker_cost: FloatArray
    ps_cost: FloatArray
    shared: SharedClasses
    worker_limit: IntArray
    ps_limit: IntArray
    worker_place: IntArray
    worker_curve: FloatArray
    ps_place: IntArray
    ps_curve: FloatArray
    layers: FloatArray


class Counts(NamedTuple):
    """Units of one schedule by class and slot."""

    workers: IntArray
    ps: IntArray


@inner
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
    sort_by_key(worker_cost, len(order), order)
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
    sort_by_key(ps_cost, len(ps_order), ps_order)
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


@inner
def take_cheapest(units, cost, limit, order, out):
    """Add the cheapest classes' units to `out`, so many in all."""
    sort_by_key(cost, len(order), order)
    for place in range(len(order)):
        c = order[place]
        count = min(units, limit[c])
        out[c] += count
        units -= count


@inner
def _class_table(i, s, t, k, ceiling, needed, jobs, source, table):
    return slot_table(
        source.worker_cost[s, :, t], source.worker_limit[s, :, t], source.ps_cost[s, :, t], source.ps_limit[s, :, t],
        needed, jobs.most[i], source.order, source.ps_order, table,
    )  # fmt: skip


@inner
def _write_classes(i, s, t, k, workers, ps, jobs, source, out):
    take_cheapest(workers, source.worker_cost[s, :, t], source.worker_limit[s, :, t], source.order, out.workers[:, t])
    take_cheapest(ps, source.ps_cost[s, :, t], source.ps_limit[s, :, t], source.ps_order, out.ps[:, t])


@inner
def _curved_table(i, s, t, k, ceiling, needed, jobs, source, table):
    worker_curve, ps_curve = source.worker_curve[source.worker_place[i, t]], source.ps_curve[source.ps_place[i, t]]
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        return _class_table(i, s, t, k, ceiling, needed, jobs, source, table)
    none, no_ps = np.zeros_like(source.order), np.zeros_like(source.ps_order)
    _, most = fill_layers(
        jobs.most[i], source.worker_cost[s, :, t], none, source.worker_limit[s, :, t], worker_curve,
        source.worker_layers,
    )  # fmt: skip
    _, most_ps = fill_layers(
        needed[most], source.ps_cost[s, :, t], no_ps, source.ps_limit[s, :, t], ps_curve, source.ps_layers
    )
    for y in range(most + 1):
        if needed[y] > min(y, most_ps):
            return y - 1
        table[y] = source.worker_layers[-1, y] + source.ps_layers[-1, needed[y]]
    return most


@inner
def _write_curved(i, s, t, k, workers, ps, jobs, source, out):
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        _write_classes(i, s, t, k, workers, ps, jobs, source, out)
        return
    worker_curve, ps_curve = source.worker_curve[source.worker_place[i, t]], source.ps_curve[source.ps_place[i, t]]
    costs, limits = (
        (source.worker_cost[s, :, t], source.ps_cost[s, :, t]),
        (source.worker_limit[s, :, t], source.ps_limit[s, :, t]),
    )
    none, no_ps = np.zeros_like(source.order), np.zeros_like(source.ps_order)
    fill_layers(workers, costs[0], none, limits[0], worker_curve, source.worker_layers)
    take_layers(workers, costs[0], none, worker_curve, source.worker_layers, out.workers[:, t])
    fill_layers(ps, costs[1], no_ps, limits[1], ps_curve, source.ps_layers)
    take_layers(ps, costs[1], no_ps, ps_curve, source.ps_layers, out.ps[:, t])


@inner
def _shared_class_table(i, s, t, k, ceiling, needed, jobs, source, table):
    return class_pair_table(
        s, t, jobs.most[i], ceiling, needed, source.worker_cost, source.ps_cost, source.shared, table
    )


@inner
def _write_shared_classes(i, s, t, k, workers, ps, jobs, source, out):
    split_class_pair(
        s, t, workers, jobs.ps_needed[jobs.table_offset[i] :], source.worker_cost, source.ps_cost, source.shared,
        out.workers[:, t], out.ps[:, t],
    )  # fmt: skip


@inner
def _curved_sides(i, s, t, source):
    """Return costs, lower and upper limits, and curves of workers and PSs on shared servers, and the frontiers."""
    room = source.shared.room
    start = np.empty(len(room.pattern), dtype=np.int64)
    for c in range(len(start)):
        start[c] = room.start[s, room.pattern[c, t]]
    none = np.zeros_like(start)
    return (
        (source.worker_cost[s, :, t], source.ps_cost[s, :, t]),
        (none, none),
        (source.worker_limit[s, :, t], source.ps_limit[s, :, t]),
        (source.worker_curve[source.worker_place[i, t]], source.ps_curve[source.ps_place[i, t]]),
        (start, room.front),
    )


@inner
def _curved_shared_table(i, s, t, k, ceiling, needed, jobs, source, table):
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        return _shared_class_table(i, s, t, k, ceiling, needed, jobs, source, table)
    layers, last = source.layers, source.layers.shape[0] - 1
    most = min(jobs.most[i], layers.shape[2] - 1)
    most_ps = min(needed[most], layers.shape[1] - 1)
    costs, lows, highs, curves, fronts = _curved_sides(i, s, t, source)
    fill_pair_layers(most, most_ps, costs, lows, highs, curves, fronts, layers)
    table[0] = 0.0
    for y in range(1, most + 1):
        if needed[y] > min(y, most_ps) or layers[last, needed[y], y] >= ceiling:
            return y - 1
        table[y] = layers[last, needed[y], y]
    return most


@inner
def _write_curved_shared(i, s, t, k, workers, ps, jobs, source, out):
    if source.worker_place[i, t] == 0 and source.ps_place[i, t] == 0:
        _write_shared_classes(i, s, t, k, workers, ps, jobs, source, out)
        return
    costs, lows, highs, curves, fronts = _curved_sides(i, s, t, source)
    fill_pair_layers(workers, ps, costs, lows, highs, curves, fronts, source.layers)
    take_pair_layers(workers, ps, costs, lows, highs, curves, fronts, source.layers, out.workers[:, t], out.ps[:, t])


def _pricing_by(slot_table, write_slot):
    """Return the pricing of many jobs over one kind of classes."""
    best_schedule, trace = best_by(slot_table), trace_by(write_slot)

    @compiled
    def price_jobs(which, floor, jobs, source, want_schedule, payoff, completion, workers, ps):
        """Price every job of `which`; see `optim.solvers.admission.pricing.class_pricing.price`."""
        space = make_space(which, jobs)
        for position in range(len(which)):
            i = which[position]
            payoff[position], completion[position] = best_schedule(i, floor[position], jobs, space, source)
            if completion[position] >= 0 and want_schedule:
                trace(i, completion[position], jobs, space, source, Counts(workers[position], ps[position]))

    return price_jobs


price_classes = _pricing_by(_class_table, _write_classes)
price_curved_classes = _pricing_by(_curved_table, _write_curved)
price_shared_classes = _pricing_by(_shared_class_table, _write_shared_classes)
price_curved_shared_classes = _pricing_by(_curved_shared_table, _write_curved_shared)


@compiled
def add_use(out, completion, segment, workers, worker_demand, ps, ps_demand, is_shared):
    """Add up what schedules use of each row.

    Parameters
    ----------
    out
        Shape (rows,): added to; the rows of the workers' servers come first, unless servers are shared.
    completion
        Shape (schedules,): completion slots, -1 for none.
    segment
        Shape (schedules, slots): demand segment in each slot.
    workers, ps
        Shape (schedules, classes, slots).
    worker_demand, ps_demand
        Shape (segments, resources).
    """
    _, num_classes, num_slots = workers.shape
    num_resources = worker_demand.shape[1]
    for k in np.flatnonzero(completion >= 0):
        for c in range(num_classes):
            for t in range(num_slots):
                # On a shared server what a job's workers and PSs use is one amount.
                y, z = workers[k, c, t], ps[k, c, t] if is_shared else ZERO
                if y + z > 0:
                    row = (c * num_slots + t) * num_resources
                    for r in range(num_resources):
                        out[row + r] += y * worker_demand[segment[k, t], r] + z * ps_demand[segment[k, t], r]
    if not is_shared:
        for k in np.flatnonzero(completion >= 0):
            for c in range(ps.shape[1]):
                for t in range(num_slots):
                    if ps[k, c, t] > 0:
                        row = ((num_classes + c) * num_slots + t) * num_resources
                        for r in range(num_resources):
                            out[row + r] += ps[k, c, t] * ps_demand[segment[k, t], r]
