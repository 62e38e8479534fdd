"""Summary statistics of an auction, and of an allocation."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.models.auction.data import SCORES, Cluster, Locality
from optim.models.auction.decision import APP, COUNT, SLOT, AuctionPlan
from optim.models.auction.fairness import AppProfile
from optim.models.auction.instance import AuctionInstance


def describe(instance: AuctionInstance) -> Mapping[str, Any]:
    """Return sizes, contention and shape of the bids, in display order.

    `contention` is the number of GPUs that all apps can use divided by the number of free GPUs. The
    number of GPUs that an app can use comes from its profile if known, otherwise from its largest bid (tables omit
    bids for GPUs that add no value).
    """
    cluster, bids = instance.cluster, instance.bids
    largest = np.zeros(instance.num_apps, dtype=np.int64)
    np.maximum.at(largest, bids.app, bids.gpus)
    for i, profile in enumerate(instance.profiles):
        if isinstance(profile, AppProfile):
            largest[i] = profile.demand
    levels = Counter(Locality(level).name.lower() for level in bids.locality.tolist())
    return {
        "apps": instance.num_apps,
        "gpus": cluster.num_gpus,
        "free_gpus": cluster.num_free,
        "allocated_share": 1.0 - cluster.num_free / max(1, cluster.num_gpus),
        "machines": cluster.num_machines,
        "racks": cluster.num_racks,
        "slots": len(cluster.slot_machine),
        "rows": len(bids),
        "rows_by_locality": dict(sorted(levels.items())),
        "demand": int(largest.sum()),
        "contention": float(largest.sum() / max(1, cluster.num_free)),
        "gangs": {str(gang): count for gang, count in sorted(Counter(instance.apps.gang.tolist()).items())},
        "new_apps": int((instance.apps.elapsed_min == 0).sum()),
        "work_min": _spread(instance.apps.work_min),
        "elapsed_min": _spread(instance.apps.elapsed_min),
        "lease_min": instance.lease_min,
        "horizon": instance.horizon.value,
        "empty_value": instance.empty_value.value,
    }


def plan_load(instance: AuctionInstance, plan: AuctionPlan) -> Mapping[str, Any]:
    """Return statistics of a plan: winners, awarded, forfeited and leftover GPUs, shares, placement scores, payments.

    `welfare` is the sum of log values, with losers at their empty rows; `max_rho` is the largest (worst) rho. Both
    statistics are given for complete bundles, and for the GPUs after payments, valued by the apps' bids (`..._paid`).
    `idle_gpus` are awarded to no app; `leftover` GPUs are freed by payments; `grants` lists the GPUs of each
    app by machine.
    """
    cluster, n = instance.cluster, instance.num_apps
    awarded, granted = int(plan.placement[:, COUNT].sum()), int(plan.grants[:, COUNT].sum())
    won = plan.row >= 0
    width = (plan.share_high - plan.share_low)[won]
    levels = placement_levels(cluster, plan.placement, n)
    weight = plan.awarded_gpus(n)[won]
    score = np.array([SCORES[level] for level in levels[won].tolist()])
    rho = np.where(
        won, instance.bids.rho[np.where(won, plan.row, 0)] if len(instance.bids) else 1.0, instance.apps.empty_rho
    )
    paid = rho_paid(instance, plan)
    return {
        "welfare": float(-np.log(rho).sum()),
        "welfare_paid": float(-np.log(paid).sum()),
        "max_rho": float(rho.max(initial=0.0)),
        "max_rho_paid": float(paid.max(initial=0.0)),
        "winners": plan.num_winners,
        "winner_share": plan.num_winners / n if n else 0.0,
        "awarded_gpus": awarded,
        "idle_gpus": cluster.num_free - awarded,
        "granted_gpus": granted,
        "leftover": awarded - granted,
        "leftover_share": (awarded - granted) / awarded if awarded else 0.0,
        "share": _spread(plan.share_high[won]),
        "interval_width": _spread(width),
        "narrow_intervals": float((width <= 1e-3).mean()) if won.any() else 1.0,
        "placement_score": float((score * weight).sum() / weight.sum()) if weight.sum() else None,
        "payments": {
            instance.apps.ids[i]: [1.0 - float(plan.share_high[i]), 1.0 - float(plan.share_low[i])]
            for i in np.flatnonzero(won).tolist()
        },
        "grants": {instance.apps.ids[i]: _places(cluster, plan, i) for i in np.flatnonzero(won).tolist()},
    }


def rho_paid(instance: AuctionInstance, plan: AuctionPlan) -> FloatArray:
    """Return each app's rho with its granted GPUs: the least rho of a row that these GPUs satisfy, or `empty_rho`."""
    cluster, bids, rho = instance.cluster, instance.bids, instance.apps.empty_rho.copy()
    granted = plan.granted_gpus(instance.num_apps)
    levels = placement_levels(cluster, plan.grants, instance.num_apps)
    machine_gpus = np.zeros((instance.num_apps, cluster.num_machines), dtype=np.int64)
    np.add.at(machine_gpus, (plan.grants[:, APP], cluster.slot_machine[plan.grants[:, SLOT]]), plan.grants[:, COUNT])
    is_met = (bids.gpus <= granted[bids.app]) & (levels[bids.app] <= bids.locality)
    short = machine_gpus[bids.app[bids.named_row], bids.named_machine] < bids.named_gpus
    is_met[bids.named_row[short]] = False
    np.minimum.at(rho, bids.app[is_met], bids.rho[is_met])
    return rho


def _places(cluster: Cluster, plan: AuctionPlan, app: int) -> list[str]:
    """Return an app's granted GPUs as texts such as "machine 3: 2"."""
    mine = plan.grants[plan.grants[:, APP] == app]
    by_machine = np.bincount(cluster.slot_machine[mine[:, SLOT]], mine[:, COUNT], cluster.num_machines).astype(np.int64)
    return [f"machine {m}: {by_machine[m]}" for m in np.flatnonzero(by_machine).tolist()] or ["nothing"]


def placement_levels(cluster: Cluster, placement: IntArray, num_apps: int) -> IntArray:
    """Return the smallest locality that holds each app's GPUs, -1 for apps without any."""
    levels = np.full(num_apps, -1, dtype=np.int64)
    slot, machine, rack = (np.full(num_apps, -1, dtype=np.int64) for _ in range(3))
    for i, s, _ in placement.tolist():
        m = int(cluster.slot_machine[s])
        r = int(cluster.machine_rack[m])
        if levels[i] < 0:
            levels[i], slot[i], machine[i], rack[i] = Locality.SLOT, s, m, r
        elif r != rack[i]:
            levels[i] = Locality.CLUSTER
        elif m != machine[i]:
            levels[i] = max(int(levels[i]), Locality.RACK)
        elif s != slot[i]:
            levels[i] = max(int(levels[i]), Locality.MACHINE)
    return levels


def _spread(values: Any) -> Mapping[str, float] | None:
    """Return the minimum, the mean and the maximum."""
    if not len(values):
        return None
    return {"min": float(np.min(values)), "mean": float(np.mean(values)), "max": float(np.max(values))}
