"""A cluster that runs slot by slot under a policy: servers, views, schedule.

All numbers are integers. A unit is placed only where its exact demand fits, so a board's allocations are
always feasible for the slot.

The engine owns time, servers and progress. At the start of each slot, a policy receives the jobs that have
arrived and returns an allocation for the slot. The executed allocations become a plan.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from optim.core.arrays import FloatArray, IntArray
from optim.core.driver import AbstractIteration, AbstractSolver, Monitor, Outcome, SolverState, run_iteration
from optim.core.errors import NotAllowedError
from optim.core.solution import Termination
from optim.models.admission.data import share_of
from optim.models.admission.decision import AdmissionPlan
from optim.models.admission.instance import AdmissionInstance
from optim.solvers.admission.packing.dual_points import certified
from optim.solvers.admission.pricing.classes import JobTables
from optim.solvers.admission.slot_placement import add_in_turn, keep_units, take_in_turn
from optim.solvers.admission.warm_up import compile_bound, compile_placement


@dataclass(frozen=True, kw_only=True, eq=False)
class JobView:
    """A job that has arrived, as the policy sees it: all of its data, and its progress.

    Parameters
    ----------
    job, arrival
        Index of the job, and its arrival slot.
    target, done
        Units of progress required, and completed before the slot.
    progress, ps_needed
        Progress in a slot, and number of PSs needed, with 0, 1, ... workers.
    ps_per_worker
        b / B, the PSs a worker needs before rounding up.
    value
        Shape (slots,): value of completing the job in a slot.
    deadline
        Last slot in which completion has a positive value, -1 if there is none.
    segment
        Demand segment in which the slot starts.
    worker_demand, ps_demand
        Shape (resources,): demands of that segment in 1e-6 units.
    """

    job: int
    arrival: int
    target: int
    done: int
    progress: IntArray
    ps_needed: IntArray
    ps_per_worker: float
    value: FloatArray
    deadline: int
    segment: int
    worker_demand: IntArray
    ps_demand: IntArray

    @property
    def demands(self) -> tuple[IntArray, IntArray]:
        """Demands of a worker and of a PS."""
        return self.worker_demand, self.ps_demand

    @property
    def remaining(self) -> int:
        """Remaining units of progress."""
        return self.target - self.done

    @property
    def can_progress(self) -> bool:
        """Whether any number of workers makes progress."""
        return bool(self.progress[-1] > 0)

    @cached_property
    def min_workers(self) -> int:
        """Smallest number of workers that makes any progress; the maximal number if none does."""
        return self._first_reaching(1)

    @cached_property
    def useful_workers(self) -> int:
        """Smallest number of workers that completes the job in the slot, or the maximal number."""
        return self._first_reaching(self.remaining)

    def next_count(self, workers: int) -> int:
        """Return the smallest number of workers that makes more progress, or the same number if none does."""
        if workers + 1 < len(self.progress) and self.progress[workers + 1] > self.progress[workers]:
            return workers + 1
        higher = int(np.searchsorted(self.progress, self.progress[workers], side="right"))
        return higher if higher < len(self.progress) else workers

    def _first_reaching(self, amount: int) -> int:
        return min(int(np.searchsorted(self.progress, amount)), len(self.progress) - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Allocation:
    """A job's workers and PSs in a slot, one count per server."""

    workers: IntArray
    ps: IntArray

    @property
    def sides(self) -> tuple[IntArray, IntArray]:
        """Workers, then PSs."""
        return self.workers, self.ps


