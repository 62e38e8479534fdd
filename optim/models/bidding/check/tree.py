"""Recompute the bound on the cost per work that a tree and its multipliers prove over boxes of footprints."""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.claims import MOST, Descent, is_finite
from optim.core.limits import Effort
from optim.core.solution import Violation, violation
from optim.models.bidding.check.exact_instance import (
    VerifierContext,
    footprint_value,
    min_rate_for,
    relaxed_limits,
    relaxed_min_work,
    tangent_slope,
    useful_rate,
)
from optim.models.bidding.data import SURVIVAL_TOL, EvictionTerm, HourOutlook, SurvivalConstraint
from optim.models.bidding.decision import CHANGE, RATE, THETA, Cover, Multipliers, RatioProof, TreeNode
from optim.models.bidding.instance import BiddingInstance

MAX_SHORT = 10**4
"""Largest threshold of a cover; probabilities are sums over all amounts up to the threshold."""

OUTWARD = 1e-12
"""Bound on the rounding error of sums of a few thousand products of probabilities."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedCovers:
    """Rows ``gain @ counts >= need``, one per cover, that the survival constraint implies.

    `gain` has shape (covers, bids), and `need` has shape (covers,).
    """

    gain: FloatArray
    need: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class _Causes:
    """Probabilities of no shock by market, zone and region, with the zone of each market and the region of each zone."""

    zone: IntArray
    region: IntArray
    by_market: FloatArray
    by_zone: FloatArray
    by_region: FloatArray

    @classmethod
    def of(cls, survival: SurvivalConstraint) -> "_Causes":
        """Derive the probabilities from a survival constraint."""
        shocks = survival.shocks
        by_market, by_zone, by_region = (np.exp(-hours) for hours in (shocks.own, shocks.by_zone, shocks.by_region))
        return cls(zone=shocks.zone, region=shocks.region, by_market=by_market, by_zone=by_zone, by_region=by_region)

    def conditioned(self, zone: int, market: int | None = None) -> "_Causes":
        """Return the probabilities given no shock to a zone, to its region, and to a market, if given."""
        by_market, by_zone, by_region = self.by_market.copy(), self.by_zone.copy(), self.by_region.copy()
        by_zone[zone] = by_region[self.region[zone]] = 1.0
        if market is not None:
            by_market[market] = 1.0
        return replace(self, by_market=by_market, by_zone=by_zone, by_region=by_region)

    def shortfall_probability(self, capacity: IntArray, least: int) -> float:
        """Return the probability that less than `least` of the capacity by market survives."""
        if least <= 0:
            return 0.0
        total = np.ones(1)
        for region, stays in enumerate(self.by_region.tolist()):
            inside = np.ones(1)
            for zone in np.flatnonzero(self.region == region).tolist():
                here = np.ones(1)
                for market in np.flatnonzero((self.zone == zone) & (capacity > 0)).tolist():
                    amount = np.zeros(min(int(capacity[market]), least) + 1)
                    amount[-1] = 1.0
                    here = _sum(here, _unless_struck(amount, float(self.by_market[market])), least)
                inside = _sum(inside, _unless_struck(here, float(self.by_zone[zone])), least)
            total = _sum(total, _unless_struck(inside, stays), least)
        return float(total[:least].sum())


def keep_probability(instance: BiddingInstance, survival: SurvivalConstraint, counts: IntArray) -> float:
    """Return the probability that the surviving capacity of a footprint is sufficient."""
    capacity = np.zeros(len(instance.markets), dtype=np.int64)
    np.add.at(capacity, instance.bids.market, survival.capacity * np.maximum(counts, 0))
    return 1.0 - _Causes.of(survival).shortfall_probability(capacity, survival.min_capacity)


def keeps_enough(instance: BiddingInstance, counts: IntArray) -> bool:
    """Return whether a footprint satisfies the survival constraint; if not, no smaller footprint does."""
    survival = instance.survival
    return survival is None or keep_probability(instance, survival, counts) >= survival.probability - SURVIVAL_TOL


def checked_covers(instance: BiddingInstance, covers: tuple[Cover, ...]) -> CheckedCovers | Violation:
    """Return the recomputed rows of covers, or the violation of a malformed cover."""
    survival, size = instance.survival, instance.num_bids
    gain, need = np.zeros((len(covers), size)), np.zeros(len(covers))
    for i, cover in enumerate(covers):
        if survival is None:
            return violation("certificate", "covers require an instance with a survival constraint")
        is_whole = np.issubdtype(cover.weight.dtype, np.integer) and cover.weight.shape == (len(instance.markets),)
        if not is_whole or (cover.weight < 0).any() or not 0 <= cover.short_of <= MAX_SHORT:
            text = f"a cover needs {len(instance.markets)} whole weights of at least 0, and a threshold of at most {MAX_SHORT}"
            return violation("certificate", text)
        gain[i], need[i] = _row(instance, survival, cover)
    return CheckedCovers(gain=gain, need=need)


def _row(instance: BiddingInstance, survival: SurvivalConstraint, cover: Cover) -> tuple[FloatArray, float]:
    """Return `gain` and `need` of a cover's row, rounded outward."""
    weight, causes = cover.weight, _Causes.of(survival)
    lasts = causes.by_market * causes.by_zone[causes.zone] * causes.by_region[causes.region[causes.zone]]
    by_zone = {
        z: causes.conditioned(z).shortfall_probability(weight, cover.short_of) for z in np.unique(causes.zone).tolist()
    }
    hard = np.zeros(len(weight))
    for m, zone in enumerate(causes.zone.tolist()):
        # Shocks to a market matter only if the cover has capacity in it.
        share = (
            causes.conditioned(zone, m).shortfall_probability(weight, cover.short_of) if weight[m] else by_zone[zone]
        )
        hard[m] = lasts[m] * share + OUTWARD
    need = causes.shortfall_probability(weight, cover.short_of) - (1.0 - survival.probability) - SURVIVAL_TOL - OUTWARD
    return survival.capacity * hard[instance.bids.market], survival.min_capacity * need


