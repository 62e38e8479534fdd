"""Replay the log of a planning policy: single GPUs by name, widths, shared GPUs, slowdowns that change with the neighbours.

The slowdown of a job is the product of what its places, its GPUs' type, others beside it and its width make of it, rounded
up to parts per million ((D.4) of docs/mathematics/cluster.md); it changes once all events of an instant have happened, and
work is rounded down to a microsecond then.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from optim.core.verification import Violation, violation
from optim.models.cluster.check.event_rules import (
    CRASH,
    END,
    FAIL,
    FAULT,
    GIVE_UP,
    LEAVE,
    NOBODY,
    PPM,
    PREEMPT,
    REPAIR,
    START,
    BrokenEventError,
)
from optim.models.cluster.check.replay import Machines, Replayed
from optim.models.cluster.check.tries import Fate, fates
from optim.models.cluster.log import EventLog
from optim.models.cluster.rules import Rules
from optim.models.cluster.workload import Workload
from optim.models.cluster.world import Cluster

WHOLE = 1_000


@dataclass(slots=True)
class _Job:
    """One job while the log is read; `places` are pairs (machine, GPU of it)."""

    submit: int
    gang: int
    duration: int
    range: tuple[int, int]
    fate: Fate
    first: int = -1
    started: int = -1
    over: int = -1
    is_done: bool = False
    places: frozenset[tuple[int, int]] = frozenset()
    last: frozenset[tuple[int, int]] = frozenset()
    pause: int = 0
    slowdown: int = 0
    work: int = 0
    saved: int = 0
    lost: int = 0
    since: int = 0
    executed: int = 0
    overhead: int = 0

    def did(self, time: int) -> tuple[int, int]:
        """Return run time and work since the slowdown last changed."""
        run = max(0, time - max(self.since, self.started + self.pause))
        return run, (run * PPM // self.slowdown if run else 0)

    def book(self, time: int) -> None:
        """Count what it did, rounded down."""
        run, work = self.did(time)
        self.executed, self.work, self.since = self.executed + run, self.work + work, time
        self.fate.spent += run


class _Tenants:
    """Who is on the GPUs, each a pair (machine, GPU of it)."""

    def __init__(self, jobs: Workload, cluster: Cluster, rules: Rules) -> None:
        self.jobs, self.cluster, self.rules = jobs, cluster, rules
        ranges = zip(jobs.least_gpus.tolist(), jobs.most_gpus.tolist(), strict=True)
        columns = (jobs.submit_us.tolist(), jobs.gpus.tolist(), jobs.duration_us.tolist())
        self.state = [
            _Job(submit, gang, duration, limits if rules.is_elastic else (gang, gang), fate)
            for submit, gang, duration, limits, fate in zip(*columns, ranges, fates(jobs, rules), strict=True)
        ]
        self.on: list[list[list[int]]] = [[[] for _ in range(gpus)] for gpus in cluster.gpus.tolist()]
        self.share = jobs.share_milli.tolist() if rules.is_shared else [WHOLE] * len(jobs)
        self.busy = jobs.busy_milli.tolist()
        self.dirty: set[int] = set()
        self.machines = Machines(len(self.on), rules.checkpoint_us)
        self.load = self.gpu_time = self.paused_gpu_time = 0

    def change(self, job: int, places: frozenset[tuple[int, int]], enters: bool) -> None:
        """Let a job onto places, or off them."""
        for machine, gpu in places:
            tenants = self.on[machine][gpu]
            before = min(WHOLE, sum(self.share[j] for j in tenants))
            tenants.append(job) if enters else tenants.remove(job)
            self.load += min(WHOLE, sum(self.share[j] for j in tenants)) - before
            self.dirty.add(machine)

    def check(self, job: int, places: frozenset[tuple[int, int]]) -> None:
        """Check that a job that was let on may be there."""
        rules, jobs, cluster = self.rules, self.jobs, self.cluster
        for machine, gpu in places:
            tenants = self.on[machine][gpu]
            if rules.is_shared and sum(self.share[j] for j in tenants) > WHOLE:
                raise BrokenEventError(f"takes more of GPU {gpu} of machine {machine} than is left")
            if not rules.is_shared and len(tenants) > rules.jobs_a_gpu:
                raise BrokenEventError(f"takes GPU {gpu} of machine {machine}, which isn't free")
            if jobs.kind_ppm.shape[1] and jobs.kind_ppm[job, cluster.kind[machine]] == 0:
                raise BrokenEventError("takes a GPU of a type on which it can't run")
        for machine in {machine for machine, _ in places}:
            here = [j for tenants in self.on[machine] for j in tenants]
            cpu, memory = (sum(asks[here].tolist()) for asks in (jobs.cpu_milli, jobs.memory_mib))
            if cpu > round(cluster.cpus[machine] * 1000) or memory > round(cluster.memory_gb[machine] * 1024):
                raise BrokenEventError(f"asks for more vCPU or memory than machine {machine} has left")

    def slowdown(self, job: int) -> int:
        """Return a running job's slowdown, from who is beside it now."""
        places, jobs, rules = self.state[job].places, self.jobs, self.rules
        machines = {machine for machine, _ in places}
        racks = {int(self.cluster.rack[machine]) for machine in machines}
        level = 0 if len(machines) == 1 else 1 if len(racks) == 1 else 2
        factor = Fraction(int(jobs.slowdown_ppm[job, level]) * self.state[job].gang, len(places))
        if jobs.kind_ppm.shape[1]:
            factor *= Fraction(max(int(jobs.kind_ppm[job, self.cluster.kind[m]]) for m in machines), PPM)
        if rules.jobs_a_gpu > 1:
            factor *= max(Fraction(1), *(Fraction(sum(self.busy[j] for j in self.on[m][g]), WHOLE) for m, g in places))
        if rules.neighbour_ppm > PPM and len(places) > 1:
            others = {j for m in machines for tenants in self.on[m] for j in tenants} - {job}
            if any(len(self.state[j].places) > 1 for j in others):
                factor *= Fraction(rules.neighbour_ppm, PPM)
        return ceil(factor)

    def settle(self, now: int) -> None:
        """Let slowdowns change once all of an instant has happened."""
        for job in {j for machine in self.dirty for tenants in self.on[machine] for j in tenants}:
            one, slowdown = self.state[job], self.slowdown(job)
            if slowdown != one.slowdown:
                one.book(now)
                one.slowdown = slowdown
        self.dirty.clear()

    def start(self, job: int, time: int, places: frozenset[tuple[int, int]]) -> None:
        """Let a job take its GPUs."""
        one = self.state[job]
        if time < one.submit:
            raise BrokenEventError("starts a job before its submission")
        if one.started >= 0 or one.over >= 0:
            raise BrokenEventError("starts a job that runs or is over")
        one.fate.start(time)
        for machine, gpu in places:
            if not (0 <= machine < len(self.on) and 0 <= gpu < len(self.on[machine])):
                raise BrokenEventError(f"takes GPU {gpu} of machine {machine}, which isn't there")
        if not one.range[0] <= len(places) <= one.range[1]:
            raise BrokenEventError(f"gives {len(places)} GPUs to a gang of {one.gang}")
        if any(self.machines.down[machine] for machine, _ in places):
            raise BrokenEventError("takes a GPU of a machine that is down")
        self.change(job, places, enters=True)
        self.check(job, places)
        again = self.rules.restart_us if places == one.last else self.rules.move_us
        one.places, one.started, one.since, one.slowdown = places, time, time, 0
        one.pause = again if one.first >= 0 else 0
        one.first = time if one.first < 0 else one.first

    def stop(self, job: int, time: int, kind: int) -> None:
        """Let a job leave its GPUs."""
        one = self.state[job]
        if kind == LEAVE and not self.rules.may_refuse:
            raise BrokenEventError("sends a job away, which the policy may not")
        if one.over >= 0 or time < one.submit:
            raise BrokenEventError("stops a job that isn't there")
        if kind != LEAVE and one.started < 0:
            raise BrokenEventError("stops a job that doesn't run")
        if one.started >= 0:
            run, work = one.did(time)
            if kind == END and one.work + work < one.duration:
                raise BrokenEventError(f"ends a job after {one.work + work} of its {one.duration} microseconds of work")
            if kind == END and run and one.work + (run - 1) * PPM // one.slowdown >= one.duration:
                raise BrokenEventError("ends a job later than its work was done")
            if kind != END and not one.fate.left and one.work + work >= one.duration:
                raise BrokenEventError("stops a job whose work is done")
            one.fate.check(run, kind)
            one.book(time)
            paused = min(time - one.started, one.pause)
            one.overhead += paused
            self.paused_gpu_time += paused * len(one.places) * self.share[job]
            self.change(job, one.places, enters=False)
            one.last, one.places, one.started = one.places, frozenset(), -1
        if kind in (FAULT, GIVE_UP):
            one.lost += one.work - one.fate.base
            one.fate.fail(time)
            one.work = one.fate.base
        if kind in (CRASH, PREEMPT):
            kept = self.machines.kept(kind, one.saved, one.work, self.rules)
            one.lost, one.work = one.lost + one.work - kept, kept
        one.saved = one.work
        one.over = -1 if kind in (PREEMPT, CRASH, FAULT) else time
        one.is_done = kind == END

    def play(self, kind: int, job: int, time: int, taken: list[tuple[int, int]]) -> None:
        """Apply an event."""
        if kind in (FAIL, REPAIR):
            tenants = self.on[taken[0][0]] if 0 <= taken[0][0] < len(self.on) else []
            self.machines.change(kind, time, taken, {j for on in tenants for j in on})
        elif kind == START:
            self.start(job, time, frozenset(taken))
        else:
            self.stop(job, time, kind)


