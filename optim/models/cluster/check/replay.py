"""Replay the log of an index or planning policy, check each event, and derive each job's times and work.

A job's slowdown is the product of its factors for placement, type of GPU, co-located jobs and width ((D.4) of
docs/mathematics/cluster.md), rounded up to parts per million. The slowdown is updated after all events of an instant; the
work done until then is rounded down to microseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from optim.core.solution import Violation, violation
from optim.models.cluster.cluster import Cluster
from optim.models.cluster.log import EventLog
from optim.models.cluster.philly import FAILURES
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload

START, PREEMPT, END, REJECT, KILLED_BY_OUTAGE, MACHINE_DOWN, REPAIR, ATTEMPT_FAILED, JOB_FAILED = range(9)

NO_JOB = -1

PPM = 1_000_000


class BrokenEventError(Exception):
    """An event breaks a rule."""


AS_RUN, BLIND, BY_CLASS = range(3)


@dataclass(slots=True)
class AttemptTracker:
    """One job's attempts during a replay: `left` attempts will still fail, and `allowed` retries remain."""

    left: int = 0
    allowed: int = 0
    fails: int = 0
    good: int = 0
    is_doomed: bool = False
    wait: int = 0
    made: int = 0
    spent: int = 0
    ready: int = 0

    @property
    def base(self) -> int:
        """Position in the job's run time where its present attempt begins."""
        return min(self.made * self.fails, self.good) if self.left else self.good if self.made else 0

    def start(self, time: int) -> None:
        """Check that the job may start again."""
        if time < self.ready:
            raise BrokenEventError(f"starts a job that must wait until {self.ready} us after a failed attempt")

    def check(self, run: int, kind: int) -> None:
        """Check an event that stops an attempt after `run` more microseconds."""
        spent = self.spent + run
        if kind in (ATTEMPT_FAILED, JOB_FAILED):
            if not self.left or spent != self.fails:
                when = f"fails after {self.fails} us" if self.left else "never fails"
                raise BrokenEventError(f"fails an attempt after {spent} us, but the attempt {when}")
            is_last = not self.allowed or (self.left == 1 and self.is_doomed)
            if is_last != (kind == JOB_FAILED):
                raise BrokenEventError(
                    "repeats a job after its last attempt" if is_last else "gives up a job that has an attempt left"
                )
        elif self.left and (kind == END or spent >= self.fails):
            raise BrokenEventError("continues an attempt beyond the time at which it fails")

    def fail(self, time: int) -> None:
        """Advance to the next attempt."""
        self.left, self.allowed, self.made = self.left - 1, self.allowed - 1, self.made + 1
        self.spent, self.ready = 0, time + self.wait


def fates(jobs: Workload, rules: Rules) -> list[AttemptTracker]:
    """Return the initial attempt tracker of each job."""
    found = []
    columns = (jobs.fails_us, jobs.tries, jobs.good_us, jobs.duration_us, jobs.reason)
    for fails, tries, good, duration, reason in zip(*(column.tolist() for column in columns), strict=True):
        if fails < 0 or rules.retries == AS_RUN:
            found.append(AttemptTracker())
            continue
        known = FAILURES.get(jobs.reasons[reason])
        is_useless = rules.retries == BY_CLASS and known is not None and not known.is_transient
        allowed = 0 if is_useless else rules.max_retries if rules.retries == BY_CLASS else tries
        step = max(fails, 1)
        rest = good if good >= 0 else max(duration - tries * step, 0)
        fate = AttemptTracker(left=tries, allowed=allowed, fails=step, good=duration - rest, is_doomed=not rest)
        fate.wait = rules.retry_wait_us
        found.append(fate)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Results derived from a log's events alone; one entry per job, in microseconds."""

    first_start_us: tuple[int, ...]
    end_us: tuple[int, ...]
    executed_us: tuple[int, ...]
    overhead_us: tuple[int, ...]
    lost_us: tuple[int, ...]
    is_done: tuple[bool, ...]
    allocated_gpu_us: float
    overhead_gpu_us: float


