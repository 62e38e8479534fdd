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
            launch_s = int(self.facts.job.setup_s[view.state].min())
            return (*spots, held) if self.is_ahead(view, 2 * launch_s) else (held,)
        return spots if self.is_ahead(view, 0) else (*spots, self.on_demand(view))

    def order(self, view: ZoneView) -> tuple[Place, ...]:
        """Return the spot machines to ask for, in order."""
        del view
        return tuple(Place(zone, True) for zone in range(len(self.facts.zones)))

    def is_ahead(self, view: ZoneView, seconds: int) -> bool:
        """Tell whether the work done is at least what the straight line asks for in so many seconds: in whole numbers."""
        job = self.facts.job
        due = min(view.elapsed_s + seconds, job.deadline_s) * job.work_s
        return (job.work_s - view.work_left_s) * job.deadline_s >= due


class UniformProgress(UniformProgressZones):
    """The published rule with its own safety net, over any number of zones.

    While no spot machines are held, machines on demand are taken to the end as soon as two launches and a tick are all the
    time that is left beside the work. `uniform-progress-zones` keeps time for one launch and a tick, which is enough.
    """

    name: ClassVar[str] = "uniform-progress"
    launches: ClassVar[int] = 2
