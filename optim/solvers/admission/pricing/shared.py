"""Servers that workers and parameter servers share: one slot solved exactly, compiled.

The capacity of a server is then a set Q of pairs (workers, PSs) instead of one number for each. Filling the
cheapest servers with workers first may leave no capacity for the PSs, or only on expensive servers. So

    F_s(Y, Z) = min over (y, z) in Q_s of F_{s-1}(Y - y, Z - z) + worker cost_s y + PS cost_s z

runs over the places s, single servers or classes of equal ones, and the slot's cost table is F(Y, Z(Y)).
Q is closed downwards, so its frontier describes it: the largest number of PSs that fit in addition to y workers.

The inner minimum over y, for fixed z, is over a window of consecutive y with linear costs. Windows of 1,
2, 4, ... entries are built by doubling, and any window is the union of two of them. So a place costs
O(N Z (log N + z)) instead of O(N Z |Q|).
"""

from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled, copy_first
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import share_of
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.best_schedule import sort_by_key


@by_reference
class ClassFrontiers(NamedTuple):
    """Frontiers by job segment and capacity pattern, over all servers of a class.

    Parameters
    ----------
    pattern
        Shape (classes, slots): index of the (class, capacity) pattern.
    start
        Shape (segments, patterns): index of each frontier's first entry in `front`, -1 if the frontier is never needed.
    front
        Concatenated frontiers: the largest number of PSs that fit in addition to 0, 1, ... workers of the job in the class,
        negative where the workers don't fit.
    """

    pattern: IntArray
    start: IntArray
    front: IntArray


@by_reference
class Places(NamedTuple):
    """Places (single servers, or classes of equal servers) as input of the recursion.

    Parameters
    ----------
    worker_cost, ps_cost
        Cost of one worker and of one PS on each place.
    start
        Index of the first entry of each place's frontier in `front`.
    front
        Concatenated frontiers: the largest number of PSs that fit in addition to 0, 1, ... workers, negative where the workers
        alone don't fit.
    """

    worker_cost: FloatArray
    ps_cost: FloatArray
    start: IntArray
    front: IntArray


@by_reference
class PairScratch(NamedTuple):
    """Work space: two tables by (PSs, workers), and windows by (level, workers)."""

    tables: FloatArray
    windows: FloatArray


@by_reference
class GreedyScratch(NamedTuple):
    """Work space of `greedy_table`.

    Parameters
    ----------
    order, ps_order
        Shape (places,): places in ascending order of the cost of one worker, and of one PS.
    limit
        Shape (places,): largest number of workers that fit without PSs.
    workers, ps
        Shape (places,): numbers of workers and of PSs placed so far.
    """

    order: IntArray
    ps_order: IntArray
    limit: IntArray
    workers: IntArray
    ps: IntArray


@by_reference
class SharedClasses(NamedTuple):
    """Empty classes of shared servers with their `ClassFrontiers`, and work space."""

    frontiers: ClassFrontiers
    places: Places
    scratch: PairScratch
    greedy: GreedyScratch


def shared_classes(frontiers: ClassFrontiers, max_workers: int, max_ps: int) -> SharedClasses:
    """Return the classes with work space for up to the given numbers of workers and PSs."""
    num = len(frontiers.pattern)
    places = Places(np.empty(num), np.empty(num), np.empty(num, dtype=np.int64), frontiers.front)
    greedy = GreedyScratch(*(np.empty(num, dtype=np.int64) for _ in range(5)))
    return SharedClasses(frontiers, places, pair_scratch(max_workers, max_ps), greedy)


def pair_scratch(max_workers: int, max_ps: int) -> PairScratch:
    """Return work space for up to the given numbers of workers and PSs."""
    levels = max(1, (max_workers + 1).bit_length())
    return PairScratch(np.empty((2, max_ps + 1, max_workers + 1)), np.empty((levels, max_workers + 1)))