class SlotServers:
    """The empty servers of one slot; shared servers are the same for workers and PSs."""

    def __init__(self, instance: AdmissionInstance, slot: int) -> None:
        self._instance = instance
        self._limits: dict[int, tuple[IntArray, IntArray]] = {}
        self.slot = slot
        self.is_shared = instance.has_shared_servers
        self.worker_class = instance.worker_servers.class_of_server
        self.ps_class = instance.ps_servers.class_of_server
        self.worker_capacity = instance.worker_servers.capacity[self.worker_class, slot]
        self.ps_capacity = self.worker_capacity if self.is_shared else instance.ps_servers.capacity[self.ps_class, slot]

    @cached_property
    def share_capacity(self) -> IntArray:
        """Capacity of each server that one job may use, shape (servers, resources); no rows without such a limit."""
        share = self._instance.max_share_per_server
        if share is None or not self.is_shared:
            return np.zeros((0, self.worker_capacity.shape[1]), dtype=np.int64)
        return share_of(self.worker_capacity, share)

    @cached_property
    def worker_total(self) -> tuple[int, ...]:
        """Capacity of all hosts of workers together, by resource."""
        return _column_sums(self.worker_capacity)

    @cached_property
    def ps_total(self) -> tuple[int, ...]:
        """Capacity of all hosts of PSs together, by resource."""
        return _column_sums(self.ps_capacity)

    def limits(self, view: JobView) -> tuple[IntArray, IntArray]:
        """Return the largest numbers of workers and of PSs of a job on each server."""
        if view.segment not in self._limits:
            by_class, ps_by_class = self._instance.workers_per_server, self._instance.ps_per_server
            self._limits[view.segment] = (
                by_class[view.segment, :, self.slot][self.worker_class],
                ps_by_class[view.segment, :, self.slot][self.ps_class],
            )
        return self._limits[view.segment]

    def class_capacity(self) -> tuple[FloatArray, FloatArray]:
        """Return the total capacity of workers' and PSs' classes, (classes, resources), 1e-6 units."""
        sides = (self._instance.worker_servers, self._instance.ps_servers)
        workers, ps = (side.capacity[:, self.slot].astype(np.float64) * side.count[:, None] for side in sides)
        return workers, ps

    def class_limits(self, view: JobView) -> tuple[IntArray, IntArray]:
        """Return the largest numbers of workers and of PSs of a job in each class."""
        instance = self._instance
        return (
            instance.workers_per_server[view.segment, :, self.slot] * instance.worker_servers.count,
            instance.ps_per_server[view.segment, :, self.slot] * instance.ps_servers.count,
        )

    def class_counts(self, allocation: Allocation) -> tuple[IntArray, IntArray]:
        """Return an allocation's workers and PSs by server class."""
        workers = np.zeros(self._instance.worker_servers.num_classes, dtype=np.int64)
        ps = np.zeros(self._instance.ps_servers.num_classes, dtype=np.int64)
        np.add.at(workers, self.worker_class, allocation.workers)
        np.add.at(ps, self.ps_class, allocation.ps)
        return workers, ps


def _column_sums(capacity: IntArray) -> tuple[int, ...]:
    """Return sums over servers as Python integers, which can't overflow."""
    return tuple(sum(column) for column in capacity.T.tolist())


WORKERS, PS = 0, 1
"""Positions in pairs of workers' and PSs' data."""


