"""Stop jobs whose predicted gain isn't worth their GPUs any more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from optim.core.ranges import check_in
from optim.core.registry import Support
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.loss_curve import fit_loss
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy
from optim.simulation.cluster.planning.room import Room
from optim.simulation.cluster.planning.view import View
from optim.simulation.cluster.wrappers.wrapper import Wrapper, earliest


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAtGainOptions:
    """Options.

    Parameters
    ----------
    least_gain
        Share of the loss that all work still planned must be predicted to take off.
    check_s
        How often running jobs are looked at.

    Raises
    ------
    InvalidOptionError
        If it is outside its range.
    """

    least_gain: float = 0.001
    check_s: float = 600.0

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[0, 1)", self, "least_gain")
        check_in("[1, 1000000]", self, "check_s")


class StopAtGain(Wrapper):
    """A job leaves once the curve fitted to its losses predicts less than `least_gain` up to its last planned step."""

    wrap = "stop-at-gain"
    steers_placement = False

    def __init__(self, options: StopAtGainOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options = options
        self.reads_losses = True  # type: ignore[misc]
        del jobs

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Tell whether there are losses to predict from."""
        if not jobs.loss.shape[1]:
            return Support(False, "it follows loss curves, and these jobs have none")
        return super().supports(jobs, cluster)

    def rules(self, options: EngineOptions) -> Rules:
        """Let jobs be stopped."""
        return replace(self.inner.rules(options), may_refuse=True)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Forget what was fitted."""
        super().begin(cluster, seed)
        self.seen: dict[int, int] = {}
        self.stopped = 0

    def plan(self, view: View) -> Plan:
        """Send away running jobs that gain too little."""
        leave = {job: gpus for job, gpus in view.running.items() if self._is_done(view, job)}
        self.stopped += len(leave)

        def prepare(room: Room) -> None:
            for job, gpus in leave.items():
                room.give(job, gpus)

        view.hide(leave)
        view.prepare.append(prepare)
        plan = self.inner.plan(view)
        again = view.now_us + round(self.options.check_s * US) if plan.gpus else None
        return replace(plan, leave=(*plan.leave, *leave), again_us=earliest(plan.again_us, again))

    def _is_done(self, view: View, job: int) -> bool:
        losses = view.losses(job)
        if self.seen.get(job) == len(losses) or len(losses) == view.num_losses:
            return False
        self.seen[job] = len(losses)
        curve = fit_loss(losses)
        if curve is None:
            return False
        now = curve.at(len(losses) - 1)
        return now - curve.at(view.num_losses - 1) < self.options.least_gain * now

    def figures(self) -> Mapping[str, float]:
        """Return how many jobs were stopped, with what the policy inside says."""
        return {**self.inner.figures(), "stopped_early": float(self.stopped)}
