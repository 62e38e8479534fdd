"""The checker's view of an instance: the scalability curve, cells of the hour, work rates.

A solution file may state points of the curve of cost by work, without their footprints. The checker compares these
points with the instance, and with the bound and the decision of the file; it proves no other property of them.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.claims import COUNTER_TOL, CountRange, check_ranges
from optim.core.solution import Violation, violation
from optim.models.bidding.data import CurveKind, EvictionTerm, HourOutlook, Scalability
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import HOUR_S, MICRO

HALVINGS = 200


def useful_rate(curve: Scalability, v: float) -> float:
    """Return G(v), by the curve's definition."""
    if curve.kind is CurveKind.LINEAR:
        return v
    if curve.kind is CurveKind.SATURATING:
        return v / (curve.base + curve.serial * v)
    if curve.kind is CurveKind.USL:
        if curve.crosstalk > 0:
            v = min(v, math.sqrt((1.0 - curve.serial) / curve.crosstalk))
        return v / (1.0 + curve.serial * (v - 1.0) + curve.crosstalk * v * (v - 1.0))
    x0, y0 = 0.0, 0.0
    for x1, y1 in curve.points:
        if v <= x1:
            return y0 + (y1 - y0) * (v - x0) / (x1 - x0)
        x0, y0 = x1, y1
    return y0


def tangent_slope(curve: Scalability, v: float) -> float:
    """Return the slope of G at v, to its right."""
    if curve.kind is CurveKind.LINEAR:
        return 1.0
    if curve.kind is CurveKind.SATURATING:
        return curve.base / (curve.base + curve.serial * v) ** 2
    if curve.kind is CurveKind.USL:
        if curve.crosstalk > 0 and v >= math.sqrt((1.0 - curve.serial) / curve.crosstalk):
            return 0.0
        below = 1.0 + curve.serial * (v - 1.0) + curve.crosstalk * v * (v - 1.0)
        return (1.0 - curve.serial - curve.crosstalk * v * v) / below**2
    x0, y0 = 0.0, 0.0
    for x1, y1 in curve.points:
        if v < x1:
            return (y1 - y0) / (x1 - x0)
        x0, y0 = x1, y1
    return 0.0


def min_rate_for(curve: Scalability, work: float) -> float:
    """Return the minimum rate of footprints with at least a given useful rate, rounded down."""
    if work <= 0:
        return 0.0
    high = 1.0
    while useful_rate(curve, high) < work:
        high *= 2.0
        if high > 1e15:
            return high / 2.0
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if useful_rate(curve, middle) < work:
            low = middle
        else:
            high = middle
    return low * (1.0 - 1e-12)


CAP_TOL = 1e-9
"""Relative tolerance of caps and of the minimum work, for rounding."""


