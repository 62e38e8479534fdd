"""Let gangs fail early: each runs on one GPU of a small pool first, and what fails there never gets its gang."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optim.core.ranges import check_in
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import US, Workload
from optim.models.cluster.world import Cluster
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.policy import Gpus, Plan, PlanningPolicy
from optim.simulation.cluster.planning.room import Room
from optim.simulation.cluster.planning.view import View
from optim.simulation.cluster.wrappers.wrapper import Wrapper, earliest


@dataclass(frozen=True, slots=True, kw_only=True)
class FailEarlyOptions:
    """Options.

    Parameters
    ----------
    trial_s
        How long a gang runs on one GPU first.
    share
        Share of the machines that trials have to themselves; at least one machine.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    trial_s: float = 300.0
    share: float = 0.03

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[1, 86400]", self, "trial_s")
        check_in("(0, 0.5]", self, "share")


class FailEarly(Wrapper):
    """A gang's work on one GPU counts; a job that fails in its trial is sent away, its failure being one of every try."""

    wrap = "fail-early"

    def __init__(self, options: FailEarlyOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options = options
        del jobs

    def rules(self, options: EngineOptions) -> Rules:
        """Let gangs run on one GPU, and jobs that failed be sent away."""
        return replace(self.inner.rules(options), is_elastic=True, may_refuse=True)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Set the pool apart."""
        super().begin(cluster, seed)
        count = max(1, round(self.options.share * cluster.num_machines))
        self.pool = np.arange(cluster.num_machines) >= cluster.num_machines - count
        self.has_pool = count < cluster.num_machines
        self.tried: set[int] = set()
        self.trials: dict[int, Gpus] = {}
        self.caught = 0

    def plan(self, view: View) -> Plan:
        """Look after the trials, and let the policy inside plan the rest on the other machines."""
        if not self.has_pool:
            return self.inner.plan(view)
        failed = view.has_failed
        for job in [job for job in self.trials if job in view.jobs and job not in view.running]:
            del self.trials[job]  # its machine failed
        ended = {job: self.trials.pop(job) for job in list(self.trials) if self._is_over(view, job, bool(failed[job]))}
        self.tried.update(ended)
        stopped = {job: gpus for job, gpus in ended.items() if job in view.running}
        leave = [job for job in stopped if failed[job]]
        self.caught += len(leave)
        room = view.room(stopped)
        is_due = (view.gpus > 1) & (view.least_gpus == 1)
        due = [
            job
            for job in view.waiting.tolist()
            if is_due[job] and job not in self.tried and room.site.could_hold(job, self.pool, 1)
        ]
        for job in due:
            taken = room.place(job, 1, self.pool)
            if taken is not None:
                self.trials[job] = taken
        begun = [job for job in due if job in self.trials]

        def prepare(room: Room) -> None:
            for job, gpus in stopped.items():
                room.give(job, gpus)
            for job in begun:
                room.take(job, self.trials[job])
            room.confine(lambda job: ~self.pool if room.site.could_hold(job, ~self.pool) else None)

        view.hide({*self.trials, *due, *leave}, stopped)
        view.prepare.append(prepare)
        plan = self.inner.plan(view)
        again = earliest(plan.again_us, *(self._ends(view, job) for job in self.trials))
        return replace(plan, gpus={**self.trials, **plan.gpus}, again_us=again, leave=(*plan.leave, *leave))

    def _ends(self, view: View, job: int) -> int:
        """Return when a trial is over."""
        since = view.progress_since(job) if view.started_us[job] >= 0 else view.now_us
        done = int(view.executed_us[job])
        return max(view.now_us + 1, max(since, view.now_us) + round(self.options.trial_s * US) - done)

    def _is_over(self, view: View, job: int, has_failed: bool) -> bool:
        is_long = int(view.executed_us[job]) >= round(self.options.trial_s * US)
        return job not in view.jobs or has_failed or is_long

    def figures(self) -> Mapping[str, float]:
        """Return how many jobs failed in their trials, with what the policy inside says."""
        return {**self.inner.figures(), "caught_early": float(self.caught)}
