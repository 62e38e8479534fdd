"""Cuts of one server's integer packings: found, lifted, and laid out for pricing and the master.

The packing LP lets the jobs share a server fractionally. A server's integer packings of a slot have a
hull of their own; where the average load of a class' servers lies outside of it, a facet of the hull
that tells them apart is a valid inequality which the LP violates (a Fenchel cut). With all of them the
LP's bound is that of the Dantzig-Wolfe decomposition by jobs and by servers at once. Their duals only
add to the cost of a job's worker or PS in a class and slot, so pricing carries them for nothing.

Source: Boyd, "Fenchel cutting planes for integer programs", 1994, DOI 10.1287/opre.42.1.53.
"""

from dataclasses import dataclass

import numpy as np

from optim.models.admission.instance import AdmissionInstance, FloatArray, IntArray, units_per_server
from optim.models.admission.proof import ServerCut, Side

LOAD_TOL = 1e-6
"""Smaller average numbers of units on a server count as none."""

MAX_DENOMINATOR = 200
FALLBACK_DENOMINATOR = 5000
"""A facet's gains have small common denominators as a rule; others are rounded down over this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparationOptions:
    """How hard cuts are looked for.

    Parameters
    ----------
    least_violation
        Relative violation from which a cut is worth having.
    node_limit
        Nodes of each search for a best packing; a cut that needs more is given up.
    max_pivots
        Pivots of each facet's search.
    """

    least_violation: float = 1e-4
    node_limit: int = 5_000
    max_pivots: int = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class _Kinds:
    """The sorts of units that one server of a class may hold in a slot, one a job, or two if it is shared.

    Parameters
    ----------
    job
        Shape (kinds,), ascending.
    is_ps
        Shape (kinds,): PSs; others are workers.
    unit, most, load
        Demand, largest number on one server, and average number in the LP.
    """

    job: IntArray
    is_ps: IntArray
    unit: IntArray
    most: IntArray
    load: FloatArray


class CutSeparator:
    """Finds violated cuts of single servers.

    Parameters
    ----------
    instance
        Any admission instance. On shared servers a job's workers and PSs are two independent kinds of units:
        a cap on a job's share of a server bounds each of them, not both together, which leaves cuts valid.
    options
        How hard to look.
    """

    def __init__(self, instance: AdmissionInstance, options: SeparationOptions | None = None) -> None:
        self._instance = instance
        self._options = options if options is not None else SeparationOptions()
        share = instance.max_share_per_server
        jobs, most = instance.jobs, instance.max_workers
        most_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
        # A cut has to hold whatever segment each job is in.
        self._demand = tuple(
            np.minimum.reduceat(demand, jobs.segment_offset[:-1], axis=0) if len(jobs) else demand
            for demand in (jobs.worker_demand, jobs.ps_demand)
        )
        self._most = tuple(
            units_per_server(demand, servers.capacity, limit, share)
            for demand, servers, limit in zip(
                self._demand, (instance.worker_servers, instance.ps_servers), (most, most_ps), strict=True
            )
        )

    def separate(self, worker_load: FloatArray, ps_load: FloatArray) -> list[ServerCut]:
        """Find cuts that a point of the LP violates, at most one a class and slot.

        Parameters
        ----------
        worker_load, ps_load
            Shape (jobs, classes, slots): how many workers (PSs) of a job a class holds, over all its servers.

        Returns
        -------
        list of ServerCut
            Multipliers are 0. Sorted by side, class and slot.
        """
        loads = (worker_load, ps_load)
        found = []
        sides = (Side.WORKER,) if self._instance.has_shared_servers else (Side.WORKER, Side.PS)
        for side in sides:
            on_side = loads if len(sides) == 1 else (loads[0 if side is Side.WORKER else 1],)
            busy = sum((load > LOAD_TOL).any(axis=0).astype(np.int64) for load in on_side)
            for c, t in np.argwhere(busy).tolist():
                cut = self._separate_one(side, c, t, loads)
                if cut is not None:
                    found.append(cut)
        return found

    def _separate_one(self, side: Side, c: int, t: int, loads: tuple[FloatArray, FloatArray]) -> ServerCut | None:
        """Find the most violated facet of one server's packings, if the load is outside, and lift it."""
        from optim.solvers.admission.packing.server_packings import (
            PackingSpace,
            best_packing,
            covering_gains,
            whole_gains,
        )

        servers = self._instance.worker_servers if side is Side.WORKER else self._instance.ps_servers
        kinds, room = self._kinds(side, c, t, loads), servers.capacity[c, t].copy()
        options = self._options
        on = np.flatnonzero(kinds.load > LOAD_TOL)
        unit, most, load = kinds.unit[on], kinds.most[on], np.minimum(kinds.load[on], kinds.most[on])
        fractional, space = np.empty(len(on)), PackingSpace(unit, room, most, options.node_limit)
        if covering_gains(load, most, space, options.max_pivots, fractional) == 0.0:
            return None
        gain, packing = np.empty(len(on), dtype=np.int64), np.empty(len(on), dtype=np.int64)
        whole_gains(fractional, MAX_DENOMINATOR, FALLBACK_DENOMINATOR, gain)
        right_hand_side = int(best_packing(gain, unit, room, most, options.node_limit, packing))
        if right_hand_side < 0 or gain @ load <= right_hand_side * (1.0 + options.least_violation):
            return None
        gains = np.zeros(len(kinds.job), dtype=np.int64)
        gains[on] = gain
        self._lift(gains, kinds, room, right_hand_side)
        return _cut(side, c, t, kinds, gains, right_hand_side)

    def _kinds(self, side: Side, c: int, t: int, loads: tuple[FloatArray, FloatArray]) -> _Kinds:
        """List the units that may be there in the slot."""
        instance = self._instance
        count = (instance.worker_servers if side is Side.WORKER else instance.ps_servers).count[c]
        present = (instance.jobs.arrival <= t) & (t <= instance.deadline)
        numbers = (0, 1) if instance.has_shared_servers else (0,) if side is Side.WORKER else (1,)
        columns = []
        for number in numbers:
            job = np.flatnonzero(present & (self._most[number][:, c, t] > 0))
            columns.append(
                (
                    job,
                    np.full(len(job), number),
                    self._demand[number][job],
                    self._most[number][job, c, t],
                    loads[number][job, c, t] / count,
                )
            )
        fields = [np.concatenate([column[k] for column in columns]) for k in range(5)]
        order = np.lexsort((fields[1], fields[0]))
        job, is_ps, unit, most, load = (np.ascontiguousarray(field[order]) for field in fields)
        return _Kinds(job=job, is_ps=is_ps, unit=unit, most=most, load=load)

    def _lift(self, gains: IntArray, kinds: _Kinds, room: IntArray, right_hand_side: int) -> None:
        """Give the kinds without gain the largest that keeps the cut valid, one after the other, large ones first."""
        from optim.solvers.admission.packing.server_packings import lifted_gain

        share = (kinds.unit / np.maximum(room, 1)).max(axis=1)
        others = np.flatnonzero(gains == 0)
        support = np.flatnonzero(gains > 0)
        rest = np.empty_like(room)
        for k in others[np.lexsort((others, -share[others]))].tolist():
            gain = lifted_gain(
                gains[support], kinds.unit[support], room, kinds.most[support], right_hand_side, kinds.unit[k],
                int(kinds.most[k]), self._options.node_limit, np.empty(len(support), dtype=np.int64), rest,
            )  # fmt: skip
            if gain > 0:
                gains[k] = gain
                support = np.append(support, k)


def _cut(side: Side, c: int, t: int, kinds: _Kinds, gains: IntArray, right_hand_side: int) -> ServerCut:
    jobs = np.unique(kinds.job[gains > 0])
    coefficients = []
    for number in (0, 1):
        own = (kinds.is_ps == number) & (gains > 0)
        coefficient = np.zeros(len(jobs), dtype=np.int64)
        coefficient[np.searchsorted(jobs, kinds.job[own])] = gains[own]
        coefficients.append(coefficient)
    return ServerCut(
        side=side,
        server_class=c,
        slot=t,
        jobs=jobs,
        worker_coefficient=coefficients[0],
        ps_coefficient=coefficients[1],
        right_hand_side=right_hand_side,
        multiplier=0.0,
    )
