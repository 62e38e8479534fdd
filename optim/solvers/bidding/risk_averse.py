"""Footprints for those who fear the bad hours: conditional value at risk over windows, worst evictions in an interval."""

from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.core.driver import Monitor, run_iteration
from optim.core.errors import check_in
from optim.core.registry import register
from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.data import HourOutlook, ScenarioOutlook
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import HOUR_S, MICRO
from optim.solvers.bidding.greedy import AbstractHeuristic, Found, HeuristicOptions, exchanged
from optim.solvers.bidding.outcome import can_work
from optim.solvers.bidding.steps import IMPROVEMENT, LocalSearch, lack_of
from optim.statistics import wilson

HALVINGS = 60
ENDS_TRIED = 10
"""Up to so many markets all combinations of ends are tried; beyond, one market at a time."""

ROUNDS = 8
"""Rounds between footprint and worst case; they settle after two or three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskOptions(HeuristicOptions):
    """Options of `risk-averse`.

    Parameters
    ----------
    alpha
        Scenarios: the worst share ``1 - alpha`` of the hours is averaged.
    weight
        Scenarios: weight of that average beside the plain one, 0 to 1.
    hours
        One-hour form: hours of history behind the probabilities of eviction; their 95 % intervals follow.
    """

    alpha: float = 0.9
    weight: float = 1.0
    hours: float = 500.0

    def __post_init__(self) -> None:
        check_in("[0, 1)", self, "alpha")
        check_in("[0, 1]", self, "weight")
        check_in("(0, inf)", self, "hours")


def scenario_values(
    instance: BiddingInstance, outlook: ScenarioOutlook, table: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return cost and work of footprints by scenario, each of shape (footprints, scenarios)."""
    size, cells = instance.num_bids, (outlook.num_scenarios, outlook.num_slots)
    cost = instance.fixed_usd + table @ outlook.charge_micro / MICRO
    rate = instance.fixed_rate + (table * instance.bids.rate) @ outlook.alive.reshape(size, -1)
    hit = np.minimum((table > 0).astype(np.float64) @ outlook.eviction_mask.reshape(size, -1), 1.0)
    hours = (outlook.slot_s / HOUR_S - instance.eviction_loss_h * hit).reshape(-1, *cells)
    has_new = np.asarray((table[:, instance.bids.is_new] > 0).any(axis=1))
    hours[:, :, 0] -= instance.change_loss_h * has_new[:, None]
    return cost, (instance.scalability.value(rate).reshape(-1, *cells) * hours).sum(axis=2)


def tail_mean(loss: FloatArray, weight: FloatArray, alpha: float) -> FloatArray:
    """Return the conditional value at risk: the mean of the worst share ``1 - alpha``, over the last axis.

    References
    ----------
    Rockafellar, Uryasev, "Optimization of Conditional Value-at-Risk", Journal of Risk 2 (2000), DOI
    10.21314/JOR.2000.038.
    """
    order = np.argsort(-loss, axis=-1, kind="stable")
    sorted_loss, sorted_weight = np.take_along_axis(loss, order, axis=-1), weight[order]
    before = np.cumsum(sorted_weight, axis=-1) - sorted_weight
    used = np.clip(1 - alpha - before, 0.0, sorted_weight)
    return np.asarray((sorted_loss * used).sum(axis=-1) / (1 - alpha))


def risk_ratio(instance: BiddingInstance, table: IntArray, options: RiskOptions) -> FloatArray:
    """Return the least q at which ``cost - q work`` has no positive risk, by bisection, for each footprint.

    The risk is ``(1 - weight) mean + weight tail_mean``. It falls with q, as work is never negative.
    """
    outlook = instance.outlook
    assert isinstance(outlook, ScenarioOutlook)
    cost, work = scenario_values(instance, outlook, table)

    def risk(q: FloatArray) -> FloatArray:
        loss = cost - q[:, None] * work
        tail = tail_mean(loss, outlook.weight, options.alpha)
        return (1 - options.weight) * (loss @ outlook.weight) + options.weight * tail

    mean = work @ outlook.weight
    low = np.zeros(len(table))
    high = np.where(mean > 0, (cost @ outlook.weight + 1e-9) / np.maximum(mean, 1e-12), 1.0)
    for _ in range(HALVINGS):
        grows = risk(high) > 0
        if not grows.any():
            break
        high = np.where(grows, 2 * high, high)
    hopeless = risk(high) > 0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_low = risk(middle) > 0
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return np.where(hopeless | (mean <= 0), np.inf, high)


