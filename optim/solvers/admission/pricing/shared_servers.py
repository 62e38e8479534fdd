"""Single servers that workers and PSs of one job share, with what is left of them, compiled.

The slot's problem is that of `shared_slot`, with one place a server. Servers that no optimum needs are left
out first: a worker moves to any cheaper server that still takes one, and likewise a PS. A server on which b
units of either kind, whatever they are, leave room for one more is blocked by no fewer; so with N workers
and Z PSs in all, servers behind cheaper ones whose b add up to N + Z are never needed.
"""

import numpy as np

from optim.core.compile_cache import inner
from optim.solvers.admission.pricing.cheapest_servers import YES, ZERO, cheapest, measure_servers
from optim.solvers.admission.pricing.server_arrays import write_row
from optim.solvers.admission.pricing.shared_slot import INFINITE, fill_frontier, fold_frontier, pair_table, split_pair

FOR_WORKERS, FOR_PS = 1, 2
"""Bits of a server's mark: for which units it is needed."""

LEAST_GROUP = 4
"""Runs of at least so many equal servers are folded into one place."""


@inner
def shared_server_table(i, s, t, k, ceiling, needed, jobs, source, table):
    """As `server_table`, on shared servers."""
    shared = source.shared
    most = min(jobs.most[i], len(shared.one) - 1)
    while needed[most] > min(most, shared.pairs.tables.shape[1] - 1):
        most -= 1
    num_places = gather_places(s, t, most, needed[most], ceiling, source)
    num_places = group_places(num_places, most, needed[most], shared)
    return pair_table(shared.places, num_places, most, needed, ceiling, shared.pairs, table)


@inner
def place_pairs(s, t, num_workers, num_ps, source, worker_rows, ps_rows):
    """Write a cheapest way to run so many workers and PSs as further rows; return the new numbers of rows."""
    shared, scratch = source.shared, source.scratch
    num_places = gather_places(s, t, num_workers, num_ps, INFINITE, source)
    split_pair(shared.places, num_places, num_workers, num_ps, shared.pairs.windows, shared.out_workers, shared.out_ps)
    for k in range(num_places):
        if shared.out_workers[k] > 0:
            write_row(scratch.worker_rows, worker_rows, t, shared.server[k], shared.out_workers[k], s)
            worker_rows += 1
        if shared.out_ps[k] > 0:
            write_row(scratch.ps_rows, ps_rows, t, shared.server[k], shared.out_ps[k], s)
            ps_rows += 1
    return worker_rows, ps_rows


@inner
def gather_places(s, t, most_workers, most_ps, ceiling, source):
    """Make places of the servers that so many workers and PSs may need; return how many."""
    workers, ps, shared, scratch = source.workers, source.ps, source.shared, source.scratch
    measure_servers(s, t, workers, scratch.workers)
    measure_servers(s, t, ps, scratch.ps)
    _count_blocking(s, t, workers, ps, shared)
    shared.mark[:] = 0
    for h in range(len(shared.mark)):
        scratch.workers.room[h] = shared.blocking[h] if scratch.workers.room[h] >= 1.0 else 0.0
        scratch.ps.room[h] = shared.blocking[h] if scratch.ps.room[h] >= 1.0 else 0.0
    total = most_workers + most_ps
    rank, residual = workers.rank[t], workers.residual[t]
    for_workers = cheapest(total, ceiling, YES, scratch.workers, rank, residual)
    for_ps = cheapest(total, ceiling, YES, scratch.ps, rank, residual)
    for position in range(for_workers):
        shared.mark[scratch.workers.heap[position]] |= FOR_WORKERS
    for position in range(for_ps):
        shared.mark[scratch.ps.heap[position]] |= FOR_PS
    number = ZERO
    for position in range(for_workers + for_ps):
        is_first = position < for_workers
        h = scratch.workers.heap[position] if is_first else scratch.ps.heap[position - for_workers]
        if is_first or shared.mark[h] == FOR_PS:
            _add_server(h, number, s, t, most_workers, most_ps, workers, ps, shared, scratch)
            number += 1
    return number


@inner
def _add_server(h, number, s, t, most_workers, most_ps, workers, ps, shared, scratch):
    """Make server h the place `number`."""
    places, width = shared.places, most_workers + 1
    shared.server[number] = h
    places.worker_cost[number] = scratch.workers.unit[h]
    places.ps_cost[number] = scratch.ps.unit[h]
    places.start[number] = number * width
    c = workers.class_of_server[h]
    for r in range(len(shared.left)):
        shared.left[r] = workers.residual[t, r, h]
        shared.room[r] = min(shared.left[r], shared.share_limit[t, r, c])
    front = places.front[number * width : (number + 1) * width]
    front[:] = -1
    fill_frontier(
        workers.demand[s], ps.demand[s], shared.room, shared.left,
        most_workers if shared.mark[h] & FOR_WORKERS else ZERO, most_ps if shared.mark[h] & FOR_PS else ZERO, front,
    )  # fmt: skip


@inner
def _count_blocking(s, t, workers, ps, shared):
    """Fill in how many units block a server at least: as many as fit if all were as large as both kinds, or one."""
    blocking = shared.blocking
    blocking[:] = INFINITE
    for r in range(workers.demand.shape[1]):
        need = max(workers.demand[s, r], ps.demand[s, r])
        if need <= 0.0:
            continue
        left, limit = workers.residual[t, r], shared.share_limit[t, r]
        for h in range(len(blocking)):
            room = min(left[h], limit[workers.class_of_server[h]])
            blocking[h] = min(blocking[h], np.floor(room / need))
    for h in range(len(blocking)):
        blocking[h] = max(blocking[h], 1.0)


@inner
def group_places(number, most_workers, most_ps, shared):
    """Fold runs of servers with equal costs and frontiers into one place each; return how many places remain."""
    places, width = shared.places, most_workers + 1
    kept, first = ZERO, ZERO
    while first < number:
        end = first + 1
        while end < number and _are_equal(first, end, width, places):
            end += 1
        if end - first >= LEAST_GROUP:
            shared.one[:width] = places.front[first * width : (first + 1) * width]
            _move(first, kept, width, places)
            total = places.front[kept * width : (kept + 1) * width]
            fold_frontier(shared.one, end - first, most_workers, most_ps, total, shared.power, shared.work)
            kept += 1
        else:
            for k in range(first, end):
                _move(k, kept, width, places)
                kept += 1
        first = end
    return kept


@inner
def _are_equal(a, b, width, places):
    if places.worker_cost[a] != places.worker_cost[b] or places.ps_cost[a] != places.ps_cost[b]:
        return False
    for y in range(width):
        if places.front[a * width + y] != places.front[b * width + y]:
            return False
        if places.front[a * width + y] < 0:
            return True
    return True


@inner
def _move(source, goal, width, places):
    places.worker_cost[goal] = places.worker_cost[source]
    places.ps_cost[goal] = places.ps_cost[source]
    for y in range(width):
        places.front[goal * width + y] = places.front[source * width + y]
