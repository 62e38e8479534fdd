"""The zone whose spot price is lowest now."""

from collections.abc import Sequence
from typing import ClassVar

from optim.simulation.spot.zones.policy import GuardedPolicy, Place, ZoneView


class CheapestZone(GuardedPolicy):
    """Take the cheapest zone that has spot machines, and stay until they are taken away; wait where none has."""

    name: ClassVar[str] = "cheapest-zone"

    def choose(self, view: ZoneView) -> Sequence[Place]:
        """Return what is held, or all zones by price."""
        if view.held is not None:
            return (view.held,)
        order = sorted(range(len(self.facts.zones)), key=lambda zone: (view.spot_micro[zone], zone))
        return tuple(Place(zone, True) for zone in order)
