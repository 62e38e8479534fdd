"""Uniform progress over an order of zones."""

from collections.abc import Sequence
from typing import ClassVar

from optim.simulation.spot.zones.policy import GuardedPolicy, Place, ZoneView


class UniformProgressZones(GuardedPolicy):
    """Keep up with a straight line of progress: spot in the first zone that has any, on demand where behind.

    On spot machines the job stays until they are taken away; on demand until it is ahead by two launches and a zone has
    spot machines. The order is the one in which the zones are given.

    References
    ----------
    Wu, Chiang, Mao, Yang, Friedman, Shenker, Stoica, "Can't Be Late: Optimizing Spot Instance Savings under
    Deadlines", NSDI 2024: its rule for one zone, here over an order of zones.
    """

    name: ClassVar[str] = "uniform-progress-zones"

    def choose(self, view: ZoneView) -> Sequence[Place]:
        """Return where to run while there is time."""
        held = view.held
        if held is not None and held.is_spot:
            return (held,)
        spots = self.order(view)
        if held is not None:
            launch = int(self.facts.job.setup[view.state].min())
            return (*spots, held) if self.is_ahead(view, 2 * launch) else (held,)
        return spots if self.is_ahead(view, 0) else (*spots, self.on_demand(view))

    def order(self, view: ZoneView) -> tuple[Place, ...]:
        """Return the spot machines to ask for, in order."""
        del view
        return tuple(Place(zone, True) for zone in range(len(self.facts.zones)))

    def is_ahead(self, view: ZoneView, ticks: int) -> bool:
        """Tell whether the work done is what the straight line asks for in so many ticks."""
        job = self.facts.job
        due = min(view.tick + ticks, job.deadline) * job.work
        return (job.work - view.work_left) * job.deadline >= due
