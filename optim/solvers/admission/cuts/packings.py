"""Integer packings of jobs' units: the best one, facets that separate a fractional point from all of them, lifted gains.

A *kind* is a pair of a job and a number of units. It is present if the job has at least this number, so a job with a kind
also has its lower kinds. Gains belong to kinds, and a job earns the sum over its present kinds: any nondecreasing function
of its number of units. If each unit gains the same, a job's kinds have equal gains.

Source: Boyd, "Fenchel cutting planes for integer programs", 1994, DOI 10.1287/opre.42.1.53 (facets from packings).
"""

from typing import NamedTuple

import numpy as np

from optim.compiled import compiled
from optim.core.arrays import IntArray
from optim.solvers.admission.pricing.best_schedule import ZERO

ROUNDING = 1e-2
"""Added to bounds computed in doubles before they are compared with integral gains below `MAX_GAIN`."""

MAX_GAIN = 2**40
"""Largest total gain of a packing: rounding errors of doubles of this size are far below `ROUNDING`."""

HULL_TOL = 1e-6
"""A load counts as inside the hull if packings with a total weight of at most 1 plus this tolerance cover it."""

SCALE = 2**28
"""Fractional gains are priced as integral multiples of 1 / SCALE."""


class PackingSpace(NamedTuple):
    """Units and the capacity that they share.

    Parameters
    ----------
    first
        Shape (jobs + 1,): index of each job's first kind.
    units
        Shape (kinds,): number of units of each kind, increasing within a job, at most the number that fits alone.
    use
        Shape (kinds, resources): use of a job with each kind and its lower kinds, nondecreasing within a job.
    capacity
        Shape (resources,): the shared capacity.
    node_limit
        Maximal number of nodes of each search.
    """

    first: IntArray
    units: IntArray
    use: IntArray
    capacity: IntArray
    node_limit: int


@compiled
def _steps(gain, space, weight, step_gain):
    """Write the concave hull of each job's gain over its use of each resource, as steps: additional use, additional gain.

    There is one step per kind. Kinds off the hull get gain 0 for a positive use, so that steps can be sorted by gain per use.
    """
    for j in range(len(space.first) - 1):
        begin, end = space.first[j], space.first[j + 1]
        for r in range(space.use.shape[1]):
            at, total = begin - 1, 0.0
            used, gained = 0.0, 0.0
            weight[r, begin:end] = 1.0
            step_gain[r, begin:end] = 0.0
            while at < end - 1:
                best, slope, more, gains = -1, -1.0, 0.0, 0.0
                total = gained
                for k in range(at + 1, end):
                    total += gain[k]
                    need = float(space.use[k, r]) - used
                    steep = (total - gained) / need if need > 0 else np.inf if total > gained else 0.0
                    if steep >= slope:
                        best, slope, more, gains = k, steep, need, total - gained
                if gains > 0:
                    weight[r, best], step_gain[r, best] = more, gains
                used, gained, at = used + more, gained + gains, best


@compiled
def _ranked(weight, step_gain, rank, number):
    """List the kinds with a gain, for each resource, by decreasing gain per unit of it (insertion sort: short lists)."""
    for r in range(len(weight)):
        number[r] = 0
        for k in range(weight.shape[1]):
            if step_gain[r, k] == 0.0:
                continue
            place = number[r]
            number[r] += 1
            while place > 0:
                other = rank[r, place - 1]
                if step_gain[r, k] * weight[r, other] > step_gain[r, other] * weight[r, k]:
                    rank[r, place] = other
                    place -= 1
                else:
                    break
            rank[r, place] = k


@compiled
def _optimistic_bound(depth, rest, position, weight, step_gain, rank, number):
    """Bound the gain of the jobs from position `depth` on in the capacity `rest`: the least fractional knapsack of a resource."""
    least = np.inf
    for r in range(len(weight)):
        residual, total = float(rest[r]), 0.0
        for place in range(number[r]):
            k = rank[r, place]
            if position[k] < depth:
                continue
            if weight[r, k] <= residual:
                residual -= weight[r, k]
                total += step_gain[r, k]
            else:
                total += step_gain[r, k] * (residual / weight[r, k])
                break
        least = min(least, total)
    return least


@compiled
def _order(gain, space, order, position):
    """Sort the jobs by decreasing gain per share of the scarcest resource, ties by index; store each kind's position."""
    num_jobs = len(space.first) - 1
    key = np.empty(num_jobs)
    for j in range(num_jobs):
        begin, end = space.first[j], space.first[j + 1]
        share, total = 0.0, 0.0
        for r in range(space.use.shape[1]):
            if space.use[end - 1, r] > 0:
                share = max(share, space.use[end - 1, r] / space.capacity[r] if space.capacity[r] > 0 else np.inf)
        for k in range(begin, end):
            total += gain[k]
        key[j] = -total / share if share > 0 else -np.inf
        place = j
        while place > 0 and key[order[place - 1]] > key[j]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = j
    for place in range(num_jobs):
        position[space.first[order[place]] : space.first[order[place] + 1]] = place


