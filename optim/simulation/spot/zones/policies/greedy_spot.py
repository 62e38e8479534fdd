"""Spot machines wherever there are any, on demand when there is no time left."""

from collections.abc import Sequence
from typing import ClassVar

from optim.simulation.spot.zones.policy import GuardedPolicy, Place, ZoneView


class GreedySpotZones(GuardedPolicy):
    """Take the first zone that has spot machines, and stay until they are taken away; wait where none has."""

    name: ClassVar[str] = "greedy-spot"

    def choose(self, view: ZoneView) -> Sequence[Place]:
        """Return what is held, or all zones in order."""
        if view.held is not None:
            return (view.held,)
        return tuple(Place(zone, True) for zone in range(len(self.facts.zones)))
