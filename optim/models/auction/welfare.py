"""Winner determination as mixed-integer programmes in Pyomo, and the relaxation by concave hulls.

Log welfare above granting nothing is maximised: ``max sum_b w_b z_b``. Two formulations of the same problem:
`explicit_model` places every bid GPU by GPU; `pattern_model` covers bundles by packing patterns of machines,
rack by rack, which leaves equal machines interchangeable.

References
----------
Mahajan et al., NSDI 2020, section 5 (winner determination). P. C. Gilmore, R. E. Gomory, "A linear programming
approach to the cutting-stock problem", Operations Research 9 (1961), DOI 10.1287/opre.9.6.849 (patterns).
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyomo.environ as pyo

from optim.core.arrays import IntArray
from optim.core.errors import UnsupportedProblemError
from optim.models.auction.data import Locality
from optim.models.auction.instance import AuctionInstance
from optim.models.programmes import Model, add_rows


def explicit_model(instance: AuctionInstance) -> Model:
    """Build the programme that places every bid on slots.

    Returns
    -------
    pyomo.environ.ConcreteModel
        With binary ``award`` z_b, ``gpus`` x_bs of row b on slot s, and ``place`` u_bp where a row must lie in one
        slot, machine or rack p.
    """
    model: Model = pyo.ConcreteModel(name=f"auction-{instance.name}")
    cluster, bids = instance.cluster, instance.bids
    free = cluster.slot_free.tolist()
    groups = {
        int(Locality.SLOT): list(range(len(free))),
        int(Locality.MACHINE): cluster.slot_machine.tolist(),
        int(Locality.RACK): cluster.slot_rack.tolist(),
    }
    model.instance = instance
    model.group_of_slot = {b: groups[level] for b, level in enumerate(bids.locality.tolist()) if level in groups}
    model.named_gpus = {
        (int(b), int(m)): int(g) for b, m, g in zip(bids.named_row, bids.named_machine, bids.named_gpus, strict=True)
    }
    _add_awards(model, instance, is_integer=True)
    model.SLOTS = pyo.Set(initialize=[s for s, f in enumerate(free) if f])
    model.gpus = pyo.Var(model.ROWS, model.SLOTS, domain=pyo.NonNegativeIntegers, doc="x_bs: GPUs of row b on slot s")
    placed = [(b, p) for b, group in model.group_of_slot.items() for p in sorted(set(group))]
    model.PLACES = pyo.Set(initialize=placed, dimen=2)
    model.place = pyo.Var(model.PLACES, domain=pyo.Binary, doc="u_bp: whether row b lies in place p")
    add_rows(model, one_bid, model.APPS)
    add_rows(model, bundle, model.ROWS)
    add_rows(model, capacity, model.SLOTS)
    add_rows(model, one_place, model.ROWS)
    add_rows(model, inside, model.ROWS, model.SLOTS)
    add_rows(model, named, sorted({b for b, _ in model.named_gpus}), range(cluster.num_machines))
    return model


def _add_awards(model: Model, instance: AuctionInstance, *, is_integer: bool) -> None:
    """Add which rows are awarded, and what they are worth."""
    model.ROWS = pyo.Set(initialize=range(len(instance.bids)))
    model.APPS = pyo.Set(initialize=range(instance.num_apps))
    domain = pyo.Binary if is_integer else pyo.NonNegativeReals
    model.award = pyo.Var(model.ROWS, domain=domain, doc="z_b: whether row b is awarded")
    worth = pyo.quicksum(float(instance.weight[b]) * model.award[b] for b in model.ROWS)
    model.welfare = pyo.Objective(expr=worth, sense=pyo.maximize)


def one_bid(m: Model, i: int) -> Any:
    """Require sum_b z_b <= 1 over an app's rows; the empty row is the slack."""
    rows = range(int(m.instance.row_offset[i]), int(m.instance.row_offset[i + 1]))
    return pyo.quicksum(m.award[b] for b in rows) <= 1 if rows else pyo.Constraint.Skip


