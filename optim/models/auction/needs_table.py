"""Many apps' aggregate needs side by side: the finish-time fairness and the bid tables of all of them at once."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from optim.core.arrays import ComparesByValue
from optim.models.auction.bid_table import Beside, BidTable, NamedRow, is_undominated, most_gpus_by_locality
from optim.models.auction.fairness import AppProfile, IdealTime
from optim.models.auction.instance import Cluster, FloatArray, Horizon, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class NeedsTable(ComparesByValue):
    """What `AppProfile` with `Needs` holds, one row an app, for apps of one gang each that bid for GPUs of one type.

    Parameters
    ----------
    elapsed_min, active_apps, work_min, longest_min, demand, gang
        As in profiles, shape (apps,).
    total_work_min, total_longest_min, total_demand
        As in `Needs`, shape (apps,).
    slowdown
        Worst slowdown within a slot, machine, rack, and the cluster, shape (apps, 4).
    ideal
        Reading of the ideal time.
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
        """Return rho of each app if it holds so many GPUs for ever, at least one, in a locality."""
        slow = self.slowdown[np.arange(len(self)), level]
        left = np.maximum(self.work_min * slow / np.minimum(gpus, self.demand), self.longest_min)
        return np.asarray((self.elapsed_min + left) / self.ideal_minutes(cluster_gpus))

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
        """Return what `bid_table` does for some apps, bids being valued as held for ever.

        Parameters
        ----------
        who
            Rows of the apps.
        cluster, lease_min
            The offer.
        held, held_level
            GPUs that each app holds and their locality, shape (apps,).
        profile_of
            Returns the profile of an app that holds GPUs, with where they are; of others it isn't asked for.
        """
        ideal = self.ideal_minutes(cluster.num_gpus)[who]
        limits = most_gpus_by_locality(cluster)
        levels, room = np.array(list(limits), np.int64), np.array(list(limits.values()), np.int64)
        held, within, demand = held[who], self.slowdown[who], self.demand[who]
        elapsed, work, longest = self.elapsed_min[who], self.work_min[who], self.longest_min[who]
        most, gang = np.minimum(cluster.num_free, demand - held), self.gang[who]
        gpus = gang[:, None] * np.arange(1, max(0, int((most // gang).max(initial=0))) + 1)
        farthest = within[:, max(limits)]
        slow = np.where((held > 0)[:, None], farthest[:, None], within[:, levels])
        speed = np.minimum(gpus + held[:, None], demand[:, None])
        left = np.maximum((work[:, None] * slow)[:, None, :] / speed[:, :, None], longest[:, None, None])
        is_offered = (gpus <= most[:, None])[:, :, None] & (gpus[:, :, None] <= room)
        found = (elapsed[:, None, None] + left) / ideal[:, None, None]
        value = np.where(is_offered, found, np.inf)
        worst = np.where(is_offered, found, 0.0).reshape(len(who), -1).max(axis=1, initial=0.0)
        near = within[np.arange(len(who)), held_level[who]]
        stays = np.maximum(work * near / np.minimum(np.maximum(1, held), demand), longest)
        empty = np.where(held > 0, (elapsed + stays) / ideal, lease_min / ideal + np.where(worst > 0, worst, 1.0))
        app, row, column = np.nonzero(is_undominated(value, empty))
        first = np.searchsorted(app, np.arange(len(who) + 1)).tolist()
        size, level, rho = gpus[app, row], levels[column], value[app, row, column]
        named: dict[int, tuple[NamedRow, ...]] = {}
        beside = Beside(cluster, lease_min=lease_min, horizon=Horizon.HOLD)
        for i in np.flatnonzero((held > 0) & (near < farthest)).tolist():
            part = slice(first[i], first[i + 1])
            classes = tuple(zip(size[part].tolist(), level[part].tolist(), rho[part].tolist(), strict=True))
            numbers = gpus[i][gpus[i] <= most[i]].tolist()
            named[i] = beside.rows(profile_of(int(who[i])), numbers, classes, float(empty[i]))
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
