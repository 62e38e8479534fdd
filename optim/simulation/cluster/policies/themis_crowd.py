"""The agents of all live apps as arrays: what each reports and bids is worked out for all at once."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import overload

import numpy as np

from optim.models.auction.fairness import AppProfile, IdealTime
from optim.models.auction.instance import Cluster as Offered
from optim.models.auction.instance import Horizon
from optim.models.auction.needs_table import NeedsTable
from optim.models.cluster.world import FloatArray, IntArray
from optim.simulation.cluster.policies.themis_apps import LEAST_LEFT_MIN, MINUTE_US, AppAgent, Census, Live
from optim.solvers.auction.agent import Bid, Offer
from optim.solvers.auction.crowd import Crowd


class AppCrowd(Crowd[AppAgent]):
    """The agents of apps that have one gang each, where there is one type of GPU; they say what `AppAgent` would.

    Parameters
    ----------
    live, census, now_us, ideal, slowness
        As in `Profiles`.
    held, expiring
        GPUs under leases that go on, and under those that have just ended, by app and machine.
    agent_of
        Returns the agent of an app by its position.
    """

    def __init__(
        self,
        live: Live,
        census: Census,
        now_us: int,
        ideal: IdealTime,
        slowness: FloatArray,
        held: IntArray,
        expiring: IntArray,
        agent_of: Callable[[int], AppAgent],
    ) -> None:
        self.apps: list[int] = live.apps.tolist()
        totals = [census.totals[app] for app in self.apps]
        self._needs = NeedsTable(
            elapsed_min=(now_us - np.array([each.first_us for each in totals])) / MINUTE_US,
            active_apps=census.mean_apps_each(totals, now_us),
            work_min=np.maximum(LEAST_LEFT_MIN, live.work_min * slowness),
            longest_min=np.maximum(LEAST_LEFT_MIN, live.longest_min * slowness),
            demand=live.demand,
            gang=live.gang,
            total_work_min=np.array([each.work_min for each in totals]),
            total_longest_min=np.array([each.longest_min for each in totals]),
            total_demand=np.array([each.demand for each in totals], np.int64),
            slowdown=np.array([each.within for each in totals]).reshape(-1, 4),
            ideal=ideal,
        )
        self._held, self._expiring, self._agent_of = held, expiring, agent_of
        self._made: dict[int, AppAgent] = {}
        self._names = [f"a{app:06d}" for app in self.apps]

    def __len__(self) -> int:
        return len(self.apps)

    @overload
    def __getitem__(self, index: int) -> AppAgent: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[AppAgent]: ...

    def __getitem__(self, index: int | slice) -> AppAgent | Sequence[AppAgent]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        if index not in self._made:
            self._made[index] = self._agent_of(index)
        return self._made[index]

    @property
    def made(self) -> Sequence[AppAgent]:
        """The agents that were asked for so far: all that can have won anything."""
        return list(self._made.values())

    @property
    def names(self) -> Sequence[str]:
        """Names of all."""
        return self._names

    @property
    def gangs(self) -> IntArray:
        """The gang of each."""
        return self._needs.gang

    def wanted(self) -> IntArray:
        """Return the demand of each less what it holds."""
        return np.asarray(np.maximum(0, self._needs.demand - self._held.sum(axis=1)))

    def rho(self, cluster: Offered) -> FloatArray:
        """Return rho of each with what it holds, or held until now; without any, with one gang."""
        has_some = self._held.sum(axis=1) > 0
        places = np.where(has_some[:, None], self._held, self._expiring)
        gpus = np.minimum(self._needs.demand, places.sum(axis=1))
        gpus = np.where(gpus > 0, gpus, self._needs.gang)
        return self._needs.rho(gpus, _levels(cluster, places), cluster.num_gpus)

    def bids(self, who: Sequence[int], offer: Offer) -> list[Bid]:
        """Value every number and locality on offer."""
        if offer.horizon is not Horizon.HOLD:
            return super().bids(who, offer)
        begun = time.perf_counter()
        cluster, rows, needs = offer.cluster, np.array(who, np.int64), self._needs
        tables = needs.bid_tables(
            rows,
            cluster,
            lease_min=offer.lease_min,
            held=self._held.sum(axis=1),
            held_level=_levels(cluster, self._held),
            profile_of=lambda i: self._profile(i, cluster),
        )
        spent = (time.perf_counter() - begun) / max(1, len(who))
        gang, elapsed, work = (each[rows].tolist() for each in (needs.gang, needs.elapsed_min, needs.work_min))
        return [
            Bid(table=table, gang=g, elapsed_min=e, work_min=w, prepare_s=spent)
            for table, g, e, w in zip(tables, gang, elapsed, work, strict=True)
        ]

    def _profile(self, index: int, cluster: Offered) -> AppProfile:
        """Return what an app knows of itself, with the GPUs that it holds."""
        return self[index].profile_with_held(cluster)


def _levels(cluster: Offered, counts: IntArray) -> IntArray:
    """Return the locality of the smallest subtree that holds GPUs, by app and machine of one slot each."""
    is_there = counts > 0
    machines = is_there.sum(axis=1)
    if cluster.num_racks == 1:
        return np.where(machines > 1, 2, 0)
    found = np.zeros(len(counts), np.int64)
    for row in np.flatnonzero(machines > 1).tolist():
        racks = cluster.machine_rack[is_there[row]]
        found[row] = 2 if (racks == racks[0]).all() else 3
    return found


def count_gpus(
    apps: IntArray, gpus_of: Mapping[int, Iterable[int]], machine_of: Sequence[int], num_machines: int
) -> IntArray:
    """Return GPUs, given by app, by app of some and machine, shape (apps, machines)."""
    counts = np.zeros((len(apps), num_machines), np.int64)
    row_of = {app: row for row, app in enumerate(apps.tolist())}
    for app, gpus in gpus_of.items():
        if app in row_of:
            row = counts[row_of[app]]
            for gpu in gpus:
                row[machine_of[gpu]] += 1
    return counts
