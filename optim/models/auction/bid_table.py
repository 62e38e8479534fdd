"""An app's bid table: for every number of GPUs the finish-time fairness in each locality that is on offer."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from optim.models.auction.fairness import AppProfile, ideal_minutes, shared_minutes
from optim.models.auction.instance import Cluster, Horizon, Locality

LEAST_GAIN = 1e-12
"""Rows that are better by no more than this share are left out."""

NamedRow = tuple[tuple[tuple[int, int], ...], float]
"""(machine, GPUs) entries, and rho."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BidTable:
    """Rows (GPUs, locality, rho), rows that name their machines, and rho of the empty row."""

    empty_rho: float
    ideal_min: float
    rows: tuple[tuple[int, int, float], ...]
    named: tuple[NamedRow, ...] = ()

    @property
    def sizes(self) -> Iterator[int]:
        """GPUs of all rows."""
        yield from (k for k, _, _ in self.rows)
        yield from (sum(k for _, k in machines) for machines, _ in self.named)


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


def smallest_subtree(cluster: Cluster, slots: Iterable[int]) -> Locality:
    """Return the locality of the smallest subtree that holds all of some slots."""
    held = np.unique(np.fromiter(slots, dtype=np.int64))
    for level, group_of in (
        (Locality.SLOT, np.arange(len(cluster.slot_machine))),
        (Locality.MACHINE, cluster.slot_machine),
        (Locality.RACK, cluster.slot_rack),
    ):
        if len(np.unique(group_of[held])) <= 1:
            return level
    return Locality.CLUSTER


def with_held(profile: AppProfile, cluster: Cluster, places: Iterable[tuple[int, int]]) -> AppProfile:
    """Return the profile of an app that holds (slot, GPUs) entries of a cluster."""
    held = tuple(sorted(places))
    level = int(smallest_subtree(cluster, (slot for slot, _ in held)))
    return replace(profile, held_gpus=sum(k for _, k in held), held_locality=level, held_places=held)


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

    An app that holds GPUs is slowed down by the smallest subtree that holds these and the bundle. Wherever a
    bundle may lie, that may be the whole cluster; rows that name machines beside the held GPUs count on less.

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

    def rho(gpus: int, locality: int) -> float:
        minutes = shared_minutes(
            profile, gpus, locality, horizon=horizon, lease_min=lease_min, cluster_gpus=cluster.num_gpus
        )
        return minutes / ideal

    limits = most_gpus_by_locality(cluster)
    most = min(cluster.num_free, profile.demand - profile.held_gpus)
    numbers = [k for k in range(profile.gang, most + 1, profile.gang) if sizes is None or k in sizes]
    whole = max(limits)  # the locality of the whole cluster
    valued = [
        (k, int(level), rho(k, whole if profile.held_gpus else level))
        for k in numbers
        for level, limit in limits.items()
        if k <= limit and level <= widest
    ]
    if profile.held_gpus or horizon is Horizon.LEASE:
        empty = rho(0, profile.held_locality)
    else:
        empty = lease_min / ideal + max((value for _, _, value in valued), default=1.0)
    beside = [
        (machines, rho(sum(k for _, k in machines), level))
        for machines, level in _beside(profile, cluster, numbers, widest)
    ]
    kept = _undominated(valued, empty)
    return BidTable(empty_rho=empty, ideal_min=ideal, rows=kept, named=_better_named(beside, kept, empty))


def _beside(
    profile: AppProfile, cluster: Cluster, numbers: Iterable[int], widest: Locality
) -> Iterator[tuple[tuple[tuple[int, int], ...], Locality]]:
    """Yield bundles beside the GPUs held, on one machine where some are and within a rack, with the union's locality."""
    held = [slot for slot, _ in profile.held_places]
    homes = {int(cluster.slot_machine[slot]) for slot in held}
    chains = [[m] for m in sorted(homes)]
    racks = {int(cluster.machine_rack[m]) for m in homes} if widest >= Locality.RACK else set()
    for rack in sorted(racks):
        inside = np.flatnonzero(cluster.machine_rack == rack).tolist()
        chains.append(sorted(inside, key=lambda m: (m not in homes, -cluster.machine_free[m], m)))
    for chain in chains:
        free = [int(cluster.machine_free[m]) for m in chain]
        for k in numbers:
            if k > sum(free):
                break
            taken, left = [], k
            for m, room in zip(chain, free, strict=True):
                if min(left, room):
                    taken.append((m, min(left, room)))
                    left -= min(left, room)
            if len(taken) == 1 and len(chain) > 1 and taken[0][0] in homes:
                continue  # the machine's own chain has it
            slots = np.flatnonzero(np.isin(cluster.slot_machine, [m for m, _ in taken])).tolist()
            yield tuple(sorted(taken)), smallest_subtree(cluster, [*held, *slots])


def _better_named(
    rows: list[tuple[tuple[tuple[int, int], ...], float]], classes: tuple[tuple[int, int, float], ...], empty_rho: float
) -> tuple[NamedRow, ...]:
    """Drop named rows no better than the empty one, or than another that needs no more of any machine."""
    kept: list[NamedRow] = []
    anywhere = [(k, rho) for k, level, rho in classes if level == max((lv for _, lv, _ in classes), default=0)]
    for machines, rho in sorted(rows, key=lambda row: (sum(k for _, k in row[0]), row[1], row[0])):
        total, need = sum(k for _, k in machines), dict(machines)
        rivals = [empty_rho, *(value for k, value in anywhere if k <= total)]
        rivals += [value for other, value in kept if all(k <= need.get(m, 0) for m, k in other)]
        if rho < min(rivals) * (1 - LEAST_GAIN):
            kept.append((machines, rho))
    return tuple(kept)


def _undominated(rows: list[tuple[int, int, float]], empty_rho: float) -> tuple[tuple[int, int, float], ...]:
    """Drop rows no better than the empty one, or than one of no more GPUs in a locality no easier to give up.

    A row in a wider subtree needs less of the cluster, so only rows of the same or a wider locality dominate.
    """
    kept: list[tuple[int, int, float]] = []
    best = np.full(len(Locality), math.inf)  # best rho so far by locality
    for k, level, rho in sorted(rows, key=lambda row: (row[0], -row[1])):
        if rho < min(empty_rho, float(best[level : int(Locality.CLUSTER) + 1].min())) * (1 - LEAST_GAIN):
            kept.append((k, level, rho))
            best[level] = rho
    return tuple(kept)