def _unless_struck(chances: FloatArray, stays: float) -> FloatArray:
    """Return the distribution of an amount that is set to 0 with probability 1 - `stays`, by a shock."""
    mixture = chances * stays
    mixture[0] += 1.0 - stays
    return mixture


def _sum(one: FloatArray, other: FloatArray, most: int) -> FloatArray:
    """Return the probabilities of each sum below `most` of two independent amounts."""
    return np.convolve(one, other)[:most]


EMPTY_TOL = 1e-9
"""Absolute and relative tolerance for ranges whose ends cross by rounding."""

LARGEST = 1e100
"""Largest number in a proof, so that squares and short products stay finite."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedBox:
    """Bounds on the counts, whether new instances are taken (None if undecided), and ranges of theta and of the rates' sum."""

    low: IntArray
    high: IntArray
    has_change: bool | None
    theta: tuple[float, float] = (0.0, math.inf)
    rate: tuple[float, float] = (0.0, math.inf)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cells:
    """The relaxation of a box, by cell.

    `hours` are the useful hours, `base` is the rate without bids, `rate` the rate of an instance of each bid.
    `is_settled` says whether the loss by evictions is already counted, `eviction_mask` which bids' evictions are
    undecided; `by_theta` is the rate lost per theta.
    """

    hours: FloatArray
    base: FloatArray
    rate: FloatArray
    is_settled: BoolArray
    eviction_mask: FloatArray
    by_theta: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Ranges of theta and of the sum of all rates in a box; theta is `sure` plus the step of each taken bid."""

    theta: tuple[float, float]
    rate: tuple[float, float]
    sure: float
    step: FloatArray

    @property
    def is_empty(self) -> bool:
        """Whether a range is empty beyond rounding."""
        return any(low > high + EMPTY_TOL * max(1.0, high) for low, high in (self.theta, self.rate))


def check_form(facts: VerifierContext, x: Multipliers, num_covers: int = 0) -> Violation | None:
    """Return the violation of malformed multipliers (sizes, signs, shares), None if well formed."""
    cells, caps = len(facts.cell_weight), len(facts.instance.caps.limit)
    if x.point.shape != (cells,) or x.eviction.shape != (cells,) or x.cap.shape != (caps,):
        return violation("certificate", f"multipliers must have one entry for each of {cells} cells and {caps} caps")
    if x.cover.ndim != 1 or len(x.cover) > num_covers:
        return violation("certificate", f"there must be at most one price for each of {num_covers} covers")
    sizes = {x.attribution.shape, x.attribution_cell.shape, x.attribution_bid.shape}
    if len(sizes) > 1 or x.attribution.ndim != 1:
        return violation("certificate", "the rows of blame must have a cell, a bid and a share each")
    planes = [x.lost_by_rate, x.lost_by_theta, abs(x.theta), abs(x.rate)]
    numbers = np.concatenate([x.point, x.eviction, x.cap, x.attribution, x.cover, [x.work, *planes]])
    if not ((numbers >= 0) & (numbers <= LARGEST)).all() or (x.eviction > 1).any():
        return violation("certificate", f"multipliers must be from 0 to {LARGEST:g}, eviction shares at most 1")
    if any(planes) and not facts.has_common_loss:
        return violation(
            "certificate", "prices of theta and of rates require that an eviction causes a loss to all instances"
        )
    bids = facts.instance.num_bids
    if len(x.attribution) and (
        x.attribution_cell.min() < 0 or x.attribution_cell.max() >= cells or x.attribution_bid.min() < 0
        or x.attribution_bid.max() >= bids
    ):  # fmt: skip
        return violation("certificate", "blame names a cell or a bid outside the instance")
    return None


def leaf_bound(
    facts: VerifierContext,
    box: CheckedBox,
    x: Multipliers,
    ratio: float,
    min_rate: float,
    covers: CheckedCovers | None = None,
) -> float:
    """Return a lower bound of ``cost - ratio * work`` over the footprints of a box that fit the caps.

    The bound holds for footprints whose rates add up to at least `min_rate`.
    """
    if (box.low > box.high).any() or _exceeds_a_cap(facts, box):
        return math.inf  # no footprint is in the box
    if not keeps_enough(facts.instance, box.high):
        return math.inf  # no smaller footprint satisfies the survival constraint
    sums = _sums(facts, box, min_rate) if facts.has_common_loss else None
    if sums is not None and sums.is_empty:
        return math.inf
    if (box.low == box.high).all():
        return _single(facts, box, ratio)
    instance, curve = facts.instance, facts.instance.scalability
    price = ratio + x.work
    cells = _cells(facts, box, sums, x)
    slope = np.array([tangent_slope(curve, v) for v in x.point.tolist()])
    height = np.array([useful_rate(curve, v) for v in x.point.tolist()])
    # The useful rate y is at most Y, and e is 1 if an eviction happens, else 0. So (h - lambda s) y + lambda s Y (1 - e)
    # bounds the work for every share s.
    share = np.where(cells.is_settled, 0.0, x.eviction)
    work_value = price * facts.cell_weight * (cells.hours - instance.eviction_loss_h * share)
    if (work_value < 0).any():
        return -math.inf
    most = _max_useful(facts, box, cells) if share.any() else np.zeros(len(slope))
    at_stake = price * facts.cell_weight * instance.eviction_loss_h * share * most
    caps = instance.caps
    reduced = facts.unit_cost + x.cap @ caps.weight - cells.rate @ (work_value * slope)
    total = [
        instance.fixed_usd,
        x.work * relaxed_min_work(instance),
        *(-x.cap * relaxed_limits(instance)).tolist(),
        *(-at_stake).tolist(),
    ]
    total += (-work_value * (height + slope * (cells.base - x.point))).tolist()
    if covers is not None:
        used = len(x.cover)
        reduced = reduced - x.cover @ covers.gain[:used]
        total += (x.cover * covers.need[:used]).tolist()
    charge = (cells.eviction_mask * _attribution(facts, x).T) @ at_stake
    if sums is not None:
        charge = charge + (float((work_value * slope).sum()) * cells.by_theta + x.theta) * sums.step
        reduced = reduced + x.rate * instance.bids.rate
        total += [
            x.theta * (sums.sure - sums.theta[x.theta > 0]),
            x.rate * (instance.fixed_rate - sums.rate[x.rate > 0]),
        ]
    for members in facts.bids_of_market:
        mine = members[box.high[members] > 0]
        if len(mine):
            total.append(_market(facts, box, mine, reduced[mine], charge[mine]))
    if not all(term > -math.inf for term in total):
        return -math.inf
    if math.inf in total:  # a market without a feasible choice: no footprint is in the box
        return math.inf
    return math.fsum(total) - _rounding(total, facts.instance.num_bids)


def _single(facts: VerifierContext, box: CheckedBox, ratio: float) -> float:
    """Return the value of a box's only footprint, infinity if it violates a rule or does too little work."""
    instance, counts = facts.instance, box.low
    is_bid = counts > 0
    number = np.bincount(instance.bids.market[is_bid], minlength=1)
    cost, work = footprint_value(facts, counts.tolist())
    is_short = work <= 0 or work < relaxed_min_work(instance)
    is_elsewhere = box.has_change is True and not (is_bid & instance.bids.is_new).any()
    if is_short or is_elsewhere or (instance.one_bid_per_market and (number > 1).any()):
        return math.inf
    return cost - ratio * work - _rounding([cost, ratio * work], instance.num_bids)