@compiled
def _most(j, gain, rest, space):
    """Return the job's last kind that has a gain and fits in `rest`, or the index before its first kind."""
    for k in range(space.first[j + 1] - 1, space.first[j] - 1, -1):
        fits = gain[k] > 0
        for r in range(len(rest)):
            if space.use[k, r] > rest[r]:
                fits = False
        if fits:
            return k
    return space.first[j] - 1


@compiled
def _choose(depth, j, k, gain, space, rest, gained):
    """Give job j the kinds up to k: write the remaining capacity and the gain after position `depth`."""
    begin = space.first[j]
    for r in range(rest.shape[1]):
        rest[depth + 1, r] = rest[depth, r] - (space.use[k, r] if k >= begin else ZERO)
    total = gained[depth]
    for other in range(begin, k + 1):
        total += gain[other]
    gained[depth + 1] = total


@compiled
def best_packing(gain, space, packing):
    """Find the feasible set of kinds with the largest gain, exactly.

    Parameters
    ----------
    gain
        Shape (kinds,): gain of each kind, an integer >= 0; the sum is at most `MAX_GAIN`.
    space
        Units and capacity.
    packing
        Shape (kinds,): receives 1 for present kinds, else 0.

    Returns
    -------
    int
        The gain; -1 if the search reached the node limit.

    Notes
    -----
    Depth-first search over jobs by decreasing density, most units first. The bound uses the concave hulls of the jobs'
    gains with fractional steps, one resource at a time.
    """
    num_jobs, num_kinds = len(space.first) - 1, len(space.units)
    packing[:] = 0
    shape = (len(space.capacity), num_kinds)
    weight, step_gain, rank = np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64)
    order, position = np.empty(num_jobs, dtype=np.int64), np.empty(num_kinds, dtype=np.int64)
    _steps(gain, space, weight, step_gain)
    number = np.empty(len(space.capacity), dtype=np.int64)
    _ranked(weight, step_gain, rank, number)
    _order(gain, space, order, position)
    rest = np.empty((num_jobs + 1, len(space.capacity)), dtype=np.int64)
    rest[0] = space.capacity
    gained = np.zeros(num_jobs + 1, dtype=np.int64)
    last = np.zeros(num_jobs, dtype=np.int64)
    best, depth, nodes = ZERO, ZERO, ZERO
    is_new = True
    while depth >= 0:
        if is_new:
            nodes += 1
            if nodes > space.node_limit:
                return -1
            if gained[depth] > best:
                best = gained[depth]
                packing[:] = 0
                for place in range(depth):
                    packing[space.first[order[place]] : last[place] + 1] = 1
            if depth == num_jobs or (
                gained[depth]
                + _optimistic_bound(depth, rest[depth], position, weight, step_gain, rank, number)
                + ROUNDING
                < best + 1
            ):
                depth -= 1
                is_new = False
                continue
            last[depth] = _most(order[depth], gain, rest[depth], space)
        else:
            last[depth] -= 1
            if last[depth] < space.first[order[depth]] - 1:
                depth -= 1
                continue
        _choose(depth, order[depth], last[depth], gain, space, rest, gained)
        depth += 1
        is_new = True
    return best


