"""The engine of planning policies, and the rules that a plan must obey.

Slowdowns are computed after all starts and stops of an instant.
"""

from collections.abc import Callable, Mapping
from heapq import heappop

import numpy as np

from optim.core.arrays import IntArray
from optim.core.errors import OptimError
from optim.core.user_code import where_user_code_failed
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import NO_JOB, Event, EventLog, Run
from optim.models.cluster.present import Present
from optim.models.cluster.workload import WHOLE_MILLI, Workload
from optim.simulation.cluster.options import (
    BY_MACHINES,
    BY_STOPS,
    HALTS,
    MAX_IDLE_CALLS,
    MAX_STALLED,
    EngineOptions,
    OutageFeed,
)
from optim.simulation.cluster.planning.free_gpus import Gpus, SimulationContext
from optim.simulation.cluster.planning.policy import COLUMNS, BrokenRuleError, Plan, PlanningPolicy, View
from optim.simulation.cluster.planning.state import NEVER, ClusterState


def check_plan(plan: object, now: int) -> None:
    """Check the form of a plan.

    Raises
    ------
    BrokenRuleError
        If the object is not a plan, or requests a call in the past.
    """
    if not isinstance(plan, Plan) or not isinstance(plan.gpus, Mapping):
        raise BrokenRuleError(f"it returns {type(plan).__name__}; return a Plan(gpus={{job: GPUs}})")
    if plan.again_us is not None and plan.again_us <= now:
        raise BrokenRuleError(f"it requests a call at {plan.again_us} us; again_us must be later than now")


def check_leaving(books: ClusterState, job: int, wanted: Mapping[int, Gpus]) -> None:
    """Check that a plan may remove a job permanently: reject it, or give it up.

    Raises
    ------
    BrokenRuleError
        If the plan may not remove the job; the message names job and rule.
    """
    if not (books.rules.may_refuse or books.rules.kills_at_limit):
        _broken(books, job, "is in `leave`, which the policy's rules do not allow (may_refuse, kills_at_limit)")
    if not 0 <= job < len(books.is_active) or not books.is_active[job]:
        _broken(books, job, "is in `leave`, but is neither waiting nor running")
    if job in wanted:
        _broken(books, job, "is in `leave` and in `gpus`")


def check_start(books: ClusterState, job: int, gpus: Gpus, submitted: int) -> None:
    """Check that a job may start on the given GPUs, after the plan's earlier starts.

    Raises
    ------
    BrokenRuleError
        If the job may not start on these GPUs; the message names job and rule.
    """
    site, rules, room = books.site, books.rules, books.free_room
    if not 0 <= job < submitted or not books.is_active[job]:
        _broken(books, job, "is in `gpus`, but is neither waiting nor running (not submitted yet, or ended)")
    least, most = int(books.jobs.gpus[job]), int(books.jobs.gpus[job])
    if rules.is_elastic:
        least, most = int(books.jobs.min_gpus[job]), int(books.jobs.max_gpus[job])
    if not least <= len(gpus) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        _broken(books, job, f"gets {len(gpus)} GPUs, but needs {wanted}")
    if len(set(gpus)) < len(gpus):
        _broken(books, job, "gets a GPU twice")
    if gpus[0] < 0 or gpus[-1] >= len(books.holders):
        _broken(books, job, f"gets GPU {gpus[0] if gpus[0] < 0 else gpus[-1]}, which does not exist")
    for gpu in gpus:
        holders = books.holders[gpu]
        if rules.is_shared:
            if room.left_milli[gpu] < site.shares[job]:
                _broken(books, job, f"gets GPU {gpu}, of which only {room.left_milli[gpu] / WHOLE_MILLI:g} is free")
        elif len(holders) >= rules.jobs_a_gpu:
            _broken(books, job, f"gets GPU {gpu}, which job {books.jobs.ids[holders[0]][:40]} holds")
    machines = [site.machine_of[gpu] for gpu in gpus]
    if not books.is_up[machines].all():
        _broken(books, job, "gets a GPU of a machine that is down (view.is_up)")
    usable = site.usable(job)
    if usable is not None and not usable[machines].all():
        _broken(books, job, "gets a GPU of a type on which it cannot run")
    if site.has_host:
        for machine in set(machines):
            if (room.host[:, machine] < site.asks[:, job] * machines.count(machine)).any():
                _broken(books, job, f"needs more vCPUs or memory than are free on machine {machine}")