def _exceeds_a_cap(facts: VerifierContext, box: CheckedBox) -> bool:
    """Return whether the minimum counts alone exceed a cap, with the tolerance that applies to footprints."""
    caps = facts.instance.caps
    return any(
        math.fsum((weight * box.low).tolist()) > limit
        for weight, limit in zip(caps.weight, relaxed_limits(facts.instance).tolist(), strict=True)
    )


def _rounding(terms: list[float], size: int) -> float:
    """Return a bound on the rounding error: every term is the result of some hundred operations."""
    return (size + 100) * 2.0**-52 * math.fsum(map(abs, terms))


def _attribution(facts: VerifierContext, x: Multipliers) -> FloatArray:
    """Return the shares of the attribution by cell and bid, scaled to sums of at most 1 per cell."""
    shares = np.zeros((len(facts.cell_weight), facts.instance.num_bids))
    np.add.at(shares, (x.attribution_cell, x.attribution_bid), x.attribution)
    return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1.0))


def _market(facts: VerifierContext, box: CheckedBox, mine: IntArray, reduced: FloatArray, charge: FloatArray) -> float:
    """Return the minimum contribution of a market.

    Each bid taken pays a charge. If the evictions of a market are nested, the lowest bid taken pays the charges of
    all higher bids. The function tries every lowest bid; the counts of the other bids are chosen independently.
    """
    instance = facts.instance
    choices = list(zip(mine.tolist(), reduced.tolist(), strict=True))
    must = [j for j, _ in choices if box.low[j] > 0]
    if facts.term is not EvictionTerm.PER_MARKET:
        return _independent(facts, box, choices, charge.tolist(), must)
    values = [] if must else [0.0]
    first_must = min(must, default=instance.num_bids)
    charged = later = 0.0
    for (j, r), own_charge in zip(reversed(choices), reversed(charge.tolist()), strict=True):
        bid_value = _count_value(box, j, r, least=1)
        charged += own_charge
        if j <= first_must and not (instance.one_bid_per_market and any(other != j for other in must)):
            values.append(charged + bid_value + (0.0 if instance.one_bid_per_market else later))
        later += bid_value if box.low[j] > 0 else min(0.0, bid_value)
    return min(values, default=math.inf)


