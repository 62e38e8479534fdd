"""What multipliers prove about ``cost - q work`` over a box of footprints."""

import math
from dataclasses import dataclass

import numpy as np

from optim.core.verification import Violation, violation
from optim.models.bidding.check.facts import Facts, tangent_slope, useful_rate
from optim.models.bidding.instance import BoolArray, EvictionTerm, FloatArray, HourOutlook, IntArray
from optim.models.bidding.proof import Multipliers

CAP_TOL = 1e-9
"""Caps may be exceeded by this, relative to their limit, through rounding alone."""

LARGEST = 1e100
"""Largest number in a proof: squares and products of a few stay finite."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedBox:
    """Bounds on the counts, and whether new instances are taken: True, False, or None where it is open."""

    low: IntArray
    high: IntArray
    has_change: bool | None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells:
    """The relaxation of a box: hours and rates by cell, evictions that are settled or open, and what bids lose."""

    hours: FloatArray
    base: FloatArray
    rate: FloatArray
    is_settled: BoolArray
    marks: FloatArray
    step_rate: FloatArray


def check_form(facts: Facts, x: Multipliers) -> Violation | None:
    """Return what is wrong with the form of multipliers: sizes, signs, shares."""
    cells, caps = len(facts.cell_weight), len(facts.instance.caps.limit)
    if x.point.shape != (cells,) or x.eviction.shape != (cells,) or x.cap.shape != (caps,):
        return violation("certificate", f"multipliers must be over {cells} cells and {caps} caps")
    sizes = {x.blame.shape, x.blame_cell.shape, x.blame_bid.shape}
    if len(sizes) > 1 or x.blame.ndim != 1:
        return violation("certificate", "the rows of blame must have a cell, a bid and a share each")
    numbers = np.concatenate([x.point, x.eviction, x.cap, x.blame])
    if not ((numbers >= 0) & (numbers <= LARGEST)).all() or (x.eviction > 1).any():
        return violation("certificate", f"multipliers must be from 0 to {LARGEST:g}, eviction shares at most 1")
    bids = facts.instance.num_bids
    if len(x.blame) and (
        x.blame_cell.min() < 0 or x.blame_cell.max() >= cells or x.blame_bid.min() < 0
        or x.blame_bid.max() >= bids
    ):  # fmt: skip
        return violation("certificate", "blame names a cell or a bid that isn't there")
    return None


def leaf_bound(facts: Facts, box: CheckedBox, x: Multipliers, ratio: float, least_rate: float) -> float:
    """Return a lower bound of ``cost - ratio * work`` over the footprints of a box that fit the caps.

    Footprints whose rates add up to less than `least_rate` may be valued too low.
    """
    if (box.low > box.high).any() or _exceeds_a_cap(facts, box):
        return math.inf  # no footprint is in the box
    instance, curve = facts.instance, facts.instance.scalability
    cells = _cells(facts, box, least_rate)
    slope = np.array([tangent_slope(curve, v) for v in x.point.tolist()])
    height = np.array([useful_rate(curve, v) for v in x.point.tolist()])
    # Useful rates are at most Y, so that (h - lambda s) y + lambda s Y (1 - e) bounds the work for every share s.
    share = np.where(cells.is_settled, 0.0, x.eviction)
    worth = ratio * facts.cell_weight * (cells.hours - instance.eviction_loss_h * share)
    if (worth < 0).any():
        return -math.inf
    most = _most_useful(facts, box, cells) if share.any() else np.zeros(len(slope))
    at_stake = ratio * facts.cell_weight * instance.eviction_loss_h * share * most
    caps = instance.caps
    reduced = facts.unit_cost + x.cap @ caps.weight - cells.rate @ (worth * slope)
    total = [instance.fixed_usd, *(-x.cap * caps.limit).tolist(), *(-at_stake).tolist()]
    total += (-worth * (height + slope * (cells.base - x.point))).tolist()
    charge = ((cells.marks * _blame(facts, x).T) @ at_stake) + float((worth * slope).sum()) * cells.step_rate
    for members in facts.bids_of_market:
        mine = members[box.high[members] > 0]
        if len(mine):
            total.append(_market(facts, box, mine, reduced[mine], charge[mine]))
    if not all(term > -math.inf for term in total):
        return -math.inf
    if math.inf in total:  # a market without a choice: no footprint is in the box
        return math.inf
    return math.fsum(total) - _rounding(total, facts.instance.num_bids)


def _exceeds_a_cap(facts: Facts, box: CheckedBox) -> bool:
    """Tell whether the least counts alone are more than a cap allows, by the rule that footprints are held to."""
    caps = facts.instance.caps
    return any(
        math.fsum((weight * box.low).tolist()) > limit + CAP_TOL * max(1.0, limit)
        for weight, limit in zip(caps.weight, caps.limit.tolist(), strict=True)
    )


def _rounding(terms: list[float], size: int) -> float:
    """Return what rounding may have added: every term went through some hundred operations."""
    return (size + 100) * 2.0**-52 * math.fsum(map(abs, terms))


def _blame(facts: Facts, x: Multipliers) -> FloatArray:
    """Return the shares by cell and bid, made to add up to at most 1."""
    shares = np.zeros((len(facts.cell_weight), facts.instance.num_bids))
    np.add.at(shares, (x.blame_cell, x.blame_bid), x.blame)
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0))


def _market(facts: Facts, box: CheckedBox, mine: IntArray, reduced: FloatArray, charge: FloatArray) -> float:
    """Return the least that a market adds.

    A charge is due for each bid taken; where the evictions of a market are nested and theirs is the loss, for the
    lowest bid taken and all higher ones: every choice of the lowest is tried, the others choose for themselves.
    """
    instance = facts.instance
    choices = list(zip(mine.tolist(), reduced.tolist(), strict=True))
    must = [j for j, _ in choices if box.low[j] > 0]
    if facts.term is not EvictionTerm.MARKET:
        return _independent(facts, box, choices, charge.tolist(), must)
    values = [] if must else [0.0]
    first_must = min(must, default=instance.num_bids)
    due = later = 0.0
    for (j, r), own_charge in zip(reversed(choices), reversed(charge.tolist()), strict=True):
        taken = _count_value(box, j, r, least=1)
        due += own_charge
        if j <= first_must and not (instance.one_bid_a_market and any(other != j for other in must)):
            values.append(due + taken + (0.0 if instance.one_bid_a_market else later))
        later += taken if box.low[j] > 0 else min(0.0, taken)
    return min(values, default=math.inf)


def _independent(
    facts: Facts, box: CheckedBox, choices: list[tuple[int, float]], extra: list[float], must: list[int]
) -> float:
    each = {j: e + _count_value(box, j, r, least=1) for (j, r), e in zip(choices, extra, strict=True)}
    if facts.instance.one_bid_a_market:
        if len(must) > 1:
            return math.inf
        return each[must[0]] if must else min(0.0, *each.values())
    return math.fsum(value if j in must else min(0.0, value) for j, value in each.items())


def _count_value(box: CheckedBox, j: int, reduced: float, *, least: int) -> float:
    """Return the least of ``reduced * count`` over the counts of a bid that are at least `least`."""
    low = max(int(box.low[j]), least)
    return reduced * (int(box.high[j]) if reduced < 0 else low)


def _cells(facts: Facts, box: CheckedBox, least_rate: float) -> _Cells:
    """Return hours, rates and open evictions of the cells in a box."""
    instance = facts.instance
    change = instance.change_loss_h if box.has_change is True else 0.0
    outlook = instance.outlook
    if isinstance(outlook, HourOutlook):
        return _hour_cells(facts, outlook, box, change, least_rate)
    hours = np.full(len(facts.cell_weight), facts.cell_hours) - change * facts.is_first
    marks = facts.marks & (box.high > 0)[:, None]
    is_sure: BoolArray = np.asarray((facts.marks & (box.low > 0)[:, None]).any(axis=0))
    return _Cells(
        hours=hours - instance.eviction_loss_h * is_sure,
        base=np.full(len(hours), instance.fixed_rate),
        rate=facts.alive * instance.bids.rate[:, None],
        is_settled=is_sure,
        marks=(marks & ~is_sure).astype(np.float64) if instance.eviction_loss_h > 0 else np.zeros(marks.shape),
        step_rate=np.zeros(instance.num_bids),
    )


def _hour_cells(facts: Facts, outlook: HourOutlook, box: CheckedBox, change: float, least_rate: float) -> _Cells:
    instance, lost = facts.instance, facts.instance.eviction_loss_h
    size = instance.num_bids
    own, common, step_rate = np.zeros(size), 0.0, np.zeros(size)
    if outlook.term is EvictionTerm.OWN:
        own = lost * outlook.evicted
    else:
        sure, most, step = _theta(facts, outlook, box)
        common = -lost * math.expm1(-sure)
        shortest = min([1.0, *outlook.usable_h[box.high > 0].tolist()]) - change
        if most - sure > 1e-12 and shortest >= lost:
            # lambda (1 - exp(-theta)) is concave: between the ends of theta's range it lies above its chord.
            chord = (-lost * math.expm1(-most) - common) / (most - sure)
            held = instance.fixed_rate + math.fsum((box.low * instance.bids.rate).tolist())
            step_rate = chord * max(held, least_rate) * step * (1.0 - 1e-9)
    useful = np.maximum(0.0, outlook.usable_h - own - common - change)
    return _Cells(
        hours=np.ones(1),
        base=np.array([instance.fixed_rate * max(0.0, 1.0 - common - change)]),
        rate=(instance.bids.rate * useful)[:, None],
        is_settled=np.ones(1, dtype=bool),
        marks=np.zeros((size, 1)),
        step_rate=step_rate,
    )


def _theta(facts: Facts, outlook: HourOutlook, box: CheckedBox) -> tuple[float, float, FloatArray]:
    """Return the sure and the largest value of theta = -log survival in a box, and by which step each bid raises it."""
    theta = facts.theta
    allowed = np.flatnonzero(box.high > 0).tolist()
    step = np.zeros(len(theta))
    if outlook.term is EvictionTerm.ANY:
        sure = math.fsum(theta[j] for j in allowed if box.low[j] > 0)
        for j in allowed:
            step[j] = 0.0 if box.low[j] > 0 else theta[j]
        return sure, math.fsum(theta[j] for j in allowed), step
    floors: list[float] = []
    peaks: list[float] = []
    held = box.low > 0
    for members in facts.bids_of_market:
        mine = members[box.high[members] > 0].tolist()
        floor = max((theta[j] for j in mine if held[j]), default=0.0)
        floors.append(floor)
        peaks.append(max((theta[j] for j in mine), default=0.0))
        reached = floor
        for j in reversed(mine):
            step[j] = max(0.0, theta[j] - max(reached, floor))
            reached = max(reached, theta[j])
    return math.fsum(floors), math.fsum(peaks), step


def _most_useful(facts: Facts, box: CheckedBox, cells: _Cells) -> FloatArray:
    """Return an upper bound of the useful rate of each cell: a fractional knapsack for each cap, the least counts."""
    instance = facts.instance
    allowed = np.flatnonzero(box.high > 0)
    rate = cells.rate[allowed]
    low, spare = box.low[allowed].astype(np.float64), (box.high - box.low)[allowed].astype(np.float64)
    sure = cells.base + low @ rate
    best = sure + spare @ rate
    for weight, limit in zip(instance.caps.weight[:, allowed], instance.caps.limit.tolist(), strict=True):
        room = max(0.0, limit - float(weight @ low))
        filled = sure.copy()
        for c in range(len(filled)):
            left = room
            worth = np.where(weight > 0, rate[:, c] / np.where(weight > 0, weight, 1.0), np.inf)
            for j in np.argsort(-worth).tolist():
                if left <= 0 and weight[j] > 0:
                    break
                size = float(weight[j] * spare[j])
                part = 1.0 if size <= left else left / size
                filled[c] += part * spare[j] * rate[j, c]
                left -= part * size
        best = np.minimum(best, filled)
    return np.array([useful_rate(instance.scalability, v) for v in best.tolist()]) * (1.0 + 1e-12)
