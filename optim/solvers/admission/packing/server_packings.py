"""Integer packings of one server, compiled: the best one, and how far a fractional load is from their hull.

A *kind* is a sort of unit that a server may hold: a job's worker or PS, with a demand of each resource
and a largest number on one server. A packing is a whole number of each kind that fits.
"""

from typing import NamedTuple

import numpy as np

from optim.core.by_reference import by_reference
from optim.core.compile_cache import compiled, inner
from optim.models.admission.instance import IntArray
from optim.solvers.admission.pricing.cheapest_servers import ZERO

ROUNDING = 1e-2
"""Added to bounds computed in doubles before they are compared with whole gains below `MOST_GAIN`."""

MOST_GAIN = 2**40
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
        Shape (kinds,), whole numbers >= 0 with ``gain @ most <= MOST_GAIN``.
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


def covering_by(best):
    """Return the search for a covering's dual over the packings that ``best(whole, space, packing)`` finds."""

    @compiled
    def covering_gains(load, most, space, max_pivots, gains):
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

    return covering_gains


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


covering_gains = covering_by(_best_of_units)


@compiled
def whole_gains(gains, most_denominator, fallback, whole):
    """Write gains as whole numbers over a common denominator, the smallest that fits; else rounded down.

    Parameters
    ----------
    gains
        Numbers >= 0.
    most_denominator
        Largest common denominator that is tried.
    fallback
        Denominator for gains that no smaller one fits.
    whole
        Receives the whole numbers.
    """
    for denominator in range(1, most_denominator + 1):
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