@register("risk-averse", problem="bidding")
class RiskAverseSolver(AbstractHeuristic[RiskOptions]):
    """Local search for the lowest risk-adjusted cost per work.

    With scenarios: the least q at which the conditional value at risk of ``cost - q work`` isn't positive, optionally
    mixed with its mean. In the one-hour form: the largest cost per work over the 95 % intervals of the probabilities of
    eviction, whose ends are chosen market by market; both cost and work fall with them, so that either end may be the
    worst.

    The objective remains the expected cost per work, with the relaxation's bound; the risk-adjusted one is the count
    `risk_ratio`, that of the risk-neutral footprint `neutral_risk_ratio`. Iterations are steps of the search.
    """

    summary: ClassVar[str] = "lowest conditional value at risk, or lowest worst-case cost per work"
    options_type: ClassVar[type[RiskOptions]] = RiskOptions

    def search(self, instance: BiddingInstance, options: RiskOptions, monitor: Monitor) -> Found:
        """Start from the risk-neutral footprint and search for a safer one."""
        neutral = exchanged(instance, monitor, self.name)
        if not (can_work(instance) and evaluate(instance, neutral.counts).work > 0):
            return neutral
        find = _min_risk if isinstance(instance.outlook, ScenarioOutlook) else _min_worst
        return find(instance, neutral, options, monitor)


def _min_risk(instance: BiddingInstance, neutral: Found, options: RiskOptions, monitor: Monitor) -> Found:
    """Search over additions, removals and moves for a lower risk ratio."""
    search = LocalSearch(
        instance, neutral.counts, figure=lambda table: risk_ratio(instance, table, options), begun=neutral.steps
    )
    before, counts = search.value, run_iteration(search, monitor)
    figures = {"risk_ratio": search.value, "neutral_risk_ratio": before}
    return Found(counts=counts, steps=search.steps, figures=figures)


def _min_worst(instance: BiddingInstance, neutral: Found, options: RiskOptions, monitor: Monitor) -> Found:
    """Alternate between the worst ends for a footprint and the best footprint for these ends; keep the best worst case."""
    low, high = _ends(instance, options)
    best, steps = neutral.counts, neutral.steps
    ends, value = _worst_ends(instance, best, low, high)
    before = value
    for _ in range(ROUNDS):
        search = LocalSearch(_with_ends(instance, low, high, ends), best, begun=steps)
        counts, steps = run_iteration(search, monitor), search.steps
        ends, found = _worst_ends(instance, counts, low, high)
        lack = lack_of(instance, np.array([counts, best]))
        if not found < value * (1 - IMPROVEMENT) or lack[0] > lack[1]:
            break
        best, value = counts, found
    return Found(counts=best, steps=steps, figures={"risk_ratio": value, "neutral_risk_ratio": before})


def _ends(instance: BiddingInstance, options: RiskOptions) -> tuple[HourOutlook, HourOutlook]:
    """Return the hour with every probability of eviction at either end of its interval."""
    outlook = instance.outlook
    assert isinstance(outlook, HourOutlook)
    ends = wilson(outlook.evicted, np.full(instance.num_bids, options.hours))
    first, last = (_at(outlook, evicted) for evicted in ends)
    return first, last


def _at(outlook: HourOutlook, evicted: FloatArray) -> HourOutlook:
    """Return the hour with other probabilities; the time lost is taken to grow with them in proportion."""
    factor = np.divide(evicted, outlook.evicted, out=np.ones_like(evicted), where=outlook.evicted > 0)
    usable = np.clip(1.0 - (1.0 - outlook.usable_h) * factor, 0.0, 1.0)
    return replace(outlook, evicted=evicted, usable_h=usable)


def _with_ends(instance: BiddingInstance, low: HourOutlook, high: HourOutlook, is_high: BoolArray) -> BiddingInstance:
    """Return the instance with each market at its end."""
    chosen = is_high[instance.bids.market]
    outlook = replace(
        low,
        evicted=np.where(chosen, high.evicted, low.evicted),
        usable_h=np.where(chosen, high.usable_h, low.usable_h),
    )
    return replace(instance, outlook=outlook)


def _worst_ends(
    instance: BiddingInstance, counts: IntArray, low: HourOutlook, high: HourOutlook
) -> tuple[BoolArray, float]:
    """Return the ends at which a footprint's cost per work is largest: all combinations of few markets are tried."""
    used = np.unique(instance.bids.market[counts > 0])
    ends = np.zeros(len(instance.markets), dtype=bool)

    def ratio(is_high: BoolArray) -> float:
        return evaluate(_with_ends(instance, low, high, is_high), counts).ratio

    if len(used) <= ENDS_TRIED:
        combinations = []
        for flags in product((False, True), repeat=len(used)):
            tried = ends.copy()
            tried[used] = flags
            combinations.append((ratio(tried), tried))
        value, worst = max(combinations, key=lambda pair: pair[0])
        return worst, value
    value, is_rising = ratio(ends), True
    while is_rising:
        is_rising = False
        for m in used.tolist():
            tried = ends.copy()
            tried[m] = not tried[m]
            found = ratio(tried)
            if found > value:
                ends, value, is_rising = tried, found, True
    return ends, value
