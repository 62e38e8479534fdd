"""Machines on demand from start to end."""

from collections.abc import Sequence
from typing import ClassVar

from optim.simulation.spot.zones.policy import GuardedPolicy, Place, ZoneView


class OnDemandZones(GuardedPolicy):
    """Run on demand in the cheapest zone throughout."""

    name: ClassVar[str] = "on-demand"

    def choose(self, view: ZoneView) -> Sequence[Place]:
        """Return what is held, or the machines on demand that cost least."""
        return (self.on_demand(view),) if view.held is None else (view.held,)
