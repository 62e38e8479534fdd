"""A box of footprints, and its relaxation as arrays."""

import math
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.bidding.data import EvictionTerm, HourOutlook, ScenarioOutlook
from optim.models.bidding.decision import CHANGE, THETA
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import HOUR_S

CAP_TOL = 1e-12
"""Relative rounding tolerance for caps and least work. The solver's instance already includes the tolerance of
footprints (`relaxed_instance`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """Footprints ``low <= counts <= high``.

    Parameters
    ----------
    low, high
        Shape (bids,): least and largest number of instances of each bid.
    has_change
        True if the loss for taking new instances is charged, False if no new instances are taken, None if undecided.
    theta, rate
        Range of theta (minus the logarithm of the probability of no eviction), and range of the sum of all rates.
    """

    low: IntArray
    high: IntArray
    has_change: bool | None
    theta: tuple[float, float] = (0.0, math.inf)
    rate: tuple[float, float] = (0.0, math.inf)

    @classmethod
    def root(cls, instance: BiddingInstance) -> "Box":
        """Return the box of all footprints."""
        has_change = None if instance.bids.is_new.any() else False
        low = np.zeros(instance.num_bids, dtype=np.int64)
        return cls(low=low, high=instance.bids.max_count, has_change=has_change)

    @property
    def is_single(self) -> bool:
        """Whether the box contains exactly one footprint."""
        return bool((self.low == self.high).all())

    def exceeds_a_cap(self, instance: BiddingInstance) -> bool:
        """Return whether the least counts of the box already exceed a cap."""
        caps = instance.caps
        return bool((caps.weight @ self.low > caps.limit * (1.0 + CAP_TOL)).any())

    def split(self, instance: BiddingInstance, by: int, at: float) -> tuple["Box", "Box"]:
        """Return the parts below and above a split: at most `at` instances of a bid, or more.

        Instead of a bid, `by` may be `CHANGE`, or one of the sums `THETA` and `RATE`.
        """
        if by == CHANGE:
            unchanged = replace(self, high=np.where(instance.bids.is_new, 0, self.high), has_change=False)
            return unchanged, replace(self, has_change=True)
        if by < 0:
            name = "theta" if by == THETA else "rate"
            low, high = self.theta if by == THETA else self.rate
            parts: tuple[dict[str, tuple[float, float]], ...] = (
                {name: (low, min(high, at))},
                {name: (max(low, at), high)},
            )
            return replace(self, **parts[0]), replace(self, **parts[1])  # type: ignore[arg-type]
        least, most = self.low.copy(), self.high.copy()
        most[by] = min(most[by], at)
        least[by] = max(least[by], at + 1)
        return replace(self, high=most), replace(self, low=least)


EMPTY_TOL = 1e-9
"""Excess of a range's lower end over its upper end that counts as rounding, not as an empty range; relative to ends above 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Envelope:
    """Planes below the rate lost by evictions, ``lambda (1 - exp(-theta)) K``.

    K is the sum of all rates, and lambda the hours that an eviction costs.

    The lost share is concave in theta, so it lies above its chord over theta's range. The product of the chord and K
    lies above the two lower planes of McCormick's envelope.

    Parameters
    ----------
    theta, rate, loss
        Ranges of theta, of the sum K of all rates, and of the lost share ``lambda (1 - exp(-theta))``.
    sure, step
        Theta is `sure` plus the sum of `step`, shape (active,), over the active bids whose indicator is 1.
    unit, fixed
        K is `fixed` plus the sum of `unit`, shape (active,), over all instances of active bids.

    References
    ----------
    McCormick, "Computability of Global Solutions to Factorable Nonconvex Programs: Part I", Mathematical Programming 10
    (1976), DOI 10.1007/BF01580665.
    """

    theta: tuple[float, float]
    rate: tuple[float, float]
    loss: tuple[float, float]
    sure: float
    step: FloatArray
    unit: FloatArray
    fixed: float

    @property
    def is_empty(self) -> bool:
        """Whether the range of theta or of K is empty, up to rounding."""
        return any(low > high + EMPTY_TOL * max(1.0, high) for low, high in (self.theta, self.rate))

    @property
    def is_curved(self) -> bool:
        """Whether the loss depends on the counts."""
        return self.loss[1] > self.loss[0]

    def plane(self, mix: float) -> tuple[float, float]:
        """Return the slopes in K and theta of a mean of both planes; the plane at the ranges' upper ends has weight `mix`."""
        rise = self.loss[1] - self.loss[0]
        if rise <= 0:
            return self.loss[0], 0.0
        by_theta = ((1 - mix) * self.rate[0] + mix * self.rate[1]) * rise / (self.theta[1] - self.theta[0])
        return self.loss[0] + mix * rise, by_theta

    def height(self, by_rate: float, by_theta: float) -> float:
        """Return the largest constant for which a plane with these slopes is below the loss at the ranges' corners."""
        ends = zip(self.theta, self.loss, strict=True)
        return min((loss - by_rate) * rate - by_theta * theta for theta, loss in ends for rate in self.rate)


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxation:
    """The relaxation of a box, as sums over cells (slots of scenarios, or one hour); equal cells are merged.

    The work is at most ``sum_c weight_c (hours_c y_c - loss_h p_c)``. The useful rate is ``y_c <= G(V_c)``, with the
    rate ``V_c = base_c + rate_c k`` minus the loss of the envelope. In open cells the lost rate is
    ``p_c >= y_c - most_c (1 - e_c)``, where ``e_c >= Z_j`` for the bids that are outbid in the cell. Z indicates
    whether a bid is taken.

    Parameters
    ----------
    active
        Shape (active,): the bids of which the box allows instances.
    market
        Shape (active,): market of each active bid.
    low, high, cost
        Shape (active,): range of each bid's count, and dollars per instance.
    weight, hours, base
        Shape (cells,): weight in the expected work, usable hours, and rate of the fixed resources.
    rate
        Shape (cells, active): rate of an instance.
    is_open
        Shape (cells,): whether it depends on the footprint in the box if an eviction costs time in the cell.
    hit
        Shape (cells, active): whether a bid is outbid in an open cell.
    most
        Shape (cells,): upper bound of the useful rate y.
    envelope
        Bounds on the loss, if the eviction of one bid costs all instances time. `base` and `rate` are net of this loss
        unless the loss is curved.
    is_nested
        Whether Z indicates instead that the bid, or a lower bid of its market, is taken.
    cell_of
        Shape (original cells,): merged cell of each original cell.
    loss_h
        Hours lost by an eviction in open cells.
    """

    active: IntArray
    market: IntArray
    low: IntArray
    high: IntArray
    cost: FloatArray
    weight: FloatArray
    hours: FloatArray
    base: FloatArray
    rate: FloatArray
    is_open: BoolArray
    hit: BoolArray
    most: FloatArray
    envelope: Envelope | None
    is_nested: bool
    cell_of: IntArray
    loss_h: float

    @property
    def has_indicators(self) -> bool:
        """Whether the relaxation needs the indicators Z."""
        return bool(self.is_open.any() or self.envelope is not None)


