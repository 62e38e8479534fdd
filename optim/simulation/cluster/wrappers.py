"""Wrappers around any policy: the lessons of the Philly study (Jeon et al., ATC 2019, section 5)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optim.core.arrays import BoolArray
from optim.core.errors import check_in
from optim.core.policies import policy
from optim.core.registry import Support
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.proof import Worth
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import PPM, US, Workload
from optim.simulation.cluster.options import EngineOptions
from optim.simulation.cluster.planning.free_gpus import FreeGpus, Gpus
from optim.simulation.cluster.planning.policy import Plan, PlanningPolicy, View
from optim.simulation.cluster.policies.slaq import fit_loss

LESSONS = "Jeon et al., ATC 2019, section 5"

PLACES_ITSELF = "it chooses GPUs by its own rule, which {} can't change"


class Wrapper(PlanningPolicy):
    """Base class of wrappers: delegates to the wrapped policy."""

    steers_placement = True

    def __init__(self, inner: PlanningPolicy) -> None:
        self.inner = inner
        self.name = f"{type(self).name}+{inner.name}"  # type: ignore[misc]
        self.oracle_inputs, self.reads_losses = inner.oracle_inputs, inner.reads_losses  # type: ignore[misc]
        self.may_spread = self.may_spread or inner.may_spread  # type: ignore[misc]
        self.plans_at_events = inner.plans_at_events

    @property
    def needs(self) -> str:
        """Information that the wrapped policy uses and a real scheduler lacks."""
        return self.inner.needs

    def rules(self, options: EngineOptions) -> Rules:
        """Return the rules of the wrapped policy, without guarantees of reservations, which a wrapper may break."""
        return replace(self.inner.rules(options), reservation_depth=0)

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether the wrapped policy supports these jobs and can be wrapped."""
        if self.steers_placement and self.inner.places_itself:
            return Support(False, PLACES_ITSELF.format(type(self).name))
        return self.inner.supports(jobs, cluster)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Begin a run."""
        self.inner.begin(cluster, seed)

    def plan(self, view: View) -> Plan:
        """Return the plan of the wrapped policy."""
        return self.inner.plan(view)

    def worth(self) -> Worth | None:
        """Return the utilities that the wrapped policy assigns to jobs."""
        return self.inner.worth()

    def figures(self) -> Mapping[str, float]:
        """Return the statistics of the wrapped policy."""
        return self.inner.figures()


def earliest(*times: int | None) -> int | None:
    """Return the earliest of the times that aren't None."""
    return min((time for time in times if time is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailEarlyOptions:
    """Options.

    Parameters
    ----------
    trial_s
        Seconds for which a gang first runs on one GPU.
    share
        Share of the machines reserved for trials; at least one machine.

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


@policy(
    "fail-early",
    world="wrappers",
    options=FailEarlyOptions,
    summary="Gangs first run on one GPU of a small pool.",
    source=LESSONS,
)
class FailEarly(Wrapper):
    """A trial's work counts towards the job; a job that fails in its trial is dropped, as if it failed at every attempt."""

    def __init__(self, options: FailEarlyOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options = options
        del jobs

    def rules(self, options: EngineOptions) -> Rules:
        """Allow gangs to run on one GPU, and failed jobs to be dropped."""
        return replace(super().rules(options), is_elastic=True, may_refuse=True)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Reserve the machines for trials."""
        super().begin(cluster, seed)
        count = max(1, round(self.options.share * cluster.num_machines))
        self.pool = np.arange(cluster.num_machines) >= cluster.num_machines - count
        self.has_pool = count < cluster.num_machines
        self.tried: set[int] = set()
        self.trials: dict[int, Gpus] = {}
        self.caught = 0

    def plan(self, view: View) -> Plan:
        """Plan the trials, and let the wrapped policy plan the other jobs on the remaining machines."""
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
        is_due = (view.gpus > 1) & (view.min_gpus == 1)
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

        def prepare(room: FreeGpus) -> None:
            for job, gpus in stopped.items():
                room.give(job, gpus)
            for job in begun:
                room.take(job, self.trials[job])
            room.restrict_machines(lambda job: ~self.pool if room.site.could_hold(job, ~self.pool) else None)

        view.hide({*self.trials, *due, *leave}, stopped)
        view.prepare.append(prepare)
        plan = self.inner.plan(view)
        again = earliest(plan.again_us, *(self._ends(view, job) for job in self.trials))
        return replace(plan, gpus={**self.trials, **plan.gpus}, again_us=again, leave=(*plan.leave, *leave))

    def _ends(self, view: View, job: int) -> int:
        """Return the end of a trial."""
        since = view.progress_since(job) if view.started_us[job] >= 0 else view.now_us
        done = int(view.executed_us[job])
        return max(view.now_us + 1, max(since, view.now_us) + round(self.options.trial_s * US) - done)

    def _is_over(self, view: View, job: int, has_failed: bool) -> bool:
        is_long = int(view.executed_us[job]) >= round(self.options.trial_s * US)
        return job not in view.jobs or has_failed or is_long

    def figures(self) -> Mapping[str, float]:
        """Return the number of jobs that failed in their trials, and the statistics of the wrapped policy."""
        return {**self.inner.figures(), "caught_early": float(self.caught)}


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateOptions:
    """Options.

    Parameters
    ----------
    wide
        Minimum number of GPUs of a wide gang.
    share
        Share of the machines for gangs below `wide`; 0 for the share of these gangs in the trace's GPU-hours.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    wide: int = 4
    share: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[2, 1000000]", self, "wide")
        check_in("[0, 1]", self, "share")


@policy(
    "isolate",
    world="wrappers",
    options=IsolateOptions,
    summary="Wide gangs and small jobs run on separate machines.",
    source=LESSONS,
)
class Isolate(Wrapper):
    """Jobs below `wide` GPUs go to the last machines, other jobs to the first; a gang that its part cannot hold may use all."""

    def __init__(self, options: IsolateOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options, self.jobs = options, jobs

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Divide the machines into two parts."""
        super().begin(cluster, seed)
        is_wide = self.jobs.gpus >= self.options.wide
        work = self.jobs.gpus.astype(float) * self.jobs.duration_us
        share = self.options.share or float(work[~is_wide].sum() / work.sum())
        small = min(
            max(round(share * cluster.num_machines), int((~is_wide).any())), cluster.num_machines - int(is_wide.any())
        )
        self.is_small = np.arange(cluster.num_machines) >= cluster.num_machines - max(small, 0)
        self.limits = [self.is_small, ~self.is_small]

    def plan(self, view: View) -> Plan:
        """Confine each job to its part of the machines."""

        def prepare(room: FreeGpus) -> None:
            widths = room.site.widths

            def part(job: int) -> BoolArray | None:
                is_wide = int(widths[job] >= self.options.wide)
                return self.limits[is_wide] if room.site.could_hold(job, self.limits[is_wide]) else None

            room.restrict_machines(part)

        view.prepare.append(prepare)
        return self.inner.plan(view)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatienceOptions:
    """Options.

    Parameters
    ----------
    wait_s
        Seconds that a job waits for GPUs that are closer together, per GPU of its gang.
    max_slowdown
        Maximum slowdown at which the job starts before it has waited that long.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    wait_s: float = 60.0
    max_slowdown: float = 1.05

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_in("[0, 1000000]", self, "wait_s")
        check_in("[1, 1000]", self, "max_slowdown")


@policy(
    "patience",
    world="wrappers",
    options=PatienceOptions,
    summary="A gang waits wait_s per GPU for a good place, then accepts any place.",
    source=LESSONS,
)
class Patience(Wrapper):
    """A job starts at a slowdown above `max_slowdown` only after it has waited `wait_s` per GPU."""

    may_spread = True

    def __init__(self, options: PatienceOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options = options
        del jobs

    def _until(self, view: View, job: int) -> int:
        """Return the time until which a job rejects slow placements, counted from its submission or its last loss of GPUs."""
        since = max(int(view.submit_us[job]), int(view.stopped_us[job]))
        return since + round(self.options.wait_s * US) * int(view.gpus[job])

    def plan(self, view: View) -> Plan:
        """Allow jobs that waited long enough to spread, and withhold slow placements from the other jobs."""

        def prepare(room: FreeGpus) -> None:
            room.allow_spread(lambda job: view.now_us >= self._until(view, job))

        view.prepare.append(prepare)
        plan = self.inner.plan(view)
        most = round(self.options.max_slowdown * PPM)
        gpus = {
            job: held
            for job, held in plan.gpus.items()
            if view.running.get(job) == held
            or view.slowdown_ppm[job, view.level(held)] <= most
            or view.now_us >= self._until(view, job)
        }
        ends = [self._until(view, int(job)) for job in view.waiting if int(job) not in gpus and view.gpus[job] > 1]
        again = earliest(plan.again_us, *(end for end in ends if end > view.now_us))
        return replace(plan, gpus=gpus, again_us=again)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAtGainOptions:
    """Options.

    Parameters
    ----------
    min_gain
        Minimum predicted reduction of the loss by the remaining planned work, as a share of the present loss.
    check_s
        Seconds between two checks of the running jobs.

    Raises
    ------
    InvalidOptionError
        If a value is outside its range.
    """

    min_gain: float = 0.001
    check_s: float = 600.0

    def __post_init__(self) -> None:
        """Check the range."""
        check_in("[0, 1)", self, "min_gain")
        check_in("[1, 1000000]", self, "check_s")


@policy(
    "stop-at-gain",
    world="wrappers",
    options=StopAtGainOptions,
    summary="End jobs whose loss is predicted to fall only a little.",
    source=LESSONS,
)
class StopAtGain(Wrapper):
    """A job leaves once the curve fitted to its losses predicts a reduction below `min_gain` up to its last planned step."""

    steers_placement = False

    def __init__(self, options: StopAtGainOptions, inner: PlanningPolicy, jobs: Workload) -> None:
        super().__init__(inner)
        self.options = options
        self.reads_losses = True  # type: ignore[misc]
        del jobs

    def supports(self, jobs: Workload, cluster: Cluster) -> Support:
        """Return whether the jobs have losses."""
        if not jobs.loss.shape[1]:
            return Support(False, "it follows loss curves, and these jobs have none")
        return super().supports(jobs, cluster)

    def rules(self, options: EngineOptions) -> Rules:
        """Allow jobs to be stopped."""
        return replace(super().rules(options), may_refuse=True)

    def begin(self, cluster: Cluster, seed: int) -> None:
        """Discard the fitted curves."""
        super().begin(cluster, seed)
        self.seen: dict[int, int] = {}
        self.stopped = 0

    def plan(self, view: View) -> Plan:
        """Drop running jobs whose predicted gain is below `min_gain`."""
        leave = {job: gpus for job, gpus in view.running.items() if self._is_done(view, job)}
        self.stopped += len(leave)

        def prepare(room: FreeGpus) -> None:
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
        return now - curve.at(view.num_losses - 1) < self.options.min_gain * now

    def figures(self) -> Mapping[str, float]:
        """Return the number of stopped jobs, and the statistics of the wrapped policy."""
        return {**self.inner.figures(), "stopped_early": float(self.stopped)}
