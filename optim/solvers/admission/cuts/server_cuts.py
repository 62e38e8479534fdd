"""Cuts of one server's integer packings: separation, lifting, and integer packings.

A *kind* is a sort of unit that a server may hold: a job's worker or PS, with a demand of each resource
and a largest number on one server. A packing is a whole number of each kind that fits.

The packing LP lets the jobs share a server fractionally. A server's integer packings of a slot have a
hull of their own; where the average load of a class' servers lies outside of it, a facet of the hull
that tells them apart is a valid inequality which the LP violates (a Fenchel cut). With all of them the
LP's bound is that of the Dantzig-Wolfe decomposition by jobs and by servers at once. Their duals only
add to the cost of a job's worker or PS in a class and slot, so pricing carries them for nothing.

Source: Boyd, "Fenchel cutting planes for integer programs", 1994, DOI 10.1287/opre.42.1.53.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optim.compiled import by_reference, compiled, inner
from optim.core.arrays import FloatArray, IntArray
from optim.models.admission.data import units_per_server
from optim.models.admission.decision import ServerCut, Side
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.servers import ZERO

ROUNDING = 1e-2
"""Added to bounds computed in doubles before they are compared with whole gains below `MAX_GAIN`."""

MAX_GAIN = 2**40
"""Largest total gain of a packing: doubles of this size are wrong by far less than `ROUNDING`."""

HULL_TOL = 1e-6
"""A load that needs at most this much more than one server counts as inside the hull."""

SCALE = 2**28
"""Fractional gains are priced as whole multiples of 1 / SCALE."""


@inner
def _by_density(gain, unit, room, order):
    """Sort kinds by falling gain a share of the scarcest resource, ties by number."""
    num_kinds, num_resources = unit.shape
    density = np.empty(num_kinds)
    for k in range(num_kinds):
        share = 0.0
        for r in range(num_resources):
            if unit[k, r] > 0:
                share = max(share, unit[k, r] / room[r] if room[r] > 0 else np.inf)
        density[k] = gain[k] / share if share > 0 else np.inf
        order[k] = k
    for position in range(1, num_kinds):
        k = order[position]
        place = position
        while place > 0 and density[order[place - 1]] < density[k]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k


@inner
def _by_resource(gain, unit, order, ranks):
    """For each resource list the positions in `order` by falling gain a unit of the resource."""
    num_kinds, num_resources = unit.shape
    for r in range(num_resources):
        for position in range(num_kinds):
            k = order[position]
            place = position
            while place > 0:
                other = order[ranks[r, place - 1]]
                # gain[k] / unit[k] > gain[other] / unit[other], units of 0 first
                if gain[k] * float(unit[other, r]) > gain[other] * float(unit[k, r]):
                    ranks[r, place] = ranks[r, place - 1]
                    place -= 1
                else:
                    break
            ranks[r, place] = position


@inner
def _relaxed(depth, rest, gain, unit, most, order, ranks):
    """Bound what the kinds from position `depth` on gain in `rest`: fractional units, one resource at a time."""
    num_kinds, num_resources = unit.shape
    best = np.inf
    for r in range(num_resources):
        left = float(rest[r])
        total = 0.0
        for place in range(num_kinds):
            position = ranks[r, place]
            if position < depth:
                continue
            k = order[position]
            need = float(unit[k, r]) * most[k]
            if need <= left:
                total += float(gain[k]) * most[k]
                left -= need
            else:
                total += gain[k] * (left / unit[k, r])
                break
        best = min(best, total)
    return best


@compiled
def best_packing(gain, unit, room, most, node_limit, packing):
    """Find the packing of the largest gain, exactly.

    Parameters
    ----------
    gain
        Shape (kinds,), whole numbers >= 0 with ``gain @ most <= MAX_GAIN``.
    unit, room
        Shapes (kinds, resources) and (resources,), whole numbers.
    most
        Shape (kinds,): largest number of each kind.
    node_limit
        Nodes of the search after which it is given up.
    packing
        Shape (kinds,): receives the packing.

    Returns
    -------
    int
        The gain; -1 if the search was given up.

    Notes
    -----
    Depth-first over kinds by falling density, most units first, cut off by the fractional packing of
    one resource at a time.
    """
    num_kinds, num_resources = unit.shape
    packing[:] = 0
    if num_kinds == 0:
        return 0
    order = np.empty(num_kinds, dtype=np.int64)
    ranks = np.empty((num_resources, num_kinds), dtype=np.int64)
    _by_density(gain, unit, room, order)
    _by_resource(gain, unit, order, ranks)
    rest = np.empty((num_kinds + 1, num_resources), dtype=np.int64)
    rest[0] = room
    gained = np.zeros(num_kinds + 1, dtype=np.int64)
    count = np.zeros(num_kinds, dtype=np.int64)
    best, depth, nodes = ZERO, ZERO, ZERO
    is_new = True
    while depth >= 0:
        if is_new:
            nodes += 1
            if nodes > node_limit:
                return -1
            if gained[depth] > best:
                best = gained[depth]
                for position in range(num_kinds):
                    packing[order[position]] = count[position] if position < depth else 0
            is_hopeless = depth == num_kinds
            if not is_hopeless:
                bound = gained[depth] + _relaxed(depth, rest[depth], gain, unit, most, order, ranks)
                is_hopeless = bound + ROUNDING < best + 1
            if is_hopeless:
                depth -= 1
                is_new = False
                continue
            k = order[depth]
            units = most[k] if gain[k] > 0 else 0
            for r in range(num_resources):
                if unit[k, r] > 0:
                    units = min(units, rest[depth, r] // unit[k, r])
            count[depth] = units
        else:
            count[depth] -= 1
            if count[depth] < 0:
                depth -= 1
                continue
            k = order[depth]
        for r in range(num_resources):
            rest[depth + 1, r] = rest[depth, r] - count[depth] * unit[k, r]
        gained[depth + 1] = gained[depth] + count[depth] * gain[k]
        depth += 1
        is_new = True
    return best


def fenchel_by(best):
    """Return the search for a covering's dual over the packings that ``best(whole, space, packing)`` finds."""

    @compiled
    def separate(load, most, space, max_pivots, gains):
        """Find gains that tell a load from all packings: ``gains @ load > 1 >= gains @ p`` for each packing p.

        They are the optimal dual point of covering the load by as few (fractional) servers as possible,

            min sum of x_p  s.t.  sum of x_p p >= load, x >= 0,

        solved by the revised simplex method; the packing that enters is a best one at the present dual.
        Optimal dual points are facets of the packings' hull.

        Parameters
        ----------
        load
            Shape (kinds,), all positive, each at most `most`.
        most
            Shape (kinds,): largest number of each kind, at least 1.
        space
            What the packings are.
        max_pivots
            Pivots after which the search is given up.
        gains
            Shape (kinds,): receives the gains.

        Returns
        -------
        float
            ``gains @ load``, or 0 if the load is inside the hull (to `HULL_TOL`) or the search was given up.
        """
        num_kinds = len(load)
        inverse = np.zeros((num_kinds, num_kinds))
        level = np.empty(num_kinds)
        price = np.ones(num_kinds)
        column = np.empty(num_kinds)
        whole = np.empty(num_kinds, dtype=np.int64)
        packing = np.empty(num_kinds, dtype=np.int64)
        for k in range(num_kinds):
            inverse[k, k] = 1.0 / most[k]
            level[k] = load[k] / most[k]
        for _ in range(max_pivots):
            if np.sum(level * price) <= 1.0 + HULL_TOL:
                return 0.0
            enters, lowest = -1, -1e-9
            for k in range(num_kinds):
                gains[k] = np.sum(price * inverse[:, k])
                if gains[k] < lowest:
                    enters, lowest = k, gains[k]
            if enters >= 0:
                column[:] = -inverse[:, enters]
                cost = 0.0
            else:
                for k in range(num_kinds):
                    gains[k] = max(gains[k], 0.0)
                    whole[k] = int(gains[k] * SCALE)
                if best(whole, space, packing) < 0:
                    return 0.0
                if np.sum(gains * packing) <= 1.0 + 1e-7:
                    return np.sum(gains * load)
                for k in range(num_kinds):
                    column[k] = np.sum(inverse[k] * packing)
                cost = 1.0
            leaves, ratio = -1, np.inf
            for k in range(num_kinds):
                if column[k] > 1e-9 and level[k] / column[k] < ratio - 1e-12:
                    leaves, ratio = k, level[k] / column[k]
            if leaves < 0:
                return 0.0
            inverse[leaves] /= column[leaves]
            level[leaves] = ratio
            for k in range(num_kinds):
                if k != leaves and column[k] != 0.0:
                    inverse[k] -= column[k] * inverse[leaves]
                    level[k] = max(0.0, level[k] - column[k] * ratio)
            price[leaves] = cost
        return 0.0

    return separate