def class_frontiers(instance: AdmissionInstance) -> ClassFrontiers:
    """Compute the frontiers of all classes in all slots between each job's arrival and deadline.

    Notes
    -----
    Per frontier of at most N workers, the time is O(N^2 log count) and the memory N numbers.
    """
    pattern, capacity, count = _patterns(instance)
    wanted = [(s, p) for s, i in enumerate(instance.segment_job.tolist()) for p in _patterns_met(instance, i, pattern)]
    most = instance.max_workers[instance.segment_job]
    start = np.full((len(most), len(count)), -1, dtype=np.int64)
    sizes = np.array([most[s] + 1 for s, _ in wanted], dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    for (s, p), offset in zip(wanted, offsets.tolist(), strict=False):
        start[s, p] = offset
    front = np.full(int(offsets[-1]), -1, dtype=np.int64)
    _fill(instance, start, capacity, count, front)
    return ClassFrontiers(pattern=pattern, start=start, front=front)


def _patterns(instance: AdmissionInstance) -> tuple[IntArray, IntArray, IntArray]:
    """Return the pattern of each class in each slot, and each pattern's capacities and number of servers."""
    servers = instance.worker_servers
    pattern = np.zeros(servers.capacity.shape[:2], dtype=np.int64)
    capacity: list[list[int]] = []
    count: list[int] = []
    for c in range(servers.num_classes):
        rows, number = np.unique(servers.capacity[c], axis=0, return_inverse=True)
        pattern[c] = len(count) + number.ravel()
        capacity += rows.tolist()
        count += [int(servers.count[c])] * len(rows)
    shape = (len(count), instance.num_resources)
    return pattern, np.array(capacity, dtype=np.int64).reshape(shape), np.array(count, dtype=np.int64)


def _patterns_met(instance: AdmissionInstance, job: int, pattern: IntArray) -> list[int]:
    window = slice(int(instance.jobs.arrival[job]), int(instance.deadline[job]) + 1)
    met: list[int] = np.unique(pattern[:, window]).tolist()
    return met


def _fill(instance: AdmissionInstance, start: IntArray, capacity: IntArray, count: IntArray, front: IntArray) -> None:
    """Compute every required frontier."""
    jobs, job = instance.jobs, instance.segment_job
    max_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)[job]
    fill_frontiers(
        jobs.worker_demand.astype(np.float64),
        jobs.ps_demand.astype(np.float64),
        share_of(capacity, instance.max_share_per_server).astype(np.float64),
        capacity.astype(np.float64),
        count,
        instance.max_workers[job],
        max_ps,
        start,
        front,
    )


INFINITE = np.inf

ZERO = np.int64(0)


@compiled
def fill_frontier(worker, ps, capacity, residual, max_workers, max_ps, front):
    """Fill `front[y]` with the largest number of PSs that fit on a server in addition to y workers, negative if these don't fit.

    Parameters
    ----------
    worker, ps
        Shape (resources,): demands, integers.
    capacity
        Shape (resources,): capacity that the job may use, including the cap on its share of the server.
    residual
        Shape (resources,): residual capacity; a single worker or a single PS may exceed the share.
    max_workers, max_ps
        Largest numbers to consider.
    front
        At least ``max_workers + 1`` entries.
    """
    for y in range(max_workers + 1):
        z = max_ps
        fits, fits_alone = True, y <= 1
        for r in range(len(capacity)):
            rest = capacity[r] - y * worker[r]
            if rest < 0.0:
                fits = False
            elif ps[r] > 0.0 and rest < z * ps[r]:
                z = int(np.floor(rest / ps[r]))
            if residual[r] < y * worker[r]:
                fits_alone = False
        front[y] = z if fits else 0 if fits_alone else -1
        if front[y] < 0:
            front[y : max_workers + 1] = -1
            break
    if front[0] == 0 and max_ps > 0:
        fits_alone = True
        for r in range(len(residual)):
            if residual[r] < ps[r]:
                fits_alone = False
        front[0] = 1 if fits_alone else 0


@compiled
def fold_frontier(one, count, max_workers, max_ps, total, power, work):
    """Fill `total` with the frontier of `count` equal servers together, by repeated squaring.

    `one` is a single server's frontier; `power` and `work` are work space of the same size.
    """
    total[: max_workers + 1] = -1
    total[0] = 0
    copy_first(max_workers + 1, one, power)
    while count > 0:
        if count % 2 == 1:
            _join_frontiers(total, power, max_workers, max_ps, work)
            copy_first(max_workers + 1, work, total)
        count //= 2
        if count > 0:
            _join_frontiers(power, power, max_workers, max_ps, work)
            copy_first(max_workers + 1, work, power)


@compiled
def _join_frontiers(a, b, max_workers, max_ps, result):
    """Compute the largest number of PSs that fit in addition to Y workers in two groups: the best split of the workers."""
    result[:] = -1
    for y in range(max_workers + 1):
        if b[y] < 0:
            break
        for rest in range(max_workers + 1 - y):
            if a[rest] < 0:
                break
            result[y + rest] = max(result[y + rest], min(max_ps, a[rest] + b[y]))


@compiled
def fill_frontiers(worker, ps, capacity, residual, count, max_workers, max_ps, start, front):
    """Compute the frontiers of classes, by job segment and capacity pattern.

    Parameters
    ----------
    worker, ps
        Shape (segments, resources): demands of one worker and of one PS.
    capacity, residual
        Shape (patterns, resources): as in `fill_frontier`, of one server.
    count
        Shape (patterns,): numbers of servers.
    max_workers, max_ps
        Shape (segments,): largest numbers to consider.
    start, front
        As in `ClassFrontiers`.
    """
    widest = 1
    for most in max_workers:
        widest = max(widest, most + 1)
    one, power, work = np.empty((3, widest), dtype=np.int64)
    for s in range(len(worker)):
        for p in range(len(count)):
            if start[s, p] >= 0:
                fill_frontier(worker[s], ps[s], capacity[p], residual[p], max_workers[s], max_ps[s], one)
                total = front[start[s, p] :]
                fold_frontier(one, count[p], max_workers[s], max_ps[s], total, power, work)


