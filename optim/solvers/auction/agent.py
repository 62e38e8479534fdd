"""The app's side of an auction: it sees the whole offer, bids a table, and can use what it is granted only.

Calls between the three sides (Mahajan et al., NSDI 2020, section 6): the arbiter asks an agent for its fairness
(`rho`), shows it what is on offer and collects its bids (`bid`), and tells it what it won (`win`); the agent asks
the app's scheduler for its jobs (`jobs`). The offer is shown to many apps at once (optimistic); a grant is
disjoint from all others (pessimistic).
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from optim.core.errors import NotAllowedError
from optim.models.auction.bid_table import BidTable, bid_table, possible_sizes, with_held
from optim.models.auction.fairness import AppProfile, Trial, ideal_minutes, remaining_minutes, shared_minutes
from optim.models.auction.instance import Cluster, Horizon, IntArray
from optim.models.auction.validation import MOST_GPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What an agent sees: all GPUs on offer, whoever else sees them too.

    Parameters
    ----------
    cluster
        The cluster; its free GPUs are those on offer.
    lease_min, horizon
        For how long they are granted, and how bids are to be valued.
    kind
        Type of the GPUs on offer; empty where there is one.
    """

    cluster: Cluster
    lease_min: float
    horizon: Horizon = Horizon.HOLD
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What an app may use: (slot, count) entries that no other grant of the auction holds."""

    app: str
    entries: tuple[tuple[int, int], ...]
    lease_min: float

    @property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return sum(count for _, count in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A bid table with what it took to make it.

    Parameters
    ----------
    table
        The bids.
    gang
        What bundles come in multiples of.
    elapsed_min, work_min
        The terms of rho.
    prepare_s
        Seconds that the table took.
    sizes
        Numbers of GPUs that the app can use where these aren't all multiples of its gang; empty otherwise.
    """

    table: BidTable
    gang: int
    elapsed_min: float
    work_min: float
    prepare_s: float
    sizes: tuple[int, ...] = ()

    def usable(self, gpus: int) -> int:
        """Return how many of so many GPUs the app can use."""
        if not self.sizes:
            return gpus // self.gang * self.gang
        return max((size for size in self.sizes if size <= gpus), default=0)


class AppScheduler(Protocol):
    """The tuner that an app brings along (Hyperband, say)."""

    def jobs(self) -> tuple[Trial, ...]:
        """Return the live trials with the work that each is expected to do still."""
        ...


class Agent(Protocol):
    """One app, as the arbiter knows it."""

    name: str

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """(slot, GPUs) that it holds under leases that go on."""
        ...

    @property
    def gang(self) -> int:
        """What its GPUs come in: the least that helps it."""
        ...

    def wanted(self) -> int:
        """Return how many GPUs it can use beside those it holds."""
        ...

    def rho(self, cluster: Cluster) -> float:
        """Return the present finish-time fairness, with what the app holds now."""
        ...

    def bid(self, offer: Offer) -> Bid:
        """Return bids on an offer."""
        ...

    def win(self, grant: Grant) -> None:
        """Take note of a grant."""
        ...