class Board:
    """Jobs' units on one slot's servers, placed round-robin: each unit goes to the next server with capacity.

    Parameters
    ----------
    servers
        The empty servers.
    cursors
        Servers at which the next turns of workers and of PSs begin; each slot continues from the slot before.
    """

    def __init__(self, servers: SlotServers, cursors: tuple[int, int] = (0, 0)) -> None:
        self.servers = servers
        self.cursors = cursors
        free = servers.worker_capacity.copy()
        self._free = free, free if servers.is_shared else servers.ps_capacity.copy()
        self._units: dict[int, Allocation] = {}
        self._count: dict[int, int] = {}
        self._ps_count: dict[int, int] = {}

    def empty(self) -> "Board":
        """Return an empty board of the same slot."""
        return Board(self.servers, self.cursors)

    def count(self, view: JobView) -> int:
        """Return a job's number of workers."""
        return self._count.get(view.job, 0)

    def allocations(self) -> dict[int, Allocation]:
        """Return the allocations of all jobs with workers."""
        return {
            job: Allocation(workers=units.workers.copy(), ps=units.ps.copy())
            for job, units in self._units.items()
            if self._count[job] > 0
        }

    def add(self, view: JobView, workers: int) -> bool:
        """Add workers and the PSs that they need; if they don't all fit, add none and return False."""
        self._open(view)
        total = self._count[view.job] + workers
        fits, worker_cursor, ps_cursor = add_in_turn(
            workers, int(view.ps_needed[total]) - self._ps_count[view.job], *self.cursors, *self._free, *view.demands,
            *self.servers.limits(view), *self._units[view.job].sides, self.servers.share_capacity,
        )  # fmt: skip
        self.cursors = worker_cursor, ps_cursor
        if fits:
            self._count[view.job] = total
            self._ps_count[view.job] = int(view.ps_needed[total])
        return bool(fits)

    def add_up_to(self, view: JobView, workers: int) -> int:
        """Raise a job to `workers` workers, one by one while they fit; return its number of workers."""
        lacking = workers - self.count(view)
        if lacking > 0 and not self.add(view, lacking):
            while self.count(view) < workers and self.add(view, 1):
                pass
        return self.count(view)

    def hold(self, view: JobView, previous: Allocation, workers: int) -> int:
        """Keep up to `workers` workers of a job on their servers; return the number.

        Units that no longer fit on their server are removed: its capacity may have fallen, or the job's present demand
        segment may need more. Then PSs are balanced as in `settle`. A job without workers pauses.
        """
        self._open(view)
        placed = self._keep(view, WORKERS, previous.workers, workers)
        self._keep(view, PS, previous.ps, int(view.ps_needed[placed]))
        return self.settle(view)

    def place_by_class(self, view: JobView, previous: Allocation | None, workers: IntArray, ps: IntArray) -> int:
        """Place the given units of a job in each class, on its old servers first; return the number of placed workers.

        Workers that don't fit on single servers of their class go to any server with capacity. If there is
        none, they are not placed.
        """
        self._open(view)
        classes, limits = (self.servers.worker_class, self.servers.ps_class), self.servers.limits(view)
        for side, wanted in ((WORKERS, workers), (PS, ps)):
            of_class, limit = classes[side], limits[side]
            unplaced = 0
            for c in np.flatnonzero(wanted).tolist():
                inside = of_class == c
                to_place = int(wanted[c])
                if previous is not None:
                    to_place -= self._keep(view, side, np.where(inside, previous.sides[side], 0), to_place)
                unplaced += to_place - self._take(view, side, to_place, np.where(inside, limit, 0))
            self._take(view, side, unplaced, limit)
        return self.settle(view)

    def settle(self, view: JobView) -> int:
        """Balance a job's PSs with its workers: add missing PSs or drop workers, and drop spare PSs."""
        self._open(view)
        units = self._units[view.job]
        workers = int(units.workers.sum())
        self._take(view, PS, int(view.ps_needed[workers]) - int(units.ps.sum()), self.servers.limits(view)[PS])
        ps = int(units.ps.sum())
        served = min(workers, int(np.searchsorted(view.ps_needed, ps, side="right")) - 1)
        needed = int(view.ps_needed[served])
        self._give_back(view, WORKERS, _last_units(units.workers, workers - served))
        self._give_back(view, PS, _last_units(units.ps, ps - needed))
        self._count[view.job], self._ps_count[view.job] = served, needed
        return served

    def clear(self, view: JobView) -> None:
        """Remove a job from the board."""
        if view.job in self._units:
            for side in (WORKERS, PS):
                self._give_back(view, side, self._units[view.job].sides[side].copy())
            self._count[view.job] = self._ps_count[view.job] = 0

    def max_alone(self, view: JobView, workers: int) -> int:
        """Return how many workers, up to `workers`, the job would get on an empty board."""
        return self.empty().add_up_to(view, workers)

    def _open(self, view: JobView) -> None:
        if view.job not in self._units:
            self._units[view.job] = Allocation(
                workers=np.zeros(len(self.servers.worker_class), dtype=np.int64),
                ps=np.zeros(len(self.servers.ps_class), dtype=np.int64),
            )
            self._count[view.job] = self._ps_count[view.job] = 0

    def _take(self, view: JobView, side: int, count: int, limit: IntArray) -> int:
        """Place up to `count` more workers or PSs (`side`) in turn; return the number placed."""
        units, demands, cursors = self._units[view.job].sides, view.demands, list(self.cursors)
        placed, cursors[side] = take_in_turn(
            count, cursors[side], np.zeros_like(limit), self._free[side], demands[side], limit,
            units[side], units[1 - side], demands[1 - side], self.servers.share_capacity,
        )  # fmt: skip
        self.cursors = cursors[WORKERS], cursors[PS]
        return int(placed)

    def _keep(self, view: JobView, side: int, previous: IntArray, count: int) -> int:
        """Place up to `count` workers or PSs (`side`) on their previous servers; return the number placed."""
        units, demands = self._units[view.job].sides, view.demands
        placed = keep_units(
            count, previous, self._free[side], demands[side], self.servers.limits(view)[side],
            units[side], units[1 - side], demands[1 - side], self.servers.share_capacity,
        )  # fmt: skip
        return int(placed)

    def _give_back(self, view: JobView, side: int, units: IntArray) -> None:
        allocated, free = self._units[view.job].sides[side], self._free[side]
        allocated -= units
        free += units[:, None] * view.demands[side]


def _last_units(allocated: IntArray, count: int) -> IntArray:
    """Return the last `count` of the allocated units, counted from the last server down."""
    if count <= 0:
        return np.zeros_like(allocated)
    from_last = np.cumsum(allocated[::-1])[::-1]
    last: IntArray = np.minimum(allocated, np.maximum(0, count - (from_last - allocated)))
    return last


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotState:
    """State of the cluster at the start of a slot, as the policy sees it.

    Parameters
    ----------
    slot
        The slot.
    jobs
        Every job that has arrived and isn't complete, by arrival, then by index.
    board
        The slot's servers, empty: a policy places jobs and returns the board's allocations.
    previous
        Allocations of these jobs in the slot before; jobs without any are absent.
    is_event
        Whether a job has arrived, completed or entered another demand segment, or a capacity has
        changed, since the slot before.
    remaining_s
        Remaining seconds of the run, infinity without a limit; slow policies should end within them.
    should_stop
        Whether the run should end, for slow policies.
    """

    slot: int
    jobs: tuple[JobView, ...]
    board: Board
    previous: Mapping[int, Allocation]
    is_event: bool
    remaining_s: float
    should_stop: Callable[[], bool]


