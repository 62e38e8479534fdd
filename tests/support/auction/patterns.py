"""Winner determination by packing patterns of machines, and the bound by concave hulls: independent oracles of the solvers.

References
----------
P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9 (1961),
DOI 10.1287/opre.9.6.849.
"""

from collections import Counter
from itertools import pairwise

import numpy as np
import pyomo.environ as pyo

from optim.core.errors import UnsupportedProblemError
from optim.models.auction.data import Locality
from optim.models.auction.welfare import add_awards, one_bid
from optim.models.programmes import add_rows


def pattern_model(instance, *, is_integer=True):
    """Build the programme in which machines are covered by packing patterns.

    Parameters
    ----------
    instance
        An auction without rows that name machines, of machines with one slot each.
    is_integer
        Whether numbers are integral. The duals of the linear relaxation are prices of bundles.

    Returns
    -------
    pyomo.environ.ConcreteModel
        With ``award`` z_b, ``pattern`` y_rcp (machines of class c in rack r cut by pattern p), ``in_rack`` s_rk
        (bundles of k GPUs within rack r), ``loose`` (GPUs of rack r for bundles that may spread anywhere), and a
        suffix ``dual``.

    Raises
    ------
    UnsupportedProblemError
        For rows that name machines or machines of several slots; use `explicit_model`.
    """
    cluster, bids = instance.cluster, instance.bids
    if (bids.locality == Locality.NAMED).any() or len(cluster.slot_machine) > cluster.num_machines:
        raise UnsupportedProblemError("patterns need machines with one slot; use explicit_model")
    model = pyo.ConcreteModel(name=f"auction-patterns-{instance.name}")
    whole = pyo.NonNegativeIntegers if is_integer else pyo.NonNegativeReals
    sizes = sorted({int(k) for k, lv in zip(bids.gpus, bids.locality, strict=True) if lv <= Locality.MACHINE})
    rack_sizes = sorted({int(k) for k in bids.gpus[bids.locality == Locality.RACK].tolist()})
    classes = Counter(zip(cluster.machine_rack.tolist(), cluster.machine_free.tolist(), strict=True))
    racks = cluster.rack_free.tolist()
    model.instance, model.size_index, model.classes = instance, {k: n for n, k in enumerate(sizes)}, classes
    model.cuts = {free: maximal_patterns(free, sizes) for _, free in classes}
    add_awards(model, instance, is_integer=is_integer)
    model.PATTERNS = pyo.Set(
        initialize=[(r, free, p) for r, free in sorted(classes) for p in range(len(model.cuts[free]))], dimen=3
    )
    model.RACK_SIZES = pyo.Set(initialize=[(r, k) for r, f in enumerate(racks) for k in rack_sizes if k <= f], dimen=2)
    model.MACHINE_SIZES = pyo.Set(
        initialize=[(r, k) for r in range(len(racks)) for k in sizes if any(q == r and f >= k for q, f in classes)],
        dimen=2,
    )
    model.pattern = pyo.Var(model.PATTERNS, domain=whole, doc="y: machines cut by a pattern")
    model.in_machine = pyo.Var(model.MACHINE_SIZES, domain=whole, doc="bundles of k GPUs on one machine of rack r")
    model.in_rack = pyo.Var(model.RACK_SIZES, domain=whole, doc="s_rk: bundles of k GPUs within rack r")
    model.loose = pyo.Var(range(len(racks)), domain=whole, doc="GPUs of rack r for bundles that may spread")
    add_rows(model, one_bid, model.APPS)
    add_rows(model, machine_cover, sizes)
    add_rows(model, rack_cover, rack_sizes)
    add_rows(model, loose_cover)
    add_rows(model, pattern_cover, model.MACHINE_SIZES)
    add_rows(model, machines, sorted(classes))
    add_rows(model, rack_room, range(len(racks)))
    model.dual = pyo.Suffix(direction=pyo.Suffix.IMPORT)
    return model