def relax(instance: BiddingInstance, box: Box, min_rate: float) -> Relaxation:
    """Return the relaxation of a box.

    Parameters
    ----------
    instance, box
        The instance and the box.
    min_rate
        The relaxation needn't be valid for footprints with a lower sum of rates.
    """
    outlook = instance.outlook
    if isinstance(outlook, HourOutlook):
        return _hour(instance, outlook, box, min_rate)
    return _scenarios(instance, outlook, box)


def _scenarios(instance: BiddingInstance, outlook: ScenarioOutlook, box: Box) -> Relaxation:
    size, loss = instance.num_bids, instance.eviction_loss_h
    active = np.flatnonzero(box.high > 0)
    alive = outlook.alive.reshape(size, -1)[active]
    eviction_mask = outlook.eviction_mask.reshape(size, -1)[active] if loss > 0 else np.zeros(alive.shape, dtype=bool)
    slot = np.tile(np.arange(outlook.num_slots), outlook.num_scenarios)
    is_first: BoolArray = np.asarray((slot == 0) & (box.has_change is True))
    is_evicted: BoolArray = np.asarray(eviction_mask[box.low[active] > 0].any(axis=0))
    eviction_mask = eviction_mask & ~is_evicted
    keys = np.concatenate([alive, eviction_mask, is_first[None], is_evicted[None]]).T
    _, first, cell_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    cell_of = cell_of.ravel()
    weight = np.bincount(cell_of, np.repeat(outlook.weight, outlook.num_slots), len(first)).astype(np.float64)
    slot_h = outlook.slot_s / HOUR_S
    hours = slot_h - instance.change_loss_h * is_first[first] - loss * is_evicted[first]
    rate = (alive[:, first] * instance.bids.rate[active, None]).T
    eviction_mask = eviction_mask[:, first].T
    market = instance.bids.market[active]
    base = np.full(len(first), instance.fixed_rate)
    return Relaxation(
        active=active,
        market=market,
        low=box.low[active],
        high=box.high[active],
        cost=instance.unit_cost[active],
        weight=weight,
        hours=hours,
        base=base,
        rate=rate,
        is_open=np.asarray(eviction_mask.any(axis=1)),
        hit=eviction_mask,
        most=instance.scalability.value(_max_rate(instance, box, active, base, rate)),
        envelope=None,
        is_nested=False,
        cell_of=cell_of,
        loss_h=loss,
    )


