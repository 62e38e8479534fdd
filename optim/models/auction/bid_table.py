"""An app's bid table: for every number of GPUs the finish-time fairness in each locality that is on offer."""

import math
from dataclasses import dataclass

import numpy as np

from optim.models.auction.fairness import AppProfile, ideal_minutes, shared_minutes
from optim.models.auction.instance import Cluster, Horizon, Locality


@dataclass(frozen=True, slots=True, kw_only=True)
class BidTable:
    """Rows (GPUs, locality, rho), and rho of the empty row."""

    empty_rho: float
    ideal_min: float
    rows: tuple[tuple[int, int, float], ...]


def most_gpus_by_locality(cluster: Cluster) -> dict[Locality, int]:
    """Return the largest bundle that an offer holds in one slot, one machine, one rack, and in all.

    Localities that are the same as the next better one (machines of one slot, a cluster of one rack) are left out.
    """
    limits = {Locality.SLOT: int(cluster.slot_free.max(initial=0))}
    if len(cluster.slot_machine) > cluster.num_machines:
        limits[Locality.MACHINE] = int(cluster.machine_free.max(initial=0))
    limits[Locality.RACK] = int(cluster.rack_free.max(initial=0))
    if cluster.num_racks > 1:
        limits[Locality.CLUSTER] = cluster.num_free
    return limits


def bid_table(
    profile: AppProfile,
    cluster: Cluster,
    *,
    lease_min: float,
    horizon: Horizon = Horizon.HOLD,
    sizes: tuple[int, ...] | None = None,
    widest: Locality = Locality.CLUSTER,
) -> BidTable:
    """Return an app's bids on what a cluster offers.

    Rows are valued by number and locality, not by concrete machines: equal machines stay interchangeable.
    Numbers are the multiples of the gang up to the demand. A row is left out where one with at most as many
    GPUs that fits wherever this one fits is as good, and where it is no better than the empty row.

    Parameters
    ----------
    profile
        The app.
    cluster
        What is on offer.
    lease_min, horizon
        How rows are valued (`shared_minutes`). All are valued over one horizon. Where the app holds nothing and
        rows are held for ever, the empty row takes a lease longer than the app's slowest other row.
    sizes
        If given, numbers of GPUs outside are left out.
    widest
        Widest locality that is bid for.
    """
    ideal = ideal_minutes(profile, cluster.num_gpus)
    facts = {"horizon": horizon, "lease_min": lease_min, "cluster_gpus": cluster.num_gpus}
    limits = most_gpus_by_locality(cluster)
    most = min(cluster.num_free, profile.demand - profile.held_gpus)
    valued = [
        (k, int(level), shared_minutes(profile, k, level, **facts) / ideal)  # type: ignore[arg-type]
        for k in range(profile.gang, most + 1, profile.gang)
        if sizes is None or k in sizes
        for level, limit in limits.items()
        if k <= limit and level <= widest
    ]
    if profile.held_gpus or horizon is Horizon.LEASE:
        empty = shared_minutes(profile, 0, profile.held_locality, **facts) / ideal  # type: ignore[arg-type]
    else:
        empty = lease_min / ideal + max((rho for _, _, rho in valued), default=1.0)
    return BidTable(empty_rho=empty, ideal_min=ideal, rows=_undominated(valued, empty))


def _undominated(rows: list[tuple[int, int, float]], empty_rho: float) -> tuple[tuple[int, int, float], ...]:
    """Drop rows no better than the empty one, or than one of no more GPUs in a locality no easier to give up.

    A row in a wider subtree needs less of the cluster, so only rows of the same or a wider locality dominate.
    """
    kept: list[tuple[int, int, float]] = []
    best = np.full(len(Locality), math.inf)  # best rho so far by locality
    for k, level, rho in sorted(rows, key=lambda row: (row[0], -row[1])):
        if rho < min(empty_rho, float(best[level : int(Locality.CLUSTER) + 1].min())) * (1 - 1e-12):
            kept.append((k, level, rho))
            best[level] = rho
    return tuple(kept)