class Machines:
    """Failed machines, and the jobs that the latest failure must kill."""

    def __init__(self, count: int, checkpoint_us: int) -> None:
        self.down = [False] * count
        self.doomed: set[int] = set()
        self.when, self.checkpoint_us = -1, checkpoint_us

    def heed(self, kind: int, job: int, time: int) -> None:
        """Check that exactly the jobs on a failed machine crash, at once."""
        if self.doomed and (kind != KILLED_BY_OUTAGE or time != self.when):
            raise BrokenEventError(f"precedes the crash of job {min(self.doomed)}, whose machine has failed")
        if kind == KILLED_BY_OUTAGE and job not in self.doomed:
            raise BrokenEventError("crashes a job although none of its machines has just failed")
        self.doomed.discard(job)

    def change(self, kind: int, time: int, places: Sequence[tuple[int, int]], holders: Iterable[int]) -> int:
        """Apply the failure or repair of a machine and return it; `holders` are the jobs that use its GPUs."""
        if not self.checkpoint_us:
            raise BrokenEventError("is a failure or repair, but the rules exclude failures")
        if len(places) != 1 or places[0][1] != 0 or not 0 <= places[0][0] < len(self.down):
            raise BrokenEventError("must name one machine of the cluster, with 0 GPUs")
        machine = places[0][0]
        if self.down[machine] == (kind == MACHINE_DOWN):
            raise BrokenEventError(
                f"{'fails' if kind == MACHINE_DOWN else 'repairs'} machine {machine}, which is already {'down' if kind == MACHINE_DOWN else 'up'}"
            )
        self.down[machine], self.when = kind == MACHINE_DOWN, time
        self.doomed = set(holders)
        return machine

    def end(self) -> None:
        """Check that no job remains on a failed machine."""
        if self.doomed:
            raise BrokenEventError(f"leaves job {min(self.doomed)} on a failed machine")


ENDLESS = 2**62


def time_limits(jobs: Workload, rules: Rules) -> list[int]:
    """Return the run time after which each job is killed."""
    return [stated if rules.kills_at_limit and stated > 0 else ENDLESS for stated in jobs.estimate_us.tolist()]


