"""Agents of the apps of a simulated cluster, individually and as arrays."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from optim.core.arrays import BoolArray, FloatArray, IntArray
from optim.models.auction.bids import NeedsTable, bid_table, possible_sizes, smallest_subtree, with_allocation
from optim.models.auction.data import Cluster as Offered
from optim.models.auction.data import Horizon, Slowdown
from optim.models.auction.fairness import AppProfile, IdealTime, Needs, ideal_minutes, shared_minutes
from optim.models.cluster.workload import PPM, US
from optim.simulation.cluster.planning.policy import View
from optim.solvers.auction.mechanism import AgentGroup, Bid, Grant, Offer

MINUTE_US = 60 * US

MIN_LEFT_MIN = 1e-6
"""Minimum remaining work of a live app in minutes, so that an app that ends within the microsecond still counts."""


@dataclass(slots=True)
class Totals:
    """Totals of an app's submitted jobs: work in GPU-minutes, longest job and GPUs.

    `area_us` is the integral, over time, of the number of active apps up to the app's first submission. `within` has the
    maximum slowdowns of jobs whose GPUs are within a slot, a machine, a rack, and the cluster.
    """

    first_us: int
    area_us: float
    work_min: float = 0.0
    longest_min: float = 0.0
    demand: int = 0
    slowdown: Slowdown = field(default_factory=Slowdown)
    within: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    jobs: list[int] = field(default_factory=list)


class AppTracker:
    """Track the number of active apps over time, and the totals of each app."""

    def __init__(self) -> None:
        self.totals: dict[int, Totals] = {}
        self._known_jobs = 0
        self._area, self._since, self._active = 0.0, 0, 0

    def update(self, view: View, remaining_us: IntArray, num_active: int) -> None:
        """Advance to the present, and add the jobs submitted since the last update."""
        self._area += self._active * (view.now_us - self._since)
        self._since, self._active = view.now_us, num_active
        for job in range(self._known_jobs, len(view.submit_us)):
            app = int(view.app[job])
            if app not in self.totals:
                slowdown = _slowdown(view, job)
                within = tuple(slowdown.within(level) for level in range(4))
                self.totals[app] = Totals(int(view.submit_us[job]), self._area, slowdown=slowdown, within=within)
            found = self.totals[app]
            minutes, gang = float(remaining_us[job]) / MINUTE_US, int(view.gpus[job])
            found.work_min += minutes * gang
            found.longest_min = max(found.longest_min, minutes)
            found.demand += gang
            found.jobs.append(job)
        self._known_jobs = len(view.submit_us)

    def mean_apps(self, app: int, now_us: int) -> float:
        """Return the average number of active apps over an app's life so far."""
        known = self.totals[app]
        elapsed = now_us - known.first_us
        return max(1.0, (self._area - known.area_us) / elapsed if elapsed else float(self._active))

    def mean_apps_each(self, totals: Sequence[Totals], now_us: int) -> FloatArray:
        """Return `mean_apps` of many apps, given their totals."""
        elapsed = now_us - np.array([each.first_us for each in totals])
        area = self._area - np.array([each.area_us for each in totals])
        mean = np.divide(area, elapsed, out=np.full(len(totals), float(self._active)), where=elapsed > 0)
        return np.asarray(np.maximum(1.0, mean))


def _slowdown(view: View, job: int) -> Slowdown:
    """Return the slowdown by locality that an app has by one of its jobs; a job of one GPU is never slowed down."""
    if view.gpus[job] == 1:
        return Slowdown()
    machine, rack, cluster = (max(1.0, value / PPM) for value in view.slowdown_ppm[job].tolist())
    return Slowdown(slot=machine, machine=machine, rack=rack, cluster=cluster)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActiveApps:
    """The live jobs of all apps, one row per app.

    Parameters
    ----------
    apps
        Numbers of the apps with live jobs, ascending.
    work_min, longest_min, demand, gang
        For each app: remaining work in GPU-minutes, remaining minutes of its longest job, total GPUs, and greatest common
        divisor of its gangs.
    is_mixed
        Whether the jobs of each app have different gangs.
    asking
        Numbers of the jobs that determine `gang`: of each app the jobs that aren't paused, or all jobs if all are
        paused.
    """

    apps: IntArray
    work_min: FloatArray
    longest_min: FloatArray
    demand: IntArray
    gang: IntArray
    is_mixed: IntArray
    asking: IntArray


