"""A cluster that runs slot by slot under a policy, as the rivals of planning ahead do.

The engine owns time, servers and progress; a policy sees the jobs that have arrived, at the start of
each slot, and answers with an allocation for that slot. What happened becomes a plan.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from optim.core.driver import AbstractIteration, Monitor, Standing, drive
from optim.core.errors import NotAllowedError
from optim.core.status import Termination
from optim.models.admission.instance import AdmissionInstance, IntArray
from optim.models.admission.plan import AdmissionPlan
from optim.solvers.admission.slots.board import Board
from optim.solvers.admission.slots.view import Allocation, JobView, SlotServers


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotState:
    """What a policy sees at the start of a slot.

    Parameters
    ----------
    slot
        The slot.
    jobs
        Every job that has arrived and isn't complete, by (arrival, number).
    board
        The slot's servers, empty: a policy places jobs on it and returns its allocations.
    previous
        What each of these jobs had in the slot before; jobs that had nothing are absent.
    is_event
        Whether a job has arrived, completed or entered another demand segment, or a capacity has
        changed, since the slot before.
    remaining_s
        Seconds left to the whole run, infinity without a limit: a policy that computes for long ends by then.
    should_stop
        Tells such a policy whether the run is over.
    """

    slot: int
    jobs: tuple[JobView, ...]
    board: Board
    previous: Mapping[int, Allocation]
    is_event: bool
    remaining_s: float
    should_stop: Callable[[], bool]


class SlotPolicy(Protocol):
    """Decide who runs in a slot; called once a slot, in order."""

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Return the allocation of every job that runs in the slot."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotRun:
    """What happened.

    Parameters
    ----------
    completion
        Completion slot of each job that completed.
    started
        Jobs that had workers in any slot.
    slots_run
        How many slots were run.
    reason
        Why the run was cut short, None if it reached the horizon.
    plan
        What the jobs held that completed while it earned something. The others earn nothing and are
        left out, though they took their room during the run.
    """

    completion: Mapping[int, int]
    started: frozenset[int]
    slots_run: int
    reason: Termination | None
    plan: AdmissionPlan

    def counts(self, num_jobs: int) -> dict[str, float]:
        """Return how many jobs earned, ran for nothing, and never ran."""
        admitted = len(self.plan.admitted)
        return {
            "admitted": admitted,
            "unfinished": len(self.started) - admitted,
            "late": len(self.completion) - admitted,
            "never_started": num_jobs - len(self.started),
        }


def run_slots(instance: AdmissionInstance, policy: SlotPolicy, monitor: Monitor, *, task: str | None = None) -> SlotRun:
    """Run a policy from the first slot to the horizon.

    Parameters
    ----------
    instance
        The jobs and servers. A job's demands in a slot are those of the segment in which it starts.
    policy
        Decides each slot.
    monitor
        Asked before each slot; a run that is cut short leaves the running jobs unfinished. Told the value earned
        so far, slot by slot.
    task
        Name for the progress, which hears nothing without one.

    Raises
    ------
    NotAllowedError
        If the policy allocates what it may not: more than there is, or a job that isn't there.
    """
    return drive(_Cluster(instance, policy, monitor), monitor, task=task, total=float(instance.horizon))


@dataclass(eq=False)
class _Cluster(AbstractIteration[SlotRun]):
    """The state of a run."""

    instance: AdmissionInstance
    policy: SlotPolicy
    monitor: Monitor
    jobs: dict[int, JobView] = field(default_factory=dict)
    previous: dict[int, Allocation] = field(default_factory=dict)
    completion: dict[int, int] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    worker_rows: dict[int, list[IntArray]] = field(default_factory=dict)
    ps_rows: dict[int, list[IntArray]] = field(default_factory=dict)
    cursors: tuple[int, int] = (0, 0)
    has_changed: bool = False
    slots_run: int = 0
    earned: float = 0.0

    def is_done(self) -> bool:
        """Tell whether the horizon is reached."""
        return self.slots_run == self.instance.horizon

    def standing(self) -> Standing:
        """Tell how many slots were run and what they earned."""
        return Standing(iterations=self.slots_run, objective=self.earned)

    def step(self) -> None:
        """Let jobs arrive, ask the policy, check its answer and let the jobs progress."""
        slot = self.slots_run
        arrived = np.flatnonzero(self.instance.jobs.arrival == slot).tolist()
        self.jobs.update({job: _view_on_arrival(self.instance, job) for job in arrived})
        servers = SlotServers(self.instance, slot)
        board = Board(servers, self.cursors)
        state = SlotState(
            slot=slot,
            jobs=tuple(self.jobs.values()),
            board=board,
            previous=self.previous,
            is_event=bool(arrived) or self.has_changed or _has_new_capacity(self.instance, slot),
            remaining_s=self.monitor.remaining_s,
            should_stop=self.monitor.is_over,
        )
        answer = self.policy.allocate(state)
        decision = {job: answer[job] for job in sorted(answer)}
        check_allocations(self.jobs, servers, decision)
        self.cursors = board.cursors
        self.previous, self.has_changed = {}, False
        for job, allocation in decision.items():
            if allocation.workers.any():
                self._advance(job, allocation, slot)
        self.slots_run = slot + 1

    def _advance(self, job: int, allocation: Allocation, slot: int) -> None:
        """Record what a job held in the slot and count its progress."""
        view = self.jobs[job]
        self.started.add(job)
        self.worker_rows.setdefault(job, []).append(_rows(job, slot, allocation.workers))
        self.ps_rows.setdefault(job, []).append(_rows(job, slot, allocation.ps))
        done = view.done + int(view.progress[int(allocation.workers.sum())])
        if done >= view.target:
            del self.jobs[job]
            self.completion[job] = slot
            self.earned += float(view.value[slot])
            self.has_changed = True
            return
        self.previous[job] = allocation
        if done != view.done:
            moved = _view_after(self.instance, view, done)
            self.has_changed |= moved.segment != view.segment
            self.jobs[job] = moved

    def finish(self, reason: Termination | None) -> SlotRun:
        """Return what happened."""
        value = self.instance.value
        earning = [job for job, slot in sorted(self.completion.items()) if value[job, slot] > 0]
        workers = [row for job in earning for part in self.worker_rows[job] for row in part.tolist()]
        ps = [row for job in earning for part in self.ps_rows[job] for row in part.tolist()]
        return SlotRun(
            completion=dict(self.completion),
            started=frozenset(self.started),
            slots_run=self.slots_run,
            reason=reason,
            plan=AdmissionPlan.from_rows(workers, ps),
        )


def check_allocations(jobs: Mapping[int, JobView], servers: SlotServers, decision: Mapping[int, Allocation]) -> None:
    """Raise unless the allocations are feasible for the slot, in exact whole numbers.

    Raises
    ------
    NotAllowedError
        Naming the job and what it may not have.
    """
    worker_free = servers.worker_capacity.copy()
    ps_free = worker_free if servers.is_shared else servers.ps_capacity.copy()
    for job, allocation in decision.items():
        if job not in jobs:
            raise NotAllowedError(
                f"slot {servers.slot}: job {job} was given workers but hasn't arrived or is complete; "
                "allocate only jobs of the state"
            )
        view, workers, ps = jobs[job], allocation.workers, allocation.ps
        total, num_ps = int(workers.sum()), int(ps.sum())
        fault = None
        if (workers < 0).any() or (ps < 0).any():
            fault = "a negative number of units"
        elif total >= len(view.progress):
            fault = f"{total} workers where at most {len(view.progress) - 1} are of use (row (3))"
        elif not view.ps_needed[total] <= num_ps <= total:
            fault = f"{num_ps} PSs for {total} workers, which need {view.ps_needed[total]} (rows (6), (7))"
        elif any((own > limit).any() for own, limit in zip(allocation.sides, servers.limits(view), strict=True)):
            fault = "more units on a server than it may hold of one job"
        elif _exceeds_share(view, servers, workers, ps):
            fault = "more than its share of a server"
        if fault is None:
            worker_free -= workers[:, None] * view.worker_demand
            ps_free -= ps[:, None] * view.ps_demand
            if (worker_free < 0).any() or (ps_free < 0).any():
                fault = "more of a server than is free (rows (4), (5))"
        if fault is not None:
            raise NotAllowedError(
                f"slot {servers.slot}: job {job} was given {fault}; place jobs with the state's board"
            )


def _exceeds_share(view: JobView, servers: SlotServers, workers: IntArray, ps: IntArray) -> bool:
    """Tell whether a job exceeds its share of a shared server; a single unit is always allowed."""
    share = servers.share_capacity
    if len(share) == 0:
        return False
    used = workers[:, None] * view.worker_demand + ps[:, None] * view.ps_demand
    return bool(((used > share).any(axis=1) & (workers + ps > 1)).any())


def _rows(job: int, slot: int, units: IntArray) -> IntArray:
    """Return plan rows (job, slot, server, count)."""
    server = np.flatnonzero(units)
    rows = np.empty((len(server), 4), dtype=np.int64)
    rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = job, slot, server, units[server]
    return rows


def _has_new_capacity(instance: AdmissionInstance, slot: int) -> bool:
    """Tell whether any capacity differs from the slot before."""
    sides = (instance.worker_servers, instance.ps_servers)
    return slot > 0 and any((side.capacity[:, slot] != side.capacity[:, slot - 1]).any() for side in sides)


def _view_on_arrival(instance: AdmissionInstance, job: int) -> JobView:
    jobs = instance.jobs
    segment = int(jobs.segment_offset[job])
    return JobView(
        job=job,
        arrival=int(jobs.arrival[job]),
        target=int(instance.target[job]),
        done=0,
        progress=instance.progress[job],
        ps_needed=instance.ps_needed[job],
        ps_per_worker=int(jobs.worker_micro_mbps[job]) / int(jobs.ps_micro_mbps[job]),
        value=instance.value[job],
        deadline=int(instance.deadline[job]),
        segment=segment,
        worker_demand=jobs.worker_demand[segment].copy(),
        ps_demand=jobs.ps_demand[segment].copy(),
    )


def _view_after(instance: AdmissionInstance, view: JobView, done: int) -> JobView:
    """Return a job's view once `done` units of progress are made: the slot's segment follows."""
    jobs = instance.jobs
    first, end = int(jobs.segment_offset[view.job]), int(jobs.segment_offset[view.job + 1])
    segment = first + int(np.searchsorted(jobs.segment_start[first:end], done, side="right")) - 1
    if segment == view.segment:
        return replace(view, done=done)
    return replace(
        view,
        done=done,
        segment=segment,
        worker_demand=jobs.worker_demand[segment].copy(),
        ps_demand=jobs.ps_demand[segment].copy(),
    )
