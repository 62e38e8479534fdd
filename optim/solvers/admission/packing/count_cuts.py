"""Cuts of the counts that a class holds in a slot: rank-1 cuts of the packing form, which pricing carries exactly.

A server cut sees how many units of a job a class holds on average. The packing form knows more: which share of a job's
schedules has how many. Where half of a job's schedules have four units and half none, two on average may fit beside the
others and four do not. A facet of the hull of whole counts, over variables "job i has at least n units here", tells such
mixtures apart: it sums functions of each job's count, of which those that round a combination of a capacity row with
jobs' rows down are special cases (rank-1 Chvatal-Gomory cuts, subset-row cuts among them). Its coefficient in a schedule
depends on one slot and one class, so that the dynamic programme needs no further state: the slot's table of costs takes
any function of a class' count.

A class' servers are looked at as one large one.

Sources: Jepsen, Petersen, Spoorendonk, Pisinger, "Subset-row inequalities applied to the vehicle-routing problem with time
windows", 2008, DOI 10.1287/opre.1070.0449 (cuts over the master's variables, charged in pricing); Boyd, "Fenchel cutting
planes for integer programs", 1994, DOI 10.1287/opre.42.1.53 (facets from packings).
"""

from dataclasses import dataclass

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray, units_per_server
from optim.models.admission.proof import CountCut, Side
from optim.solvers.admission.packing.server_cuts import (
    FALLBACK_DENOMINATOR,
    LOAD_TOL,
    MAX_DENOMINATOR,
    SeparationOptions,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Mixture:
    """How often jobs have at least so many units in a class and slot: kinds, sorted by job and count, and shares > 0."""

    job: IntArray
    count: IntArray
    share: FloatArray


class CountSeparator:
    """Finds violated count cuts.

    Parameters
    ----------
    instance
        Any admission instance; on shared servers nothing is found.
    options
        How hard to look.
    """

    def __init__(self, instance: AdmissionInstance, options: SeparationOptions | None = None) -> None:
        self._instance = instance
        self._options = options if options is not None else SeparationOptions()
        jobs = instance.jobs
        most_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
        sides = (
            (jobs.worker_demand, instance.worker_servers, instance.max_workers),
            (jobs.ps_demand, instance.ps_servers, most_ps),
        )
        self._demand, self._most = [], []
        for demand, servers, most in sides:
            # A cut has to hold whatever segment each job is in.
            least = np.minimum.reduceat(demand, jobs.segment_offset[:-1], axis=0) if instance.num_jobs else demand
            held = units_per_server(least, servers.capacity, most, instance.max_share_per_server)
            self._demand.append(least)
            self._most.append(np.minimum(held * servers.count[:, None], most[:, None, None]))

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
        if self._instance.has_shared_servers or not len(rows):
            return []
        found = []
        places, starts = np.unique(rows[:, :3], axis=0, return_index=True)
        for (side, c, t), begin, end in zip(places.tolist(), starts, [*starts[1:], len(rows)], strict=True):
            cut = self._separate_one(side, c, t, _mixture(rows[begin:end, 3:], weight[begin:end]))
            if cut is not None:
                found.append(cut)
        return found

    def _separate_one(self, side: int, c: int, t: int, mixture: _Mixture) -> CountCut | None:
        """Find the most violated facet of a class' counts, if the mixture is outside, and lift it."""
        from optim.solvers.admission.packing.count_packings import CountSpace, best_counts, lift_counts, mixture_gains
        from optim.solvers.admission.packing.server_packings import whole_gains

        options, demand, most = self._options, self._demand[side], self._most[side][:, c, t]
        servers = self._instance.ps_servers if side else self._instance.worker_servers
        room = servers.capacity[c, t] * servers.count[c]
        jobs, first = np.unique(mixture.job, return_index=True)
        first = np.append(first, len(mixture.job))
        fractional = np.empty(len(mixture.job))
        space = CountSpace(first, mixture.count, demand[jobs], room, options.node_limit)
        # What all at their largest need together fits: no facet is violated.
        if (demand[jobs].T @ mixture.count[first[1:] - 1] <= room).all():
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
        present = (self._instance.jobs.arrival <= t) & (t <= self._instance.deadline) & (most > 0)
        others = np.setdiff1d(np.flatnonzero(present), jobs)
        share = (demand[others] / np.maximum(room, 1)).max(axis=1, initial=0.0)
        order = np.concatenate([jobs, others[np.lexsort((others, -share))]])
        widths = most[order]
        first = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        count = np.arange(1, first[-1] + 1) - np.repeat(first[:-1], widths)
        spread = np.zeros(len(count), dtype=np.int64)
        spread[first[np.searchsorted(jobs, mixture.job)] + mixture.count - 1] = gain
        lift_counts(spread, CountSpace(first, count, demand[order], room, options.node_limit), right_hand_side)
        return _cut(side, c, t, order, np.split(spread, first[1:-1]), right_hand_side)


def _mixture(rows: IntArray, weight: FloatArray) -> _Mixture:
    """Sum up how often each job has at least so many units; rows are (job, count), sorted."""
    kinds, place = np.unique(rows, axis=0, return_inverse=True)
    share = np.bincount(place.ravel(), weight)
    for k in range(len(kinds) - 2, -1, -1):
        if kinds[k, 0] == kinds[k + 1, 0]:
            share[k] += share[k + 1]
    kept = share > LOAD_TOL
    return _Mixture(
        job=np.ascontiguousarray(kinds[kept, 0]),
        count=np.ascontiguousarray(kinds[kept, 1]),
        share=np.minimum(share[kept], 1.0),
    )


def _cut(side: int, c: int, t: int, order: IntArray, steps: list[IntArray], right_hand_side: int) -> CountCut:
    """Return a cut from each job's gains by further unit."""
    widest = max(len(own) for own in steps)
    gain = np.zeros((len(order), widest), dtype=np.int64)
    for row, own in zip(gain, steps, strict=True):
        row[: len(own)] = np.cumsum(own)
        row[len(own) :] = row[len(own) - 1]
    gains = np.flatnonzero(gain[:, -1] > 0)
    by_job = gains[np.argsort(order[gains])]
    return CountCut(
        side=Side.PS if side else Side.WORKER,
        server_class=c,
        slot=t,
        jobs=order[by_job],
        gain=gain[by_job],
        right_hand_side=right_hand_side,
        multiplier=0.0,
    )