@dataclass(frozen=True, kw_only=True)
class VerifierContext:
    """The data of an instance that the checker derives."""

    instance: BiddingInstance

    @cached_property
    def unit_cost(self) -> FloatArray:
        """Expected dollars per instance, shape (bids,)."""
        outlook = self.instance.outlook
        if isinstance(outlook, HourOutlook):
            return np.array(
                [(1.0 - b) * p * t for b, p, t in zip(outlook.evicted, outlook.price_usd, outlook.hours, strict=True)]
            ).reshape(len(outlook.evicted))
        return np.array(
            [math.fsum((row * outlook.weight).tolist()) / MICRO for row in outlook.charge_micro.astype(np.float64)]
        ).reshape(self.instance.num_bids)

    @cached_property
    def theta(self) -> list[float]:
        """Minus the logarithm of each bid's probability to survive the hour, in the one-hour form."""
        outlook = self.instance.outlook
        assert isinstance(outlook, HourOutlook)
        return [-math.log1p(-min(float(b), 1.0 - 1e-12)) for b in outlook.evicted]

    @cached_property
    def bids_of_market(self) -> list[IntArray]:
        """Numbers of each market's bids, ascending."""
        market = self.instance.bids.market
        return [np.flatnonzero(market == m) for m in range(len(self.instance.markets))]

    @cached_property
    def alive(self) -> FloatArray:
        """Share of each cell in which a bid's instances work, shape (bids, cells); one cell in the one-hour form."""
        outlook = self.instance.outlook
        if isinstance(outlook, HourOutlook):
            return outlook.usable_h[:, None].copy()
        slots = np.arange(outlook.num_slots)
        end = np.where(outlook.evicted_s >= 0, outlook.evicted_s, outlook.slot_s * outlook.num_slots)
        last = np.minimum(end[:, :, None], (slots + 1) * outlook.slot_s)
        first = np.maximum(outlook.ready_s, slots * outlook.slot_s)
        return np.asarray(np.maximum(last - first, 0).reshape(self.instance.num_bids, -1) / outlook.slot_s)

    @cached_property
    def eviction_mask(self) -> BoolArray:
        """Whether a bid is outbid in a cell, shape (bids, cells)."""
        outlook = self.instance.outlook
        size = self.instance.num_bids
        if isinstance(outlook, HourOutlook):
            return np.zeros((size, 1), dtype=bool)
        eviction_mask = np.zeros((size, outlook.num_scenarios, outlook.num_slots), dtype=bool)
        bid, scenario = np.nonzero(outlook.evicted_s >= 0)
        eviction_mask[bid, scenario, outlook.evicted_s[bid, scenario] // outlook.slot_s] = True
        return eviction_mask.reshape(size, -1)

    @cached_property
    def cell_weight(self) -> FloatArray:
        """Probability of each cell's scenario."""
        outlook = self.instance.outlook
        return (
            np.ones(1) if isinstance(outlook, HourOutlook) else np.asarray(np.repeat(outlook.weight, outlook.num_slots))
        )

    @cached_property
    def cell_hours(self) -> float:
        """Length of a cell in hours."""
        outlook = self.instance.outlook
        return 1.0 if isinstance(outlook, HourOutlook) else outlook.slot_s / HOUR_S

    @cached_property
    def is_first(self) -> BoolArray:
        """Whether a cell is the first slot of its scenario."""
        outlook = self.instance.outlook
        if isinstance(outlook, HourOutlook):
            return np.ones(1, dtype=bool)
        return np.tile(np.arange(outlook.num_slots) == 0, outlook.num_scenarios)

    @cached_property
    def term(self) -> EvictionTerm | None:
        """Rule for losses by evictions, None in the scenario form."""
        outlook = self.instance.outlook
        return outlook.term if isinstance(outlook, HourOutlook) else None

    @property
    def has_common_loss(self) -> bool:
        """Whether an eviction affects all instances, in the one-hour form."""
        return self.term in (EvictionTerm.ANY_BID, EvictionTerm.PER_MARKET)


def footprint_value(facts: VerifierContext, counts: list[int]) -> tuple[float, float]:
    """Return cost and work of a footprint, term by term."""
    instance = facts.instance
    bids = [j for j, count in enumerate(counts) if count > 0]
    cost = math.fsum([instance.fixed_usd, *(counts[j] * float(facts.unit_cost[j]) for j in bids)])
    change = instance.change_loss_h if any(instance.bids.is_new[j] for j in bids) else 0.0
    if isinstance(instance.outlook, HourOutlook):
        return cost, _hour_work(instance, instance.outlook, counts, bids, change)
    work = []
    for c, weight in enumerate(facts.cell_weight.tolist()):
        rate = math.fsum(
            [instance.fixed_rate] + [counts[j] * float(instance.bids.rate[j]) * float(facts.alive[j, c]) for j in bids]
        )
        hours = facts.cell_hours - (change if facts.is_first[c] else 0.0)
        if any(facts.eviction_mask[j, c] for j in bids):
            hours -= instance.eviction_loss_h
        work.append(weight * useful_rate(instance.scalability, rate) * hours)
    return cost, math.fsum(work)


def _hour_work(
    instance: BiddingInstance, outlook: HourOutlook, counts: list[int], bids: list[int], change: float
) -> float:
    stays = 1.0
    if outlook.term is EvictionTerm.ANY_BID:
        for j in bids:
            stays *= 1.0 - float(outlook.evicted[j])
    if outlook.term is EvictionTerm.PER_MARKET:
        worst: dict[int, float] = {}
        for j in bids:
            market = int(instance.bids.market[j])
            worst[market] = max(worst.get(market, 0.0), float(outlook.evicted[j]))
        for risk in worst.values():
            stays *= 1.0 - risk
    lost = instance.eviction_loss_h
    terms = [instance.fixed_rate * max(0.0, 1.0 - lost * (1.0 - stays) - change)]
    for j in bids:
        loss = lost * float(outlook.evicted[j]) if outlook.term is EvictionTerm.PER_BID else lost * (1.0 - stays)
        useful = max(0.0, float(outlook.usable_h[j]) - loss - change)
        terms.append(counts[j] * float(instance.bids.rate[j]) * useful)
    return useful_rate(instance.scalability, math.fsum(terms))


def relaxed_limits(instance: BiddingInstance) -> FloatArray:
    """Return the limits of the caps plus a tolerance, shape (caps,), for checks of footprints and for proofs."""
    return instance.caps.limit * (1.0 + CAP_TOL)


def relaxed_min_work(instance: BiddingInstance) -> float:
    """Return the minimum work minus a tolerance."""
    return instance.min_work * (1.0 - CAP_TOL)


POINT = re.compile(r"(?:cost|work)_\d+")

Point = tuple[float, float]
"""Cost and work."""


def check_curve(
    facts: VerifierContext, stated: Mapping[str, float], bound: float | None, decision_point: Point | None
) -> list[Violation]:
    """Return the violations of the points that a solution states on its curve of cost by work.

    Parameters
    ----------
    facts
        The instance.
    stated
        The solution's counters, all of them numbers.
    bound
        Proven lower bound of the cost per work, None if there is none.
    decision_point
        Cost and work of the decision, None without a decision.
    """
    names = {name for name in stated if POINT.fullmatch(name)}
    if not names and not stated.get("points"):
        return []
    expected = [f"{kind}_{i}" for i in range(len(names) // 2) for kind in ("cost", "work")]
    if stated.get("points") != len(names) / 2 or names != set(expected):
        text = f"points must be the number of listed points (cost_0 and work_0, ...), got {stated.get('points')!r}"
        return [violation("counts", text, where="points")]
    max_cost, max_work = _most(facts)
    ranges = (CountRange(low=facts.instance.fixed_usd, high=max_cost), CountRange(high=max_work))
    wrong = check_ranges({name: stated[name] for name in expected}, {n: ranges[n[0] == "w"] for n in expected})
    if wrong:
        return wrong
    points = [(stated[f"cost_{i}"], stated[f"work_{i}"]) for i in range(len(names) // 2)]
    return [*_check_order(points), *_check_values(facts, points, bound, decision_point)]


def _check_order(points: list[Point]) -> list[Violation]:
    """Check that neither cost nor work decreases along the points."""
    for i, (one, other) in enumerate(pairwise(points)):
        for name, before, after in zip(("cost", "work"), one, other, strict=True):
            if after < before - COUNTER_TOL * max(1.0, abs(before)):
                text = f"{name}_{i + 1} must be at least {name}_{i}, {before!r}, got {after!r}"
                return [violation("counts", text, where=f"{name}_{i + 1}")]
    return []


def _check_values(
    facts: VerifierContext, points: list[Point], bound: float | None, decision_point: Point | None
) -> list[Violation]:
    """Check points against the bound, and that some point has at least the work and at most the cost of the decision."""
    least = facts.instance.min_work * (1.0 - COUNTER_TOL)
    for i, (cost, work) in enumerate(points):
        if bound is not None and work >= least and cost < bound * work * (1.0 - COUNTER_TOL) - COUNTER_TOL:
            text = f"a cost of {cost!r} for the work {work!r} is less per unit of work than the bound {bound!r}"
            return [violation("counts", text, where=f"cost_{i}")]
    if decision_point is None:
        return []
    paid, done = (
        decision_point[0] + COUNTER_TOL * max(1.0, decision_point[0]),
        decision_point[1] - COUNTER_TOL * max(1.0, decision_point[1]),
    )
    if any(cost <= paid and work >= done for cost, work in points):
        return []
    text = f"no point has at least the decision's work {decision_point[1]!r} at no more than the decision's cost {decision_point[0]!r}"
    return [violation("counts", text, where="points")]


def _most(facts: VerifierContext) -> Point:
    """Return upper bounds on cost and work of all footprints: all instances, without losses."""
    instance = facts.instance
    bids, outlook = instance.bids, instance.outlook
    cost = math.fsum([instance.fixed_usd, *(bids.max_count * facts.unit_cost).clip(0.0).tolist()])
    if isinstance(outlook, HourOutlook):
        rate = math.fsum([instance.fixed_rate, *(bids.max_count * bids.rate * outlook.usable_h.clip(0.0)).tolist()])
        return cost, useful_rate(instance.scalability, rate)
    rates = instance.fixed_rate + (bids.max_count * bids.rate) @ facts.alive
    useful = (useful_rate(instance.scalability, rate) for rate in rates.tolist())
    weighted = (weight * rate for weight, rate in zip(facts.cell_weight.tolist(), useful, strict=True))
    return cost, facts.cell_hours * math.fsum(weighted)
