"""Lower bounds on ``cost - q work`` over a box, computed from multipliers: one small minimum per market."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.bidding.data import CurveKind, Scalability
from optim.models.bidding.decision import Multipliers
from optim.models.bidding.instance import BiddingInstance
from optim.solvers.bidding.survival import Rows
from optim.solvers.bidding.tree.box import Relaxation

BISECTIONS = 60
"""Number of bisections for a tangent's point: the interval's width falls below a double's resolution."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CellMultipliers:
    """`Multipliers` for the merged cells of a relaxation; `attribution` has shape (cells, active)."""

    point: FloatArray
    eviction: FloatArray
    attribution: FloatArray
    cap: FloatArray
    work: float = 0.0
    cover: FloatArray = field(default_factory=lambda: np.zeros(0))
    lost_by_rate: float = 0.0
    lost_by_theta: float = 0.0
    theta: float = 0.0
    rate: float = 0.0

    @classmethod
    def none(cls, instance: BiddingInstance, relaxation: Relaxation) -> "CellMultipliers":
        """Return multipliers that are all 0."""
        cells = np.zeros(len(relaxation.weight))
        return cls(
            point=cells, eviction=cells, attribution=np.zeros(relaxation.hit.shape), cap=0.0 * instance.caps.limit
        )


class LagrangianBound:
    """A lower bound on ``cost - q work`` over a box, and over boxes that differ from it in the range of one bid.

    Parameters
    ----------
    instance
        The instance.
    relaxation
        The relaxation of the box.
    multipliers
        The multipliers; any valid ones give a bound.
    ratio
        The price of work q.
    rows
        Cover rows, whose prices are `multipliers.cover`.
    """

    def __init__(
        self,
        instance: BiddingInstance,
        relaxation: Relaxation,
        multipliers: CellMultipliers,
        ratio: float,
        rows: Rows | None = None,
    ) -> None:
        r, x = relaxation, multipliers
        curve = instance.scalability
        slope = curve.slope(x.point)
        height = curve.value(x.point)
        eviction = np.where(r.is_open, x.eviction, 0.0)
        price = ratio + x.work
        work_value = price * r.weight * (r.hours - r.loss_h * eviction)
        loss = price * r.weight * r.loss_h * eviction * r.most
        caps, by_rate = instance.caps, float((work_value * slope).sum())
        self.relaxation = r
        self.is_single = instance.one_bid_per_market
        self.reduced = r.cost - (work_value * slope) @ r.rate + x.cap @ caps.weight[:, r.active]
        self.charge = loss @ np.where(r.hit, x.attribution, 0.0)
        self.constant = (
            instance.fixed_usd
            + x.work * instance.min_work
            - float(x.cap @ caps.limit)
            - float((work_value * (height + slope * (r.base - x.point))).sum())
            - float(loss.sum())
        )
        if rows is not None and len(x.cover):
            self.reduced = self.reduced - x.cover @ rows.gain[: len(x.cover), r.active]
            self.constant += float(x.cover @ rows.need[: len(x.cover)])
        if r.envelope is not None:
            e, slopes = r.envelope, (x.lost_by_rate, x.lost_by_theta) if r.envelope.is_curved else (0.0, 0.0)
            constant = e.height(*slopes) if e.is_curved else 0.0
            of_rate, of_theta = by_rate * slopes[0] + x.rate, by_rate * slopes[1] + x.theta
            self.reduced = self.reduced + of_rate * e.unit
            self.charge = self.charge + of_theta * e.step
            self.constant += of_rate * e.fixed + of_theta * e.sure + by_rate * constant
            self.constant -= x.rate * e.rate[x.rate > 0] + x.theta * e.theta[x.theta > 0]
        ends = np.append(np.flatnonzero(np.diff(r.market, prepend=-1)), len(r.market))
        self._parts = {int(r.market[a]): slice(int(a), int(b)) for a, b in pairwise(ends)}
        self.by_market = {m: self._least(part, r.low[part], r.high[part]) for m, part in self._parts.items()}
        self.value = self.constant + sum(self.by_market.values())

    def with_bounds(self, position: int, low: int, high: int) -> float:
        """Return the bound over the box in which the count of one active bid is between `low` and `high`."""
        r = self.relaxation
        if not r.is_nested and not self.is_single:
            new = _of_one(float(self.reduced[position]), float(self.charge[position]), low, high)
            return new if np.isinf(new) else self.value - float(self._of_each[position]) + new
        market = int(r.market[position])
        part = self._parts[market]
        lows, highs = r.low[part].copy(), r.high[part].copy()
        lows[position - part.start], highs[position - part.start] = low, high
        return self.value - self.by_market[market] + self._least(part, lows, highs)

    @cached_property
    def _of_each(self) -> FloatArray:
        """Return each active bid's least contribution, shape (active,), for boxes whose bids are independent."""
        r = self.relaxation
        rows = zip(self.reduced.tolist(), self.charge.tolist(), r.low.tolist(), r.high.tolist(), strict=True)
        return np.array([_of_one(*row) for row in rows])

    def _least(self, part: slice, low: IntArray, high: IntArray) -> float:
        """Return the least contribution of a market's bids, infinity if the bounds are infeasible."""
        reduced, charge = self.reduced[part], self.charge[part]
        bid_value = np.where(reduced < 0, high, np.maximum(low, 1)) * reduced
        bid_value = np.where(high > 0, bid_value, np.inf)
        must = low > 0
        if not self.relaxation.is_nested:
            return self._independent(bid_value + charge, must)
        total = np.cumsum(charge[::-1])[::-1]
        if self.is_single:
            if must.sum() > 1:
                return float("inf")
            options = total + bid_value
            return float(options[must][0]) if must.any() else min(0.0, float(options.min()))
        free = np.where(must, bid_value, np.minimum(0.0, bid_value))
        later = np.append(np.cumsum(free[::-1])[::-1][1:], 0.0)
        options = total + bid_value + later
        if must.any():
            return float(options[: int(must.argmax()) + 1].min())
        return min(0.0, float(options.min()))

    def _independent(self, value: FloatArray, must: BoolArray) -> float:
        if self.is_single:
            if must.sum() > 1:
                return float("inf")
            return float(value[must][0]) if must.any() else min(0.0, float(value.min()))
        return float(np.where(must, value, np.minimum(0.0, value)).sum())


