"""Whole counts of several jobs that a class holds in a slot, compiled: the best ones, and how far a mixture is from their hull.

A *kind* is a job together with a count: it is there if the job has at least so many units. Kinds of a job follow each
other by rising count, so that a job which has one has those before it, too. Gains belong to kinds, and a job earns the
sum of those it has: any function of its count that doesn't fall.
"""

from typing import NamedTuple

import numpy as np

from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import IntArray
from optim.solvers.admission.packing.server_packings import ROUNDING, covering_by
from optim.solvers.admission.pricing.best_schedule import ZERO


class CountSpace(NamedTuple):
    """Counts that fit together.

    Parameters
    ----------
    first
        Shape (jobs + 1,): where each job's kinds begin.
    units
        Shape (kinds,): units, rising within a job, each at most what fits alone.
    unit
        Shape (jobs, resources): demand of one unit.
    room
        Shape (resources,).
    node_limit
        Nodes of each search after which it is given up.
    """

    first: IntArray
    units: IntArray
    unit: IntArray
    room: IntArray
    node_limit: int


@inner
def _steps(gain, space, weight, worth):
    """Write each job's gain by resource used as concave steps, one a kind: how much more, and for how much more gain.

    Steps that aren't on the concave hull gain nothing, for more than nothing: steps can be sorted by gain a unit.
    """
    for j in range(len(space.unit)):
        begin, end = space.first[j], space.first[j + 1]
        for r in range(space.unit.shape[1]):
            at, total = begin - 1, 0.0
            used, gained = 0.0, 0.0
            weight[r, begin:end] = 1.0
            worth[r, begin:end] = 0.0
            while at < end - 1:
                best, slope, more, gains = -1, -1.0, 0.0, 0.0
                total = gained
                for k in range(at + 1, end):
                    total += gain[k]
                    need = float(space.unit[j, r] * space.units[k]) - used
                    steep = (total - gained) / need if need > 0 else np.inf if total > gained else 0.0
                    if steep >= slope:
                        best, slope, more, gains = k, steep, need, total - gained
                if gains > 0:
                    weight[r, best], worth[r, best] = more, gains
                used, gained, at = used + more, gained + gains, best


@inner
def _ranked(weight, worth, rank):
    """For each resource list the kinds by falling gain a unit of the resource (insertion sort: short lists)."""
    for r in range(len(weight)):
        for k in range(weight.shape[1]):
            place = k
            while place > 0:
                other = rank[r, place - 1]
                if worth[r, k] * weight[r, other] > worth[r, other] * weight[r, k]:
                    rank[r, place] = other
                    place -= 1
                else:
                    break
            rank[r, place] = k


@inner
def _outlook(depth, rest, position, weight, worth, rank):
    """Bound what the jobs from position `depth` on gain in `rest`: fractions of steps, one resource at a time."""
    least = np.inf
    for r in range(len(weight)):
        left, total = float(rest[r]), 0.0
        for place in range(weight.shape[1]):
            k = rank[r, place]
            if position[k] < depth or worth[r, k] == 0.0:
                continue
            if weight[r, k] <= left:
                left -= weight[r, k]
                total += worth[r, k]
            else:
                total += worth[r, k] * (left / weight[r, k])
                break
        least = min(least, total)
    return least


@inner
def _order(gain, space, order, position):
    """Sort the jobs by falling gain for the scarcest resource's share, ties by number; tell each kind its job's place."""
    num_jobs = len(space.unit)
    key = np.empty(num_jobs)
    for j in range(num_jobs):
        begin, end = space.first[j], space.first[j + 1]
        share, total = 1e-12, 0.0
        for r in range(space.unit.shape[1]):
            if space.unit[j, r] > 0 and space.room[r] > 0:
                share = max(share, space.unit[j, r] * space.units[end - 1] / space.room[r])
        for k in range(begin, end):
            total += gain[k]
        key[j] = -total / share
        place = j
        while place > 0 and key[order[place - 1]] > key[j]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = j
    for place in range(num_jobs):
        position[space.first[order[place]] : space.first[order[place] + 1]] = place