def _independent(
    facts: VerifierContext, box: CheckedBox, choices: list[tuple[int, float]], extra: list[float], must: list[int]
) -> float:
    each = {j: e + _count_value(box, j, r, least=1) for (j, r), e in zip(choices, extra, strict=True)}
    if facts.instance.one_bid_per_market:
        if len(must) > 1:
            return math.inf
        return each[must[0]] if must else min(0.0, *each.values())
    return math.fsum(value if j in must else min(0.0, value) for j, value in each.items())


def _count_value(box: CheckedBox, j: int, reduced: float, *, least: int) -> float:
    """Return the minimum of ``reduced * count`` over the counts of a bid that are at least `least`."""
    low = max(int(box.low[j]), least)
    return reduced * (int(box.high[j]) if reduced < 0 else low)


def _cells(facts: VerifierContext, box: CheckedBox, sums: _Sums | None, x: Multipliers) -> _Cells:
    """Return hours, rates and undecided evictions of the cells in a box."""
    instance = facts.instance
    change = instance.change_loss_h if box.has_change is True else 0.0
    if isinstance(instance.outlook, HourOutlook):
        return _hour_cells(facts, instance.outlook, box, change, sums, x)
    hours = np.full(len(facts.cell_weight), facts.cell_hours) - change * facts.is_first
    eviction_mask = facts.eviction_mask & (box.high > 0)[:, None]
    is_sure: BoolArray = np.asarray((facts.eviction_mask & (box.low > 0)[:, None]).any(axis=0))
    return _Cells(
        hours=hours - instance.eviction_loss_h * is_sure,
        base=np.full(len(hours), instance.fixed_rate),
        rate=facts.alive * instance.bids.rate[:, None],
        is_settled=is_sure,
        eviction_mask=(eviction_mask & ~is_sure).astype(np.float64)
        if instance.eviction_loss_h > 0
        else np.zeros(eviction_mask.shape),
    )


