"""A policy around another one."""

from collections.abc import Mapping

from optim.core.registry import Support
from optim.models.cluster.rules import Rules
from optim.models.cluster.utility import Worth
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from optim.simulation.cluster.planning.view import View

PLACES_ITSELF = "it brings its own placement, which {} can't steer"


class Wrapper(PlanningPolicy):
    """Does what the policy inside does, but for what a subclass changes."""

    wrap = ""
    steers_placement = True

    def __init__(self, inner: PlanningPolicy) -> None:
        self.inner = inner
        self.name = f"{self.wrap}+{inner.name}"  # type: ignore[misc]
        self.sees, self.reads_losses = inner.sees, inner.reads_losses  # type: ignore[misc]
        self.may_spread = self.may_spread or inner.may_spread  # type: ignore[misc]
        self.plans_at_events = inner.plans_at_events

    @property
    def needs(self) -> str:
        """What the policy inside sees that a real scheduler wouldn't."""
        return self.inner.needs

    def rules(self, options: EngineOptions) -> Rules:
        """Return the rules of the policy inside."""
        return self.inner.rules(options)

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Tell whether the policy inside can serve such jobs, and be steered."""
        if self.steers_placement and self.inner.places_itself:
            return Support(False, PLACES_ITSELF.format(self.wrap))
        return self.inner.supports(jobs, cluster)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Begin a run."""
        self.inner.begin(cluster, seed)

    def plan(self, view: View) -> Plan:
        """Plan as the policy inside does."""
        return self.inner.plan(view)

    def worth(self) -> Worth | None:
        """Return what jobs are worth to the policy inside."""
        return self.inner.worth()

    def figures(self) -> Mapping[str, float]:
        """Return what the policy inside says."""
        return self.inner.figures()


def earliest(*times: int | None) -> int | None:
    """Return the earliest of the times that there are."""
    return min((time for time in times if time is not None), default=None)