class ProfileAgent:
    """An agent that bids what its profile says, with the trials that its scheduler reports.

    Parameters
    ----------
    name
        Name of the app.
    profile
        What the app knows of itself when it is submitted, or whenever the simulation begins.
    scheduler
        Where live trials come from; None for those of the profile.
    """

    def __init__(self, name: str, profile: AppProfile, scheduler: AppScheduler | None = None) -> None:
        self.name = name
        self._profile, self._scheduler = profile, scheduler
        self.grants: list[Grant] = []

    @property
    def profile(self) -> AppProfile:
        """The profile with the trials that live now."""
        return self._profile if self._scheduler is None else replace(self._profile, trials=self._scheduler.jobs())

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """(slot, GPUs) that it holds."""
        return self._profile.held_places

    @property
    def gang(self) -> int:
        """The least that helps it."""
        return min(self._profile.gangs, default=self._profile.gang)

    def wanted(self) -> int:
        """Return its demand less what it holds."""
        profile = self.profile
        return max(0, profile.demand - profile.held_gpus)

    def hold(self, cluster: Cluster, places: Iterable[tuple[int, int]]) -> None:
        """Take note of the GPUs that it holds from now on: grants that began, less leases that ended."""
        self._profile = with_held(self._profile, cluster, places)

    def advance(self, minutes: float, active_apps: float) -> None:
        """Let time pass: the app grows older, its average number of rivals follows, and what it holds does work.

        Parameters
        ----------
        minutes
            How long.
        active_apps
            Apps that were active meanwhile, this one included.

        Notes
        -----
        Trials go on in proportion to their work, so that all of them end when the app does (`remaining_minutes`); a
        scheduler's trials are its own matter. An app never ends here: at least a thousandth of a minute is left.
        """
        profile = self._profile
        elapsed = profile.elapsed_min + minutes
        average = (
            (profile.active_apps * profile.elapsed_min + active_apps * minutes) / elapsed if elapsed else active_apps
        )
        trials = profile.trials
        if self._scheduler is None and profile.held_gpus:
            left = remaining_minutes(profile, profile.held_gpus, profile.slowdown.at(profile.held_locality))
            keep = max(1.0 - minutes / left, LEAST_LEFT_MIN / left)
            trials = tuple(replace(trial, work_min=trial.work_min * min(1.0, keep)) for trial in trials)
        self._profile = replace(profile, elapsed_min=elapsed, active_apps=max(1.0, average), trials=trials)

    def rho(self, cluster: Cluster) -> float:
        """Return rho with the GPUs held; without any, with one gang, so that apps without can be told apart."""
        profile = self.profile
        gpus = 0 if profile.held_gpus else self.gang
        minutes = shared_minutes(
            profile,
            gpus,
            profile.held_locality,
            horizon=Horizon.HOLD,
            lease_min=1.0,
            cluster_gpus=cluster.num_gpus,
        )
        return minutes / ideal_minutes(profile, cluster.num_gpus)

    def bid(self, offer: Offer) -> Bid:
        """Value every number and locality on offer."""
        begun = time.perf_counter()
        profile = self.profile
        table = bid_table(profile, offer.cluster, lease_min=offer.lease_min, horizon=offer.horizon)
        most = min(MOST_GPUS, offer.cluster.num_free)
        return Bid(
            table=table,
            gang=profile.gang,
            elapsed_min=profile.elapsed_min,
            work_min=profile.work_min,
            prepare_s=time.perf_counter() - begun,
            sizes=tuple(possible_sizes(profile.gangs, most)),
        )

    def win(self, grant: Grant) -> None:
        """Keep the grant: what the app may use."""
        self.grants.append(grant)


LEAST_LEFT_MIN = 1e-3
"""Minutes of work that an app keeps while it takes part."""


class Ledger:
    """GPUs still to be given: a grant takes them out, so that no two grants overlap.

    Parameters
    ----------
    free
        GPUs on offer by slot.
    """

    def __init__(self, free: IntArray) -> None:
        self._left = free.astype(int).tolist()

    @property
    def left(self) -> tuple[int, ...]:
        """GPUs not granted yet, by slot."""
        return tuple(self._left)

    def grant(self, app: str, entries: tuple[tuple[int, int], ...], lease_min: float) -> Grant:
        """Take GPUs out and return the grant.

        Raises
        ------
        NotAllowedError
            If some of them are granted already, or were never on offer; nothing is taken then.
        """
        wanted: dict[int, int] = {}
        for slot, count in entries:
            wanted[slot] = wanted.get(slot, 0) + count
        for slot, count in wanted.items():
            if not (0 <= slot < len(self._left) and 0 < count <= self._left[slot]):
                left = self._left[slot] if 0 <= slot < len(self._left) else 0
                raise NotAllowedError(
                    f"{count} GPUs of slot {slot} can't be granted to {app!r}: {left} are left; grant fewer"
                )
        for slot, count in wanted.items():
            self._left[slot] -= count
        return Grant(app=app, entries=tuple(sorted(wanted.items())), lease_min=lease_min)