def _hour_cells(
    facts: VerifierContext, outlook: HourOutlook, box: CheckedBox, change: float, sums: _Sums | None, x: Multipliers
) -> _Cells:
    instance, lost = facts.instance, facts.instance.eviction_loss_h
    bid_loss, common, by_theta, offset = np.zeros(instance.num_bids), 0.0, 0.0, 0.0
    if sums is None:
        bid_loss = lost * outlook.evicted
    else:
        shortest = min([1.0, *outlook.usable_h[box.high > 0].tolist()]) - change
        common = min(x.lost_by_rate, lost)
        if shortest >= lost:
            by_theta = x.lost_by_theta
            above = [
                (-lost * math.expm1(-theta) - common) * rate - by_theta * theta
                for theta in sums.theta
                for rate in sums.rate
            ]
            offset = -min(above) - by_theta * sums.sure
        else:  # a bid's useful time may be clamped at 0: the certain common loss is subtracted from each
            common = min(common, -lost * math.expm1(-sums.theta[0]))
    useful = np.maximum(0.0, outlook.usable_h - bid_loss - common - change)
    return _Cells(
        hours=np.ones(1),
        base=np.array([instance.fixed_rate * max(0.0, 1.0 - common - change) + offset]),
        rate=(instance.bids.rate * useful)[:, None],
        is_settled=np.ones(1, dtype=bool),
        eviction_mask=np.zeros((instance.num_bids, 1)),
        by_theta=by_theta,
    )


def _sums(facts: VerifierContext, box: CheckedBox, min_rate: float) -> _Sums:
    """Return the ranges of theta and of the sum of rates in a box; relevant footprints have at least `min_rate`."""
    instance = facts.instance
    sure, most, step = _theta(facts, box)
    min_sum = instance.fixed_rate + math.fsum((box.low * instance.bids.rate).tolist())
    fastest = float(_max_rate(facts, box, np.array([instance.fixed_rate]), instance.bids.rate[:, None])[0])
    return _Sums(
        theta=(max(sure, box.theta[0]), min(most, box.theta[1])),
        rate=(max(min_sum, min_rate, box.rate[0]) * (1.0 - 1e-9), min(fastest, box.rate[1]) * (1.0 + 1e-9)),
        sure=sure,
        step=step,
    )