def machine_cover(m, k):
    """Awarded bundles on one machine <= supply of the racks."""
    bids = m.instance.bids
    rows = np.flatnonzero((bids.locality <= Locality.MACHINE) & (bids.gpus == k)).tolist()
    held = pyo.quicksum(m.in_machine[r, size] for r, size in m.MACHINE_SIZES if size == k)
    return pyo.quicksum(m.award[b] for b in rows) <= held


def rack_cover(m, k):
    """Awarded bundles within a rack <= supply of the racks."""
    bids = m.instance.bids
    rows = np.flatnonzero((bids.locality == Locality.RACK) & (bids.gpus == k)).tolist()
    held = pyo.quicksum(m.in_rack[r, size] for r, size in m.RACK_SIZES if size == k)
    return pyo.quicksum(m.award[b] for b in rows) <= held


def loose_cover(m):
    """GPUs of bundles that may spread <= GPUs that racks leave for them."""
    bids = m.instance.bids
    spread = np.flatnonzero(bids.locality == Locality.CLUSTER).tolist()
    return pyo.quicksum(int(bids.gpus[b]) * m.award[b] for b in spread) <= pyo.quicksum(m.loose[r] for r in m.loose)


def pattern_cover(m, r, k):
    """Awarded bundles of k GPUs on machines of a rack <= supply of its patterns."""
    place = m.size_index[k]
    pieces = pyo.quicksum(m.cuts[free][p][place] * m.pattern[q, free, p] for q, free, p in m.PATTERNS if q == r)
    return m.in_machine[r, k] <= pieces


def machines(m, r, free):
    """Patterns used <= machines of the class in the rack."""
    return pyo.quicksum(m.pattern[r, free, p] for p in range(len(m.cuts[free]))) <= m.classes[r, free]


def rack_room(m, r):
    """All GPUs of a rack's bundles <= GPUs on offer in it."""
    machine = pyo.quicksum(k * m.in_machine[q, k] for q, k in m.MACHINE_SIZES if q == r)
    rack = pyo.quicksum(k * m.in_rack[q, k] for q, k in m.RACK_SIZES if q == r)
    return machine + rack + m.loose[r] <= int(m.instance.cluster.rack_free[r])


def maximal_patterns(room, sizes):
    """Return the numbers of bundles of each size that fill a machine so that none fits in addition.

    Examples
    --------
    >>> len(maximal_patterns(8, [1, 2, 3, 4, 5, 6, 7, 8]))
    22
    """

    def extend(left, rest):
        if not rest:
            return [()]
        return [(n, *tail) for n in range(left // rest[0] + 1) for tail in extend(left - n * rest[0], rest[1:])]

    least = min(sizes, default=room + 1)
    return [p for p in extend(room, sizes) if room - sum(n * k for n, k in zip(p, sizes, strict=True)) < least]


def hull_bound(instance):
    """Return the hull relaxation: the steepest parts of all hulls, greedily, up to the GPUs on offer.

    It equals the linear relaxation of the count of GPUs. Unlike the Eisenberg-Gale value it is valid, for the
    empty row belongs to every hull.
    """
    bids = instance.bids
    slopes = []
    for i in range(instance.num_apps):
        rows = slice(int(instance.row_offset[i]), int(instance.row_offset[i + 1]))
        slopes += _hull_slopes(bids.gpus[rows], instance.weight[rows])
    left, value = instance.cluster.num_free, 0.0
    for slope, width in sorted(slopes, reverse=True):
        taken = min(left, width)
        value += slope * taken
        left -= taken
    return value


def _hull_slopes(gpus, weight):
    """Return (slope, width) of the concave hull's parts that rise."""
    best = {0: 0.0}
    for k, w in zip(gpus.tolist(), weight.tolist(), strict=True):
        best[k] = max(w, best.get(k, 0.0))
    hull = []
    for k, w in sorted(best.items()):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (k - hull[-1][0]) <= (w - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((k, w))
    parts = pairwise(hull)
    return [((w2 - w1) / (k2 - k1), k2 - k1) for (k1, w1), (k2, w2) in parts if w2 > w1]