@inner
def _most(j, gain, rest, space):
    """Return the last kind of a job that fits in `rest` and gains, or the one before its first."""
    for k in range(space.first[j + 1] - 1, space.first[j] - 1, -1):
        fits = gain[k] > 0
        for r in range(len(rest)):
            if space.units[k] * space.unit[j, r] > rest[r]:
                fits = False
        if fits:
            return k
    return space.first[j] - 1


@inner
def _choose(depth, j, k, gain, space, rest, gained):
    """Give the job at a position the kinds up to k: what is left, and what is gained."""
    begin = space.first[j]
    units = space.units[k] if k >= begin else ZERO
    for r in range(rest.shape[1]):
        rest[depth + 1, r] = rest[depth, r] - units * space.unit[j, r]
    total = gained[depth]
    for other in range(begin, k + 1):
        total += gain[other]
    gained[depth + 1] = total


@compiled
def best_counts(gain, space, packing):
    """Find the counts of the largest gain that fit together, exactly.

    Parameters
    ----------
    gain
        Shape (kinds,), whole numbers >= 0 whose sum is at most `server_packings.MOST_GAIN`.
    space
        What fits.
    packing
        Shape (kinds,): receives 1 for kinds that are there, else 0.

    Returns
    -------
    int
        The gain; -1 if the search was given up.

    Notes
    -----
    Depth-first over jobs by falling density, most units first, cut off by the concave hulls of the jobs' gains, shared
    fractionally, one resource at a time.
    """
    num_jobs, num_kinds = len(space.unit), len(space.units)
    packing[:] = 0
    shape = (len(space.room), num_kinds)
    weight, worth, rank = np.empty(shape), np.empty(shape), np.empty(shape, dtype=np.int64)
    order, position = np.empty(num_jobs, dtype=np.int64), np.empty(num_kinds, dtype=np.int64)
    _steps(gain, space, weight, worth)
    _ranked(weight, worth, rank)
    _order(gain, space, order, position)
    rest = np.empty((num_jobs + 1, len(space.room)), dtype=np.int64)
    rest[0] = space.room
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
                gained[depth] + _outlook(depth, rest[depth], position, weight, worth, rank) + ROUNDING < best + 1
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


@inner
def _best_of_counts(whole, space, packing):
    return best_counts(whole, space, packing)


mixture_gains = covering_by(_best_of_counts)


@inner
def _support(without, gain, space):
    """Return the kinds that gain, and their space, of all jobs but one: what gains nothing only costs time."""
    num_jobs = len(space.unit)
    first = np.zeros(num_jobs + 1, dtype=np.int64)
    kinds, jobs = np.empty(len(gain), dtype=np.int64), np.empty(num_jobs, dtype=np.int64)
    kept, number = ZERO, ZERO
    for j in range(num_jobs):
        for k in range(space.first[j], space.first[j + 1]):
            if gain[k] > 0 and j != without:
                kinds[kept] = k
                kept += 1
        if kept > first[number]:
            jobs[number] = j
            number += 1
            first[number] = kept
    kinds, jobs = kinds[:kept], jobs[:number]
    return gain[kinds], CountSpace(
        first[: number + 1], space.units[kinds], space.unit[jobs], space.room, space.node_limit
    )  # fmt: skip


@compiled
def lift_counts(gain, space, right_hand_side):
    """Raise the gains job by job, in their order, as far as the counts still keep to the right-hand side.

    A job with n units earns at most the right-hand side less what the others reach in what n units leave. Where that
    search takes too long the job keeps what it gained.
    """
    own = np.empty_like(gain)
    for j in range(len(space.unit)):
        begin, end = space.first[j], space.first[j + 1]
        others, among = _support(j, gain, space)
        packing = np.empty(len(others), dtype=np.int64)
        reached, before = ZERO, ZERO
        for k in range(begin, end):
            reached += gain[k]
            rest = space.room - space.units[k] * space.unit[j]
            value = best_counts(
                others, CountSpace(among.first, among.units, among.unit, rest, among.node_limit), packing
            )  # fmt: skip
            most = reached if value < 0 else max(reached, right_hand_side - value)
            own[k], before = max(most, before) - before, max(most, before)
        gain[begin:end] = own[begin:end]