def live_apps(view: View, jobs: IntArray, remaining_us: IntArray, is_paused: BoolArray) -> ActiveApps:
    """Sum live jobs by app; paused jobs add work but no demand."""
    app = view.app[jobs]
    is_there = np.bincount(app) > 0
    apps, row = np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[app]
    minutes, gangs = remaining_us[jobs] / MINUTE_US, view.gpus[jobs]
    longest, common = np.zeros(len(apps)), np.zeros(len(apps), np.int64)
    np.maximum.at(longest, row, minutes)
    is_asking = ~is_paused | (np.bincount(row, ~is_paused, len(apps)) == 0)[row]
    np.gcd.at(common, row[is_asking], gangs[is_asking])
    most = np.zeros(len(apps), np.int64)
    np.maximum.at(most, row[is_asking], gangs[is_asking])
    return ActiveApps(
        apps=apps,
        work_min=np.bincount(row, minutes * gangs, len(apps)).astype(np.float64),
        longest_min=longest,
        demand=np.maximum(common, np.bincount(row, np.where(is_paused, 0, gangs), len(apps)).astype(np.int64)),
        gang=common,
        is_mixed=np.asarray(common < most, np.int64),
        asking=jobs[is_asking],
    )


@dataclass(frozen=True, slots=True)
class OtherTypeHoldings:
    """Number of an app's GPUs of types that aren't on offer, and the number of GPUs of the offered type with the same speed."""

    gpus: int = 0
    speed: float = 0.0


NOTHING = OtherTypeHoldings()


class AppAgent:
    """An app's agent in one auction.

    Parameters
    ----------
    app
        Number of the app.
    profile
        Profile of the app, without the GPUs it holds.
    held
        GPUs under continuing leases, as (slot, GPUs) entries.
    expiring
        GPUs whose leases have just ended, as (slot, GPUs) entries; the reported rho includes them.
    beside, expiring_beside
        GPUs of types that aren't on offer: those under continuing leases, and those whose leases have just ended.
    """

    def __init__(
        self,
        app: int,
        profile: AppProfile,
        held: tuple[tuple[int, int], ...] = (),
        expiring: tuple[tuple[int, int], ...] = (),
        beside: OtherTypeHoldings = NOTHING,
        expiring_beside: OtherTypeHoldings = NOTHING,
    ) -> None:
        self.app, self.name = app, f"a{app:06d}"
        self.profile, self.places, self.expiring = profile, held, expiring
        self.beside, self.expiring_beside = beside, expiring_beside
        self.grant: Grant | None = None

    @property
    def gang(self) -> int:
        """The smallest number of GPUs that the app can use."""
        return min(self.profile.gangs, default=self.profile.gang)

    def wanted(self) -> int:
        """Return the app's demand minus the GPUs that it holds."""
        return max(0, self.profile.demand - sum(count for _, count in self.places) - self.beside.gpus)

    def rho(self, cluster: Offered) -> float:
        """Return rho with the GPUs that the app holds, else with GPUs whose leases have just ended, else with one gang."""
        has_some = self.places or self.beside.gpus
        places, beside = (self.places, self.beside) if has_some else (self.expiring, self.expiring_beside)
        gpus = min(self.profile.demand, sum(count for _, count in places) + beside.speed) or self.gang
        level = smallest_subtree(cluster, (slot for slot, _ in places)) if len(places) > 1 else 0
        minutes = shared_minutes(
            self.profile, gpus, level, horizon=Horizon.HOLD, lease_min=1.0, cluster_gpus=cluster.num_gpus
        )
        return minutes / ideal_minutes(self.profile, cluster.num_gpus)

    def profile_with_held(self, cluster: Offered) -> AppProfile:
        """Return the app's profile, with the GPUs of the offered type that it holds."""
        return with_allocation(self.profile, cluster, self.places) if self.places else self.profile

    def bid(self, offer: Offer) -> Bid:
        """Return the app's bid: its value for every number and locality of GPUs on offer."""
        begun = time.perf_counter()
        profile = self.profile_with_held(offer.cluster)
        if self.beside.gpus:
            profile = replace(profile, other_type_gpus=self.beside.gpus, other_type_speed=self.beside.speed)
        table = bid_table(profile, offer.cluster, lease_min=offer.lease_min, horizon=offer.horizon)
        return Bid(
            table=table,
            gang=profile.gang,
            elapsed_min=profile.elapsed_min,
            work_min=profile.work_min,
            prepare_s=time.perf_counter() - begun,
            sizes=tuple(possible_sizes(profile.gangs, min(profile.demand, offer.cluster.num_free))),
        )

    def win(self, grant: Grant) -> None:
        """Store the grant; further grants of the same auction are added."""
        entries = (*(self.grant.entries if self.grant else ()), *grant.entries)
        self.grant = Grant(app=self.name, entries=entries, lease_min=grant.lease_min)