@compiled
def separate_fenchel(load, most, variable, space, max_pivots, gains):
    """Find gains that separate a load from all packings: ``gains @ load > 1 >= gains @ p`` for each packing p.

    The gains are the optimal dual point of covering the load by the minimal (fractional) number of servers,

        min sum of x_p  s.t.  sum of x_p p >= load, x >= 0,

    solved by the revised simplex method; the packing that enters is a best packing at the present dual.
    Optimal dual points are facets of the packings' hull.

    Parameters
    ----------
    load
        Shape (variables,): the fractional point; entries are positive and at most `most`.
    most
        Shape (variables,): largest value of each, at least 1.
    variable
        Shape (kinds,): the variable to which each kind adds 1: itself, or its job if all units gain the same.
    space
        Units and capacity of the packings.
    max_pivots
        Maximal number of pivots.
    gains
        Shape (variables,): receives the gains.

    Returns
    -------
    float
        ``gains @ load``, or 0 if the load is inside the hull (to `HULL_TOL`) or the search reached a limit.
    """
    size = len(load)
    inverse = np.zeros((size, size))
    level = np.empty(size)
    price = np.ones(size)
    column = np.empty(size)
    packing = np.empty(size, dtype=np.int64)
    gain, chosen = np.empty(len(variable), dtype=np.int64), np.empty(len(variable), dtype=np.int64)
    for k in range(size):
        inverse[k, k] = 1.0 / most[k]
        level[k] = load[k] / most[k]
    for _ in range(max_pivots):
        if np.sum(level * price) <= 1.0 + HULL_TOL:
            return 0.0
        enters, lowest = -1, -1e-9
        for k in range(size):
            gains[k] = np.sum(price * inverse[:, k])
            if gains[k] < lowest:
                enters, lowest = k, gains[k]
        if enters >= 0:
            column[:] = -inverse[:, enters]
            cost = 0.0
        else:
            for k in range(size):
                gains[k] = max(gains[k], 0.0)
            for k in range(len(variable)):
                gain[k] = int(gains[variable[k]] * SCALE)
            if best_packing(gain, space, chosen) < 0:
                return 0.0
            packing[:] = 0
            for k in range(len(variable)):
                packing[variable[k]] += chosen[k]
            if np.sum(gains * packing) <= 1.0 + 1e-7:
                return np.sum(gains * load)
            for k in range(size):
                column[k] = np.sum(inverse[k] * packing)
            cost = 1.0
        leaves, ratio = -1, np.inf
        for k in range(size):
            if column[k] > 1e-9 and level[k] / column[k] < ratio - 1e-12:
                leaves, ratio = k, level[k] / column[k]
        if leaves < 0:
            return 0.0
        inverse[leaves] /= column[leaves]
        level[leaves] = ratio
        for k in range(size):
            if k != leaves and column[k] != 0.0:
                inverse[k] -= column[k] * inverse[leaves]
                level[k] = max(0.0, level[k] - column[k] * ratio)
        price[leaves] = cost
    return 0.0


@compiled
def to_integers(gains, max_denominator, fallback, integers):
    """Write gains as integers over the smallest common denominator that fits; else round them down.

    Parameters
    ----------
    gains
        Numbers >= 0.
    max_denominator
        Largest common denominator to try.
    fallback
        Denominator if there is no common denominator up to `max_denominator`.
    integers
        Receives the integers.
    """
    for denominator in range(1, max_denominator + 1):
        fits = True
        for k in range(len(gains)):
            scaled = gains[k] * denominator
            nearest = np.rint(scaled)
            if abs(scaled - nearest) > 1e-6 * max(1.0, denominator * 0.01):
                fits = False
                break
            integers[k] = int(nearest)
        if fits:
            return
    for k in range(len(gains)):
        integers[k] = int(gains[k] * fallback)


@compiled
def _support(without, gain, space):
    """Return the gains, and the space, of the kinds with a gain of all jobs except `without`; other kinds only cost time."""
    num_jobs = len(space.first) - 1
    first = np.zeros(num_jobs + 1, dtype=np.int64)
    kinds = np.empty(len(gain), dtype=np.int64)
    num_kinds, number = ZERO, ZERO
    for j in range(num_jobs):
        for k in range(space.first[j], space.first[j + 1]):
            if gain[k] > 0 and j != without:
                kinds[num_kinds] = k
                num_kinds += 1
        if num_kinds > first[number]:
            number += 1
            first[number] = num_kinds
    kinds = kinds[:num_kinds]
    return gain[kinds], PackingSpace(
        first[: number + 1], space.units[kinds], space.use[kinds], space.capacity, space.node_limit
    )  # fmt: skip


@compiled
def lift(gain, space, right_hand_side, is_linear):
    """Raise the gains job by job, in their order, as far as every packing's gain is at most the right-hand side.

    A job with n units may earn the right-hand side minus the largest gain that other jobs reach in the remaining capacity.
    If each unit must gain the same (`is_linear`), only jobs without gain are raised, by the smallest such amount per unit.
    If a search reaches its limit, the job's gain doesn't change.
    """
    for j in range(len(space.first) - 1):
        begin, end = space.first[j], space.first[j + 1]
        if end == begin or (is_linear and gain[begin] > 0):
            continue
        others, among = _support(j, gain, space)
        packing = np.empty(len(others), dtype=np.int64)
        raised = np.empty(end - begin, dtype=np.int64)
        reached, before, least = ZERO, ZERO, right_hand_side
        for k in range(begin, end):
            reached += gain[k]
            rest = space.capacity - space.use[k]
            value = best_packing(
                others, PackingSpace(among.first, among.units, among.use, rest, among.node_limit), packing
            )
            least = min(least, (right_hand_side - value) // space.units[k] if value >= 0 else ZERO)
            if is_linear and least == 0:
                break
            most = reached if value < 0 else max(reached, right_hand_side - value)
            raised[k - begin], before = max(most, before) - before, max(most, before)
        if is_linear:
            raised[:] = least
        gain[begin:end] = raised
