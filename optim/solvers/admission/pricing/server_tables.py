"""Tables of single servers with what is left of them, compiled, and the best schedules over them.

Each server has its own price and its own room, and a schedule names servers. A slot's table of costs needs the
cheapest servers only, until they hold the most workers that the job runs at once (`cheapest_servers`).

Nothing is tried before the recursion to refuse hopeless jobs sooner (with fractional PSs the cheapest units
over all slots bound the cost from below): a refusal takes 0.05 ms on 50 + 50 servers, over half of it the
call itself, because tables end at the most that a better schedule may cost.
"""

from optim.core.compile_cache import compiled, inner
from optim.solvers.admission.pricing.best_schedule import INFINITE, ZERO, best_by, trace_by
from optim.solvers.admission.pricing.cheapest_servers import NO, YES, cheapest, measure_servers
from optim.solvers.admission.pricing.server_arrays import write_row
from optim.solvers.admission.pricing.shared_servers import place_pairs, shared_server_table


@inner
def server_table(i, s, t, k, ceiling, needed, jobs, source, table):
    """Fill `table[Y]` with the least cost of Y workers and their PSs in slot t; return the largest Y.

    Numbers of workers that cost `ceiling` or more are left out.
    """
    most, workers, scratch = jobs.most[i], source.workers, source.scratch.workers
    table[0] = 0.0
    measure_servers(s, t, workers, scratch)
    size = cheapest(most, ceiling, NO, scratch, workers.rank[t], workers.residual[t])
    placed = ZERO
    total = 0.0
    for position in range(size):
        h = scratch.heap[position]
        for _ in range(min(int(scratch.room[h]), most - placed)):
            placed += 1
            total += scratch.unit[h]
            table[placed] = total
    return _add_ps(s, t, placed, ceiling, needed, source.ps, source.scratch.ps, table) if placed > 0 else placed


@inner
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


@inner
def _place(s, t, count, side, scratch, rows, num_rows):
    """Write the cheapest servers for `count` units as further rows; return the new number of rows."""
    measure_servers(s, t, side, scratch)
    size = cheapest(count, INFINITE, YES, scratch, side.rank[t], side.residual[t])
    left = count
    for position in range(size):
        h = scratch.heap[position]
        here = min(left, int(scratch.room[h]))
        write_row(rows, num_rows + position, t, h, here, s)
        left -= here
    return num_rows + size


@inner
def _write_servers(i, s, t, k, workers, ps, jobs, source, used):
    scratch = source.scratch
    used[0] = _place(s, t, workers, source.workers, scratch.workers, scratch.worker_rows, used[0])
    used[1] = _place(s, t, ps, source.ps, scratch.ps, scratch.ps_rows, used[1])


@inner
def _write_pairs(i, s, t, k, workers, ps, jobs, source, used):
    used[0], used[1] = place_pairs(s, t, workers, ps, source, used[0], used[1])


def _search_by(slot_table, write_slot):
    """Return the search for one job's best schedule on one kind of servers."""
    best_schedule, trace = best_by(slot_table), trace_by(write_slot)

    @compiled
    def find(i, floor, jobs, space, source, used):
        """Return (payoff, completion slot) as `best_schedule`, and write rows to the scratch, `used` of either side."""
        payoff, completion = best_schedule(i, floor, jobs, space, source)
        if completion >= 0:
            trace(i, completion, jobs, space, source, used)
        return payoff, completion

    return find


find_on_servers = _search_by(server_table, _write_servers)
find_on_shared_servers = _search_by(shared_server_table, _write_pairs)