class Profiles:
    """Profiles of the live apps, without the GPUs they hold.

    Parameters
    ----------
    view, live, census, ideal
        View of the cluster, sums of the live jobs, tracker of their apps, and definition of the ideal time.
    slowness
        Slowdown of each live app on the type of GPU that is on offer.
    """

    def __init__(
        self, view: View, live: ActiveApps, census: AppTracker, ideal: IdealTime, slowness: FloatArray
    ) -> None:
        self._now_us, self._live, self._census, self._ideal = view.now_us, live, census, ideal
        self._work, self._longest = live.work_min * slowness, live.longest_min * slowness
        self._gangs: dict[int, tuple[int, ...]] = {}
        if live.is_mixed.any():
            mixed = set(live.apps[live.is_mixed > 0].tolist())
            for job in live.asking.tolist():
                app = int(view.app[job])
                if app in mixed:
                    self._gangs[app] = (*self._gangs.get(app, ()), int(view.gpus[job]))

    def of(self, row: int) -> AppProfile:
        """Return the profile of an app by its position among the live apps."""
        live, app = self._live, int(self._live.apps[row])
        totals = self._census.totals[app]
        needs = Needs(
            work_min=max(MIN_LEFT_MIN, float(self._work[row])),
            longest_min=max(MIN_LEFT_MIN, float(self._longest[row])),
            demand=int(live.demand[row]),
            total_work_min=totals.work_min,
            total_longest_min=totals.longest_min,
            total_demand=totals.demand,
        )
        return AppProfile(
            elapsed_min=(self._now_us - totals.first_us) / MINUTE_US,
            active_apps=self._census.mean_apps(app, self._now_us),
            needs=needs,
            slowdown=totals.slowdown,
            gang=int(live.gang[row]),
            gangs=self._gangs.get(app, ()),
            ideal=self._ideal,
        )