def _hour(instance: BiddingInstance, outlook: HourOutlook, box: Box, min_rate: float) -> Relaxation:
    active = np.flatnonzero(box.high > 0)
    loss = instance.eviction_loss_h
    change = instance.change_loss_h if box.has_change else 0.0
    bid_loss, common, envelope = np.zeros(len(active)), 0.0, None
    if outlook.term is EvictionTerm.PER_BID:
        bid_loss = loss * outlook.evicted[active]
    else:
        envelope = _envelope(instance, outlook, box, active, change, min_rate)
        common = 0.0 if envelope.is_curved else envelope.loss[0]
    useful = np.maximum(0.0, outlook.usable_h[active] - bid_loss - common - change)
    rate = (instance.bids.rate[active] * useful)[None, :]
    base = np.array([instance.fixed_rate * max(0.0, 1.0 - common - change)])
    return Relaxation(
        active=active,
        market=instance.bids.market[active],
        low=box.low[active],
        high=box.high[active],
        cost=instance.unit_cost[active],
        weight=np.ones(1),
        hours=np.ones(1),
        base=base,
        rate=rate,
        is_open=np.zeros(1, dtype=bool),
        hit=np.zeros((1, len(active)), dtype=bool),
        most=instance.scalability.value(_max_rate(instance, box, active, base, rate)),
        envelope=envelope,
        is_nested=outlook.term is EvictionTerm.PER_MARKET,
        cell_of=np.zeros(1, dtype=np.int64),
        loss_h=0.0,
    )


def _envelope(
    instance: BiddingInstance, outlook: HourOutlook, box: Box, active: IntArray, change: float, min_rate: float
) -> Envelope:
    """Return the ranges of theta and of the sum of rates in a box, and the loss at the ends of theta's range.

    If a bid's useful time might be clamped at 0, the loss is set to its minimum for the entire box.
    """
    theta = -np.log1p(-np.minimum(outlook.evicted[active], 1.0 - 1e-12))
    market, is_active_low = instance.bids.market[active], box.low[active] > 0
    if outlook.term is EvictionTerm.PER_MARKET:
        sure, most = np.zeros(len(instance.markets)), np.zeros(len(instance.markets))
        np.maximum.at(sure, market[is_active_low], theta[is_active_low])
        np.maximum.at(most, market, theta)
        above = np.maximum(0.0, theta - sure[market])
        # Z of a bid means that this or a lower bid is taken, so its step is theta's decrease up to the next higher bid.
        last = np.append(np.diff(market) != 0, True)
        step = np.maximum(0.0, above - np.where(last, 0.0, np.append(above[1:], 0.0)))
        least, max_theta = float(sure.sum()), float(most.sum())
    else:
        least, max_theta, step = (
            float(theta[is_active_low].sum()),
            float(theta.sum()),
            np.where(is_active_low, 0.0, theta),
        )
    unit, fixed = instance.bids.rate[active], instance.fixed_rate
    min_bid_rate = fixed + float((box.low * instance.bids.rate).sum())
    fastest = float(_max_rate(instance, box, active, np.array([fixed]), unit[None, :])[0])
    low, high = max(least, box.theta[0]), min(max_theta, box.theta[1])
    shortest = min(float(outlook.usable_h[active].min(initial=1.0)), 1.0) - change
    is_curved = high - low > 1e-12 and shortest >= instance.eviction_loss_h
    first, last_loss = (-instance.eviction_loss_h * float(np.expm1(-end)) for end in (low, high))
    return Envelope(
        theta=(low, high),
        rate=(max(min_bid_rate, min_rate, box.rate[0]) * (1.0 - 1e-9), min(fastest, box.rate[1]) * (1.0 + 1e-9)),
        loss=(first, last_loss if is_curved else first),
        sure=least,
        step=step,
        unit=unit,
        fixed=fixed,
    )


def _max_rate(instance: BiddingInstance, box: Box, active: IntArray, base: FloatArray, rate: FloatArray) -> FloatArray:
    """Return an upper bound on each cell's rate: the least, over the caps, of the rates that box and cap allow."""
    low, high = box.low[active], box.high[active]
    best = base + rate @ high
    for weight, limit in zip(instance.caps.weight[:, active], instance.caps.limit, strict=True):
        best = np.minimum(best, base + _knapsack(rate, low, high, weight, float(limit)))
    return best


def _knapsack(rate: FloatArray, low: IntArray, high: IntArray, weight: FloatArray, limit: float) -> FloatArray:
    """Return the largest rate of each cell under one cap, if counts may be fractional."""
    if not rate.shape[1]:
        return np.zeros(len(rate))
    residual = max(0.0, limit - float(weight @ low))
    density = np.where(weight > 0, rate / np.maximum(weight, 1e-300), np.inf)
    order = np.argsort(-density, axis=1, kind="stable")
    size = (weight * (high - low))[order]
    before = np.cumsum(size, axis=1) - size
    share = np.clip(np.divide(residual - before, size, out=np.ones_like(size), where=size > 0), 0.0, 1.0)
    gain = np.take_along_axis(rate * (high - low), order, axis=1)
    return np.asarray(rate @ low + (gain * share).sum(axis=1))