@by_reference
class PackingSpace(NamedTuple):
    """Packings of units on one server; see `best_packing`."""

    unit: IntArray
    room: IntArray
    most: IntArray
    node_limit: int


@inner
def _best_of_units(whole, space, packing):
    return best_packing(whole, space.unit, space.room, space.most, space.node_limit, packing)


separate_fenchel = fenchel_by(_best_of_units)


@compiled
def to_integers(gains, max_denominator, fallback, whole):
    """Write gains as whole numbers over a common denominator, the smallest that fits; else rounded down.

    Parameters
    ----------
    gains
        Numbers >= 0.
    max_denominator
        Largest common denominator that is tried.
    fallback
        Denominator for gains that no smaller one fits.
    whole
        Receives the whole numbers.
    """
    for denominator in range(1, max_denominator + 1):
        fits = True
        for k in range(len(gains)):
            scaled = gains[k] * denominator
            nearest = np.rint(scaled)
            if abs(scaled - nearest) > 1e-6 * max(1.0, denominator * 0.01):
                fits = False
                break
            whole[k] = int(nearest)
        if fits:
            return
    for k in range(len(gains)):
        whole[k] = int(gains[k] * fallback)


@compiled
def lifted_gain(gain, unit, room, most, right_hand_side, new_unit, new_most, node_limit, packing, rest):
    """Return the largest whole gain that a further kind may have, or 0 if the search was given up.

    With n of its units on the server the others reach some value in what is left; the new kind's gain is
    at most ``(right_hand_side - value) / n`` for every n that fits.
    """
    result = right_hand_side
    for units in range(1, new_most + 1):
        for r in range(len(room)):
            rest[r] = room[r] - units * new_unit[r]
            if rest[r] < 0:
                return result
        value = best_packing(gain, unit, rest, most, node_limit, packing)
        if value < 0:
            return 0
        result = min(result, (right_hand_side - value) // units)
        if result == 0:
            return 0
    return result


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


class JobUnits(NamedTuple):
    """Workers or PSs of each job: how many the job has in all at most, the demand of one, and the most on one server.

    Shapes (jobs,), (jobs, resources) and (jobs, classes, slots). A cut has to hold whatever segment a job is in: demands
    are the least over its segments.
    """

    limit: IntArray
    demand: IntArray
    per_server: IntArray


def job_units(instance: AdmissionInstance) -> tuple[JobUnits, JobUnits]:
    """Return the workers and the PSs of each job."""
    jobs, sides = instance.jobs, []
    most_ps = np.array([table[-1] for table in instance.ps_needed], dtype=np.int64)
    for demand, servers, limit in (
        (jobs.worker_demand, instance.worker_servers, instance.max_workers),
        (jobs.ps_demand, instance.ps_servers, most_ps),
    ):
        least = np.minimum.reduceat(demand, jobs.segment_offset[:-1], axis=0) if len(jobs) else demand
        held = units_per_server(least, servers.capacity, limit, instance.max_share_per_server)
        sides.append(JobUnits(limit, least, held))
    return sides[0], sides[1]


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
        self._units = job_units(instance)

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
        servers = self._instance.worker_servers if side is Side.WORKER else self._instance.ps_servers
        kinds, room = self._kinds(side, c, t, loads), servers.capacity[c, t].copy()
        options = self._options
        on = np.flatnonzero(kinds.load > LOAD_TOL)
        unit, most, load = kinds.unit[on], kinds.most[on], np.minimum(kinds.load[on], kinds.most[on])
        fractional, space = np.empty(len(on)), PackingSpace(unit, room, most, options.node_limit)
        if separate_fenchel(load, most, space, options.max_pivots, fractional) == 0.0:
            return None
        gain, packing = np.empty(len(on), dtype=np.int64), np.empty(len(on), dtype=np.int64)
        to_integers(fractional, MAX_DENOMINATOR, FALLBACK_DENOMINATOR, gain)
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
            units = self._units[number]
            job = np.flatnonzero(present & (units.per_server[:, c, t] > 0))
            columns.append(
                (
                    job,
                    np.full(len(job), number),
                    units.demand[job],
                    units.per_server[job, c, t],
                    loads[number][job, c, t] / count,
                )
            )
        fields = [np.concatenate([column[k] for column in columns]) for k in range(5)]
        order = np.lexsort((fields[1], fields[0]))
        job, is_ps, unit, most, load = (np.ascontiguousarray(field[order]) for field in fields)
        return _Kinds(job=job, is_ps=is_ps, unit=unit, most=most, load=load)

    def _lift(self, gains: IntArray, kinds: _Kinds, room: IntArray, right_hand_side: int) -> None:
        """Give the kinds without gain the largest that keeps the cut valid, one after the other, large ones first."""
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
