"""Figures of an instance, and of a footprint."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from optim.models.bidding.cost_per_work import evaluate
from optim.models.bidding.instance import BiddingInstance, HourOutlook
from optim.models.bidding.lasting import kept_probability
from optim.models.bidding.plan import FootprintPlan


def describe(instance: BiddingInstance) -> Mapping[str, Any]:
    """Return sizes, form, and what bids cost and lose."""
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
    lasting = instance.lasting
    asked = {} if lasting is None else {"lasting": lasting.least, "lasting_probability": lasting.probability}
    return {
        "markets": len(instance.markets),
        "bids": instance.num_bids,
        "caps": len(instance.caps.names),
        **hour,
        "one_bid_a_market": instance.one_bid_a_market,
        "scalability": instance.scalability.kind.value,
        "fixed_usd": instance.fixed_usd,
        "eviction_loss_h": instance.eviction_loss_h,
        "change_loss_h": instance.change_loss_h,
        **asked,
    }


def footprint_load(instance: BiddingInstance, plan: FootprintPlan) -> Mapping[str, Any]:
    """Return what a footprint holds, costs and does."""
    counts = plan.counts
    value = evaluate(instance, counts)
    taken = counts > 0
    used = instance.caps.weight @ counts
    share = [float(u / b) if b > 0 else 0.0 for u, b in zip(used, instance.caps.limit, strict=True)]
    return {
        "instances": int(counts.sum()),
        "bids": int(taken.sum()),
        "markets": len(np.unique(instance.bids.market[taken])),
        "cost_usd": value.cost,
        "work": value.work,
        "cap_used": max(share, default=0.0),
        **({} if instance.lasting is None else {"kept_probability": kept_probability(instance, counts)}),
    }