def _theta(facts: VerifierContext, box: CheckedBox) -> tuple[float, float, FloatArray]:
    """Return the smallest and the largest theta = -log survival in a box, and the step by which each bid raises it."""
    theta = facts.theta
    allowed = np.flatnonzero(box.high > 0).tolist()
    step = np.zeros(len(theta))
    if facts.term is EvictionTerm.ANY_BID:
        sure = math.fsum(theta[j] for j in allowed if box.low[j] > 0)
        for j in allowed:
            step[j] = 0.0 if box.low[j] > 0 else theta[j]
        return sure, math.fsum(theta[j] for j in allowed), step
    floors: list[float] = []
    peaks: list[float] = []
    is_sure = box.low > 0
    for members in facts.bids_of_market:
        mine = members[box.high[members] > 0].tolist()
        floor = max((theta[j] for j in mine if is_sure[j]), default=0.0)
        floors.append(floor)
        peaks.append(max((theta[j] for j in mine), default=0.0))
        reached = floor
        for j in reversed(mine):
            step[j] = max(0.0, theta[j] - max(reached, floor))
            reached = max(reached, theta[j])
    return math.fsum(floors), math.fsum(peaks), step


def _max_useful(facts: VerifierContext, box: CheckedBox, cells: _Cells) -> FloatArray:
    """Return an upper bound of the useful rate of each cell."""
    best = _max_rate(facts, box, cells.base, cells.rate)
    return np.array([useful_rate(facts.instance.scalability, v) for v in best.tolist()]) * (1.0 + 1e-12)


def _max_rate(facts: VerifierContext, box: CheckedBox, base: FloatArray, rates: FloatArray) -> FloatArray:
    """Return an upper bound of the rate of each cell.

    It is the rate of the minimum counts plus the smallest of the fractional knapsacks, one per cap, of the further counts.
    """
    instance = facts.instance
    allowed = np.flatnonzero(box.high > 0)
    rate = rates[allowed]
    low, spare = box.low[allowed].astype(np.float64), (box.high - box.low)[allowed].astype(np.float64)
    sure = base + low @ rate
    best = sure + spare @ rate
    for weight, limit in zip(instance.caps.weight[:, allowed], relaxed_limits(instance).tolist(), strict=True):
        capacity = max(0.0, limit - float(weight @ low))
        filled = sure.copy()
        for c in range(len(filled)):
            residual = capacity
            density = np.where(weight > 0, rate[:, c] / np.where(weight > 0, weight, 1.0), np.inf)
            for j in np.argsort(-density).tolist():
                if residual <= 0 and weight[j] > 0:
                    break
                size = float(weight[j] * spare[j])
                part = 1.0 if size <= residual else residual / size
                filled[c] += part * spare[j] * rate[j, c]
                residual -= part * size
        best = np.minimum(best, filled)
    return np.asarray(best)


ANY, UNCHANGED, CHANGED = (0.0, math.inf), (0, 0), (1, math.inf)

VECTOR = 16
"""Number of bids that together count as one step towards the checker's limit."""


def proven_bound(facts: VerifierContext, proof: RatioProof) -> tuple[float | None, list[Violation]]:
    """Return the bound that a proof gives, or None with the violations."""
    instance = facts.instance
    if not (is_finite(proof.ratio) and 0 <= proof.ratio <= LARGEST):
        text = f"the ratio must be a number from 0 to {LARGEST:g}, got {proof.ratio!r}"
        return None, [violation("certificate", text)]
    if proof.ratio == 0:
        return 0.0, []  # costs are at least 0
    least_work = max(relaxed_min_work(instance), _min_cost(facts) / proof.ratio * (1.0 - 1e-12))
    least, wrong = _tree_bound(facts, proof, min_rate_for(instance.scalability, least_work))
    if wrong:
        return None, wrong
    if least >= 0:
        return proof.ratio, []
    if least_work <= 0:
        return 0.0, []
    return max(0.0, proof.ratio + least / least_work), []


def _min_cost(facts: VerifierContext) -> float:
    """Return the minimum cost of footprints with positive work; without fixed machines, one instance must work."""
    instance = facts.instance
    bids = instance.bids
    unit_costs = facts.unit_cost[(bids.max_count > 0) & (bids.rate > 0) & facts.alive.any(axis=1)]
    is_idle = instance.fixed_rate == 0 and len(unit_costs) > 0
    return instance.fixed_usd + (float(unit_costs.min()) if is_idle else 0.0)