def replay_plan(
    jobs: Workload, cluster: Cluster, log: EventLog, rules: Rules
) -> tuple[Replayed | None, list[Violation]]:
    """Go through a log and return what it says, or the first event that breaks a rule."""
    tenants, now = _Tenants(jobs, cluster, rules), 0
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
        return None, [violation("log", "runs on when the log ends", where=f"job {min(still)}")]
    return _summary(tenants, now), []


def _check_form(taken: list[tuple[int, int]], ones: list[int], what: tuple[int, int, int], is_early: bool) -> None:
    kind, job, num_jobs = what
    is_machine = kind in (FAIL, REPAIR)
    if not (job == NOBODY if is_machine else 0 <= job < num_jobs):
        raise BrokenEventError("names a job that isn't there")
    if is_early:
        raise BrokenEventError("comes before the event ahead of it")
    if is_machine and len(taken) == 1 and taken[0][1] == 0 and ones == [0]:
        return
    if kind not in (START, PREEMPT, END, LEAVE, CRASH, FAULT, GIVE_UP) or bool(taken) != (kind == START):
        raise BrokenEventError(f"is no event: kind {kind}, {len(taken)} places")
    if len(set(taken)) < len(taken) or any(one != 1 for one in ones):
        raise BrokenEventError("names a GPU twice, or several as one")


def _summary(tenants: _Tenants, now: int) -> Replayed:
    for one in tenants.state:  # whoever is not over waits till the end of the log
        one.over = one.over if one.over >= 0 else max(now, one.submit)
    return Replayed(
        first_start_us=tuple(one.first if one.first >= 0 else one.over for one in tenants.state),
        end_us=tuple(one.over for one in tenants.state),
        executed_us=tuple(one.executed for one in tenants.state),
        overhead_us=tuple(one.overhead for one in tenants.state),
        lost_us=tuple(one.lost for one in tenants.state),
        is_done=tuple(one.is_done for one in tenants.state),
        held_gpu_us=tenants.gpu_time / WHOLE,
        overhead_gpu_us=tenants.paused_gpu_time / WHOLE,
    )
