"""Bid tables, generated for one app or for many apps together."""

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from optim.core.arrays import BoolArray, ComparesByValue, FloatArray, IntArray
from optim.models.auction.data import Cluster, Horizon, Locality
from optim.models.auction.fairness import AppProfile, IdealTime, ideal_minutes, shared_minutes, shared_minutes_each

MIN_GAIN = 1e-12
"""Rows that improve rho by at most this relative amount are omitted."""

NamedRow = tuple[tuple[tuple[int, int], ...], float]
"""A bid that names machines: (machine, GPUs) entries, and rho."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BidTable:
    """The bids of one app.

    Parameters
    ----------
    empty_rho
        rho without GPUs from the auction (the empty row).
    ideal_min
        Ideal time in minutes, the denominator of every rho.
    gpus, locality, rho
        Shape (rows,): number of GPUs, locality and rho of each bundle.
    named
        Rows whose bundles name their machines.
    """

    empty_rho: float
    ideal_min: float
    gpus: IntArray
    locality: IntArray
    rho: FloatArray
    named: tuple[NamedRow, ...] = ()

    @property
    def rows(self) -> tuple[tuple[int, int, float], ...]:
        """Rows (GPUs, locality, rho)."""
        return tuple(zip(self.gpus.tolist(), self.locality.tolist(), self.rho.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.gpus) + len(self.named)


def possible_sizes(gangs: Iterable[int], most: int) -> list[int]:
    """Return all sums of subsets of an app's gangs, ascending, up to a limit.

    Examples
    --------
    >>> possible_sizes([2, 2, 5], 8)
    [2, 4, 5, 7]
    """
    sums = np.zeros(max(0, most) + 1, dtype=bool)
    sums[0] = True
    for gang in gangs:
        if gang <= most:
            sums[gang:] |= sums[: len(sums) - gang].copy()
    sizes: list[int] = np.flatnonzero(sums)[1:].tolist()
    return sizes


def max_gpus_by_locality(cluster: Cluster) -> dict[Locality, int]:
    """Return the largest number of free GPUs in one slot, one machine, one rack, and the cluster.

    A locality is omitted if it equals the next better one (machines of one slot, a cluster of one rack).
    """
    limits = {Locality.SLOT: int(cluster.slot_free.max(initial=0))}
    if len(cluster.slot_machine) > cluster.num_machines:
        limits[Locality.MACHINE] = int(cluster.machine_free.max(initial=0))
    limits[Locality.RACK] = int(cluster.rack_free.max(initial=0))
    if cluster.num_racks > 1:
        limits[Locality.CLUSTER] = cluster.num_free
    return limits


def smallest_subtree(cluster: Cluster, slots: Iterable[int]) -> Locality:
    """Return the locality of the smallest subtree that contains the given slots."""
    # Sets are fast here: few slots per call, very many calls.
    slot_set = set(slots)
    machines = set(cluster.slot_machine[list(slot_set)].tolist())
    return _smallest(slot_set, machines, set(cluster.machine_rack[list(machines)].tolist()))


def _smallest(slots: Collection[int], machines: Collection[int], racks: Collection[int]) -> Locality:
    """Return the locality of the smallest subtree that contains the slots, given their machines and racks."""
    for level, parts in ((Locality.SLOT, slots), (Locality.MACHINE, machines), (Locality.RACK, racks)):
        if len(parts) <= 1:
            return level
    return Locality.CLUSTER


def with_allocation(profile: AppProfile, cluster: Cluster, places: Iterable[tuple[int, int]]) -> AppProfile:
    """Return the profile with the held GPUs given as (slot, number of GPUs) entries of a cluster."""
    entries = tuple(sorted(places))
    level = int(smallest_subtree(cluster, (slot for slot, _ in entries)))
    return replace(profile, held_gpus=sum(k for _, k in entries), held_locality=level, held_places=entries)


def bid_table(
    profile: AppProfile,
    cluster: Cluster,
    *,
    lease_min: float,
    horizon: Horizon = Horizon.HOLD,
    sizes: tuple[int, ...] | None = None,
    widest: Locality = Locality.CLUSTER,
) -> BidTable:
    """Return an app's bids on the free GPUs of a cluster.

    A row's value depends on its number of GPUs and its locality, so equal machines are interchangeable.
    Numbers of GPUs are multiples of the gang size up to the demand. A row is omitted if it is no better than the empty
    row. It is also omitted if another row is at least as good, needs at most as many GPUs and fits wherever
    this row fits.

    If the app already holds GPUs, its slowdown is that of the smallest subtree that contains these GPUs and the
    bundle. A bundle given by number and locality may lie far from the held GPUs, so it is valued at the
    cluster's slowdown. Rows that name machines near the held GPUs have a smaller slowdown.

    Parameters
    ----------
    profile
        The app.
    cluster
        The cluster with its free GPUs.
    lease_min
        Length of a lease in minutes.
    horizon
        Horizon over which all rows are valued (`shared_minutes`). If the app holds no GPUs and the horizon is
        `hold`, the empty row takes one lease longer than the app's slowest bundle.
    sizes
        If given, only these numbers of GPUs are bid for.
    widest
        Widest locality of the bids.
    """
    ideal = ideal_minutes(profile, cluster.num_gpus)

    facts = {"horizon": horizon, "lease_min": lease_min, "cluster_gpus": cluster.num_gpus}

    def rho(gpus: int, locality: int) -> float:
        return shared_minutes(profile, gpus, locality, **facts) / ideal  # type: ignore[arg-type]

    limits = max_gpus_by_locality(cluster)
    most = min(cluster.num_free, profile.demand - profile.held_gpus - profile.other_type_gpus)
    bundles = possible_sizes(profile.gangs, most) if profile.gangs else range(profile.gang, most + 1, profile.gang)
    numbers = np.array([k for k in bundles if sizes is None or k in sizes], dtype=np.int64)
    levels = np.array([level for level in limits if level <= widest], dtype=np.int64)
    gpus, level = np.meshgrid(numbers, levels, indexing="ij")
    is_offered = gpus <= np.array([limits[Locality(each)] for each in levels.tolist()], dtype=np.int64)
    # A bundle given by number and locality may lie anywhere in the cluster relative to the allocated GPUs.
    union = np.full_like(level, max(limits)) if profile.held_gpus else level
    shared_rho = shared_minutes_each(profile, gpus, union, **facts) / ideal  # type: ignore[arg-type]
    value = np.where(is_offered, shared_rho, np.inf)
    if profile.held_gpus or profile.other_type_gpus or horizon is Horizon.LEASE:
        empty = rho(0, profile.held_locality)
    else:
        empty = lease_min / ideal + float(value[is_offered].max() if is_offered.any() else 1.0)
    is_useful = is_undominated(value, empty)
    rows = tuple(zip(gpus[is_useful].tolist(), level[is_useful].tolist(), value[is_useful].tolist(), strict=True))
    named_bids = (
        NamedBids(cluster, lease_min=lease_min, horizon=horizon, widest=widest) if profile.held_places else None
    )
    return BidTable(
        empty_rho=empty,
        ideal_min=ideal,
        gpus=gpus[is_useful],
        locality=level[is_useful],
        rho=value[is_useful],
        named=named_bids.rows(profile, numbers.tolist(), rows, empty) if named_bids else (),
    )


class NamedBids:
    """Bundles on named machines near the GPUs that apps already hold.

    Parameters
    ----------
    cluster, lease_min, horizon, widest
        As in `bid_table`.
    """

    def __init__(
        self, cluster: Cluster, *, lease_min: float, horizon: Horizon, widest: Locality = Locality.CLUSTER
    ) -> None:
        self._facts = {"horizon": horizon, "lease_min": lease_min, "cluster_gpus": cluster.num_gpus}
        self._widest, self._farthest = widest, max(max_gpus_by_locality(cluster))
        self._machine_free: list[int] = cluster.machine_free.tolist()
        self._rack_of: list[int] = cluster.machine_rack.tolist()
        self._machine_of: list[int] = cluster.slot_machine.tolist()
        self._slots_of: dict[int, list[int]] = {}
        for slot, m in enumerate(self._machine_of):
            self._slots_of.setdefault(m, []).append(slot)

    def rows(
        self,
        profile: AppProfile,
        numbers: Sequence[int],
        classes: tuple[tuple[int, int, float], ...],
        empty_rho: float,
    ) -> tuple[NamedRow, ...]:
        """Return an app's undominated rows with named machines.

        `classes` are the app's rows (GPUs, locality, rho) without named machines, and `numbers` the sizes of bundles.
        """
        ideal = ideal_minutes(profile, self._facts["cluster_gpus"])  # type: ignore[arg-type]
        named = []
        for machines, level in self._bundles(profile, numbers):
            gpus = sum(k for _, k in machines)
            named.append((machines, shared_minutes(profile, gpus, level, **self._facts) / ideal))  # type: ignore[arg-type]
        return _better_named(named, classes, empty_rho) if named else ()

    def _bundles(
        self, profile: AppProfile, numbers: Sequence[int]
    ) -> Iterator[tuple[tuple[tuple[int, int], ...], Locality]]:
        """Yield bundles near the GPUs that the app holds, each with the locality of bundle and held GPUs together.

        A bundle lies on one machine with held GPUs, or in a rack with held GPUs. Bundles with the same slowdown as
        GPUs anywhere are omitted, because rows without named machines cover them.
        """
        held_slots = {slot for slot, _ in profile.held_places}
        machine_free, rack_of, slots_of = self._machine_free, self._rack_of, self._slots_of
        homes = {self._machine_of[slot] for slot in held_slots}
        is_wide = self._widest >= self._farthest
        worst = profile.slowdown.within(self._farthest) if is_wide else math.inf

        def level_with(added_machines: Sequence[int]) -> Locality:
            machines = homes.union(added_machines)
            return _smallest(
                held_slots.union(*(slots_of[m] for m in added_machines)), machines, {rack_of[m] for m in machines}
            )

        if profile.slowdown.within(level_with(())) >= worst:
            return
        chains = [[m] for m in sorted(homes) if machine_free[m]]
        racks = {rack_of[m] for m in homes} if self._widest >= Locality.RACK else set()
        for rack in sorted(racks):
            inside = [m for m, of in enumerate(rack_of) if of == rack and machine_free[m]]
            chains.append(sorted(inside, key=lambda m: (m not in homes, -machine_free[m], m)))
        for number, chain in enumerate(chains):
            is_rack = number >= len(chains) - len(racks)
            used, filled = 0, 0  # fully used machines, and their GPUs
            level, known = Locality.CLUSTER, -1
            for k in numbers:
                while used < len(chain) and filled + machine_free[chain[used]] <= k:
                    filled += machine_free[chain[used]]
                    used += 1
                if k > filled and used == len(chain):
                    break
                count = used + (k > filled)
                if count == 1 and is_rack and chain[0] in homes:
                    continue  # the chain of this machine yields this bundle
                if count != known:
                    level, known = level_with(chain[:count]), count
                if profile.slowdown.within(level) >= worst:
                    break  # further machines only widen the bundle
                bundle = [(m, machine_free[m]) for m in chain[:used]] + [(m, k - filled) for m in chain[used:count]]
                yield tuple(sorted(bundle)), level


def _better_named(
    rows: list[tuple[tuple[tuple[int, int], ...], float]], classes: tuple[tuple[int, int, float], ...], empty_rho: float
) -> tuple[NamedRow, ...]:
    """Return the named rows that no other row dominates.

    A named row is dominated if its rho is at least the rho of the empty row, of a row of the widest locality with at most
    as many GPUs, or of another named row with at most as many GPUs on every machine.
    """
    undominated: list[NamedRow] = []
    widest = max((level for _, level, _ in classes), default=0)
    anywhere = sorted((k, rho) for k, level, rho in classes if level == widest)
    best = list(accumulate((rho for _, rho in anywhere), min, initial=empty_rho))
    for machines, rho in sorted(rows, key=lambda row: (sum(k for _, k in row[0]), row[1], row[0])):
        total, need = sum(k for _, k in machines), dict(machines)
        limit = best[bisect_right(anywhere, (total, math.inf))] * (1 - MIN_GAIN)
        is_better = rho < limit and not any(
            value * (1 - MIN_GAIN) <= rho and all(k <= need.get(m, 0) for m, k in other) for other, value in undominated
        )
        if is_better:
            undominated.append((machines, rho))
    return tuple(undominated)


def is_undominated(rho: FloatArray, empty_rho: "FloatArray | float") -> BoolArray:
    """Return which rows are undominated and better than the empty row; shape (..., sizes, localities), both ascending.

    A bundle in a wider subtree is easier to place. Only rows of no more GPUs in the same or a wider locality
    can dominate. Leading axes (also of `empty_rho`) enumerate independent tables.
    """
    wide = np.minimum.accumulate(rho[..., ::-1], axis=-1)[..., ::-1]  # best in this locality or a wider one
    rival = np.empty_like(rho)
    rival[...] = np.asarray(empty_rho)[..., None, None]
    rival[..., :-1] = np.minimum(rival[..., :-1], wide[..., 1:])
    rival[..., 1:, :] = np.minimum(rival[..., 1:, :], np.minimum.accumulate(wide, axis=-2)[..., :-1, :])
    return np.asarray(rho < rival * (1 - MIN_GAIN))


@dataclass(frozen=True, kw_only=True, eq=False)
class NeedsTable(ComparesByValue):
    """The fields of `AppProfile` with `Needs`, one row per app, for apps with one gang size and one GPU type.

    Parameters
    ----------
    elapsed_min, active_apps, gang
        The fields of these names in `AppProfile`, shape (apps,) each.
    work_min, longest_min, demand, total_work_min, total_longest_min, total_demand
        The fields of these names in `Needs`, shape (apps,) each.
    slowdown
        Worst slowdown within a slot, a machine, a rack and the cluster, shape (apps, 4).
    ideal
        Definition of the ideal time.
    """

    elapsed_min: FloatArray
    active_apps: FloatArray
    work_min: FloatArray
    longest_min: FloatArray
    demand: IntArray
    gang: IntArray
    total_work_min: FloatArray
    total_longest_min: FloatArray
    total_demand: IntArray
    slowdown: FloatArray
    ideal: IdealTime = IdealTime.TIME_SHARE

    def __len__(self) -> int:
        return len(self.work_min)

    def ideal_minutes(self, cluster_gpus: int) -> FloatArray:
        """Return `ideal_minutes` of each app."""
        share = self.active_apps
        is_timed = self.ideal is IdealTime.TIME_SHARE
        gpus = np.full(len(self), float(cluster_gpus)) if is_timed else cluster_gpus / share
        alone = np.maximum(self.total_work_min / np.minimum(gpus, self.total_demand), self.total_longest_min)
        return np.asarray(share * alone if is_timed else alone)

    def rho(self, gpus: IntArray, level: IntArray, cluster_gpus: int) -> FloatArray:
        """Return rho of each app if it holds the given number of GPUs (at least 1) in a locality for ever."""
        slow = self.slowdown[np.arange(len(self)), level]
        remaining_min = np.maximum(self.work_min * slow / np.minimum(gpus, self.demand), self.longest_min)
        return np.asarray((self.elapsed_min + remaining_min) / self.ideal_minutes(cluster_gpus))

    def bid_tables(
        self,
        who: IntArray,
        cluster: Cluster,
        *,
        lease_min: float,
        held: IntArray,
        held_level: IntArray,
        profile_of: Callable[[int], AppProfile],
    ) -> list[BidTable]:
        """Return the result of `bid_table` for several apps, with horizon `hold`.

        Parameters
        ----------
        who
            Indices of the apps.
        cluster, lease_min
            The cluster with its free GPUs, and the length of a lease in minutes.
        held, held_level
            Number of GPUs allocated to each app, and the locality of these GPUs; shape (apps,) each.
        profile_of
            Returns the profile of an app with `held_places`; called only for apps that hold GPUs.
        """
        ideal = self.ideal_minutes(cluster.num_gpus)[who]
        limits = max_gpus_by_locality(cluster)
        levels, max_gpus = np.array(list(limits), np.int64), np.array(list(limits.values()), np.int64)
        held, within, demand = held[who], self.slowdown[who], self.demand[who]
        elapsed, work, longest = self.elapsed_min[who], self.work_min[who], self.longest_min[who]
        most, gang = np.minimum(cluster.num_free, demand - held), self.gang[who]
        gpus = gang[:, None] * np.arange(1, max(0, int((most // gang).max(initial=0))) + 1)
        farthest = within[:, max(limits)]
        slow = np.where((held > 0)[:, None], farthest[:, None], within[:, levels])
        speed = np.minimum(gpus + held[:, None], demand[:, None])
        remaining_min = np.maximum((work[:, None] * slow)[:, None, :] / speed[:, :, None], longest[:, None, None])
        is_offered = (gpus <= most[:, None])[:, :, None] & (gpus[:, :, None] <= max_gpus)
        rho_by_size = (elapsed[:, None, None] + remaining_min) / ideal[:, None, None]
        value = np.where(is_offered, rho_by_size, np.inf)
        worst = np.where(is_offered, rho_by_size, 0.0).reshape(len(who), -1).max(axis=1, initial=0.0)
        near = within[np.arange(len(who)), held_level[who]]
        stays = np.maximum(work * near / np.minimum(np.maximum(1, held), demand), longest)
        empty = np.where(held > 0, (elapsed + stays) / ideal, lease_min / ideal + np.where(worst > 0, worst, 1.0))
        app, row, column = np.nonzero(is_undominated(value, empty))
        first = np.searchsorted(app, np.arange(len(who) + 1)).tolist()
        size, level, rho = gpus[app, row], levels[column], value[app, row, column]
        named: dict[int, tuple[NamedRow, ...]] = {}
        named_bids = NamedBids(cluster, lease_min=lease_min, horizon=Horizon.HOLD)
        for i in np.flatnonzero((held > 0) & (near < farthest)).tolist():
            part = slice(first[i], first[i + 1])
            classes = tuple(zip(size[part].tolist(), level[part].tolist(), rho[part].tolist(), strict=True))
            numbers = gpus[i][gpus[i] <= most[i]].tolist()
            named[i] = named_bids.rows(profile_of(int(who[i])), numbers, classes, float(empty[i]))
        return [
            BidTable(
                empty_rho=float(empty[i]),
                ideal_min=float(ideal[i]),
                gpus=size[a:b],
                locality=level[a:b],
                rho=rho[a:b],
                named=named.get(i, ()),
            )
            for i, (a, b) in enumerate(pairwise(first))
        ]
