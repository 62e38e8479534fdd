"""Wrapper that allows decisions only at multiples of a round's length, as in the simulators of Gavel and Shockwave."""

from dataclasses import dataclass, replace

from optim.core.errors import check_in
from optim.core.policies import policy
from optim.core.registry import Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.workload import US, Workload
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View
from optim.simulation.cluster.wrappers import Wrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsOptions:
    """Options.

    Parameters
    ----------
    round_s
        Length of a round in seconds.

    Raises
    ------
    InvalidOptionError
        If `round_s` is outside its range.
    """

    round_s: float = 360.0

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[1, 1e6]", self, "round_s")


@policy(
    "rounds",
    world="wrappers",
    options=RoundsOptions,
    summary="The policy decides only at multiples of round_s.",
    source="Narayanan et al., OSDI 2020, section 5; Zheng et al., NSDI 2023",
)
class Rounds(Wrapper):
    """Between two rounds, running jobs continue, no job starts, and the GPUs of ended jobs stay idle."""

    steers_placement = False

    def __init__(self, options: RoundsOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.round_us = round(options.round_s * US)
        self.has_own_rounds = not inner.plans_at_events
        self.plans_at_events = False
        del jobs

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether the wrapped policy supports the jobs, and has no rounds of its own."""
        if self.has_own_rounds:
            return Support(False, f"{self.inner.name} has rounds of its own; set {self.inner.name}.round_s")
        return super().supports(jobs, cluster)

    def plan(self, view: View) -> Plan:
        """Return the wrapped policy's plan at the beginning of a round, otherwise a plan that continues running jobs."""
        begins = view.now_us % self.round_us == 0
        plan = self.inner.plan(view) if begins else Plan(gpus=dict(view.running))
        # If no job waits or runs, the next plan is made at the next submission.
        is_idle = not len(view.waiting) and not plan.gpus
        return replace(plan, again_us=None if is_idle else view.now_us - view.now_us % self.round_us + self.round_us)