@compiled
def add_place(before, after, worker_cost, ps_cost, front, max_workers, max_ps, windows):
    """Fill `after[Z, Y]` with the least cost of Y workers and Z PSs after adding a place."""
    end = max_workers + 1
    top = max_workers
    while front[top] < 0:
        top -= 1
    for z in range(max_ps + 1):
        after[z, :end] = INFINITE
    for placed in range(max_ps + 1):
        if not _is_any_finite(before[placed, :end]):
            continue
        copy_first(end, before[placed], windows[0])
        level, width = ZERO, ZERO + 1
        while 2 * width <= top + 1:
            _double_window(windows[level, :end], windows[level + 1, :end], width, worker_cost * width)
            level += 1
            width *= 2
        y = top
        for z in range(max_ps - placed + 1):
            while y >= 0 and front[y] < z:
                y -= 1
            if y < 0:
                break
            while width > y + 1:
                level -= 1
                width //= 2
            shift = y + 1 - width
            _improve(after[placed + z, :end], windows[level, :end], shift, worker_cost * shift, ps_cost * z)


@compiled
def _is_any_finite(costs):
    k = 0
    while k < len(costs) and costs[k] == INFINITE:
        k += 1
    return k < len(costs)


@compiled
def _double_window(source, goal, width, cost):
    """Compute minima over windows of twice `width` entries from those over windows of `width` entries."""
    copy_first(width, source, goal)
    near, far, result = source[width:], source[: len(source) - width], goal[width:]
    for k in range(len(result)):
        shifted = far[k] + cost
        result[k] = near[k] if near[k] < shifted else shifted


@compiled
def _improve(goal, window, shift, worker_cost, ps_cost):
    """Lower `goal` to the minimum over a window and its copy `shift` workers further."""
    for k in range(len(goal)):
        candidate = window[k] + ps_cost
        goal[k] = candidate if candidate < goal[k] else goal[k]
    if shift > 0:
        extra = worker_cost + ps_cost
        result = goal[shift:]
        for k in range(len(result)):
            candidate = window[k] + extra
            result[k] = candidate if candidate < result[k] else result[k]


@compiled
def pair_table(places, num_places, most, needed, ceiling, scratch, table):
    """Fill `table[Y]` with the least cost of Y workers and their Z(Y) PSs; return the largest Y.

    Numbers of workers that cost `ceiling` or more are omitted.
    """
    table[0] = 0.0
    most = _max_together(places, num_places, most, needed, ceiling)
    max_ps = needed[most]
    for z in range(max_ps + 1):
        scratch.tables[0, z, : most + 1] = INFINITE
    scratch.tables[0, 0, 0] = 0.0
    for k in range(num_places):
        add_place(
            scratch.tables[k % 2], scratch.tables[(k + 1) % 2], places.worker_cost[k], places.ps_cost[k],
            places.front[places.start[k] :], most, max_ps, scratch.windows,
        )  # fmt: skip
    result = scratch.tables[num_places % 2]
    for y in range(1, most + 1):
        cost = result[needed[y], y]
        if cost >= ceiling:
            return y - 1
        table[y] = cost
    return most


@compiled
def _max_together(places, num_places, most, needed, ceiling):
    """Return an upper bound on the workers that the places hold with their PSs for less than `ceiling`."""
    workers, ps = ZERO, ZERO
    worker_cost, ps_cost = INFINITE, INFINITE
    for k in range(num_places):
        front = places.front[places.start[k] :]
        y = most
        while front[y] < 0:
            y -= 1
        if y > 0:
            workers += y
            worker_cost = min(worker_cost, places.worker_cost[k])
        if front[0] > 0:
            ps += front[0]
            ps_cost = min(ps_cost, places.ps_cost[k])
    most = min(most, workers)
    while most > 0 and (needed[most] > min(most, ps) or most * worker_cost + needed[most] * ps_cost >= ceiling):
        most -= 1
    return most