@dataclass(slots=True)
class _Job:
    """One job during a replay, with the checks that apply to logs of index and planning policies alike."""

    submit: int
    gang: int
    duration: int
    fate: AttemptTracker
    first: int = -1
    started: int = -1
    ended: int = -1
    is_done: bool = False
    executed: int = 0
    work: int = 0
    saved: int = 0
    overhead: int = 0
    lost: int = 0
    limit: int = ENDLESS
    own_step: int = -1
    """Work between the job's checkpoints, 0 for no checkpoints, -1 for the value of the rules."""

    def check_start(self, time: int) -> None:
        """Check that the job may take GPUs now."""
        if time < self.submit:
            raise BrokenEventError("starts a job before its submission")
        if self.started >= 0 or self.ended >= 0:
            raise BrokenEventError("starts a job that already runs or has ended")
        self.fate.start(time)

    def check_stop(self, run: int, slowdown: int, kind: int) -> None:
        """Check an event that stops the job after `run` more microseconds at a slowdown."""
        work = self.work + (run * PPM // slowdown if run else 0)
        if kind == END and work < self.duration:
            raise BrokenEventError(f"ends a job after {work} of its {self.duration} microseconds of work")
        if kind == END and run and self.work + (run - 1) * PPM // slowdown >= self.duration:
            raise BrokenEventError("ends a job later than its work was done")
        if kind != END and not self.fate.left and work >= self.duration:
            raise BrokenEventError("stops a job whose work is done")
        self.fate.check(run, kind)

    def check_limit(self, ran: int, kind: int, may_refuse: bool) -> None:
        """Check that a run doesn't exceed its time limit, and that a policy that rejects a job before the limit may do so."""
        if ran > self.limit:
            raise BrokenEventError(f"runs for {ran} us, longer than the limit of {self.limit} us")
        if kind == REJECT and ran < self.limit and not may_refuse:
            raise BrokenEventError(
                "rejects a job, which the policy may not do" + (" before its limit" if self.limit < ENDLESS else "")
            )

    def add(self, run: int, slowdown: int) -> None:
        """Add run time and the work done in it, rounded down."""
        self.executed, self.work = self.executed + run, self.work + (run * PPM // slowdown if run else 0)
        self.fate.spent += run

    def leave(self, kind: int, time: int, rules: Rules) -> None:
        """Subtract the work lost by a stop, and record whether the job has ended."""
        kept = self.work
        if kind in (ATTEMPT_FAILED, JOB_FAILED):
            self.lost += self.work - self.fate.base
            self.fate.fail(time)
            kept = self.fate.base
        step = {KILLED_BY_OUTAGE: rules.checkpoint_us, PREEMPT: rules.preempt_checkpoint_us}.get(kind, 0)
        if step and self.own_step >= 0:
            step = self.own_step or max(1, self.work) + 1  # without checkpoints all work is lost
        if step:
            kept = max(self.saved, self.work - self.work % step)
            self.lost += self.work - kept
        self.work = self.saved = kept
        self.ended = -1 if kind in (PREEMPT, KILLED_BY_OUTAGE, ATTEMPT_FAILED) else time
        self.is_done = kind == END


@dataclass(slots=True)
class _CountedJob(_Job):
    """A job whose log gives numbers of GPUs; `places` are pairs (machine, number of GPUs)."""

    slowdown: Sequence[int] = ()
    places: tuple[tuple[int, int], ...] = ()

    def has_place_on(self, machines: tuple[tuple[int, int], ...]) -> bool:
        """Return whether the job runs on one of these machines."""
        return self.started >= 0 and not {machine for machine, _ in machines}.isdisjoint(m for m, _ in self.places)

    def start(self, time: int, places: tuple[tuple[int, int], ...], free: list[int]) -> None:
        """Allocate the job's GPUs."""
        self.check_start(time)
        if len({machine for machine, _ in places}) < len(places):
            raise BrokenEventError("names a machine twice")
        if sum(count for _, count in places) != self.gang:
            raise BrokenEventError(f"allocates {sum(count for _, count in places)} GPUs to a gang of {self.gang}")
        for machine, count in places:
            if not 0 <= machine < len(free) or not 1 <= count <= free[machine]:
                raise BrokenEventError(f"takes {count} GPUs of machine {machine}, which are not free there")
            free[machine] -= count
        self.places, self.started = places, time
        self.first = time if self.first < 0 else self.first

    def stop(self, time: int, rack: list[int], rules: Rules, kind: int) -> None:
        """Add the run time and work since the start, and release the job."""
        if self.started < 0:
            raise BrokenEventError("stops a job that doesn't run")
        run = max(0, time - self.started - (rules.startup_us if self.started == self.first else rules.restart_us))
        racks = {rack[machine] for machine, _ in self.places}
        slowdown = self.slowdown[0 if len(self.places) == 1 else 1 if len(racks) == 1 else 2]
        self.check_stop(run, slowdown, kind)
        self.check_limit(run, kind, rules.may_refuse)
        self.add(run, slowdown)
        self.overhead += time - self.started - run
        self.started = -1
        self.leave(kind, time, rules)


def replay(jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules) -> tuple[Replayed | None, list[Violation]]:
    """Replay a log and return its results, or the first event that breaks a rule.

    Logs of index policies give numbers of GPUs per machine, other logs name single GPUs.
    """
    has_counts = len(log.slot) > 0 and not log.names_gpus
    return (_replay_counts if has_counts else _replay_gpus)(jobs, cluster, log, rules)


def _replay_counts(
    jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules
) -> tuple[Replayed | None, list[Violation]]:
    world = _World(jobs, cluster, rules)
    for number, (time, kind, name, places) in enumerate(log.rows()):
        try:
            world.play(time, kind, name, places)
        except BrokenEventError as broken:
            return None, [violation("log", str(broken), where=f"event {number}, job {name}, {time} us")]
    try:
        world.end()
    except BrokenEventError as broken:
        return None, [violation("log", str(broken), where="its end")]
    held = float(sum(job.gang * (job.executed + job.overhead) for job in world.state))
    return _summary(world.state, world.now, held, float(sum(job.gang * job.overhead for job in world.state))), []


class _World:
    """Jobs, free GPUs and machines during a replay."""

    def __init__(self, jobs: Workload, cluster: Cluster, rules: Rules) -> None:
        columns = (jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist())
        steps = jobs.checkpoint_us.tolist()
        rows = zip(
            *columns, fates(jobs, rules), time_limits(jobs, rules), jobs.slowdown_ppm.tolist(), steps, strict=True
        )
        self.state = [
            _CountedJob(submit, gang, duration, fate, limit=limit, slowdown=slowdown, own_step=step)
            for submit, gang, duration, fate, limit, slowdown, step in rows
        ]
        self.size: list[int] = cluster.gpus.tolist()
        self.rack: list[int] = cluster.rack.tolist()
        self.free, self.rules, self.now = self.size.copy(), rules, 0
        self.machines = Machines(len(self.size), rules.checkpoint_us)

    def play(self, time: int, kind: int, name: int, places: tuple[tuple[int, int], ...]) -> None:
        """Apply an event."""
        if time < self.now:
            raise BrokenEventError("is earlier than the event before it")
        machines, self.now = self.machines, time
        machines.heed(kind, name, time)
        if kind in (MACHINE_DOWN, REPAIR):
            if name != NO_JOB:
                raise BrokenEventError("concerns a machine, but names a job")
            holders = [number for number, job in enumerate(self.state) if job.has_place_on(places)]
            machine = machines.change(kind, time, places, holders)
            self.free[machine] += self.size[machine] if kind == REPAIR else -self.size[machine]
            return
        if not 0 <= name < len(self.state):
            raise BrokenEventError("names an unknown job")
        job = self.state[name]
        if kind == START:
            job.start(time, places, self.free)
            return
        known = (PREEMPT, END, KILLED_BY_OUTAGE, ATTEMPT_FAILED, JOB_FAILED)
        if kind not in (*known, *(REJECT,) * self.rules.kills_at_limit) or places:
            raise BrokenEventError(
                f"has kind {kind} and names {len(places)} machines; expected a kind that the rules allow, and machines only "
                "at starts (0), failures (5) and repairs (6)"
            )
        job.stop(time, self.rack, self.rules, kind)
        for machine, count in job.places:
            self.free[machine] += count

    def end(self) -> None:
        """Check that no job is still running."""
        self.machines.end()
        for number, job in enumerate(self.state):
            if job.started >= 0:
                raise BrokenEventError(f"job {number} still runs when the log ends")


WHOLE = 1_000


@dataclass(slots=True)
class _PlacedJob(_Job):
    """A job whose log names single GPUs; `places` are pairs (machine, index of the GPU)."""

    range: tuple[int, int] = (0, 0)
    places: frozenset[tuple[int, int]] = frozenset()
    last: frozenset[tuple[int, int]] = frozenset()
    pause: int = 0
    slowdown: int = 0
    since: int = 0

    def run(self, time: int) -> int:
        """Return the run time since the slowdown last changed."""
        return max(0, time - max(self.since, self.started + self.pause))

    def book(self, time: int) -> None:
        """Add the run time and work since the slowdown last changed."""
        self.add(self.run(time), self.slowdown)
        self.since = time


class _ReplayState:
    """State of the replay of a log that names GPUs, with the jobs on each GPU; a GPU is a pair (machine, index)."""

    def __init__(self, jobs: Workload, cluster: Cluster, rules: Rules) -> None:
        self.jobs, self.cluster, self.rules = jobs, cluster, rules
        ranges = zip(jobs.min_gpus.tolist(), jobs.max_gpus.tolist(), strict=True)
        columns = (jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist())
        self.state = [
            _PlacedJob(
                submit,
                gang,
                duration,
                fate,
                limit=limit,
                own_step=step,
                range=range_ if rules.is_elastic else (gang, gang),
            )
            for submit, gang, duration, fate, limit, range_, step in zip(
                *columns,
                fates(jobs, rules),
                time_limits(jobs, rules),
                ranges,
                jobs.checkpoint_us.tolist(),
                strict=True,
            )
        ]
        self.on: list[list[list[int]]] = [[[] for _ in range(gpus)] for gpus in cluster.gpus.tolist()]
        self.share = jobs.share_milli.tolist() if rules.is_shared else [WHOLE] * len(jobs)
        self.busy = jobs.busy_milli.tolist()
        self.dirty: set[int] = set()
        self.machines = Machines(len(self.on), rules.checkpoint_us)
        self.load = self.gpu_time = self.paused_gpu_time = 0

    def change(self, job: int, places: frozenset[tuple[int, int]], enters: bool) -> None:
        """Add a job to GPUs, or remove it from them."""
        for machine, gpu in places:
            tenants = self.on[machine][gpu]
            before = min(WHOLE, sum(self.share[j] for j in tenants))
            tenants.append(job) if enters else tenants.remove(job)
            self.load += min(WHOLE, sum(self.share[j] for j in tenants)) - before
            self.dirty.add(machine)

    def check(self, job: int, places: frozenset[tuple[int, int]]) -> None:
        """Check that a job may use its new GPUs."""
        rules, jobs, cluster = self.rules, self.jobs, self.cluster
        for machine, gpu in places:
            tenants = self.on[machine][gpu]
            if rules.is_shared and sum(self.share[j] for j in tenants) > WHOLE:
                raise BrokenEventError(f"takes a larger share of GPU {gpu} of machine {machine} than is free")
            if not rules.is_shared and len(tenants) > rules.jobs_a_gpu:
                raise BrokenEventError(f"takes GPU {gpu} of machine {machine}, which isn't free")
            if jobs.gpu_type_slowdown_ppm.shape[1] and jobs.gpu_type_slowdown_ppm[job, cluster.kind[machine]] == 0:
                raise BrokenEventError("takes a GPU of a type on which the job can't run")
        for machine in {machine for machine, _ in places}:
            here = [j for tenants in self.on[machine] for j in tenants]
            cpu, memory = (sum(asks[here].tolist()) for asks in (jobs.cpu_milli, jobs.memory_mib))
            if cpu > round(cluster.cpus[machine] * 1000) or memory > round(cluster.memory_gb[machine] * 1024):
                raise BrokenEventError(f"needs more vCPU or memory than is free on machine {machine}")

    def slowdown(self, job: int) -> int:
        """Return a running job's slowdown, given the present co-located jobs."""
        places, jobs, rules = self.state[job].places, self.jobs, self.rules
        machines = {machine for machine, _ in places}
        racks = {int(self.cluster.rack[machine]) for machine in machines}
        level = 0 if len(machines) == 1 else 1 if len(racks) == 1 else 2
        factor = Fraction(int(jobs.slowdown_ppm[job, level]) * self.state[job].gang, len(places))
        if jobs.gpu_type_slowdown_ppm.shape[1]:
            factor *= Fraction(max(int(jobs.gpu_type_slowdown_ppm[job, self.cluster.kind[m]]) for m in machines), PPM)
        if rules.jobs_a_gpu > 1:
            factor *= max(Fraction(1), *(Fraction(sum(self.busy[j] for j in self.on[m][g]), WHOLE) for m, g in places))
        if rules.neighbour_ppm > PPM and len(places) > 1:
            others = {j for m in machines for tenants in self.on[m] for j in tenants} - {job}
            if any(len(self.state[j].places) > 1 for j in others):
                factor *= Fraction(rules.neighbour_ppm, PPM)
        return ceil(factor)

    def settle(self, now: int) -> None:
        """Update slowdowns after all events of an instant."""
        for job in {j for machine in self.dirty for tenants in self.on[machine] for j in tenants}:
            one, slowdown = self.state[job], self.slowdown(job)
            if slowdown != one.slowdown:
                one.book(now)
                one.slowdown = slowdown
        self.dirty.clear()

    def start(self, job: int, time: int, places: frozenset[tuple[int, int]]) -> None:
        """Allocate a job's GPUs."""
        one = self.state[job]
        one.check_start(time)
        for machine, gpu in places:
            if not (0 <= machine < len(self.on) and 0 <= gpu < len(self.on[machine])):
                raise BrokenEventError(f"takes GPU {gpu} of machine {machine}, which doesn't exist")
        if not one.range[0] <= len(places) <= one.range[1]:
            raise BrokenEventError(f"allocates {len(places)} GPUs to a gang of {one.gang}")
        if any(self.machines.down[machine] for machine, _ in places):
            raise BrokenEventError("takes a GPU of a machine that is down")
        self.change(job, places, enters=True)
        self.check(job, places)
        again = self.rules.restart_us if places == one.last else self.rules.move_us
        one.places, one.started, one.since, one.slowdown = places, time, time, 0
        one.pause = again if one.first >= 0 else self.rules.startup_us
        one.first = time if one.first < 0 else one.first

    def stop(self, job: int, time: int, kind: int) -> None:
        """Release a job's GPUs."""
        one = self.state[job]
        ran = max(0, time - one.started - one.pause) if one.started >= 0 else 0
        one.check_limit(ran, kind, self.rules.may_refuse)
        if one.ended >= 0 or time < one.submit:
            raise BrokenEventError("stops a job that isn't submitted yet, or has ended")
        if kind != REJECT and one.started < 0:
            raise BrokenEventError("stops a job that doesn't run")
        if one.started >= 0:
            one.check_stop(one.run(time), one.slowdown, kind)
            one.book(time)
            paused = min(time - one.started, one.pause)
            one.overhead += paused
            self.paused_gpu_time += paused * len(one.places) * self.share[job]
            self.change(job, one.places, enters=False)
            one.last, one.places, one.started = one.places, frozenset(), -1
        one.leave(kind, time, self.rules)

    def play(self, kind: int, job: int, time: int, taken: list[tuple[int, int]]) -> None:
        """Apply an event."""
        if kind in (MACHINE_DOWN, REPAIR):
            tenants = self.on[taken[0][0]] if 0 <= taken[0][0] < len(self.on) else []
            self.machines.change(kind, time, taken, {j for on in tenants for j in on})
        elif kind == START:
            self.start(job, time, frozenset(taken))
        else:
            self.stop(job, time, kind)


def _replay_gpus(
    jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules
) -> tuple[Replayed | None, list[Violation]]:
    tenants, now = _ReplayState(jobs, cluster, rules), 0
    places = list(zip(log.machine.tolist(), log.slot.tolist(), strict=True))
    first, ones = log.first.tolist(), log.gpus.tolist()
    rows = zip(log.time_us.tolist(), log.kind.tolist(), log.job.tolist(), strict=True)
    for number, (time, kind, job) in enumerate(rows):
        taken = places[first[number] : first[number + 1]]
        try:
            _check_form(taken, ones[first[number] : first[number + 1]], (kind, job, len(jobs)), time < now)
            if time > now:
                tenants.settle(now)
                tenants.gpu_time += tenants.load * (time - now)
                now = time
            tenants.machines.heed(kind, job, time)
            tenants.play(kind, job, time, taken)
        except BrokenEventError as broken:
            return None, [violation("log", str(broken), where=f"event {number}, job {job}, {time} us")]
    still = [job for job, one in enumerate(tenants.state) if one.started >= 0]
    if still or tenants.machines.doomed:
        return None, [violation("log", "still runs when the log ends", where=f"job {min(still)}")]
    return _summary(tenants.state, now, tenants.gpu_time / WHOLE, tenants.paused_gpu_time / WHOLE), []


def _check_form(taken: list[tuple[int, int]], ones: list[int], what: tuple[int, int, int], is_early: bool) -> None:
    kind, job, num_jobs = what
    is_machine = kind in (MACHINE_DOWN, REPAIR)
    if not (job == NO_JOB if is_machine else 0 <= job < num_jobs):
        raise BrokenEventError("names an unknown job")
    if is_early:
        raise BrokenEventError("is earlier than the event before it")
    if is_machine and len(taken) == 1 and taken[0][1] == 0 and ones == [0]:
        return
    if kind not in (START, PREEMPT, END, REJECT, KILLED_BY_OUTAGE, ATTEMPT_FAILED, JOB_FAILED) or bool(taken) != (
        kind == START
    ):
        raise BrokenEventError(
            f"has kind {kind} and names {len(taken)} GPUs; expected a known kind, GPUs only at starts (0), and one machine "
            "at failures (5) and repairs (6)"
        )
    if len(set(taken)) < len(taken) or any(one != 1 for one in ones):
        raise BrokenEventError("names a GPU twice, or states `gpus` other than 1 for a named GPU")


def _summary(state: Sequence[_Job], now: int, allocated_gpu_us: float, overhead_gpu_us: float) -> Replayed:
    """Return the results of a replay; unfinished jobs end with the log."""
    ends = tuple(job.ended if job.ended >= 0 else max(now, job.submit) for job in state)
    return Replayed(
        first_start_us=tuple(job.first if job.first >= 0 else end for job, end in zip(state, ends, strict=True)),
        end_us=ends,
        executed_us=tuple(job.executed for job in state),
        overhead_us=tuple(job.overhead for job in state),
        lost_us=tuple(job.lost for job in state),
        is_done=tuple(job.is_done for job in state),
        allocated_gpu_us=allocated_gpu_us,
        overhead_gpu_us=overhead_gpu_us,
    )