class SlotPolicy(Protocol):
    """Allocate servers to jobs in each slot; called once per slot, in order."""

    def allocate(self, state: SlotState) -> Mapping[int, Allocation]:
        """Return the allocation of every job that runs in the slot."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class SlotRun:
    """Result of a run.

    Parameters
    ----------
    completion
        Completion slot of each job that completed.
    started
        Jobs that had workers in any slot.
    slots_run
        Number of slots that were run.
    reason
        Why the run was cut short, None if it reached the horizon.
    plan
        Allocations of jobs that completed in time to earn a value. All other jobs earn 0 and are omitted,
        although they used capacity during the run.
    """

    completion: Mapping[int, int]
    started: frozenset[int]
    slots_run: int
    reason: Termination | None
    plan: AdmissionPlan

    def counts(self, num_jobs: int) -> dict[str, float]:
        """Return the numbers of jobs that earned a value, ran without earning, and never ran."""
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
        Allocates servers in each slot.
    monitor
        Polled before each slot; receives the value earned so far. A run that is cut short leaves the running
        jobs unfinished.
    task
        Name for the progress; without one no progress is reported.

    Raises
    ------
    NotAllowedError
        If the policy allocates more than the free capacity, or a job that isn't in the state.
    """
    return run_iteration(_Cluster(instance, policy, monitor), monitor, task=task, total=float(instance.horizon))


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
        """Return whether the horizon is reached."""
        return self.slots_run == self.instance.horizon

    def standing(self) -> SolverState:
        """Return the number of slots and the value earned."""
        return SolverState(iterations=self.slots_run, objective=self.earned)

    def step(self) -> None:
        """Add arrivals, call the policy, check its allocations and advance the jobs."""
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
        """Record a job's allocation in the slot and add its progress."""
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
        """Return the result."""
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
    """Raise unless the allocations are feasible for the slot, in exact integers.

    Raises
    ------
    NotAllowedError
        If an allocation is infeasible; the message names the job and the violated limit.
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
            fault = f"{total} workers, of which at most {len(view.progress) - 1} are useful (row (3))"
        elif not view.ps_needed[total] <= num_ps <= total:
            fault = f"{num_ps} PSs for {total} workers, which need {view.ps_needed[total]} (rows (6), (7))"
        elif any((units > limit).any() for units, limit in zip(allocation.sides, servers.limits(view), strict=True)):
            fault = "more units than one job may have on a server"
        elif _exceeds_share(view, servers, workers, ps):
            fault = "more of a server than one job may use (max_share_per_server)"
        if fault is None:
            worker_free -= workers[:, None] * view.worker_demand
            ps_free -= ps[:, None] * view.ps_demand
            if (worker_free < 0).any() or (ps_free < 0).any():
                fault = "more of a server than its free capacity (rows (4), (5))"
        if fault is not None:
            raise NotAllowedError(
                f"slot {servers.slot}: job {job} was given {fault}; place jobs with the state's board"
            )


def _exceeds_share(view: JobView, servers: SlotServers, workers: IntArray, ps: IntArray) -> bool:
    """Return whether a job exceeds its share of a shared server; a single unit is always allowed."""
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
    """Return whether any capacity differs from the slot before."""
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
    """Return a job's view after `done` units of progress, with the demand segment of the next slot."""
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


PolicyT = TypeVar("PolicyT", bound=SlotPolicy)


class AbstractSlotSolver(AbstractSolver[AdmissionInstance, Any], Generic[PolicyT]):
    """A solver that simulates a policy: each slot is decided without knowledge of later arrivals.

    The plan contains the jobs that completed in time to earn a value. The plan's bound comes from prices
    derived from its utilisation. A run cut short by its stopping rule returns the jobs completed so far, without a
    bound. Iterations are slots.

    Counts: ``admitted`` jobs earn a value; ``unfinished`` jobs ran without earning a value, and ``late`` counts
    the jobs among them that completed too late; ``never_started`` jobs never ran.
    """

    @abstractmethod
    def make_policy(self, instance: AdmissionInstance, options: Any, rng: np.random.Generator) -> PolicyT:
        """Return a new policy. The policy may use the instance's constant cluster data, not the jobs."""

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
