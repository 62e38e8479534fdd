"""Themis: rounds of partial-allocation auctions among the apps that are worst off.

Completed here: agents know the work that is left (the paper's agents ask the app's tuner); an app reports rho with the
GPUs whose lease has just ended, or with one gang; between rounds freed GPUs of aligned leases stay idle; apps run their
longest jobs first; equal machines are exchanged so that jobs stay where they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from optim.core.ranges import check_choices, check_in
from optim.models.auction.instance import Cluster as Offered
from optim.models.auction.instance import EmptyValue, Horizon
from optim.models.auction.plan import PaymentRule
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.policies.themis_apps import AppAgent
from optim.simulation.cluster.policies.themis_crowd import AppCrowd
from optim.simulation.cluster.policies.themis_leases import LeaseOptions, LeasingPolicy
from optim.simulation.cluster.policies.themis_places import Entries
from optim.solvers.auction.arbiter import Arbiter, ArbiterOptions, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemisOptions(LeaseOptions):
    """Options.

    Parameters
    ----------
    fairness
        f in [0, 1]: the 1 - f of the apps with the worst rho may bid.
    rule
        Payment rule: floor, nearest, ceil, lottery or none. Under the lottery having nothing is worth nothing.
    horizon
        How bids are valued: `hold` (for ever) or `lease`.
    nodes
        Most linear programmes of an auction's main tree, and of the tree of a payment: what limits an auction.
    """

    fairness: float = 0.8
    rule: str = PaymentRule.FLOOR.value
    horizon: str = Horizon.HOLD.value
    nodes: int = 50

    def __post_init__(self) -> None:
        """Check the ranges."""
        LeaseOptions.__post_init__(self)
        check_in("[0, 1]", self, "fairness")
        check_in("[1, 100000]", self, "nodes")
        known = {"rule": [rule.value for rule in PaymentRule], "horizon": [horizon.value for horizon in Horizon]}
        check_choices(self, known)


class Themis(LeasingPolicy):
    """Rounds of auctions.

    Parameters
    ----------
    options, jobs
        How they are held; the jobs are seen as they are submitted.
    """

    name: ClassVar[str] = "themis"
    source: ClassVar[str] = "Mahajan et al., Themis, NSDI 2020"
    completed: ClassVar[str] = (
        "reports with the lease that ended; longest jobs of an app first; equal machines exchanged"
    )

    def __init__(self, options: ThemisOptions, jobs: Workload) -> None:
        super().__init__(options, jobs)
        nodes = {"main_nodes": options.nodes, "payment_nodes": options.nodes}
        is_lottery = options.rule == PaymentRule.LOTTERY
        self._arbiter = Arbiter(
            ArbiterOptions(
                fairness=options.fairness,
                lease_min=options.lease_min,
                horizon=Horizon(options.horizon),
                empty_value=EmptyValue.ZERO if is_lottery else EmptyValue.POSITIVE,
                solver_options={"rule": options.rule, **nodes},
            )
        )

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget earlier runs."""
        super().begin(cluster, seed)
        self._seconds: list[float] = []
        self._undecided = self._payments = self._leftover = self._rows = 0

    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Hold an auction."""
        held = self._arbiter.hold(offer, agents, seed=self.seed, round_number=self.rounds)
        self.note(held)
        asked = agents.made if isinstance(agents, AppCrowd) else agents
        found = {agent.app: _merged(agent.grant.entries) for agent in asked if agent.grant is not None}
        return dict(sorted(found.items()))

    def note(self, held: Round) -> None:
        """Keep what is to be told of a round."""
        plan = held.solution.decision
        self._seconds.append(held.solve_s)
        self._undecided += held.undecided
        self._payments += plan.num_winners
        self._leftover += int(plan.placement[:, 2].sum() - plan.grants[:, 2].sum())
        self._rows += sum(held.rows.values())

    def figures(self) -> Mapping[str, float]:
        """Return auctions, their milliseconds, and payments that were left as intervals."""
        seconds = self._seconds or [0.0]
        return {
            "auctions": float(self.rounds),
            "auction_ms_mean": 1000 * sum(seconds) / len(seconds),
            "auction_ms_max": 1000 * max(seconds),
            "bid_rows": float(self._rows),
            "payments": float(self._payments),
            "payments_left_open": float(self._undecided),
            "gpus_left_over": float(self._leftover),
        }


def _merged(entries: Entries) -> Entries:
    """Add up entries of one machine."""
    counts: dict[int, int] = {}
    for machine, count in entries:
        counts[machine] = counts.get(machine, 0) + count
    return tuple(sorted(counts.items()))