class GpuTypes:
    """GPU types of a cluster, for the jobs that are live at one instant.

    Parameters
    ----------
    view, jobs, work_us
        View of the cluster, live jobs, and remaining work of each job on its fastest type.
    """

    def __init__(self, view: View, jobs: IntArray, work_us: IntArray) -> None:
        self.of_machine = view.cluster.kind
        self.there: list[int] = np.unique(self.of_machine).tolist()
        self._is_typed = bool(view.gpu_type_slowdown_ppm.shape[1])
        if self.is_one and not self._is_typed:
            self.slowness: FloatArray = np.ones((int(view.app.max(initial=0)) + 1, max(self.there) + 1))
            return
        self._ppm = (
            view.gpu_type_slowdown_ppm
            if view.gpu_type_slowdown_ppm.shape[1]
            else np.full((len(view.app), max(self.there) + 1), PPM)
        )
        count = int(view.app.max(initial=0)) + 1
        weight = np.maximum(1, work_us[jobs]).astype(float)
        self._demand = np.bincount(view.app[jobs], view.gpus[jobs], count)
        self.slowness = np.full((count, self._ppm.shape[1]), np.inf)
        for kind in self.there:
            can = self._ppm[jobs, kind] > 0
            whole = np.bincount(view.app[jobs][can], weight[can], count)
            slow = np.bincount(view.app[jobs][can], weight[can] * self._ppm[jobs[can], kind] / PPM, count)
            np.divide(slow, whole, out=self.slowness[:, kind], where=whole > 0)

    @property
    def is_one(self) -> bool:
        """Whether the cluster has a single type."""
        return len(self.there) == 1

    def by_speed(self, apps: Iterable[int]) -> list[int]:
        """Return the GPU types by their mean speed for some apps, fastest first; ties go to the lower number."""
        if self.is_one:
            return self.there
        speed = (1 / self.slowness[list(apps)]).mean(axis=0)
        return sorted(self.there, key=lambda kind: (-float(speed[kind]), kind))

    def usable(self, jobs: IntArray, kind: int) -> IntArray:
        """Return the jobs that can run on a type."""
        if self.is_one and not self._is_typed:
            return jobs
        return np.asarray(jobs[self._ppm[jobs, kind] > 0])

    def beside(self, app: int, places: Iterable[tuple[int, int]], kind: int, demand: int) -> OtherTypeHoldings:
        """Return the number of an app's GPUs of other types than `kind`, and the equivalent number of GPUs of type `kind`.

        `places` has the app's GPUs as (machine, GPUs) entries. `demand` is the number of GPUs that the app's jobs can use on
        type `kind`. The GPUs of other types serve first the jobs that can't run on `kind`; only the rest counts.
        """
        gpus, speed = 0, 0.0
        for machine, count in places:
            slow = float(self.slowness[app, self.of_machine[machine]])
            if self.of_machine[machine] != kind and np.isfinite(slow):
                gpus += count
                speed += count * float(self.slowness[app, kind]) / slow
        kept = max(0, gpus - (int(self._demand[app]) - demand))
        return OtherTypeHoldings(kept, speed * kept / gpus) if kept else NOTHING

    def own(self, places: Iterable[tuple[int, int]], kind: int) -> tuple[tuple[int, int], ...]:
        """Return the (machine, GPUs) entries of one GPU type."""
        return tuple(entry for entry in places if self.of_machine[entry[0]] == kind)


class AgentBatch(AgentGroup[AppAgent]):
    """Agents of apps whose jobs have gangs of one size, on one GPU type; the results equal those of `AppAgent`.

    Parameters
    ----------
    live, census, now_us, ideal, slowness
        See `Profiles`.
    held, expiring
        Numbers of GPUs under continuing leases, and of GPUs whose leases have just ended; shape (apps, machines) each.
    agent_of
        Function that returns the agent of an app by its position.
    """

    def __init__(
        self,
        live: ActiveApps,
        census: AppTracker,
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
            work_min=np.maximum(MIN_LEFT_MIN, live.work_min * slowness),
            longest_min=np.maximum(MIN_LEFT_MIN, live.longest_min * slowness),
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
        """The agents created so far; only these can have won GPUs."""
        return list(self._made.values())

    @property
    def names(self) -> Sequence[str]:
        """Names of all apps."""
        return self._names

    @property
    def gangs(self) -> IntArray:
        """The gang of each app."""
        return self._needs.gang

    def wanted(self) -> IntArray:
        """Return the demand of each app minus the GPUs that it holds."""
        return np.asarray(np.maximum(0, self._needs.demand - self._held.sum(axis=1)))

    def rho(self, cluster: Offered) -> FloatArray:
        """Return `AppAgent.rho` of each app."""
        has_some = self._held.sum(axis=1) > 0
        places = np.where(has_some[:, None], self._held, self._expiring)
        gpus = np.minimum(self._needs.demand, places.sum(axis=1))
        gpus = np.where(gpus > 0, gpus, self._needs.gang)
        return self._needs.rho(gpus, _levels(cluster, places), cluster.num_gpus)

    def bids(self, who: Sequence[int], offer: Offer) -> list[Bid]:
        """Return the bids of some apps: their values for every number and locality of GPUs on offer."""
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
        """Return the profile of an app with the GPUs that it holds."""
        return self[index].profile_with_held(cluster)


def _levels(cluster: Offered, counts: IntArray) -> IntArray:
    """Return each app's locality: the level of the smallest subtree that contains its GPUs; machines have one slot."""
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
    """Return the number of GPUs of each listed app on each machine; shape (apps, machines)."""
    counts = np.zeros((len(apps), num_machines), np.int64)
    row_of = {app: row for row, app in enumerate(apps.tolist())}
    for app, gpus in gpus_of.items():
        if app in row_of:
            row = counts[row_of[app]]
            for gpu in gpus:
                row[machine_of[gpu]] += 1
    return counts
