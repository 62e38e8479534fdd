"""The participants of an auction: agents that bid for apps, and the arbiter that allocates and charges.

The calls are those of Mahajan et al., NSDI 2020, section 6. The arbiter asks an agent for its fairness (`rho`), shows
it the offer and collects its bids (`bid`), and reports its grant (`win`). The agent asks the app's scheduler for its
jobs (`jobs`). Many apps see the offer at once (optimistic); grants are disjoint (pessimistic).
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.errors import InvalidOptionError, NotAllowedError
from optim.core.solution import Solution
from optim.core.stopping import StoppingCriterion
from optim.models.auction.bids import BidTable, bid_table, possible_sizes, with_allocation
from optim.models.auction.data import Apps, Bids, Cluster, EmptyValue, Horizon, Locality, as_floats, as_ints
from optim.models.auction.decision import AuctionPlan
from optim.models.auction.fairness import AppProfile, Trial, ideal_minutes, remaining_minutes, shared_minutes
from optim.models.auction.instance import MAX_GPUS, AuctionInstance
from optim.models.auction.payment import keep_best, share_leftover
from optim.solvers.solve import solve


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The offer to an agent: all free GPUs, which other agents may see as well.

    Parameters
    ----------
    cluster
        The cluster; its free GPUs are on offer.
    lease_min, horizon
        Length of the lease in minutes, and the assumed period of a bid's allocation.
    kind
        Type of the offered GPUs; empty if there is only one.
    """

    cluster: Cluster
    lease_min: float
    horizon: Horizon = Horizon.HOLD
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """GPUs that an app may use, as (slot, count) entries; disjoint from the auction's other grants."""

    app: str
    entries: tuple[tuple[int, int], ...]
    lease_min: float

    @property
    def num_gpus(self) -> int:
        """Number of GPUs."""
        return sum(count for _, count in self.entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A bid table with its inputs and its cost.

    Parameters
    ----------
    table
        The bids.
    gang
        Gang size; the bundles are multiples of this number.
    elapsed_min, work_min
        The terms of rho.
    prepare_s
        Seconds to compute the table.
    sizes
        Numbers of GPUs that the app can use, if not all multiples of its gang; empty otherwise.
    """

    table: BidTable
    gang: int
    elapsed_min: float
    work_min: float
    prepare_s: float
    sizes: tuple[int, ...] = ()

    def usable(self, gpus: int) -> int:
        """Return how many of `gpus` GPUs the app can use."""
        if not self.sizes:
            return gpus // self.gang * self.gang
        return max((size for size in self.sizes if size <= gpus), default=0)


class AppScheduler(Protocol):
    """The app's tuner, such as Hyperband."""

    def jobs(self) -> tuple[Trial, ...]:
        """Return the live trials with the expected remaining work of each."""
        ...


class Agent(Protocol):
    """One app, as the arbiter sees it."""

    name: str

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """(slot, GPUs) pairs that the app holds under leases that continue."""
        ...

    @property
    def gang(self) -> int:
        """Gang size: the least number of GPUs that helps the app, which uses multiples of it."""
        ...

    def wanted(self) -> int:
        """Return how many GPUs the app can use in addition to those that it holds."""
        ...

    def rho(self, cluster: Cluster) -> float:
        """Return the present finish-time fairness, with the GPUs that the app holds."""
        ...

    def bid(self, offer: Offer) -> Bid:
        """Return bids on an offer."""
        ...

    def win(self, grant: Grant) -> None:
        """Accept a grant."""
        ...


class ProfileAgent:
    """An agent that bids according to its profile, with the trials that its scheduler reports.

    Parameters
    ----------
    name
        Name of the app.
    profile
        Profile of the app at its submission or at the start of the simulation.
    scheduler
        Source of the live trials; None for the profile's trials.
    """

    def __init__(self, name: str, profile: AppProfile, scheduler: AppScheduler | None = None) -> None:
        self.name = name
        self._profile, self._scheduler = profile, scheduler
        self.grants: list[Grant] = []

    @property
    def profile(self) -> AppProfile:
        """The profile with the present live trials."""
        return self._profile if self._scheduler is None else replace(self._profile, trials=self._scheduler.jobs())

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """(slot, GPUs) pairs that the app holds."""
        return self._profile.held_places

    @property
    def gang(self) -> int:
        """Gang size."""
        return min(self._profile.gangs, default=self._profile.gang)

    def wanted(self) -> int:
        """Return the app's demand minus the GPUs that it holds."""
        profile = self.profile
        return max(0, profile.demand - profile.held_gpus)

    def hold(self, cluster: Cluster, places: Iterable[tuple[int, int]]) -> None:
        """Set the GPUs that the app holds from now on: started grants, without ended leases."""
        self._profile = with_allocation(self._profile, cluster, places)

    def advance(self, minutes: float, active_apps: float) -> None:
        """Advance time: update the app's age, the average number of active apps, and the remaining work.

        Parameters
        ----------
        minutes
            Length of the time step.
        active_apps
            Number of apps active during the step, including this one.

        Notes
        -----
        Trials progress in proportion to their work, so that all of them end with the app (`remaining_minutes`); a
        scheduler manages its trials itself. An app never ends here: at least a thousandth of a minute remains.
        """
        profile, work_share = self._profile, 1.0
        if self._scheduler is None and profile.held_gpus:
            remaining_min = remaining_minutes(profile, profile.held_gpus, profile.slowdown.at(profile.held_locality))
            work_share = min(1.0, max(1.0 - minutes / remaining_min, MIN_LEFT_MIN / remaining_min))
        self._profile = profile.aged(minutes, active_apps * minutes, work_share)

    def rho(self, cluster: Cluster) -> float:
        """Return rho with the allocated GPUs, or with one gang for an app without GPUs, to make such apps comparable."""
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
        """Return bids on every number of GPUs and locality on offer."""
        begun = time.perf_counter()
        profile = self.profile
        table = bid_table(profile, offer.cluster, lease_min=offer.lease_min, horizon=offer.horizon)
        most = min(MAX_GPUS, offer.cluster.num_free)
        return Bid(
            table=table,
            gang=profile.gang,
            elapsed_min=profile.elapsed_min,
            work_min=profile.work_min,
            prepare_s=time.perf_counter() - begun,
            sizes=tuple(possible_sizes(profile.gangs, most)),
        )

    def win(self, grant: Grant) -> None:
        """Store the grant."""
        self.grants.append(grant)


MIN_LEFT_MIN = 1e-3
"""Minimal remaining minutes of an app while it participates."""


class Ledger:
    """The GPUs that aren't granted yet: each grant is removed, so that no two grants overlap.

    Parameters
    ----------
    free
        GPUs on offer by slot.
    """

    def __init__(self, free: IntArray) -> None:
        self._num_free = free.astype(int).tolist()

    @property
    def left(self) -> tuple[int, ...]:
        """Ungranted GPUs, by slot."""
        return tuple(self._num_free)

    def grant(self, app: str, entries: tuple[tuple[int, int], ...], lease_min: float) -> Grant:
        """Remove GPUs and return the grant.

        Raises
        ------
        NotAllowedError
            If some of the GPUs are granted already, or were never on offer; no GPUs are removed then.
        """
        wanted: dict[int, int] = {}
        for slot, count in entries:
            wanted[slot] = wanted.get(slot, 0) + count
        for slot, count in wanted.items():
            if not (0 <= slot < len(self._num_free) and 0 < count <= self._num_free[slot]):
                num_free = self._num_free[slot] if 0 <= slot < len(self._num_free) else 0
                raise NotAllowedError(
                    f"{count} GPUs of slot {slot} can't be granted to {app!r}: {num_free} are left; grant fewer"
                )
        for slot, count in wanted.items():
            self._num_free[slot] -= count
        return Grant(app=app, entries=tuple(sorted(wanted.items())), lease_min=lease_min)


AgentT = TypeVar("AgentT", bound=Agent)


class AgentGroup(Sequence[AgentT], Generic[AgentT]):
    """A sequence of agents; this implementation calls each of them.

    Parameters
    ----------
    agents
        The agents.
    """

    def __init__(self, agents: Sequence[AgentT]) -> None:
        self._agents = agents

    def __len__(self) -> int:
        return len(self._agents)

    @overload
    def __getitem__(self, index: int) -> AgentT: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[AgentT]: ...

    def __getitem__(self, index: int | slice) -> AgentT | Sequence[AgentT]:
        return self._agents[index]

    @property
    def names(self) -> Sequence[str]:
        """Name of each agent, unique."""
        return [agent.name for agent in self._agents]

    @property
    def gangs(self) -> IntArray:
        """Gang size of each agent."""
        return np.array([agent.gang for agent in self._agents], np.int64)

    def wanted(self) -> IntArray:
        """Return how many GPUs each agent can use in addition to those that it holds."""
        return np.array([agent.wanted() for agent in self._agents], np.int64)

    def rho(self, cluster: Cluster) -> FloatArray:
        """Return the present finish-time fairness of each agent."""
        return np.array([agent.rho(cluster) for agent in self._agents], np.float64)

    def bids(self, who: Sequence[int], offer: Offer) -> list[Bid]:
        """Return the bids of some agents on an offer."""
        return [self[i].bid(offer) for i in who]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbiterOptions:
    """Settings of the auctions.

    Parameters
    ----------
    fairness
        f in [0, 1]: the share 1 - f of the apps, those with the worst rho, may bid; at 0 all, at 1 only the worst app.
    lease_min, horizon
        Length of leases in minutes, and the assumed period of a bid's allocation.
    empty_value
        Value of an app without GPUs; a lottery is truthful only if this value is 0.
    solver, solver_options
        Solver of the auction and its options, which include the payment rule.
    time_limit_s
        Wall-clock limit of each auction. Default: none, since runs that a clock cuts short can't be reproduced.
    """

    fairness: float = 0.8
    lease_min: float = 20.0
    horizon: Horizon = Horizon.HOLD
    empty_value: EmptyValue = EmptyValue.POSITIVE
    solver: str = "exact"
    solver_options: Mapping[str, Any] = field(default_factory=dict)
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.fairness <= 1:
            raise InvalidOptionError(f"fairness must be in [0, 1], got {self.fairness}")
        if not 0 < self.lease_min < math.inf:
            raise InvalidOptionError(f"lease_min must be positive, got {self.lease_min}")
        if self.time_limit_s is not None and not self.time_limit_s >= 0:
            raise InvalidOptionError(f"time_limit_s must be at least 0, got {self.time_limit_s}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """Result of one auction.

    Parameters
    ----------
    rho
        Fairness reported by each app.
    bidders
        Apps that saw the offer, worst rho first.
    solution
        The auction's solution; its instance is `instance`.
    grants
        Grants by payment, then grants of the leftover.
    prepare_s, rows
        By bidder: seconds to compute the bid table, and its number of rows.
    solve_s
        Seconds to solve the auction.
    idle
        GPUs that no app wanted, by slot.
    """

    rho: Mapping[str, float]
    bidders: tuple[str, ...]
    instance: AuctionInstance
    solution: Solution
    grants: tuple[Grant, ...]
    prepare_s: Mapping[str, float]
    rows: Mapping[str, int]
    solve_s: float
    idle: tuple[int, ...]

    @property
    def undecided(self) -> int:
        """Number of payments whose interval allows more than one grant."""
        counts = self.solution.stats.counts
        return int(counts["winners"] - counts["decided_grants"])


def bidders_of(rho: Mapping[str, float], fairness: float) -> tuple[str, ...]:
    """Return the apps that may bid: the worst ``ceil((1 - f) N)``, at least one; ties by name."""
    ordered = sorted(rho, key=lambda name: (-rho[name], name))
    return tuple(ordered[: max(1, math.ceil((1 - fairness) * len(ordered) - 1e-9))]) if ordered else ()


class Arbiter:
    """Runs the auctions of one cluster.

    Parameters
    ----------
    options
        Settings of the auctions.
    """

    def __init__(self, options: ArbiterOptions | None = None) -> None:
        self.options = options or ArbiterOptions()

    def hold(
        self,
        cluster: Cluster,
        agents: Sequence[Agent],
        *,
        seed: int = 0,
        round_number: int = 0,
        name: str = "round",
        kind: str = "",
        stop: StoppingCriterion | None = None,
    ) -> Round:
        """Run one auction of the cluster's free GPUs and report to every agent its grant.

        Parameters
        ----------
        cluster, agents
            The offer and the agents. Apps whose demand is met don't count as bidders.
        seed, round_number
            Seed of the random tie-breaks and of the assignment of leftover GPUs, which differ between rounds.
        name, kind
            Name of the auction, and type of its GPUs if there are several: each type has separate auctions.
        stop
            Stopping rule; the auction grants the allocation found by then.

        Notes
        -----
        The GPUs that payments leave go at random to apps that weren't allowed to bid, then to bidders with remaining
        demand: one gang at a time, near the app's other GPUs where possible.
        """
        options = self.options
        batch: AgentGroup[Agent] = agents if isinstance(agents, AgentGroup) else AgentGroup(agents)
        names, wanted = list(batch.names), batch.wanted()
        number_of = {app: i for i, app in enumerate(names)}
        rho = dict(zip(names, batch.rho(cluster).tolist(), strict=True))
        bidders = bidders_of({names[i]: rho[names[i]] for i in np.flatnonzero(wanted > 0).tolist()}, options.fairness)
        offer = Offer(cluster=cluster, lease_min=options.lease_min, horizon=options.horizon, kind=kind)
        bids = dict(zip(bidders, batch.bids([number_of[app] for app in bidders], offer), strict=True))
        instance = _auction(name, offer, bids, options.empty_value)
        begun = time.perf_counter()
        solution = solve(
            instance,
            options.solver,
            options=options.solver_options,
            seed=int(np.random.SeedSequence([seed, round_number]).generate_state(1)[0]),
            time_limit_s=options.time_limit_s,
            stop=stop,
        )
        solve_s = time.perf_counter() - begun
        ledger = Ledger(cluster.slot_free)
        grants = _paid_grants(cluster, solution.decision, bids, ledger, options.lease_min)
        outside = [i for i, app in enumerate(names) if app not in bids]
        for number, group in enumerate((outside, [number_of[app] for app in bidders])):
            rng = np.random.default_rng([seed, round_number, number])
            grants += self._give_away(cluster, ledger, (batch, group), wanted, grants, rng)
        for grant in grants:
            batch[number_of[grant.app]].win(grant)
        return Round(
            rho=rho,
            bidders=bidders,
            instance=instance,
            solution=solution,
            grants=tuple(grants),
            prepare_s={bidder: bid.prepare_s for bidder, bid in bids.items()},
            rows={bidder: len(bid.table) for bidder, bid in bids.items()},
            solve_s=solve_s,
            idle=ledger.left,
        )

    def _give_away(
        self,
        cluster: Cluster,
        ledger: Ledger,
        among: tuple[AgentGroup[Agent], Sequence[int]],
        wanted: IntArray,
        grants: Sequence[Grant],
        rng: np.random.Generator,
    ) -> list[Grant]:
        """Assign the remaining GPUs at random to a group of apps, given by index."""
        batch, group = among
        if not group or not any(ledger.left):
            return []
        won, names = {grant.app: grant for grant in grants}, batch.names
        wins = [won[names[i]].num_gpus if names[i] in won else 0 for i in group]
        leftover = share_leftover(
            cluster,
            np.array(ledger.left, dtype=np.int64),
            wanted[group] - wins,
            batch.gangs[group],
            lambda k: _machines_of(cluster, batch[group[k]], won),
            rng,
        )
        return [
            ledger.grant(names[group[k]], _entries(leftover, k), self.options.lease_min)
            for k in np.unique(leftover[:, 0]).tolist()
        ]


def _machines_of(cluster: Cluster, agent: Agent, won: Mapping[str, Grant]) -> set[int]:
    """Return the machines where an app holds GPUs or won some."""
    places = (*agent.places, *(won[agent.name].entries if agent.name in won else ()))
    return {int(cluster.slot_machine[slot]) for slot, _ in places}


def _paid_grants(
    cluster: Cluster, plan: AuctionPlan, bids: Mapping[str, Bid], ledger: Ledger, lease_min: float
) -> list[Grant]:
    """Return the bidders' grants: the usable part of the GPUs that their payments leave them."""
    grants = []
    apps = list(bids)
    for i in np.unique(plan.grants[:, 0]).tolist():
        entries = _entries(plan.grants, i)
        num_usable = bids[apps[i]].usable(sum(count for _, count in entries))
        if num_usable:
            grants.append(ledger.grant(apps[i], tuple(keep_best(cluster, entries, num_usable)), lease_min))
    return grants


def _entries(table: "np.ndarray[Any, Any]", app: int) -> tuple[tuple[int, int], ...]:
    first, last = np.searchsorted(table[:, 0], [app, app + 1])
    return tuple((slot, count) for _, slot, count in table[first:last].tolist())


def _auction(name: str, offer: Offer, bids: Mapping[str, Bid], empty_value: EmptyValue) -> AuctionInstance:
    """Return the auction of the collected bids, apps in the order of the bidders."""
    tables = [bid.table for bid in bids.values()]
    counts = [len(table) for table in tables]
    gpus, locality, rho = [], [], []
    named: list[tuple[int, int, int]] = []
    row = 0
    for table in tables:
        gpus += [table.gpus, np.array([sum(k for _, k in machines) for machines, _ in table.named], dtype=np.int64)]
        locality += [table.locality, np.full(len(table.named), int(Locality.NAMED))]
        rho += [table.rho, np.array([value for _, value in table.named], dtype=np.float64)]
        row += len(table.gpus)
        for machines, _ in table.named:
            named += [(row, machine, count) for machine, count in machines]
            row += 1
    entries = np.array(named, dtype=np.int64).reshape(-1, 3)
    return AuctionInstance(
        name=name,
        cluster=offer.cluster,
        apps=Apps(
            ids=tuple(bids),
            empty_rho=as_floats([table.empty_rho for table in tables]),
            gang=as_ints([bid.gang for bid in bids.values()]),
            elapsed_min=as_floats([bid.elapsed_min for bid in bids.values()]),
            work_min=as_floats([bid.work_min for bid in bids.values()]),
            ideal_min=as_floats([table.ideal_min for table in tables]),
        ),
        bids=Bids(
            app=as_ints(np.repeat(np.arange(len(tables)), counts)),
            gpus=as_ints(np.concatenate([*gpus, np.zeros(0)])),
            locality=as_ints(np.concatenate([*locality, np.zeros(0)])),
            rho=as_floats(np.concatenate([*rho, np.zeros(0)])),
            named_row=as_ints(entries[:, 0]),
            named_machine=as_ints(entries[:, 1]),
            named_gpus=as_ints(entries[:, 2]),
        ),
        lease_min=offer.lease_min,
        horizon=offer.horizon,
        empty_value=empty_value,
    )
