"""What the solvers share that run a cluster slot by slot under a policy: from a policy to a solution."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from optim.core.certificate import Certificate
from optim.core.clock import PhaseClock, peak_memory_mb
from optim.core.options import options_as_dict
from optim.core.progress import Progress
from optim.core.registry import SUPPORTED, Support
from optim.core.solution import Solution, Stats
from optim.core.status import CertificateKind, PointStatus, Sense, Termination
from optim.core.stopping import StoppingCriterion
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.pricing.dual_points import certify_plan
from optim.solvers.admission.slots.placement_loop import compile_placement
from optim.solvers.admission.slots.schedule import SlotPolicy, run_slots

PolicyT = TypeVar("PolicyT", bound=SlotPolicy)

NO_BOUND = Certificate(kind=CertificateKind.FEASIBLE_ONLY, statement="the plan is feasible; no bound is claimed")


class AbstractSlotSolver(ABC, Generic[PolicyT]):
    """A solver that simulates a policy: each slot is decided without knowledge of later arrivals.

    The plan holds the jobs that completed while it earned something; its bound comes from prices made
    of the plan's own utilisation. A run cut short by its stopping rule returns what was completed by
    then, without a bound. Iterations are slots.

    Counts: ``admitted`` jobs earn; ``unfinished`` ones took room but earn nothing, among them those that
    completed too ``late``; the rest were ``never_started``.
    """

    name: str
    problem: str
    summary: ClassVar[str]
    options_type: ClassVar[type[Any]]

    @abstractmethod
    def make_policy(self, instance: AdmissionInstance, options: Any, rng: np.random.Generator) -> PolicyT:
        """Return a fresh policy. Of the instance it may know the cluster's fixed facts, not the jobs."""

    def policy_counts(self, policy: PolicyT) -> Mapping[str, float]:
        """Return the policy's own counters; none by default."""
        return {}

    def supports(self, instance: AdmissionInstance) -> Support:
        """Any admission instance can be run."""
        return SUPPORTED

    def solve(
        self,
        instance: AdmissionInstance,
        *,
        options: Any,
        stop: StoppingCriterion,
        seed: int,
        progress: Progress,
    ) -> Solution:
        """Run the cluster to the horizon and return the plan that results."""
        clock = PhaseClock()
        with clock.phase("compile"):
            compile_placement()
        with clock.phase("build"):
            policy = self.make_policy(instance, options, np.random.default_rng(seed))
        progress.start(self.name, float(instance.horizon))
        with clock.phase("solve"):
            run = run_slots(instance, policy, stop=stop, progress=progress, clock=clock)
        progress.finish()
        bound: float | None = None
        certificate, dual = NO_BOUND, PointStatus.NONE
        if run.reason is None:
            with clock.phase("bound"):
                bound, certificate, dual = certify_plan(instance, run.plan)
        return Solution(
            problem=self.problem,
            instance=instance.name,
            solver=self.name,
            sense=Sense.MAXIMISE,
            termination=Termination.COMPLETED if run.reason is None else run.reason,
            primal=PointStatus.FEASIBLE,
            dual=dual,
            decision=run.plan,
            objective=run.plan.objective(instance),
            bound=bound,
            certificate=certificate,
            seed=seed,
            options=options_as_dict(options),
            stats=Stats(
                seconds=clock.seconds,
                iterations=run.slots_run,
                memory_mb=peak_memory_mb(),
                counts={**run.counts(instance.num_jobs), **self.policy_counts(policy)},
            ),
        )
