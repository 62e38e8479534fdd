"""The relaxation of a box in numbers: cells of the hour, work rates, and which bids an eviction in a cell could hit."""

from dataclasses import dataclass

import numpy as np

from optim.models.bidding.instance import (
    HOUR_S,
    BiddingInstance,
    BoolArray,
    EvictionTerm,
    FloatArray,
    HourOutlook,
    IntArray,
    ScenarioOutlook,
)
from optim.solvers.bidding.tree.box import Box


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxation:
    """What is left of an instance in a box, as sums over cells: equal cells of scenarios are one.

    The work is at most ``sum_c weight_c (hours_c y_c - loss_h p_c)`` with ``y_c <= G(V_c)``, ``V_c = base_c + rate_c k
    - sum_j mark_rate_j Z_j`` and, in open cells, ``p_c >= y_c - most_c (1 - e_c)``, where ``e_c >= Z_j`` for the bids
    that are outbid in the cell. Z says whether a bid is taken.

    Parameters
    ----------
    active
        Shape (active,): the bids that the box lets be taken.
    market
        Shape (active,): their markets.
    weight, hours, base
        Shape (cells,).
    rate
        Shape (cells, active).
    is_open
        Shape (cells,): whether the loss by an eviction is undecided.
    hit
        Shape (cells, active): whether a bid is outbid in an open cell.
    most
        Shape (cells,): upper bound of y.
    mark_rate
        Shape (active,): rate lost with the indicator Z of each bid.
    is_nested
        Whether Z says instead that a bid or a lower one of its market is taken.
    cell_of
        Shape (original cells,): number of the cell that stands for each.
    loss_h
        Hours lost in open cells by an eviction.
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
    mark_rate: FloatArray
    is_nested: bool
    cell_of: IntArray
    loss_h: float

    @property
    def has_indicators(self) -> bool:
        """Whether Z is needed at all."""
        return bool(self.is_open.any() or (self.mark_rate > 0).any())


def relax(instance: BiddingInstance, box: Box, least_rate: float) -> Relaxation:
    """Return the relaxation of a box.

    Parameters
    ----------
    instance, box
        What is relaxed.
    least_rate
        Footprints whose rates add up to less are of no interest: they may be valued too low.
    """
    outlook = instance.outlook
    if isinstance(outlook, HourOutlook):
        return _hour(instance, outlook, box, least_rate)
    return _scenarios(instance, outlook, box)


def _scenarios(instance: BiddingInstance, outlook: ScenarioOutlook, box: Box) -> Relaxation:
    size, loss = instance.num_bids, instance.eviction_loss_h
    active = np.flatnonzero(box.high > 0)
    alive = outlook.alive.reshape(size, -1)[active]
    marks = outlook.marks.reshape(size, -1)[active] if loss > 0 else np.zeros(alive.shape, dtype=bool)
    slot = np.tile(np.arange(outlook.num_slots), outlook.num_scenarios)
    is_first: BoolArray = np.asarray((slot == 0) & (box.has_change is True))
    forced: BoolArray = np.asarray(marks[box.low[active] > 0].any(axis=0))
    marks = marks & ~forced
    keys = np.concatenate([alive, marks, is_first[None], forced[None]]).T
    _, first, cell_of = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    cell_of = cell_of.ravel()
    weight = np.bincount(cell_of, np.repeat(outlook.weight, outlook.num_slots), len(first)).astype(np.float64)
    slot_h = outlook.slot_s / HOUR_S
    hours = slot_h - instance.change_loss_h * is_first[first] - loss * forced[first]
    rate = (alive[:, first] * instance.bids.rate[active, None]).T
    marks = marks[:, first].T
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
        is_open=np.asarray(marks.any(axis=1)),
        hit=marks,
        most=instance.scalability.value(_most_rate(instance, box, active, base, rate)),
        mark_rate=np.zeros(len(active)),
        is_nested=False,
        cell_of=cell_of,
        loss_h=loss,
    )


def _hour(instance: BiddingInstance, outlook: HourOutlook, box: Box, least_rate: float) -> Relaxation:
    active = np.flatnonzero(box.high > 0)
    loss = instance.eviction_loss_h
    change = instance.change_loss_h if box.has_change else 0.0
    own = loss * outlook.evicted[active] if outlook.term is EvictionTerm.OWN else np.zeros(len(active))
    common, price = 0.0, np.zeros(len(active))
    if outlook.term is not EvictionTerm.OWN and loss > 0:
        common, price = _common_loss(instance, outlook, box, active, least_rate)
    useful = np.maximum(0.0, outlook.usable_h[active] - own - common - change)
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
        most=instance.scalability.value(_most_rate(instance, box, active, base, rate)),
        mark_rate=price,
        is_nested=outlook.term is EvictionTerm.MARKET,
        cell_of=np.zeros(1, dtype=np.int64),
        loss_h=0.0,
    )


def _common_loss(
    instance: BiddingInstance, outlook: HourOutlook, box: Box, active: IntArray, least_rate: float
) -> tuple[float, FloatArray]:
    """Return the hours that everybody loses for certain, and the rate lost with each indicator on top.

    With ``theta = -sum log(1 - beta)`` over what evicts independently, the loss ``lambda (1 - exp(-theta))`` is
    concave, and so at least its chord over the box's range of theta. What a further step of it costs is at least the
    step times the least rate that a footprint of interest can have, as long as no bid's useful time is clamped.
    """
    theta = -np.log1p(-np.minimum(outlook.evicted[active], 1.0 - 1e-12))
    market, taken = instance.bids.market[active], box.low[active] > 0
    is_nested = outlook.term is EvictionTerm.MARKET
    if is_nested:
        size = len(instance.markets)
        sure, most = np.zeros(size), np.zeros(size)
        np.maximum.at(sure, market[taken], theta[taken])
        np.maximum.at(most, market, theta)
        above = np.maximum(0.0, theta - sure[market])
        # Z of a bid stands for "this or a lower bid": it carries the step of theta down to the next higher bid.
        last = np.append(np.diff(market) != 0, True)
        step = np.maximum(0.0, above - np.where(last, 0.0, np.append(above[1:], 0.0)))
        low, high = float(sure.sum()), float(most.sum())
    else:
        low, high = float(theta[taken].sum()), float(theta.sum())
        step = np.where(taken, 0.0, theta)
    loss = instance.eviction_loss_h
    common = -loss * float(np.expm1(-low))
    if high - low < 1e-12:
        return common, np.zeros(len(active))
    slope = (-loss * float(np.expm1(-high)) - common) / (high - low)
    change = instance.change_loss_h if box.has_change else 0.0
    shortest = min(float(outlook.usable_h[active].min(initial=1.0)), 1.0) - change
    if shortest < loss:
        return common, np.zeros(len(active))
    sure_rate = instance.fixed_rate + float((box.low * instance.bids.rate).sum())
    return common, max(sure_rate, least_rate) * slope * step * (1.0 - 1e-9)


def _most_rate(instance: BiddingInstance, box: Box, active: IntArray, base: FloatArray, rate: FloatArray) -> FloatArray:
    """Return the largest rate of each cell that the box and any one of the caps allow."""
    low, high = box.low[active], box.high[active]
    best = base + rate @ high
    for weight, limit in zip(instance.caps.weight[:, active], instance.caps.limit, strict=True):
        best = np.minimum(best, base + _knapsack(rate, low, high, weight, float(limit)))
    return best


def _knapsack(rate: FloatArray, low: IntArray, high: IntArray, weight: FloatArray, limit: float) -> FloatArray:
    """Return the value of the fractional knapsack of each cell."""
    if not rate.shape[1]:
        return np.zeros(len(rate))
    room = max(0.0, limit - float(weight @ low))
    density = np.where(weight > 0, rate / np.maximum(weight, 1e-300), np.inf)
    order = np.argsort(-density, axis=1, kind="stable")
    size = (weight * (high - low))[order]
    before = np.cumsum(size, axis=1) - size
    share = np.clip(np.divide(room - before, size, out=np.ones_like(size), where=size > 0), 0.0, 1.0)
    gain = np.take_along_axis(rate * (high - low), order, axis=1)
    return np.asarray(rate @ low + (gain * share).sum(axis=1))
