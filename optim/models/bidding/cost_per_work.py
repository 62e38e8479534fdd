"""Cost and work of a footprint, their ratio, and summary statistics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.bidding.data import EvictionTerm, HourOutlook, ScenarioOutlook, survival_probability
from optim.models.bidding.decision import FootprintPlan
from optim.models.bidding.instance import BiddingInstance
from optim.models.bidding.market.prices import HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWork:
    """Expected dollars and expected work of an hour."""

    cost: float
    work: float

    @property
    def ratio(self) -> float:
        """Cost per work, infinity where no work is done."""
        return self.cost / self.work if self.work > 0 else float("inf")


def evaluate(instance: BiddingInstance, counts: IntArray) -> CostWork:
    """Return cost and work of a footprint.

    Parameters
    ----------
    instance
        The instance.
    counts
        Shape (bids,): instances taken at each bid.

    References
    ----------
    Harlap, Tumanov, Chung, Ganger, Gibbons, "Proteus: agile ML elasticity through tiered reliability in dynamic
    resource markets", EuroSys 2017, DOI 10.1145/3064176.3064182.
    """
    cost, work = evaluate_many(instance, np.asarray(counts)[None, :])
    return CostWork(cost=float(cost[0]), work=float(work[0]))


def evaluate_many(instance: BiddingInstance, counts: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return cost and work of many footprints, shape (footprints, bids), at once."""
    table = np.asarray(counts, dtype=np.float64)  # matrix products of integers with floats are slow
    cost = instance.fixed_usd + table @ instance.unit_cost
    change = np.where(table @ instance.bids.is_new > 0, instance.change_loss_h, 0.0)
    outlook = instance.outlook
    if isinstance(outlook, HourOutlook):
        return cost, _hour_work(instance, outlook, table, change)
    return cost, _scenario_work(instance, outlook, table, change)


def survival(instance: BiddingInstance, outlook: HourOutlook, counts: IntArray | FloatArray) -> FloatArray:
    """Return the probability that no bid of a footprint is outbid, shape (footprints,).

    Under ``per-market`` the evictions of one market are nested, so that only the market's riskiest bid counts; under
    ``any-bid`` the evictions of all bids are independent.
    """
    risk = np.where(counts > 0, outlook.evicted, 0.0)
    if outlook.term is EvictionTerm.ANY_BID:
        return np.asarray(np.prod(1.0 - risk, axis=1))
    if not len(instance.bids):
        return np.ones(len(counts))
    first = np.flatnonzero(np.diff(instance.bids.market, prepend=-1))
    return np.asarray(np.prod(1.0 - np.maximum.reduceat(risk, first, axis=1), axis=1))


def _hour_work(instance: BiddingInstance, outlook: HourOutlook, counts: FloatArray, change: FloatArray) -> FloatArray:
    """Return the work of the hour, ``G(sum_j k_j nu_j max(0, omega_j - Lambda_j - sigma))``.

    Lambda_j is the expected loss of bid j by evictions, in hours; `change` has sigma of each footprint.
    """
    lost = instance.eviction_loss_h
    rate = instance.bids.rate
    if outlook.term is EvictionTerm.PER_BID:
        bid_loss, common = lost * outlook.evicted, np.zeros(len(counts))
    else:
        bid_loss, common = np.zeros(len(instance.bids)), lost * (1.0 - survival(instance, outlook, counts))
    lasts, missed = outlook.usable_h - bid_loss, common + change
    fixed = instance.fixed_rate * np.maximum(0.0, 1.0 - missed)
    if missed.max(initial=0.0) <= lasts.min(initial=1.0):  # no useful time is clamped at 0, so the expression is linear
        return instance.scalability.value(fixed + counts @ (rate * lasts) - missed * (counts @ rate))
    useful = np.maximum(0.0, lasts - missed[:, None])
    return instance.scalability.value(fixed + (counts * rate * useful).sum(axis=1))


def _scenario_work(
    instance: BiddingInstance, outlook: ScenarioOutlook, counts: FloatArray, change: FloatArray
) -> FloatArray:
    """Return the expected sum over slots of ``G(V) (h - lambda [evicted] - sigma [first slot of a change])``.

    V is the sum of the rates in a slot, and h the hours of a slot.
    """
    size, cells = len(instance.bids), (outlook.num_scenarios, outlook.num_slots)
    slot_h = outlook.slot_s / HOUR_S
    rate = instance.fixed_rate + (counts * instance.bids.rate) @ outlook.alive.reshape(size, -1)
    useful = instance.scalability.value(rate).reshape(-1, *cells)
    hit = ((counts > 0).astype(np.float64) @ outlook.eviction_mask.reshape(size, -1) > 0).reshape(-1, *cells)
    hours = slot_h - instance.eviction_loss_h * hit
    hours[:, :, 0] -= change[:, None]
    return np.asarray(np.einsum("fst,fst,s->f", useful, hours, outlook.weight))


def describe(instance: BiddingInstance) -> Mapping[str, Any]:
    """Return statistics of an instance: sizes, form, eviction probability, fixed cost and losses."""
    outlook = instance.outlook
    size = max(instance.num_bids, 1)
    hour: dict[str, Any]
    if isinstance(outlook, HourOutlook):
        hour = {
            "form": "hour",
            "eviction_term": outlook.term.value,
            "mean_evicted": float(outlook.evicted.sum()) / size,
        }
    else:
        hour = {
            "form": "scenarios",
            "scenarios": outlook.num_scenarios,
            "slots": outlook.num_slots,
            "mean_evicted": float((outlook.evicted_s >= 0).mean()) if instance.num_bids else 0.0,
        }
    survival = instance.survival
    asked = (
        {} if survival is None else {"survival": survival.min_capacity, "survival_probability": survival.probability}
    )
    return {
        "markets": len(instance.markets),
        "bids": instance.num_bids,
        "caps": len(instance.caps.names),
        **hour,
        "one_bid_per_market": instance.one_bid_per_market,
        "scalability": instance.scalability.kind.value,
        "fixed_usd": instance.fixed_usd,
        "eviction_loss_h": instance.eviction_loss_h,
        "change_loss_h": instance.change_loss_h,
        **asked,
    }


def footprint_load(instance: BiddingInstance, plan: FootprintPlan) -> Mapping[str, Any]:
    """Return the instances, the cost and the work of a footprint."""
    counts = plan.counts
    value = evaluate(instance, counts)
    is_bid = counts > 0
    used = instance.caps.weight @ counts
    share = [float(u / b) if b > 0 else 0.0 for u, b in zip(used, instance.caps.limit, strict=True)]
    return {
        "instances": int(counts.sum()),
        "bids": int(is_bid.sum()),
        "markets": len(np.unique(instance.bids.market[is_bid])),
        "cost_usd": value.cost,
        "work": value.work,
        "cap_used": max(share, default=0.0),
        **({} if instance.survival is None else {"kept_probability": survival_probability(instance, counts)}),
    }