def _broken(books: ClusterState, job: int, rule: str) -> None:
    name = books.jobs.ids[job][:40] if 0 <= job < len(books.jobs) else job
    raise BrokenRuleError(f"job {name} {rule}")


WATCH_EVERY = 200
"""Number of instants between two checks of progress and interruption."""

MAX_CALLS = 1_000_000
"""Number of consecutive calls of the policy, without an end or a submission of a job, after which a run ends with
unfinished jobs."""


def play_plans(
    jobs: Workload,
    cluster: Cluster,
    policy: PlanningPolicy,
    options: EngineOptions,
    seed: int,
    watch: Callable[[int], bool] | None = None,
    present: Present | None = None,
) -> Run | None:
    """Simulate jobs under a planning policy until all end or none can progress; return None if `watch` requests a stop.

    The run begins with the present state, if given.

    Raises
    ------
    BrokenRuleError
        If a plan breaks a rule, or the policy raises an exception.
    """
    world = _begun(jobs, cluster, policy, options, seed)
    instants = 0
    if present is not None:
        world.resume(present)
    while world.step():
        instants += 1
        if watch is not None and instants % WATCH_EVERY == 0 and watch(world.submitted):
            return None
    return world.finish()


def planned_first_starts(
    jobs: Workload,
    cluster: Cluster,
    policy: PlanningPolicy,
    options: EngineOptions,
    seed: int,
    present: Present,
    awaited: IntArray,
) -> IntArray:
    """Simulate from a present state until the awaited jobs have started or none can progress; return first starts.

    A job that never starts gets the end of the run.

    Raises
    ------
    BrokenRuleError
        If a plan breaks a rule, or the policy raises an exception.
    """
    world = _begun(jobs, cluster, policy, options, seed)
    world.resume(present)
    while (world.books.first_start[awaited] < 0).any() and world.step():
        pass
    found = world.books.first_start[awaited]
    return np.where(found >= 0, found, world.now)


def _begun(jobs: Workload, cluster: Cluster, policy: PlanningPolicy, options: EngineOptions, seed: int) -> "_Run":
    """Return a run before its first instant."""
    world = _Run(jobs, cluster, policy, options, seed)
    policy.begin(cluster, seed)
    world.books.rules = options.on_failures(policy.rules(options))  # `begin` has set the quotas
    return world


def as_log(cluster: Cluster, events: IntArray, places: IntArray) -> EventLog:
    """Return an event log.

    Parameters
    ----------
    events
        Shape (events, 4); the columns are time, type, job and number of GPUs.
    places
        Numbers of the GPUs of all events, event by event; shape (places,).
    """
    machine = np.repeat(np.arange(cluster.num_machines), cluster.gpus)[places]
    first = np.cumsum(cluster.gpus) - cluster.gpus
    return EventLog(
        time_us=events[:, 0].copy(),
        kind=events[:, 1].astype(np.int8),
        job=events[:, 2].copy(),
        first=np.concatenate([[0], np.cumsum(events[:, 3])]),
        machine=machine,
        gpus=np.repeat(events[:, 1] == Event.START, events[:, 3]).astype(np.int64),
        slot=places - first[machine],
    )


FORM = "gpus maps job numbers to GPU numbers, machine 0 first, such as {3: (0, 1)} for job 3 on GPUs 0 and 1"


def _malformed(gpus: object) -> str:
    """Return an error text: the expected form of a plan's GPUs, and the first entry that differs from it."""
    for job, given in gpus.items() if isinstance(gpus, Mapping) else ():
        try:
            int(job)
            list(map(int, given))
        except (TypeError, ValueError):
            return (
                f"{FORM}; the plan has {{{repr(job)[:40]}: {repr(given)[:60]}}} (room.place(job) returns such numbers)"
            )
    return f"{FORM}; the plan's gpus, leave or steps have another form"