@compiled
def split_pair(places, num_places, workers, ps, windows, out_workers, out_ps):
    """Write each place's workers and PSs in a least-cost solution for the given totals.

    Of equally cheap solutions, choose the one with the fewest workers, then the fewest PSs, on the last place, and so on.
    """
    layers = np.empty((num_places + 1, ps + 1, workers + 1))
    layers[0] = INFINITE
    layers[0, 0, 0] = 0.0
    for k in range(num_places):
        add_place(
            layers[k], layers[k + 1], places.worker_cost[k], places.ps_cost[k], places.front[places.start[k] :],
            workers, ps, windows,
        )  # fmt: skip
    for k in range(num_places - 1, -1, -1):
        front = places.front[places.start[k] :]
        best, best_y, best_z = INFINITE, ZERO, ZERO
        for y in range(workers + 1):
            if front[y] < 0:
                break
            for z in range(min(ps, front[y]) + 1):
                cost = layers[k, ps - z, workers - y] + places.worker_cost[k] * y + places.ps_cost[k] * z
                if cost < best:
                    best, best_y, best_z = cost, y, z
        out_workers[k], out_ps[k] = best_y, best_z
        workers -= best_y
        ps -= best_z


@compiled
def greedy_table(num_places, most, needed, ceiling, places, greedy, table):
    """Fill `table[Y]` by placing workers as if there were no PSs, and PSs as if there were no workers, on the cheapest places.

    Returns
    -------
    tuple
        The largest Y up to which the places hold the workers and PSs together, so that the table is exact; and the largest Y
        up to which the table, a lower bound, is below `ceiling`. If they are equal, `greedy` holds the units of this Y.
    """
    sort_by_key(places.worker_cost, num_places, greedy.order)
    sort_by_key(places.ps_cost, num_places, greedy.ps_order)
    for c in range(num_places):
        greedy.workers[c] = greedy.ps[c] = 0
        greedy.limit[c] = most
        while places.front[places.start[c] + greedy.limit[c]] < 0:
            greedy.limit[c] -= 1
    table[0] = 0.0
    total, placed, at, ps_at, exact, is_exact = 0.0, ZERO, ZERO, ZERO, ZERO, True
    for y in range(1, most + 1):
        while at < num_places and greedy.workers[greedy.order[at]] >= greedy.limit[greedy.order[at]]:
            at += 1
        if at == num_places or needed[y] > y:
            return exact, y - 1
        c = greedy.order[at]
        greedy.workers[c] += 1
        total += places.worker_cost[c]
        is_exact = is_exact and greedy.ps[c] <= places.front[places.start[c] + greedy.workers[c]]
        while placed < needed[y]:
            while ps_at < num_places and _is_full(greedy.ps_order[ps_at], places, greedy):
                ps_at += 1
            if ps_at == num_places:
                return exact, y - 1
            c = greedy.ps_order[ps_at]
            greedy.ps[c] += 1
            placed += 1
            total += places.ps_cost[c]
            is_exact = is_exact and greedy.ps[c] <= places.front[places.start[c] + greedy.workers[c]]
        if total >= ceiling:
            return exact, y - 1
        table[y] = total
        if is_exact:
            exact = y
    return exact, most


@compiled
def _is_full(c, places, greedy):
    """Return whether a place holds no more PSs, even without workers."""
    return greedy.ps[c] >= places.front[places.start[c]]


@compiled
def class_pair_table(s, t, most, ceiling, needed, worker_cost, ps_cost, shared, table):
    """Do the same as `pair_table`, over all empty classes for segment s in slot t."""
    num_places = _class_places(s, t, worker_cost, ps_cost, shared)
    most = min(most, shared.scratch.windows.shape[1] - 1)
    exact, most = greedy_table(num_places, most, needed, ceiling, shared.places, shared.greedy, table)
    if exact == most:
        return most
    return pair_table(shared.places, num_places, most, needed, ceiling, shared.scratch, table)


@compiled
def split_class_pair(s, t, workers, needed, worker_cost, ps_cost, shared, out_workers, out_ps):
    """Do the same as `split_pair`, over all empty classes, for the given workers and the PSs that they need."""
    num_places = _class_places(s, t, worker_cost, ps_cost, shared)
    greedy, work = shared.greedy, shared.scratch.windows[0]
    exact, most = greedy_table(num_places, workers, needed, INFINITE, shared.places, greedy, work)
    if exact == most == workers:
        for c in range(num_places):
            out_workers[c], out_ps[c] = greedy.workers[c], greedy.ps[c]
    else:
        windows = shared.scratch.windows
        split_pair(shared.places, num_places, workers, needed[workers], windows, out_workers, out_ps)


@compiled
def _class_places(s, t, worker_cost, ps_cost, shared):
    """Make every class a place, with its unit costs and its frontier; return the number of classes."""
    places, frontiers = shared.places, shared.frontiers
    num_classes = worker_cost.shape[1]
    for c in range(num_classes):
        places.worker_cost[c] = worker_cost[s, c, t]
        places.ps_cost[c] = ps_cost[s, c, t]
        places.start[c] = frontiers.start[s, frontiers.pattern[c, t]]
    return num_classes
