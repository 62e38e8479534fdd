"""Rank-1 cuts of the counts that a class holds in a slot: separation and integer packings.

A *kind* is a job together with a count: it is there if the job has at least so many units. Kinds of a job follow each
other by rising count, so that a job which has one has those before it, too. Gains belong to kinds, and a job earns the
sum of those it has: any function of its count that doesn't fall.

A server cut sees how many units of a job a class holds on average. The packing form knows more: which share of a job's
schedules has how many. Where half of a job's schedules have four units and half none, two on average may fit beside the
others and four do not. A facet of the hull of whole counts, over variables "job i has at least n units here", tells such
mixtures apart: it sums functions of each job's count, of which those that round a combination of a capacity row with
jobs' rows down are special cases (rank-1 Chvatal-Gomory cuts, subset-row cuts among them). Its coefficient in a schedule
depends on one slot and one class, so that the dynamic programme needs no further state: the slot's table of costs takes
any function of a class' count.

A class' servers are looked at as one large one. On shared servers a job's workers and its PSs are two *items* of the class,
each with a count of its own; elsewhere each side has its own items, one a job.

Sources: Jepsen, Petersen, Spoorendonk, Pisinger, "Subset-row inequalities applied to the vehicle-routing problem with time
windows", 2008, DOI 10.1287/opre.1070.0449 (cuts over the master's variables, charged in pricing); Boyd, "Fenchel cutting
planes for integer programs", 1994, DOI 10.1287/opre.42.1.53 (facets from packings).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optim.compiled import compiled, inner
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import ServerClasses
from optim.models.admission.decision import CountCut, Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.cuts.server_cuts import (
    FALLBACK_DENOMINATOR,
    LOAD_TOL,
    MAX_DENOMINATOR,
    ROUNDING,
    SeparationOptions,
    fenchel_by,
    job_units,
    to_integers,
)
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
def _optimistic_bound(depth, rest, position, weight, worth, rank):
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
        Shape (kinds,), whole numbers >= 0 whose sum is at most `server_cuts.MAX_GAIN`.
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
                gained[depth] + _optimistic_bound(depth, rest[depth], position, weight, worth, rank) + ROUNDING
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


@inner
def _best_of_counts(whole, space, packing):
    return best_counts(whole, space, packing)


mixture_gains = fenchel_by(_best_of_counts)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture:
    """How often items have at least so many units in a class and slot: kinds, sorted by item and count, and shares > 0."""

    item: IntArray
    count: IntArray
    share: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class _Items:
    """What a side's servers hold: workers or PSs of a job, by job; on shared servers workers of all jobs, then PSs.

    Parameters
    ----------
    demand
        Shape (items, resources): of one unit. A cut has to hold whatever segment each job is in.
    most
        Shape (items, classes, slots): most units in a class, 0 where the job can't be there.
    """

    side: Side
    servers: ServerClasses
    demand: IntArray
    most: IntArray


class CountSeparator:
    """Finds violated count cuts.

    Parameters
    ----------
    instance
        Any admission instance.
    options
        How hard to look.
    """

    def __init__(self, instance: AdmissionInstance, options: SeparationOptions | None = None) -> None:
        self._instance = instance
        self._options = options if options is not None else SeparationOptions()
        jobs = instance.jobs
        slots = np.arange(instance.horizon)
        present = (jobs.arrival[:, None] <= slots) & (slots <= instance.deadline[:, None])
        sides = []
        for side, servers, units in zip(
            (Side.WORKER, Side.PS), (instance.worker_servers, instance.ps_servers), job_units(instance), strict=True
        ):
            in_class = np.minimum(units.per_server * servers.count[:, None], units.limit[:, None, None])
            most = in_class * present[:, None, :]
            sides.append(_Items(side=side, servers=servers, demand=units.demand, most=most))
        if instance.has_shared_servers:
            both = {name: np.concatenate([getattr(own, name) for own in sides]) for name in ("demand", "most")}
            sides = [_Items(side=Side.WORKER, servers=instance.worker_servers, **both)]
        self._sides = sides

    def separate(self, rows: IntArray, weight: FloatArray) -> list[CountCut]:
        """Find cuts that a point of the LP violates, at most one a side, class and slot.

        Parameters
        ----------
        rows, weight
            As `ColumnPool.counts` returns them.

        Returns
        -------
        list of CountCut
            Multipliers are 0. Sorted by side, class and slot.
        """
        if not len(rows):
            return []
        if self._instance.has_shared_servers:
            items = rows[:, 3] + rows[:, 0] * self._instance.num_jobs
            rows = np.column_stack([np.zeros_like(items), rows[:, 1:3], items, rows[:, 4]])
            order = np.lexsort(rows.T[::-1])
            rows, weight = rows[order], weight[order]
        found = []
        places, starts = np.unique(rows[:, :3], axis=0, return_index=True)
        for (side, c, t), begin, end in zip(places.tolist(), starts, [*starts[1:], len(rows)], strict=True):
            cut = self._separate_one(self._sides[side], c, t, _mixture(rows[begin:end, 3:], weight[begin:end]))
            if cut is not None:
                found.append(cut)
        return found

    def _separate_one(self, on: _Items, c: int, t: int, mixture: _Mixture) -> CountCut | None:
        """Find the most violated facet of a class' counts, if the mixture is outside, and lift it."""
        options, demand, most = self._options, on.demand, on.most[:, c, t]
        room = on.servers.capacity[c, t] * on.servers.count[c]
        items, first = np.unique(mixture.item, return_index=True)
        first = np.append(first, len(mixture.item))
        fractional = np.empty(len(mixture.item))
        space = CountSpace(first, mixture.count, demand[items], room, options.node_limit)
        # What all at their largest need together fits: no facet is violated.
        if (demand[items].T @ mixture.count[first[1:] - 1] <= room).all():
            return None
        ones = np.ones_like(mixture.count)
        if mixture_gains(mixture.share, ones, space, options.max_pivots, fractional) == 0.0:
            return None
        gain, packing = np.empty_like(mixture.count), np.empty_like(mixture.count)
        to_integers(fractional, MAX_DENOMINATOR, FALLBACK_DENOMINATOR, gain)
        right_hand_side = int(best_counts(gain, space, packing))
        if right_hand_side < 0 or gain @ mixture.share <= right_hand_side * (1.0 + options.least_violation):
            return None
        # Those that are there come first: what lifts them lifts the violation.
        others = np.setdiff1d(np.flatnonzero(most > 0), items)
        share = (demand[others] / np.maximum(room, 1)).max(axis=1, initial=0.0)
        order = np.concatenate([items, others[np.lexsort((others, -share))]])
        widths = most[order]
        first = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        count = np.arange(1, first[-1] + 1) - np.repeat(first[:-1], widths)
        spread = np.zeros(len(count), dtype=np.int64)
        spread[first[np.searchsorted(items, mixture.item)] + mixture.count - 1] = gain
        lift_counts(spread, CountSpace(first, count, demand[order], room, options.node_limit), right_hand_side)
        gains = np.zeros((len(most), max(int(widths.max()), 1)), dtype=np.int64)
        for item, own in zip(order.tolist(), np.split(spread, first[1:-1]), strict=True):
            total = np.cumsum(own)
            gains[item, : len(own)], gains[item, len(own) :] = total, total[-1]
        return self._cut(on, c, t, gains, right_hand_side)

    def _cut(self, on: _Items, c: int, t: int, gains: IntArray, right_hand_side: int) -> CountCut:
        """Return a cut from each item's gains of 1, 2, ... units."""
        num_jobs = self._instance.num_jobs
        by_side = gains.reshape(-1, num_jobs, gains.shape[1])
        jobs = np.flatnonzero((by_side[:, :, -1] > 0).any(axis=0))
        return CountCut(
            side=on.side,
            server_class=c,
            slot=t,
            jobs=jobs,
            gain=by_side[0, jobs],
            right_hand_side=right_hand_side,
            multiplier=0.0,
            ps_gain=by_side[1, jobs] if len(by_side) > 1 else None,
        )


def _mixture(rows: IntArray, weight: FloatArray) -> _Mixture:
    """Sum up how often each item has at least so many units; rows are (item, count), sorted."""
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(place.ravel(), weight)
    for k in range(len(kinds) - 2, -1, -1):
        if kinds[k, 0] == kinds[k + 1, 0]:
            share[k] += share[k + 1]
    kept = share > LOAD_TOL
    return _Mixture(
        item=np.ascontiguousarray(kinds[kept, 0]),
        count=np.ascontiguousarray(kinds[kept, 1]),
        share=np.minimum(share[kept], 1.0),
    )