def _of_one(reduced: float, charge: float, low: int, high: int) -> float:
    """Return an independent bid's minimal contribution within bounds, infinity if they are infeasible."""
    if high <= 0:
        return 0.0 if low <= 0 else float("inf")
    bid_value = charge + reduced * (high if reduced < 0 else max(low, 1))
    return bid_value if low > 0 else min(0.0, bid_value)


def point_of_slope(curve: Scalability, slope: FloatArray, most: float) -> FloatArray:
    """Return rates in [0, most] at which the curve has given slopes."""
    if curve.kind is CurveKind.LINEAR:
        return np.zeros_like(slope)
    if curve.kind is CurveKind.SATURATING and curve.serial > 0:
        root = (np.sqrt(curve.base / np.maximum(slope, 1e-300)) - curve.base) / curve.serial
        return np.asarray(np.clip(root, 0.0, most))
    low, high = np.zeros_like(slope), np.full_like(slope, most)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_steep = curve.slope(middle) > slope
        low, high = np.where(is_steep, middle, low), np.where(is_steep, high, middle)
    return high


def expand(relaxation: Relaxation, multipliers: CellMultipliers) -> Multipliers:
    """Return the multipliers for the instance's original cells."""
    attribution = multipliers.attribution[relaxation.cell_of]
    cell, position = np.nonzero(attribution)
    return Multipliers(
        point=multipliers.point[relaxation.cell_of],
        eviction=np.where(relaxation.is_open, multipliers.eviction, 0.0)[relaxation.cell_of],
        attribution_cell=cell,
        attribution_bid=relaxation.active[position],
        attribution=attribution[cell, position],
        cap=multipliers.cap,
        cover=multipliers.cover,
        work=multipliers.work,
        lost_by_rate=multipliers.lost_by_rate,
        lost_by_theta=multipliers.lost_by_theta,
        theta=multipliers.theta,
        rate=multipliers.rate,
    )