def _tree_bound(facts: VerifierContext, proof: RatioProof, min_rate: float) -> tuple[float, list[Violation]]:
    """Return the smallest bound of the tree's leaves; the splits must cover all footprints."""
    if not proof.nodes:
        return -math.inf, [violation("certificate", "the tree has no node")]
    covers = checked_covers(facts.instance, proof.covers)
    if not isinstance(covers, CheckedCovers):
        return -math.inf, [covers]
    for x in proof.multipliers:
        wrong = check_form(facts, x, len(proof.covers))
        if wrong is not None:
            return -math.inf, [wrong]
    least, path = math.inf, _Path(facts)
    for visits, number in enumerate(path.walk, start=1):
        if not 0 <= number < len(proof.nodes) or visits > len(proof.nodes):
            return -math.inf, [violation("certificate", "the tree has a missing child or a cycle")]
        node = proof.nodes[number]
        if node.bid is None:
            if not 0 <= node.multipliers < len(proof.multipliers):
                return -math.inf, [violation("certificate", f"multipliers {node.multipliers} do not exist")]
            x = proof.multipliers[node.multipliers]
            least = min(least, leaf_bound(facts, path.box(), x, proof.ratio, min_rate, covers))
        elif not path.split(node):
            text = f"nodes[{number}]: the tree splits by bid {node.bid} at {node.value}, an invalid split"
            return -math.inf, [violation("certificate", text)]
    return least, []


class _Path:
    """The box of the current node of a traversal.

    Its conditions are ranges (least, most); for a split by change, (0, 0) or (1, inf).
    """

    def __init__(self, facts: VerifierContext) -> None:
        self._facts, bids = facts, facts.instance.bids
        self._low, self._high = np.zeros(len(bids), dtype=np.int64), bids.max_count.copy()
        self.walk = Descent[int, tuple[float, float]](Effort("the tree"), self._hear)

    def box(self) -> CheckedBox:
        """Return the box of the current node."""
        conditions, bids = self.walk.conditions, self._facts.instance.bids
        self.walk.effort.spend(1 + len(bids) // VECTOR)
        change = conditions.get(CHANGE)
        has_change = (change == CHANGED if change is not None else None) if bids.is_new.any() else False
        high = np.where(bids.is_new, np.minimum(self._high, 0), self._high) if change == UNCHANGED else self._high
        return CheckedBox(
            low=self._low,
            high=high,
            has_change=has_change,
            theta=conditions.get(THETA, ANY),
            rate=conditions.get(RATE, ANY),
        )

    def split(self, node: TreeNode) -> bool:
        """Push both children of a node; return whether the split is valid."""
        bids, at, bid = self._facts.instance.bids, node.value, node.bid
        parts: tuple[tuple[float, float], tuple[float, float]]
        if bid == CHANGE:
            if CHANGE in self.walk.conditions or not bids.is_new.any():
                return False
            parts = UNCHANGED, CHANGED
        elif bid in (THETA, RATE):
            if not (self._facts.has_common_loss and 0 <= at <= LARGEST):
                return False
            parts = (0.0, at), (at, math.inf)
        elif bid is not None and 0 <= bid < len(bids) and abs(at) <= MOST and at == int(at):
            parts = (0, int(at)), (int(at) + 1, int(bids.max_count[bid]))
        else:
            return False
        for child, part in zip((node.low, node.high), parts, strict=True):
            self.walk.add(child, bid, partial(_within, part))
        return True

    def _hear(self, bid: int, part: tuple[float, float] | None) -> None:
        """Set a bid's range in the box."""
        if bid >= 0:
            self._low[bid], self._high[bid] = _within(part or ANY, (0, int(self._facts.instance.bids.max_count[bid])))


def _within(part: tuple[float, float], before: tuple[float, float] | None) -> tuple[float, float]:
    """Return the intersection of two ranges."""
    return part if before is None else (max(part[0], before[0]), min(part[1], before[1]))