def bundle(m: Model, b: int) -> Any:
    """Require sum_s x_bs = k_b z_b."""
    return pyo.quicksum(m.gpus[b, s] for s in m.SLOTS) == int(m.instance.bids.gpus[b]) * m.award[b]


def capacity(m: Model, s: int) -> Any:
    """Require sum_b x_bs <= GPUs on offer on slot s."""
    return pyo.quicksum(m.gpus[b, s] for b in m.ROWS) <= int(m.instance.cluster.slot_free[s])


def one_place(m: Model, b: int) -> Any:
    """Require sum_p u_bp = z_b: a row lies in one place of its locality."""
    if b not in m.group_of_slot:
        return pyo.Constraint.Skip
    return pyo.quicksum(m.place[b, p] for p in sorted(set(m.group_of_slot[b]))) == m.award[b]


def inside(m: Model, b: int, s: int) -> Any:
    """Require x_bs <= min(k_b, free_s) u_b,p(s); named rows: machine by machine."""
    if b not in m.group_of_slot:
        return pyo.Constraint.Skip
    most = min(int(m.instance.bids.gpus[b]), int(m.instance.cluster.slot_free[s]))
    return m.gpus[b, s] <= most * m.place[b, m.group_of_slot[b][s]]


def named(m: Model, b: int, machine: int) -> Any:
    """Require sum_{s in m} x_bs = g_bm z_b."""
    mine = [s for s in m.SLOTS if m.instance.cluster.slot_machine[s] == machine]
    need = m.named_gpus.get((b, machine), 0)
    if not mine:
        return m.award[b] == 0 if need else pyo.Constraint.Skip
    return pyo.quicksum(m.gpus[b, s] for s in mine) == need * m.award[b]


def pattern_model(instance: AuctionInstance, *, is_integer: bool = True) -> Model:
    """Build the programme in which machines are covered by packing patterns.

    Parameters
    ----------
    instance
        An auction without rows that name machines, of machines with one slot each.
    is_integer
        Whether numbers are whole, or the linear relaxation is built, whose duals are prices of bundles.

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
        raise UnsupportedProblemError("patterns are of whole machines with one slot; use explicit_model")
    model: Model = pyo.ConcreteModel(name=f"auction-patterns-{instance.name}")
    whole = pyo.NonNegativeIntegers if is_integer else pyo.NonNegativeReals
    sizes = sorted({int(k) for k, lv in zip(bids.gpus, bids.locality, strict=True) if lv <= Locality.MACHINE})
    rack_sizes = sorted({int(k) for k in bids.gpus[bids.locality == Locality.RACK].tolist()})
    classes = Counter(zip(cluster.machine_rack.tolist(), cluster.machine_free.tolist(), strict=True))
    racks = cluster.rack_free.tolist()
    model.instance, model.size_index, model.classes = instance, {k: n for n, k in enumerate(sizes)}, classes
    model.cuts = {free: maximal_patterns(free, sizes) for _, free in classes}
    _add_awards(model, instance, is_integer=is_integer)
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


def machine_cover(m: Model, k: int) -> Any:
    """Bundles on one machine that are awarded <= those that racks hold."""
    bids = m.instance.bids
    rows = np.flatnonzero((bids.locality <= Locality.MACHINE) & (bids.gpus == k)).tolist()
    held = pyo.quicksum(m.in_machine[r, size] for r, size in m.MACHINE_SIZES if size == k)
    return pyo.quicksum(m.award[b] for b in rows) <= held


def rack_cover(m: Model, k: int) -> Any:
    """Bundles within a rack that are awarded <= those that racks hold."""
    bids = m.instance.bids
    rows = np.flatnonzero((bids.locality == Locality.RACK) & (bids.gpus == k)).tolist()
    held = pyo.quicksum(m.in_rack[r, size] for r, size in m.RACK_SIZES if size == k)
    return pyo.quicksum(m.award[b] for b in rows) <= held


def loose_cover(m: Model) -> Any:
    """GPUs of bundles that may spread <= GPUs that racks leave for them."""
    bids = m.instance.bids
    spread = np.flatnonzero(bids.locality == Locality.CLUSTER).tolist()
    return pyo.quicksum(int(bids.gpus[b]) * m.award[b] for b in spread) <= pyo.quicksum(m.loose[r] for r in m.loose)


def pattern_cover(m: Model, r: int, k: int) -> Any:
    """Bundles of k GPUs on machines of a rack <= what its patterns hold."""
    place = m.size_index[k]
    pieces = pyo.quicksum(m.cuts[free][p][place] * m.pattern[q, free, p] for q, free, p in m.PATTERNS if q == r)
    return m.in_machine[r, k] <= pieces


def machines(m: Model, r: int, free: int) -> Any:
    """Patterns used <= machines of the class in the rack."""
    return pyo.quicksum(m.pattern[r, free, p] for p in range(len(m.cuts[free]))) <= m.classes[r, free]


def rack_room(m: Model, r: int) -> Any:
    """All GPUs of a rack's bundles <= GPUs on offer in it."""
    machine = pyo.quicksum(k * m.in_machine[q, k] for q, k in m.MACHINE_SIZES if q == r)
    rack = pyo.quicksum(k * m.in_rack[q, k] for q, k in m.RACK_SIZES if q == r)
    return machine + rack + m.loose[r] <= int(m.instance.cluster.rack_free[r])


