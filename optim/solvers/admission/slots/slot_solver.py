"""What the solvers share that run a cluster slot by slot under a policy: from a policy to a solution."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from optim.core.driver import AbstractSolver, Monitor, Outcome
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.dual_points import certified
from optim.solvers.admission.pricing.job_tables import JobTables
from optim.solvers.admission.slots.schedule import SlotPolicy, run_slots
from optim.solvers.admission.warm_up import compile_bound, compile_placement

PolicyT = TypeVar("PolicyT", bound=SlotPolicy)


class AbstractSlotSolver(AbstractSolver[AdmissionInstance, Any], Generic[PolicyT]):
    """A solver that simulates a policy: each slot is decided without knowledge of later arrivals.

    The plan holds the jobs that completed while it earned something; its bound comes from prices made
    of the plan's own utilisation. A run cut short by its stopping rule returns what was completed by
    then, without a bound. Iterations are slots.

    Counts: ``admitted`` jobs earn; ``unfinished`` ones took room but earn nothing, among them those that
    completed too ``late``; the rest were ``never_started``.
    """

    @abstractmethod
    def make_policy(self, instance: AdmissionInstance, options: Any, rng: np.random.Generator) -> PolicyT:
        """Return a fresh policy. Of the instance it may know the cluster's fixed facts, not the jobs."""

    def policy_counts(self, policy: PolicyT) -> Mapping[str, float]:
        """Return the policy's own counters; none by default."""
        return {}

    def warm_up(self, instance: AdmissionInstance, options: Any) -> None:
        """Compile placement and the bound."""
        compile_placement()
        compile_bound(is_shared=instance.has_shared_servers)

    def run(self, instance: AdmissionInstance, options: Any, monitor: Monitor, seed: int) -> Outcome:
        """Run the cluster to the horizon and return the plan that results."""
        with monitor.clock.phase("build"):
            policy = self.make_policy(instance, options, np.random.default_rng(seed))
        with monitor.clock.phase("solve"):
            run = run_slots(instance, policy, monitor, task=self.name)
        return replace(
            certified(JobTables.build(instance), run.plan, monitor.clock, is_cut_short=run.reason is not None),
            iterations=run.slots_run,
            counts={**run.counts(instance.num_jobs), **self.policy_counts(policy)},
        )
