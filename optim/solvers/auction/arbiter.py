"""The cluster's side of an auction: who may bid, what each wins and pays, and who gets what is left over."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.solution import Solution
from optim.core.stopping import StoppingCriterion
from optim.models.auction.instance import (
    Apps,
    AuctionInstance,
    Bids,
    Cluster,
    EmptyValue,
    Horizon,
    IntArray,
    Locality,
    as_floats,
    as_ints,
)
from optim.models.auction.payment import keep_best, share_leftover
from optim.models.auction.plan import AuctionPlan
from optim.solvers.auction.agent import Agent, Bid, Grant, Ledger, Offer
from optim.solvers.auction.crowd import Crowd
from optim.solvers.solve import solve


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
        crowd: Crowd[Agent] = agents if isinstance(agents, Crowd) else Crowd(agents)
        names, wanted = list(crowd.names), crowd.wanted()
        number_of = {app: i for i, app in enumerate(names)}
        rho = dict(zip(names, crowd.rho(cluster).tolist(), strict=True))
        bidders = bidders_of({names[i]: rho[names[i]] for i in np.flatnonzero(wanted > 0).tolist()}, options.fairness)
        offer = Offer(cluster=cluster, lease_min=options.lease_min, horizon=options.horizon, kind=kind)
        bids = dict(zip(bidders, crowd.bids([number_of[app] for app in bidders], offer), strict=True))
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
            grants += self._give_away(cluster, ledger, (crowd, group), wanted, grants, rng)
        for grant in grants:
            crowd[number_of[grant.app]].win(grant)
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
        among: tuple[Crowd[Agent], Sequence[int]],
        wanted: IntArray,
        grants: Sequence[Grant],
        rng: np.random.Generator,
    ) -> list[Grant]:
        """Give what is left to a group of apps, by their numbers, at random."""
        crowd, group = among
        if not group or not any(ledger.left):
            return []
        won, names = {grant.app: grant for grant in grants}, crowd.names
        wins = [won[names[i]].num_gpus if names[i] in won else 0 for i in group]
        given = share_leftover(
            cluster,
            np.array(ledger.left, dtype=np.int64),
            wanted[group] - wins,
            crowd.gangs[group],
            _Homes(cluster, crowd, group, won),
            rng,
        )
        return [
            ledger.grant(names[group[k]], _entries(given, k), self.options.lease_min)
            for k in np.unique(given[:, 0]).tolist()
        ]


class _Homes(Sequence[Sequence[int]]):
    """Machines where each of a group of apps holds GPUs or won some, found out when asked for."""

    def __init__(self, cluster: Cluster, crowd: Crowd[Agent], group: Sequence[int], won: Mapping[str, Grant]) -> None:
        self._cluster, self._crowd, self._group, self._won = cluster, crowd, group, won

    def __len__(self) -> int:
        return len(self._group)

    @overload
    def __getitem__(self, k: int) -> Sequence[int]: ...

    @overload
    def __getitem__(self, k: slice) -> Sequence[Sequence[int]]: ...

    def __getitem__(self, k: int | slice) -> Sequence[int] | Sequence[Sequence[int]]:
        if isinstance(k, slice):
            return [self[position] for position in range(*k.indices(len(self)))]
        agent = self._crowd[self._group[k]]
        places = (*agent.places, *(self._won[agent.name].entries if agent.name in self._won else ()))
        return sorted({int(self._cluster.slot_machine[slot]) for slot, _ in places})


def _paid_grants(
    cluster: Cluster, plan: AuctionPlan, bids: Mapping[str, Bid], ledger: Ledger, lease_min: float
) -> list[Grant]:
    """Return what bidders are granted: of what their payments leave the part that they can use."""
    grants = []
    apps = list(bids)
    for i in np.unique(plan.grants[:, 0]).tolist():
        entries = _entries(plan.grants, i)
        kept = bids[apps[i]].usable(sum(count for _, count in entries))
        if kept:
            grants.append(ledger.grant(apps[i], tuple(keep_best(cluster, entries, kept)), lease_min))
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