def maximal_patterns(room: int, sizes: list[int]) -> list[tuple[int, ...]]:
    """Return the numbers of bundles of each size that fill a machine so that none fits in addition.

    Examples
    --------
    >>> len(maximal_patterns(8, [1, 2, 3, 4, 5, 6, 7, 8]))
    22
    """

    def extend(left: int, rest: list[int]) -> list[tuple[int, ...]]:
        if not rest:
            return [()]
        return [(n, *tail) for n in range(left // rest[0] + 1) for tail in extend(left - n * rest[0], rest[1:])]

    least = min(sizes, default=room + 1)
    return [p for p in extend(room, sizes) if room - sum(n * k for n, k in zip(p, sizes, strict=True)) < least]


@dataclass(frozen=True, slots=True, kw_only=True)
class HullBound:
    """The relaxation in which each app's table is replaced by its concave hull, the empty row included.

    Parameters
    ----------
    value
        An upper bound of the welfare.
    price
        The price a GPU at which it is attained: log units.
    """

    value: float
    price: float


def hull_bound(instance: AuctionInstance) -> HullBound:
    """Return the hull relaxation: the steepest parts of all hulls, greedily, up to the GPUs on offer.

    It equals the linear relaxation of the count of GPUs. Unlike the Eisenberg-Gale value it is valid, for the
    empty row belongs to every hull.
    """
    bids = instance.bids
    slopes: list[tuple[float, int]] = []
    for i in range(instance.num_apps):
        rows = slice(int(instance.row_offset[i]), int(instance.row_offset[i + 1]))
        slopes += _hull_slopes(bids.gpus[rows], instance.weight[rows])
    left, value, price = instance.cluster.num_free, 0.0, 0.0
    for slope, width in sorted(slopes, reverse=True):
        taken = min(left, width)
        value += slope * taken
        left -= taken
        if left == 0:
            price = slope
            break
    return HullBound(value=value, price=price)


def _hull_slopes(gpus: IntArray, weight: Any) -> list[tuple[float, int]]:
    """Return (slope, width) of the concave hull's parts that rise."""
    best: dict[int, float] = {0: 0.0}
    for k, w in zip(gpus.tolist(), weight.tolist(), strict=True):
        best[k] = max(w, best.get(k, 0.0))
    hull: list[tuple[int, float]] = []
    for k, w in sorted(best.items()):
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (k - hull[-1][0]) <= (w - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((k, w))
    parts = pairwise(hull)
    return [((w2 - w1) / (k2 - k1), k2 - k1) for (k1, w1), (k2, w2) in parts if w2 > w1]
