"""Cuts of the counts that a class holds in a slot: rank-1 cuts of the packing form, which pricing carries exactly.

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

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray, ServerClasses, units_per_server
from optim.models.admission.proof import CountCut, Side
from optim.solvers.admission.packing.server_cuts import (
    FALLBACK_DENOMINATOR,
    LOAD_TOL,
    MAX_DENOMINATOR,
    SeparationOptions,
)


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
        most_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
        slots = np.arange(instance.horizon)
        present = (jobs.arrival[:, None] <= slots) & (slots <= instance.deadline[:, None])
        sides = []
        for side, demand, servers, most in (
            (Side.WORKER, jobs.worker_demand, instance.worker_servers, instance.max_workers),
            (Side.PS, jobs.ps_demand, instance.ps_servers, most_ps),
        ):
            least = np.minimum.reduceat(demand, jobs.segment_offset[:-1], axis=0) if instance.num_jobs else demand
            held = units_per_server(least, servers.capacity, most, instance.max_share_per_server)
            at_once = np.minimum(held * servers.count[:, None], most[:, None, None]) * present[:, None, :]
            sides.append(_Items(side=side, servers=servers, demand=least, most=at_once))
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
        from optim.solvers.admission.packing.count_packings import CountSpace, best_counts, lift_counts, mixture_gains
        from optim.solvers.admission.packing.server_packings import whole_gains

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
        whole_gains(fractional, MAX_DENOMINATOR, FALLBACK_DENOMINATOR, gain)
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
