"""The two sides of an auction: agents that bid for apps, and the arbiter that allocates and charges.

Calls between the three sides (Mahajan et al., NSDI 2020, section 6): the arbiter asks an agent for its fairness
(`rho`), shows it what is on offer and collects its bids (`bid`), and tells it what it won (`win`); the agent asks
the app's scheduler for its jobs (`jobs`). The offer is shown to many apps at once (optimistic); a grant is
disjoint from all others (pessimistic).
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
        self._profile = with_allocation(self._profile, cluster, places)

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
        profile, work_share = self._profile, 1.0
        if self._scheduler is None and profile.held_gpus:
            remaining_min = remaining_minutes(profile, profile.held_gpus, profile.slowdown.at(profile.held_locality))
            work_share = min(1.0, max(1.0 - minutes / remaining_min, MIN_LEFT_MIN / remaining_min))
        self._profile = profile.aged(minutes, active_apps * minutes, work_share)

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
        """Keep the grant: what the app may use."""
        self.grants.append(grant)


MIN_LEFT_MIN = 1e-3
"""Minutes of work that an app keeps while it takes part."""


class Ledger:
    """GPUs still to be given: a grant takes them out, so that no two grants overlap.

    Parameters
    ----------
    free
        GPUs on offer by slot.
    """

    def __init__(self, free: IntArray) -> None:
        self._num_free = free.astype(int).tolist()

    @property
    def left(self) -> tuple[int, ...]:
        """GPUs not granted yet, by slot."""
        return tuple(self._num_free)

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
    """Agents, in their order; this one asks each of them.

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
        """Names of all, unique."""
        return [agent.name for agent in self._agents]

    @property
    def gangs(self) -> IntArray:
        """What the GPUs of each come in."""
        return np.array([agent.gang for agent in self._agents], np.int64)

    def wanted(self) -> IntArray:
        """Return how many GPUs each can use beside those it holds."""
        return np.array([agent.wanted() for agent in self._agents], np.int64)

    def rho(self, cluster: Cluster) -> FloatArray:
        """Return the present finish-time fairness of each."""
        return np.array([agent.rho(cluster) for agent in self._agents], np.float64)

    def bids(self, who: Sequence[int], offer: Offer) -> list[Bid]:
        """Return the bids of some on an offer."""
        return [self[i].bid(offer) for i in who]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArbiterOptions:
    """How auctions are held.

    Parameters
    ----------
    fairness
        f in [0, 1]: the 1 - f of the apps with the worst rho may bid (at least one); 0 for all, 1 for the worst only.
    lease_min, horizon
        Length of leases, and how bids are to be valued.
    empty_value
        What an app without GPUs is worth; a lottery is truthful only where that is nothing.
    solver, solver_options
        Who solves the auction; the payment rule is one of the options.
    time_limit_s
        Wall-clock limit of each auction; none by default, for what a clock cuts short can't be played again.
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
    """What one auction did.

    Parameters
    ----------
    rho
        By app the fairness that it reported.
    bidders
        Apps that were shown the offer, worst first.
    solution
        The auction's solution; its instance is `instance`.
    grants
        What was granted by payment, then what was given away of the leftover.
    prepare_s, rows
        By bidder the seconds that its table took, and its rows.
    solve_s
        Seconds of solving the auction.
    idle
        GPUs that nobody wanted, by slot.
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
        """Payments whose interval leaves more than one grant open."""
        counts = self.solution.stats.counts
        return int(counts["winners"] - counts["decided_grants"])


def bidders_of(rho: Mapping[str, float], fairness: float) -> tuple[str, ...]:
    """Return the apps that may bid: the worst ``ceil((1 - f) N)``, at least one; ties by name."""
    ordered = sorted(rho, key=lambda name: (-rho[name], name))
    return tuple(ordered[: max(1, math.ceil((1 - fairness) * len(ordered) - 1e-9))]) if ordered else ()


class Arbiter:
    """Holds auctions of one cluster.

    Parameters
    ----------
    options
        How.
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
        """Hold one auction of the cluster's free GPUs; every agent hears of what it won.

        Parameters
        ----------
        cluster, agents
            What is on offer, and who may want it. Apps whose demand is met take nobody's place among the bidders.
        seed, round_number
            Every round draws its lots and its leftover anew.
        name, kind
            Of the auction, and of its GPUs where there are several types: each type has auctions of its own.
        stop
            When to stop; what the auction has by then is granted.

        Notes
        -----
        What payments leave goes at random to apps that weren't allowed to bid, then to bidders with demand left:
        a gang at a time, beside GPUs they hold where possible.
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
        """Give what is left to a group of apps, by their numbers, at random."""
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
    """Return what bidders are granted: of what their payments leave the part that they can use."""
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
    """Return the auction of the bids collected, apps in the order of the bidders."""
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
