"""The cluster's side of an auction: who may bid, what each wins and pays, and who gets what is left over."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optim.core.errors import InvalidOptionError
from optim.core.solution import Solution
from optim.models.auction.document import BidsDocument
from optim.models.auction.instance import Apps, AuctionInstance, Cluster, Horizon, Locality, as_floats, as_ints
from optim.models.auction.payment import share_leftover
from optim.models.auction.plan import AuctionPlan
from optim.models.auction.reading import NAMES, join_bids
from optim.solvers.auction.agent import Agent, Bid, Grant, Ledger, Offer
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
    solver, solver_options
        Who solves the auction; the payment rule is one of the options.
    """

    fairness: float = 0.8
    lease_min: float = 20.0
    horizon: Horizon = Horizon.HOLD
    solver: str = "exact"
    solver_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.fairness <= 1:
            raise InvalidOptionError(f"fairness must be in [0, 1], got {self.fairness}")
        if not 0 < self.lease_min < math.inf:
            raise InvalidOptionError(f"lease_min must be positive, got {self.lease_min}")


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

    def hold(self, cluster: Cluster, agents: Sequence[Agent], *, seed: int = 0, name: str = "round") -> Round:
        """Hold one auction of the cluster's free GPUs; every agent hears of what it won.

        Notes
        -----
        What payments leave goes at random to apps that weren't allowed to bid, then to bidders with demand left:
        a gang at a time, beside GPUs they hold where possible.
        """
        options = self.options
        by_name = {agent.name: agent for agent in agents}
        rho = {agent.name: agent.rho(cluster) for agent in agents}
        bidders = bidders_of(rho, options.fairness)
        offer = Offer(cluster=cluster, lease_min=options.lease_min, horizon=options.horizon)
        bids = {bidder: by_name[bidder].bid(offer) for bidder in bidders}
        instance = _auction(name, offer, bids)
        begun = time.perf_counter()
        solution = solve(instance, options.solver, options=options.solver_options, seed=seed)
        solve_s = time.perf_counter() - begun
        ledger = Ledger(cluster.slot_free)
        plan: AuctionPlan = solution.decision
        grants = [
            ledger.grant(bidders[i], _entries(plan.grants, i), options.lease_min)
            for i in np.unique(plan.grants[:, 0]).tolist()
        ]
        outside = [agent.name for agent in agents if agent.name not in bids]
        for group in (outside, list(bidders)):
            grants += self._give_away(offer, ledger, plan, bidders, group, bids, by_name, seed)
        for grant in grants:
            by_name[grant.app].win(grant)
        return Round(
            rho=rho,
            bidders=bidders,
            instance=instance,
            solution=solution,
            grants=tuple(grants),
            prepare_s={bidder: bid.prepare_s for bidder, bid in bids.items()},
            rows={bidder: len(bid.table.rows) for bidder, bid in bids.items()},
            solve_s=solve_s,
            idle=ledger.left,
        )

    def _give_away(
        self,
        offer: Offer,
        ledger: Ledger,
        plan: AuctionPlan,
        bidders: Sequence[str],
        group: Sequence[str],
        bids: Mapping[str, Bid],
        agents: Mapping[str, Agent],
        seed: int,
    ) -> list[Grant]:
        """Give what is left to a group of apps at random."""
        if not group or not any(ledger.left):
            return []
        tables = {app: bids[app] if app in bids else agents[app].bid(offer) for app in group}
        held = plan.granted_gpus(len(bidders))
        position = {app: i for i, app in enumerate(bidders)}
        most = {app: max((k for k, _, _ in bid.table.rows), default=0) for app, bid in tables.items()}
        wanted = [most[app] - (int(held[position[app]]) if app in position else 0) for app in group]
        homes = [
            sorted({int(offer.cluster.slot_machine[s]) for s, _ in _entries(plan.grants, position[app])})
            if app in position
            else []
            for app in group
        ]
        given = share_leftover(
            offer.cluster,
            np.array(ledger.left, dtype=np.int64),
            wanted,
            [tables[app].gang for app in group],
            homes,
            np.random.default_rng([seed, len(group)]),
        )
        return [
            ledger.grant(group[i], _entries(given, i), self.options.lease_min) for i in np.unique(given[:, 0]).tolist()
        ]


def _entries(table: "np.ndarray[Any, Any]", app: int) -> tuple[tuple[int, int], ...]:
    return tuple((slot, count) for i, slot, count in table.tolist() if i == app)


def _auction(name: str, offer: Offer, bids: Mapping[str, Bid]) -> AuctionInstance:
    """Return the auction of the bids collected, apps in the order of the bidders."""
    tables = [
        BidsDocument(
            empty_rho=bid.table.empty_rho,
            rows=[(k, NAMES[Locality(level)], rho) for k, level, rho in bid.table.rows],  # type: ignore[misc]
        )
        for bid in bids.values()
    ]
    return AuctionInstance(
        name=name,
        cluster=offer.cluster,
        apps=Apps(
            ids=tuple(bids),
            empty_rho=as_floats([bid.table.empty_rho for bid in bids.values()]),
            gang=as_ints([bid.gang for bid in bids.values()]),
            elapsed_min=as_floats([bid.elapsed_min for bid in bids.values()]),
            work_min=as_floats([bid.work_min for bid in bids.values()]),
            ideal_min=as_floats([bid.table.ideal_min for bid in bids.values()]),
        ),
        bids=join_bids(tables),
        lease_min=offer.lease_min,
        horizon=offer.horizon,
    )