class _Run:
    """One run: time, state, and log."""

    def __init__(
        self, jobs: Workload, cluster: Cluster, policy: PlanningPolicy, options: EngineOptions, seed: int
    ) -> None:
        rules = options.on_failures(policy.rules(options))
        self.options, self.seed = options, seed
        self.outages = OutageFeed(cluster, options, seed)
        site = SimulationContext(jobs, cluster, options.placement, options.spread, rules.is_shared, rules.jobs_a_gpu)
        self.policy, self.jobs, self.cluster = policy, jobs, cluster
        self.books = ClusterState(site, rules)
        self.submit: list[int] = jobs.submit_us.tolist()
        self.columns = {name: getattr(jobs, name).copy() for name in COLUMNS}
        for column in self.columns.values():
            column.flags.writeable = False
        self.now, self.submitted, self.num_active = 0, 0, 0
        self.again: int | None = None
        self.idle_calls = self.calls = self.stalled = 0
        self.gone_from, self.halted = options.gone_from(cluster), 0
        self.events: list[tuple[int, int, int, int]] = []
        self.places: list[int] = []

    def resume(self, present: Present) -> None:
        """Restore the running jobs of a present state with their GPUs and starts, and call the policy."""
        books, starts = self.books, present.starts
        gpus_of = present.gpu_numbers(self.cluster)
        for event, (when, job) in enumerate(zip(starts.time_us.tolist(), starts.job.tolist(), strict=True)):
            self.now = when
            books.is_active[job] = True
            books.start(job, gpus_of[event], when)
            self._log(Event.START, job, gpus_of[event])
            books.refresh(when)
        self.now = present.now_us
        self.outages = OutageFeed(self.cluster, self.options, self.seed, self.now)
        self.submitted = self.num_active = int(np.searchsorted(self.jobs.submit_us, self.now, side="right"))
        books.is_active[: self.submitted] = True
        self._fail_tries()
        self._plan()
        books.refresh(self.now)

    def step(self) -> bool:
        """Simulate the next instant; return False at the end."""
        books = self.books
        if self.submitted == len(self.submit) and not self.num_active:
            return False
        arrival = self.submit[self.submitted] if self.submitted < len(self.submit) else NEVER
        again = NEVER if self.again is None else self.again
        outage = self.outages.next[0] if self.outages.next is not None else NEVER
        back = books.held_back[0][0] if books.held_back else NEVER
        when = min(books.next_of(books.ends), books.next_of(books.fails), back, outage, arrival, again)
        if when == NEVER or self.calls > MAX_CALLS or self._is_halted():
            return False
        self.now = when
        happened = self._end_jobs()
        happened = self._fail_tries() or happened
        self._break_machines()
        while self.submitted < len(self.submit) and self.submit[self.submitted] == when:
            books.is_active[self.submitted] = True
            self.submitted += 1
            self.num_active += 1
            happened = True
        if happened:
            self.stalled = 0
        if self.policy.plans_at_events or self.again is None or when >= self.again:
            self.calls = 0 if happened else self.calls + 1
            self._plan()
            is_idle = not books.shown and self.submitted == len(self.submit)
            are_up = books.is_up[self.gone_from > when].all()
            self.idle_calls = self.idle_calls + bool(are_up) if is_idle else 0
        books.refresh(when)
        return True

    def _is_halted(self) -> bool:
        """Return whether no job makes progress any more.

        This is the case if stops undo all work, or if no job is started although all machines that will return are up.
        """
        if self.stalled > MAX_STALLED * max(1, int(self.books.is_active.sum())):
            self.halted = BY_STOPS
        elif self.idle_calls > MAX_IDLE_CALLS:
            self.halted = BY_MACHINES
        return self.halted > 0

    def _end_jobs(self) -> bool:
        """End jobs whose work is complete."""
        books, ended = self.books, False
        while books.next_of(books.ends) <= self.now:
            job = heappop(books.ends)[1]
            books.stop(job, self.now, is_done=True)
            self._close(job, Event.END)
            ended = True
        return ended

    def _fail_tries(self) -> bool:
        """Apply failing attempts that are due, and return jobs from back-off to the queue."""
        books, happened = self.books, False
        while books.next_of(books.fails) <= self.now:
            job = heappop(books.fails)[1]
            if not books.is_bound_to_fail(job):
                continue  # its run time is simulated in one piece, and policies are only informed of the failure
            happened = True
            if books.fault(job, self.now):
                self._close(job, Event.GIVE_UP)
            else:
                self._log(Event.FAULT, job)
        while books.held_back and books.held_back[0][0] <= self.now:
            books.is_active[heappop(books.held_back)[1]] = True
            happened = True
        return happened

    def _break_machines(self) -> None:
        """Apply machine failures and repairs that are due."""
        books = self.books
        while self.outages.next is not None and self.outages.next[0] == self.now:
            _, machine, fails = self.outages.take()
            self._log(Event.FAIL if fails else Event.REPAIR, NO_JOB, (int(books.site.first[machine]),))
            if fails:
                for job in books.jobs_on(machine):
                    saved = int(books.saved[job])
                    books.crash(job, self.now)
                    self.stalled *= int(books.saved[job]) <= saved
                    self._log(Event.CRASH, job)
            books.set_up(machine, is_up=not fails)

    def _plan(self) -> None:
        """Call the policy, and apply its plan."""
        view = View(self.now, self.submitted, self.books, self.columns, self.policy.oracle_inputs)
        try:
            plan = self.policy.plan(view)
        except Exception as error:  # a user policy may raise any exception
            if isinstance(error, OptimError) and where_user_code_failed(error) is None:
                raise
            said = where_user_code_failed(error) or f"{type(error).__name__}: {error}"
            raise BrokenRuleError(f"{self._where()} it fails with {said}") from error
        try:
            check_plan(plan, self.now)
            self._apply(plan)
        except BrokenRuleError as broken:
            raise BrokenRuleError(f"{self._where()} {broken}") from broken
        except (TypeError, ValueError) as error:
            raise BrokenRuleError(f"{self._where()} {_malformed(plan.gpus)}") from error
        self.again = plan.again_us

    def _where(self) -> str:
        return f"policy {self.policy.name[:40]!r} at event {len(self.events)} ({self.now} us):"

    def _apply(self, plan: Plan) -> None:
        books, wanted = self.books, plan.gpus
        changed = {}
        for job, gpus in wanted.items():
            held = books.shown.get(job)
            if held is not gpus and held != (taken := tuple(sorted(map(int, gpus)))):
                changed[int(job)] = taken
        leaving = set(plan.leave)
        later = {job for kind, job in plan.steps if kind is Event.PREEMPT and job in books.shown} - leaving
        changed.update((job, books.shown[job]) for job in later if job in wanted and job not in changed)
        for job in [job for job in books.shown if (job not in wanted or job in changed) and job not in later]:
            if job in leaving:
                books.stop(job, self.now, is_done=False)
            else:
                self._preempt(job)
        for job in plan.leave:
            check_leaving(books, job, wanted)
            self._close(job, Event.LEAVE)
        for kind, job in plan.steps:
            if kind is Event.PREEMPT and job in later:
                later.discard(job)
                self._preempt(job)
            elif kind is Event.START and job in changed and job not in books.shown:
                self._start(job, changed.pop(job))
        for job, gpus in changed.items():
            self._start(job, gpus)

    def _preempt(self, job: int) -> None:
        saved = int(self.books.saved[job])
        self.books.preempt(job, self.now)
        if self.books.rules.preempt_checkpoint_us:
            self.stalled = 0 if self.books.saved[job] > saved else self.stalled + 1
        self._log(Event.PREEMPT, job)

    def _start(self, job: int, gpus: Gpus) -> None:
        check_start(self.books, job, gpus, self.submitted)
        self.books.start(job, gpus, self.now)
        self._log(Event.START, job, gpus)

    def _close(self, job: int, kind: Event) -> None:
        self.books.close(job, self.now)
        self.num_active -= 1
        self._log(kind, job)

    def _log(self, kind: Event, job: int, gpus: Gpus = ()) -> None:
        self.events.append((self.now, int(kind), job, len(gpus)))
        self.places.extend(gpus)

    def finish(self) -> Run:
        """Return the results of the run."""
        books = self.books
        for job in list(books.shown):  # empty unless the run was halted
            self._preempt(job)
        events = np.array(self.events, np.int64).reshape(-1, 4)
        log = as_log(self.cluster, events, np.array(self.places, np.int64))
        if (promised := self.policy.promises()) is not None:
            log = log.with_promises(*promised)
        over = np.where(books.end >= 0, books.end, np.maximum(self.now, self.jobs.submit_us))
        return Run(
            policy=self.policy.name,
            log=log,
            first_start_us=np.where(books.first_start >= 0, books.first_start, over),
            end_us=over,
            executed_us=books.executed,
            overhead_us=books.overhead,
            lost_us=books.lost,
            is_done=books.is_done,
            rules=books.rules,
            allocated_gpu_us=books.allocated_gpu_us / WHOLE_MILLI,
            overhead_gpu_us=books.overhead_gpu_us / WHOLE_MILLI,
            figures=dict(self.policy.figures()),
            worth=self.policy.worth(),
            halted=HALTS[self.halted],
        )
