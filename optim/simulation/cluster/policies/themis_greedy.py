"""Themis without auctions: at each round the app that is worst off takes all it can use, where it runs best.

Completed here: an app takes whole gangs, on the machines with most free GPUs first, so that its jobs stay together.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from optim.models.auction.instance import Cluster as Offered
from optim.simulation.cluster.policies.themis_apps import AppAgent
from optim.simulation.cluster.policies.themis_leases import LeasingPolicy
from optim.simulation.cluster.policies.themis_places import Entries


class ThemisGreedy(LeasingPolicy):
    """The worst off first."""

    name: ClassVar[str] = "themis-greedy"
    source: ClassVar[str] = "Mahajan et al., Themis, NSDI 2020 (the strawman)"
    completed: ClassVar[str] = "whole gangs, machines with most free GPUs first"

    def divide(self, offer: Offered, agents: Sequence[AppAgent]) -> Mapping[int, Entries]:
        """Let apps take what they can use, the largest rho first, ties by number."""
        free = offer.slot_free.copy()
        grants: dict[int, Entries] = {}
        for agent in sorted(agents, key=lambda agent: (-agent.rho(offer), agent.app)):
            wanted = min(agent.wanted(), int(free.sum())) // agent.gang * agent.gang
            taken: list[tuple[int, int]] = []
            for machine in sorted(range(len(free)), key=lambda m: (-int(free[m]), m)):
                count = min(wanted, int(free[machine]))
                if count:
                    taken.append((machine, count))
                    free[machine] -= count
                    wanted -= count
            if taken:
                grants[agent.app] = tuple(sorted(taken))
        return grants
